"""`manage.py governance_replay`: after a restore, erase again what the ledger says was erased, and serve again."""

import getpass
import re

from django.core.management import BaseCommand, CommandError

from governance.domain import ledger, quarantine, replay
from governance.errors import LetheError


class Command(BaseCommand):
    help = "Bring a restored database up to the ledger of erasures and holds. Interrupted, it goes on where it was."

    def add_arguments(self, parser):
        parser.add_argument("--check", action="store_true", help="only say where database and ledger stand; ends with 1 in quarantine")
        parser.add_argument("--break-glass", metavar="REASON", help="leave quarantine without a replay; REASON is a code such as ledger-lost")

    def handle(self, *, check, break_glass, **options):
        try:
            if check:
                self._check()
            elif break_glass:
                self._break_glass(break_glass)
            else:
                self._replay()
        except LetheError as error:
            raise CommandError(error.detail) from None

    def _check(self):
        reason = quarantine.check()
        position = ledger.position()
        self.stdout.write(f"database {position.local}, ledger {position.external}: {position.verdict}")
        if reason is not None:
            raise CommandError(quarantine.sentence(reason))

    def _replay(self):
        report = replay.replay(who=_who(), told=self.stdout.write)
        more = "".join(f", {count} {kind}" for kind, count in sorted(report.others.items()))
        self.stdout.write(
            f"Entries {report.first} to {report.last}: {report.erased_again} erased again, {report.nothing_left} had nothing left{more}."
        )
        for ref in report.receipts:
            self.stdout.write(f"receipt {ref}")

    def _break_glass(self, reason):
        if not re.fullmatch(r"[\w.\-]{3,64}", reason):
            raise CommandError("Give the reason as a code, such as ledger-lost.")
        position = quarantine.break_glass(reason=reason, who=_who())
        self.stdout.write(
            f"Left quarantine ({position.verdict}) without a replay. Erased people may be in this database again; every tenant's trail says so."
        )


def _who() -> str:
    try:
        return getpass.getuser()[:64]
    except (KeyError, OSError):
        return "manage.py"
