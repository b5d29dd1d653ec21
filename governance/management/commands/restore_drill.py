"""`manage.py restore_drill`: show that a restored backup starts in quarantine and brings nobody back."""

import json
import tempfile
from pathlib import Path

from django.conf import settings
from django.core.management import BaseCommand, CommandError

from governance import database_roles
from governance.domain import clock, drill, replay
from governance.errors import LetheError


class Command(BaseCommand):
    help = (
        "Dump the database, erase people in a copy of it, restore the dump into another copy, replay the ledger there, verify, and"
        " write signed evidence. The data itself is only read. Ends with 1 when a check does not hold."
    )

    def add_arguments(self, parser):
        parser.add_argument("words", nargs="*", help="for the drill itself")
        parser.add_argument("--stage", choices=("plant", "erase", "look", "replay"), help="for the drill itself: one stage on a scratch database")
        parser.add_argument("--people", type=int, default=3, help="how many people of the copy are erased, beside one made for the drill")
        parser.add_argument("--to", type=Path, help="the evidence file; by default in `drills` of the data directory")

    def handle(self, *, words, stage, people, to, **options):
        try:
            if stage:
                self.stdout.write(json.dumps(self._stage(stage, words)))
                return
            # As the owner, who may make scratch databases; the stages run as web, worker and beat do.
            with database_roles.as_owner():
                evidence = self._drill(people)
        except LetheError as error:
            raise CommandError(error.detail) from None
        to = to or Path(settings.DATA_DIR) / "drills" / f"drill-{clock.now():%Y%m%dT%H%M%SZ}.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(evidence, indent=2) + "\n")
        for name, held in evidence["checks"].items():
            self.stdout.write(f"{'yes' if held else 'NO '} {name.replace('_', ' ')}")
        self.stdout.write(f"{evidence['rows_restored']} rows of {evidence['people']} people came back and were erased again. Evidence: {to}")
        if not evidence["succeeded"]:
            raise CommandError("The drill failed. The evidence says which check did not hold.")

    def _drill(self, people):
        # Beside the data: a dump is as large and as personal as the database, and stays no longer than the drill.
        with tempfile.TemporaryDirectory(prefix="drill-", dir=self._room()) as folder:
            return drill.Drill(Path(folder), self.stdout.write).run(people=people)

    def _room(self):
        room = Path(settings.DATA_DIR) / "drills"
        room.mkdir(parents=True, exist_ok=True)
        return room

    def _stage(self, stage, words):
        if stage == "plant":
            return drill.plant(people=int(words[0]))
        if stage == "erase":
            return drill.erase(subject_ids=words)
        if stage == "look":
            return drill.look(subject_ids=words)
        report = replay.replay(who="restore_drill", told=self.stderr.write)
        return {"erased_again": report.erased_again, "receipts": report.receipts}
