"""An export of a large subject: how fast, how much memory, and whether the archive imports with the same counts.

LETHE_BENCH_EXPORT_MB sets the size of the attachments, 5,120 for the full measurement.
"""

import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path

from django.db import connection

from governance.actors import system
from governance.domain import exports, imports, keys, registry, requests, subjects, tenants
from governance.models import Export
from sessions.models import Blob, Item, ModelCall, Run
from tests.bench.figures import bar, table
from tests.factories import sessions as talk

MEGABYTE = 1024 * 1024
_FILE = 2 * MEGABYTE


def run() -> int:
    megabytes = int(os.environ.get("LETHE_BENCH_EXPORT_MB", "200"))
    tenant = tenants.create_tenant(slug="exporting", name="Exporting")
    by = system(tenant.id)
    subject = subjects.resolve(tenant_id=tenant.id, value="heavy")
    keys.create_key(tenant_id=tenant.id, name="heavy", scopes=["runs:read"], subject="heavy", by=by)
    _fill(tenant, subject, megabytes)
    request = requests.export(subject=subject, by=by)
    with Memory() as memory:
        started = time.perf_counter()
        request = exports.work(request_id=request.id)
        took = time.perf_counter() - started
    export = Export.objects.get(request=request)
    files = Blob.objects.filter(subject_id=subject.id).count()
    table(
        ["attachments MB", "files", "rows", "parts", "MB sealed", "s", "MiB/s", "RSS before MB", "RSS peak MB"],
        [[megabytes, files, sum(export.counts.values()), len(export.parts), export.size / MEGABYTE, took, megabytes / took, memory.before, memory.peak]],
    )  # fmt: skip
    missed = bar("growth of memory", memory.peak - memory.before, 100, " MB") + bar("memory", memory.peak, 200, " MB")
    missed += bar("seconds for 20 MiB", 20 * took / megabytes, 1, " s")
    return missed + _import(export, tenant, by)


def _import(export, tenant, by) -> int:
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for part in range(1, len(export.parts) + 1):
            paths.append(Path(folder) / f"{part}.zip")
            with exports.open_archive(export=export, part=part, by=by) as file, paths[-1].open("wb") as target:
                while data := file.read(MEGABYTE):
                    target.write(data)
        _forget(export)
        started = time.perf_counter()
        done = imports.import_export(paths=paths, tenant_id=tenant.id, by=by)
        print(f"  imported in {time.perf_counter() - started:.1f} s; cannot move: {', '.join(done.left)}")
    wrong = sum(done.found[key] != rows for key, rows in done.expected.items() if key not in done.left)
    return bar("categories that differ after the import", wrong, 0)


def _forget(export) -> None:
    """As in an empty installation."""
    scope = registry.Scope(export.tenant_id, export.subject_id)
    for category in registry.erase_order():
        if category.key != "exports":
            for chunk in list(category.plan(scope=scope)):
                category.erase(scope=scope, chunk=chunk)
    ModelCall.objects.all().delete()
    Run.objects.all().delete()


def _fill(tenant, subject, megabytes) -> None:
    agent = talk.agent(tenant)
    for _ in range(10):
        session = talk.conversation(agent, subject)
        talk.turns(session, 1000)
    made = 0
    while made < megabytes * MEGABYTE:
        data = os.urandom(_FILE // 2) + b"text that compresses well. " * (_FILE // 2 // 27)
        Blob.objects.create(
            tenant_id=tenant.id, subject_id=subject.id, session=session, data=data, size=len(data), media_type="text/plain",
            sha256=hashlib.sha256(data).hexdigest(), name=f"{made}.bin",
        )  # fmt: skip
        made += len(data)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    assert Item.objects.filter(subject_id=subject.id).count() > 20_000


class Memory:
    """Resident memory of this process in MB: before, and the peak while inside."""

    def __enter__(self):
        self.before = self.peak = _resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._done.set()
        self._thread.join()

    def _watch(self):
        while not self._done.wait(0.02):
            self.peak = max(self.peak, _resident())


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
