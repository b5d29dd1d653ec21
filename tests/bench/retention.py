"""A backlog of old conversations drains in four time zones: rows a second, the longest batch, what others notice of it.

Four tenants, each in a zone of its own, have the same policy and a quarter of the rows. One schedule makes their runs, and two
workers race for all of them while new rows come in. LETHE_BENCH_RETENTION_ROWS sets the size, 1,000,000 for the full
measurement.
"""

import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta

from django.db import connection, connections
from django.db.models import F, Max, Min

from governance.actors import system
from governance.domain import registry, retention, subjects, tenants
from governance.models import AuditEvent, RetentionPolicy, RetentionRun
from sessions.models import Item, ModelCall, Run, RunEvent, Session
from tests.bench import past
from tests.bench.figures import bar, percentile, table
from tests.factories import sessions as talk

ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia")
ROWS = int(os.environ.get("LETHE_BENCH_RETENTION_ROWS", "50000"))
WORKERS, INGEST = 2, 2000
_COUNTED = {"sessions": Session, "items": Item, "runs": Run, "run_events": RunEvent, "model_calls": ModelCall}


def run() -> int:
    registry.register(past.EMBEDDINGS)
    try:
        return _measure()
    finally:
        registry.unregister(past.EMBEDDINGS.key)


def _measure() -> int:
    backlogs = [_backlog(zone) for zone in ZONES]
    made = sum(rows for _tenant, rows in backlogs)
    neighbour = talk.agent(tenants.create_tenant(slug="beside", name="Beside"))
    fresh = talk.session(neighbour, subjects.resolve(tenant_id=neighbour.tenant_id, value="new"))
    before = _counts(backlogs)
    retention.schedule_due()
    again = retention.schedule_due()
    runs = RetentionRun.objects.filter(started_by="schedule")
    cutoffs = set(runs.values_list("cutoff", flat=True))
    with Watcher(fresh, _read) as reader, Watcher(fresh, _ingest, every=0.1) as writer:
        batches = _drain([str(key) for key in runs.values_list("id", flat=True)])
    span = runs.aggregate(began=Min("started_at"), ended=Max("ended_at"))
    took = (span["ended"] - span["began"]).total_seconds()
    ingested = INGEST // 10 * len(writer.times) / writer.lasted
    after = _counts(backlogs)
    gone = {key: before[key] - after[key] for key in before}
    told = {key: sum(done.counts["by_category"].get(key, 0) for done in runs) for key in before}
    rate = sum(done.counts["rows"] for done in runs) / took
    completed = AuditEvent.objects.filter(action="retention_run.completed", tenant_id__in=[tenant.id for tenant, _ in backlogs])
    table(
        ["zones", "rows", "gone", "s", "rows/s", "batches", "longest batch s", "p99 batch s", "new rows/s", "read max ms", "write max ms"],
        [[len(ZONES), made, sum(gone.values()), took, rate, len(batches), max(batches), percentile(batches, 0.99), ingested,
          max(reader.times) * 1000, max(writer.times) * 1000]],
    )  # fmt: skip
    return (
        bar("rows left of the backlog", sum(after.values()), 0)
        + bar("different cut-offs of the four zones", len(cutoffs), 1)
        + bar("runs of one schedule, asked twice", runs.count() + again, len(ZONES))
        + bar("runs that ended, as the trail tells", completed.count(), len(ZONES))
        + bar("categories whose rows were not counted exactly once", sum(told[key] != gone[key] for key in gone), 0)
        + bar("rate of deletion against the rows that came in", rate / ingested, 5, "x", at_least=True)
        + bar("longest batch", max(batches), 0.5, " s")
        + bar("longest read beside it", max(reader.times) * 1000, 200, " ms")
    )


def _backlog(zone):
    """A tenant of the zone with conversations of a year, the newest over for ten days longer than its policy keeps them."""
    slug = zone.lower().replace("/", "-").replace("_", "-")
    tenant = tenants.create_tenant(slug=slug, name=zone)
    type(tenant).objects.filter(pk=tenant.pk).update(timezone=zone)
    subject = subjects.resolve(tenant_id=tenant.id, value="anna")
    rows = past.fill(past.Person(talk.agent(tenant), subject), rows=ROWS // len(ZONES), days_ago=40, ended=True)
    policy = retention.create_policy(tenant_id=tenant.id, category="sessions", age_basis="ended", days=30, by=system(tenant.id))
    # Past its trial, agreed to, and due today.
    RetentionPolicy.objects.filter(pk=policy.pk).update(
        dry_run_until=None, approved_version=1, created_at=F("created_at") - timedelta(days=2)
    )
    return tenant, rows


def _counts(backlogs) -> dict[str, int]:
    """Rows of the backlogs' tenants, by category."""
    owners = [tenant.id for tenant, _rows in backlogs]
    counts = {key: model.objects.filter(tenant_id__in=owners).count() for key, model in _COUNTED.items()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM bench_embedding WHERE tenant_id = ANY(%s)", [owners])
        return {**counts, "embeddings": cursor.fetchone()[0]}


def _drain(ids: list[str]) -> list[float]:
    """Have two workers race for the runs until none is left. Returns how long each batch held its locks, in s."""
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER, *ids], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.stdout.readline()
    for worker in workers:
        worker.stdin.close()
    return [took for worker in workers for took in json.loads(worker.stdout.read())]


_WORKER = """
import json, sys, time
import django
django.setup()
from governance.domain import registry, retention_runs
from tests.bench import past
registry.register(past.EMBEDDINGS)
times, inner = [], retention_runs._batch
def timed(*arguments):
    started = time.perf_counter()
    try:
        return inner(*arguments)
    finally:
        times.append(time.perf_counter() - started)
retention_runs._batch = timed
print("ready", flush=True)
sys.stdin.read()
left = set(sys.argv[1:])
while left:
    for run in sorted(left):
        retention_runs.work(run_id=run)
    rows = retention_runs.RetentionRun.objects.filter(id__in=left, ended_at=None)
    left = {str(key) for key in rows.values_list("id", flat=True)}
    time.sleep(0.05)
print(json.dumps(times))
"""


def _read(session):
    list(Session.objects.filter(tenant_id=session.tenant_id).order_by("-last_active_at")[:50].values_list("id"))


def _ingest(session):
    """A tenth of a second's new rows, in one statement."""
    some = INGEST // 10
    session.head_seq += some
    with connection.cursor() as cursor:
        cursor.execute(_NEW, [session.id, session.tenant_id, session.subject_id, session.head_seq - some + 1, session.head_seq])


_NEW = """
INSERT INTO agent_sessions_item (session_id, seq, tenant_id, subject_id, kind, role, turn, "group", tokens, content, is_hidden)
SELECT %s, n, %s, %s, 'message', 'user', n, n, 5, jsonb_build_object('text', 'Said as number ' || n || ' of many.'), false
FROM generate_series(%s, %s) AS n
"""


class Watcher:
    """Does the same small thing over and over, and keeps how long each took."""

    def __init__(self, session, act, every=0.02):
        self.session, self.act, self.every, self.times, self._stop = session, act, every, [], threading.Event()

    def __enter__(self):
        self._thread, self._began = threading.Thread(target=self._loop), time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()
        self.lasted = time.perf_counter() - self._began

    def _loop(self):
        while not self._stop.is_set():
            started = time.perf_counter()
            self.act(self.session)
            took = time.perf_counter() - started
            self.times.append(took)
            self._stop.wait(max(0, self.every - took))
        connections.close_all()
