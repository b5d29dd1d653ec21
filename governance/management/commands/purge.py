"""`manage.py purge`: remove the bytes of what was erased from tables and indexes, now instead of coalesced."""

from django.core.management import BaseCommand, CommandError

from governance.domain import purge


class Command(BaseCommand):
    help = "Remove the bytes of erased rows from the database's files, and tell the receipts. Ends with 1 when something has to wait."

    def handle(self, **options):
        done = purge.work(now=True)
        self.stdout.write(f"{done['tables']} tables cleaned, {done['requests']} requests purged, {done['horizons']} out of WAL.")
        if waiting := [job.table for job in purge.waiting()]:
            raise CommandError(f"Still waiting, because older transactions or somebody else's locks stand in the way: {', '.join(waiting)}.")
