"""`manage.py verify_receipt FILE [--key PUBLIC]`: whether a receipt is what was signed. Needs no database."""

import json
import sys
from pathlib import Path

from django.core.management.base import BaseCommand

from governance import signing
from governance.domain import receipts
from governance.errors import LetheError


class Command(BaseCommand):
    help = "Check a receipt's signature and sums. Exits with 0 only when both hold."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("file", help="The receipt, as it was downloaded; - reads it from standard input.")
        parser.add_argument(
            "--key", help="The public key in base64, or a file with it. Left out, this installation's own key is used."
        )

    def handle(self, *, file, key, **options):
        try:
            document = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._stop([f"{file} cannot be read as JSON: {error}"])
        try:
            public = signing.read_public_key(_text(key)) if key else signing.public_key()
        except LetheError as error:
            self._stop([error.detail])
        if found := receipts.problems(document, key=public):
            self._stop(found)
        self.stdout.write(
            f"{document['request_ref']}, version {document['version']}: the signature of {signing.key_id(public)} holds"
            " and the counts add up."
        )

    def _stop(self, sentences: list[str]):
        for sentence in sentences:
            self.stderr.write(sentence)
        sys.exit(1)


def _text(key: str) -> str:
    try:
        path = Path(key)
        return path.read_text() if path.is_file() else key
    except (OSError, ValueError):
        return key
