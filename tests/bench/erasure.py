"""Previewing and erasing one large subject: rows a second, memory, the longest transaction, and what others notice.

LETHE_BENCH_ERASE_ROWS sets the rows of the subject, 1,000,000 for the full measurement: 2,000 sessions with 200,000
messages, as many vectors, and the runs, events and model calls of their turns. Beside it, a neighbour of the same tenant with
a fifth as many rows goes by one plain statement for each table: what the database itself takes for that.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from django.db import connection
from django.db.models import Sum

from governance.actors import system
from governance.domain import erasure, previews, registry, requests, subjects, tenants
from governance.models import AuditEvent, ErasureStep
from tests.bench import past
from tests.bench.export import Memory
from tests.bench.figures import bar, percentile, table
from tests.factories import sessions as talk

# Everything that `past` makes, leaf first, as one statement for each table.
_PLAIN = (
    "DELETE FROM bench_embedding WHERE tenant_id = %s AND subject_id = %s",
    "DELETE FROM agent_sessions_runevent WHERE tenant_id = %s AND subject_id = %s",
    "DELETE FROM agent_sessions_item WHERE tenant_id = %s AND subject_id = %s",
    "UPDATE agent_sessions_modelcall SET subject_id = NULL, context = '[]' WHERE tenant_id = %s AND subject_id = %s",
    "UPDATE agent_sessions_run SET subject_id = NULL, session_id = NULL, metadata = '{}', started_by = '', actor_ref = ''"
    " WHERE tenant_id = %s AND subject_id = %s",
    "DELETE FROM agent_sessions_session WHERE tenant_id = %s AND subject_id = %s",
)


def run() -> int:
    rows = int(os.environ.get("LETHE_BENCH_ERASE_ROWS", "100000"))
    registry.register(past.EMBEDDINGS)
    try:
        return _measure(rows)
    finally:
        registry.unregister(past.EMBEDDINGS.key)


def _measure(rows) -> int:
    tenant, neighbours = (tenants.create_tenant(slug=slug, name=slug) for slug in ("erasing", "next-door"))
    by, agent = system(tenant.id), talk.agent(tenant)
    subject, other = (subjects.resolve(tenant_id=tenant.id, value=value) for value in ("heavy", "plain"))
    started = time.perf_counter()
    plain_rows = past.fill(past.Person(agent, other), rows=rows // 5)
    made = past.fill(past.Person(agent, subject), rows=rows)
    print(f"  {made + plain_rows:,} rows made in {time.perf_counter() - started:.1f} s")
    with Writer(neighbours) as writer:
        quiet = writer.during(5)
        with Memory() as memory:
            started = time.perf_counter()
            shown, token = previews.preview(subject=subject, by=by)
            previewed = time.perf_counter() - started
            request = requests.erase(subject=subject, token=token, confirm="heavy", reason="other", by=by)
            batches = Batches()
            began, written, started = cpu_seconds(), wal_bytes(), time.perf_counter()
            with batches:
                request = erasure.work(request_id=request.id)
            took, busy_for, written = time.perf_counter() - started, cpu_seconds() - began, wal_bytes() - written
        busy = writer.since(took)
    plain = _plainly(other)
    counted = sum(entry["rows"] for entry in shown.preview["categories"])
    done = sum(entry["erased"] + entry["anonymised"] for entry in request.receipt["categories"]) if request.receipt else 0
    table(
        ["rows", "preview s", "erase s", "CPU s", "WAL MB", "rows/s", "steps", "longest s", "RSS growth MB"],
        [[counted, previewed, took, busy_for, written // 2**20, done / took, ErasureStep.objects.filter(request=request).count(), max(batches.times), memory.peak - memory.before]],
    )  # fmt: skip
    table(["state", "s"], _states(request))
    table(["category", "s in batches", "rows/s"], batches.by_category(request))
    table(["rows/s", ""], [["erased", done / took], ["batches alone", done / sum(batches.times)], ["plain SQL", plain_rows / plain]])
    table(["others' writes", "p50 ms", "p95 ms"], [["before", *quiet], ["during", *busy]])
    missed = bar("rows that were shown and not erased", counted - done, 0)
    missed += bar("seconds for 20,000 rows", 20_000 * took / counted, 1, " s")
    missed += bar("growth of memory", memory.peak - memory.before, 100, " MB")
    missed += bar("destructive transaction, p99", percentile(batches.times, 0.99), 0.5, " s")
    missed += bar("others' p95 against before", busy[1] / quiet[1], 1.2, "x")
    return missed + bar("preview", previewed, max(2.0, min(2 * counted / 100_000, 15)), " s")


def _plainly(subject) -> float:
    """Seconds for the same on another subject, with the guards and without anything else that an erasure does."""
    started = time.perf_counter()
    with connection.cursor() as cursor:
        for statement in _PLAIN:
            cursor.execute(statement, [subject.tenant_id, subject.id])
    return time.perf_counter() - started


def _states(request) -> list[list]:
    """How long the request was in each state, by its audit trail."""
    moves = AuditEvent.objects.filter(tenant_id=request.tenant_id, action__startswith="request.", object_ref=request.id.hex)
    times = list(moves.order_by("seq").values_list("action", "at"))
    return [[name.removeprefix("request."), (then - at).total_seconds()] for (name, at), (_, then) in zip(times, times[1:], strict=False)]


def cpu_seconds() -> float:
    """What this process and the database's process of its connection have computed so far: the same on a busy machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        fields = Path(f"/proc/{cursor.fetchone()[0]}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wal_bytes() -> int:
    """What the server has written ahead so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return cursor.fetchone()[0]


class Batches:
    """How long each batch of an erasure took, begin to commit."""

    def __enter__(self):
        self.times, self.seconds, self._whole = [], {}, erasure._erase_batch

        def timed(lease, request, scope, category, chunks):
            started = time.perf_counter()
            done = self._whole(lease, request, scope, category, chunks)
            self.times.append(time.perf_counter() - started)
            self.seconds[category.key] = self.seconds.get(category.key, 0) + self.times[-1]
            return done

        erasure._erase_batch = timed
        return self

    def __exit__(self, *error):
        erasure._erase_batch = self._whole

    def by_category(self, request) -> list[list]:
        rows = dict(ErasureStep.objects.filter(request=request).values_list("category").annotate(Sum("rows")))
        return [[key, seconds, rows[key] / seconds] for key, seconds in self.seconds.items()]


class Writer:
    """Another tenant that stores an item every few milliseconds, in a transaction as a run does, timed. In a process of its own,
    as workers are.
    """

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
from django.db import transaction
from sessions.models import Session
from tests.factories import sessions as talk
session = Session.objects.get(pk=sys.argv[1])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    started = time.monotonic()
    with transaction.atomic():
        talk.item(session)
    print(started, (time.monotonic() - started) * 1000, flush=True)
"""
