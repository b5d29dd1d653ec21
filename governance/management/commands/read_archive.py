"""`manage.py read_archive ID`: the rows that retention put into one file of the archive, as JSON lines."""

import json
import sys
from uuid import UUID

from django.core.management.base import BaseCommand

from governance.actors import system
from governance.domain import archiving, expiry
from governance.errors import LetheError
from governance.models import ArchivedPart


class Command(BaseCommand):
    help = "Print what is in a file of the archive, by the id in its name or its manifest. Audited before the first line."

    def add_arguments(self, parser):
        parser.add_argument("id", type=UUID, help="As in the file's name: ID.jsonl.sealed.")

    def handle(self, *, id, **options):
        part = ArchivedPart.objects.filter(pk=id).first()
        if part is None or expiry.is_over(part):
            self._stop("There is no such file, or its rows were erased or are past their time: then nobody can read it any more.")
        try:
            for line in archiving.open_part(part=part, by=system(part.tenant_id, "read_archive")):
                self.stdout.write(json.dumps(line, ensure_ascii=False))
        except LetheError as error:
            self._stop(error.detail)

    def _stop(self, message: str):
        self.stderr.write(message)
        sys.exit(1)
