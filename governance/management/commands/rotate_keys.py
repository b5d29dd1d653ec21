"""`manage.py rotate_keys`: encrypt everything under the present key, so that the old one can be thrown away, and content under
the keys of subjects where a tenant wants that."""

from django.conf import settings
from django.core.management import BaseCommand, CommandError

from governance import subject_keys
from governance.domain import rotation, shredding
from governance.errors import LetheError


class Command(BaseCommand):
    help = (
        "Set LETHE_ENCRYPTION_KEY to a new key and LETHE_OLD_ENCRYPTION_KEYS to the former one, restart, and run this. It may be"
        " interrupted and run again. Ends with 1 while something still needs an old key."
    )

    def handle(self, **options):
        if not settings.OLD_ENCRYPTION_KEYS and not subject_keys.is_configured():
            raise CommandError("There is no old key in LETHE_OLD_ENCRYPTION_KEYS, so nothing can be encrypted under one.")
        try:
            counts = rotation.rotate(told=self._tell)
            if subject_keys.is_configured():
                counts |= {f"content of {name}": count for name, count in shredding.bring_in_line(told=self._tell).items()}
        except LetheError as error:
            raise CommandError(error.detail) from None
        if refused := sum(count.refused for count in counts.values()):
            raise CommandError(
                f"{refused} values belong to people whose data is restricted or held and stay as they are. Keep the old key and run this again when that has ended."
            )
        self.stdout.write(
            "Everything in the database is under the present key. Archives of exports need the old one until they expire, and the"
            " ledger's sealed details and the hashes of erased identifiers for as long as you keep them."
        )

    def _tell(self, name, count):
        self.stdout.write(f"{name}: {count.rotated} encrypted again, {count.current} already were, {count.refused} refused")
