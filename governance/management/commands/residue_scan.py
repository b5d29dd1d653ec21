"""`manage.py residue_scan CANARY...`: is anything left of these texts, anywhere?"""

from django.core.management import BaseCommand, CommandError

from governance import database_roles, residue


class Command(BaseCommand):
    help = "Look for texts in every table and file, without the register of categories. Ends with 0 only when nothing is found."

    def add_arguments(self, parser):
        parser.add_argument("canaries", nargs="+", metavar="CANARY", help="a text that occurs nowhere else, of at least 6 characters")
        parser.add_argument("--level", type=int, choices=(1, 2, 3), default=3, help="1 tables and files, 2 also the database's files, 3 also WAL and backups (default)")
        parser.add_argument("--ignore", action="append", default=[], metavar="PLACE", help="a declared exception: leave out places that contain this")

    def handle(self, *, canaries, level, ignore, **options):
        if short := [text for text in canaries if len(text) < 6]:
            raise CommandError(f"{len(short)} of the texts are too short to be found only where they were planted.")
        try:
            # As the owner: some of the catalogue's tables are kept from others.
            with database_roles.as_owner():
                found = [hit for hit in residue.scan(canaries=canaries, level=level) if not any(part in hit.place for part in ignore)]
                unread = residue.unread()
        except ValueError as error:
            raise CommandError(str(error)) from None
        if unread:
            self.stderr.write(f"Not read, because the database keeps them from this role: {', '.join(unread)}.")
        for hit in found:
            self.stdout.write(f"level {hit.level}: {hit.number} in {hit.place}")
        if found:
            raise CommandError(f"Found in {len(found)} places.")
        self.stdout.write(f"Nothing found, up to level {level}.")
