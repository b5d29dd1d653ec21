"""Previewing and erasing one large subject: rows a second, memory, the longest transaction, and what others notice.

LETHE_BENCH_ERASE_ROWS sets the rows of the subject, 1,000,000 for the full measurement.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from django.db import connection

from governance.actors import system
from governance.domain import erasure, previews, requests, subjects, tenants
from governance.models import ErasureStep
from sessions.models import Item, Session
from tests.bench.export import Memory
from tests.bench.figures import bar, percentile, table
from tests.factories import sessions as talk

_PER_SESSION = 100


def run() -> int:
    rows = int(os.environ.get("LETHE_BENCH_ERASE_ROWS", "100000"))
    tenant, neighbours = (tenants.create_tenant(slug=slug, name=slug) for slug in ("erasing", "next-door"))
    by, agent, subject = system(tenant.id), talk.agent(tenant), subjects.resolve(tenant_id=tenant.id, value="heavy")
    _fill(agent, subject, rows)
    with Writer(neighbours) as writer:
        quiet = writer.during(5)
        with Memory() as memory:
            started = time.perf_counter()
            shown, token = previews.preview(subject=subject, by=by)
            previewed = time.perf_counter() - started
            request = requests.erase(subject=subject, token=token, confirm="heavy", reason="other", by=by)
            batches = Batches()
            began, started = cpu_seconds(), time.perf_counter()
            with batches:
                request = erasure.work(request_id=request.id)
            took, busy_for = time.perf_counter() - started, cpu_seconds() - began
        busy = writer.since(took)
    counted = sum(entry["rows"] for entry in shown.preview["categories"])
    done = sum(entry["erased"] + entry["anonymised"] for entry in request.receipt["categories"]) if request.receipt else 0
    table(
        ["rows", "preview s", "erase s", "CPU s", "rows/s", "steps", "longest s", "RSS growth MB"],
        [[counted, previewed, took, busy_for, done / took, ErasureStep.objects.filter(request=request).count(), max(batches.times), memory.peak - memory.before]],
    )  # fmt: skip
    table(["others' writes", "p50 ms", "p95 ms"], [["before", *quiet], ["during", *busy]])
    missed = bar("rows that were shown and not erased", counted - done, 0)
    missed += bar("seconds for 20,000 rows (D1)", 20_000 * took / counted, 1, " s")
    missed += bar("growth of memory (D5)", memory.peak - memory.before, 100, " MB")
    missed += bar("destructive transaction, p99 (D6)", percentile(batches.times, 0.99), 0.5, " s")
    missed += bar("others' p95 against before (D6)", busy[1] / quiet[1], 1.2, "x")
    return missed + bar("preview of 100,000 rows (D13)", 100_000 * previewed / counted, 2, " s")


def _fill(agent, subject, rows) -> None:
    for start in range(0, rows, 50 * _PER_SESSION):
        sessions = Session.objects.bulk_create(
            Session(tenant_id=agent.tenant_id, agent=agent, subject=subject, key=f"{start}-{number}", head_seq=_PER_SESSION)
            for number in range(50)
        )
        Item.objects.bulk_create(
            (
                Item(
                    session=session, seq=seq, tenant_id=agent.tenant_id, subject_id=subject.id, kind="message", role="user", turn=seq,
                    group=seq, tokens=20, content={"text": f"message {seq} with a few words, as people write them"},
                )
                for session in sessions
                for seq in range(1, _PER_SESSION + 1)
            ),
            batch_size=2000,
        )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def cpu_seconds() -> float:
    """What this process and the database's process of its connection have computed so far: the same on a busy machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        fields = Path(f"/proc/{cursor.fetchone()[0]}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Batches:
    """How long each batch of an erasure took, begin to commit."""

    def __enter__(self):
        self.times, self._whole = [], erasure._erase_batch

        def timed(*args, **kwargs):
            started = time.perf_counter()
            done = self._whole(*args, **kwargs)
            self.times.append(time.perf_counter() - started)
            return done

        erasure._erase_batch = timed
        return self

    def __exit__(self, *error):
        erasure._erase_batch = self._whole


class Writer:
    """Another tenant that writes an item every few milliseconds, timed. In a process of its own, as workers are."""

    def __init__(self, tenant):
        self._session = talk.session(talk.agent(tenant), subjects.resolve(tenant_id=tenant.id, value="somebody"))

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(self._session.id)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        self._process.stdout.readline()
        self._times = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._thread.join()
        self._process.wait()

    def during(self, seconds) -> tuple[float, float]:
        """Percentiles (50, 95) of the next seconds, in ms."""
        time.sleep(seconds)
        return self.since(seconds)

    def since(self, seconds) -> tuple[float, float]:
        began = time.monotonic() - seconds
        times = [took for at, took in list(self._times) if at >= began]
        return percentile(times, 0.5), percentile(times, 0.95)

    def _read(self):
        for line in self._process.stdout:
            at, took = line.split()
            self._times.append((float(at), float(took)))


_WRITER = """
import select, sys, time
import django
django.setup()
from sessions.models import Session
from tests.factories import sessions as talk
session = Session.objects.get(pk=sys.argv[1])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    started = time.monotonic()
    talk.item(session)
    print(started, (time.monotonic() - started) * 1000, flush=True)
"""
