"""`manage.py import_export FILE... --tenant demo`: read an archive back and say whether everything is there."""

import sys
from pathlib import Path

from django.core.management.base import BaseCommand

from governance.actors import system
from governance.domain import imports
from governance.errors import LetheError
from governance.models import Tenant


class Command(BaseCommand):
    help = "Import the archive of an export for a new subject, and compare its counts. Meant for an empty installation."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", type=Path, help="All volumes of the archive, as they were downloaded.")
        parser.add_argument("--tenant", default="demo", help="The tenant's short name.")

    def handle(self, *, files, tenant, **options):
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            self._stop(f"There is no tenant {tenant!r}.")
        try:
            done = imports.import_export(paths=files, tenant_id=owner.id, by=system(owner.id, "import_export"))
        except LetheError as error:
            self._stop(error.detail)
        for key, rows in done.expected.items():
            note = "stays where it was made" if key in done.left else "" if done.found[key] == rows else "DIFFERS"
            self.stdout.write(f"{key:24} {rows:>9} {done.found[key]:>9} {note}".rstrip())
        self.stdout.write(f"Subject {done.subject.display_ref}")
        self.stdout.write("Signed by this installation" if done.is_signed else "Signed by another installation")
        if not done.is_whole:
            self._stop("The counts differ.")

    def _stop(self, message: str):
        self.stderr.write(message)
        sys.exit(1)
