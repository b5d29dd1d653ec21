"""A backlog of old conversations drains: rows a second, the longest batch, and what a reader and a writer notice of it.

`LETHE_BENCH_RETENTION_ROWS` sets the size; 50,000 rows by default.
"""

import os
import threading
import time
from datetime import timedelta

from django.db import connection, connections
from django.db.models import F

from agents.domain.demo import seed_demo_agents
from agents.queries import agent_named
from governance.actors import system
from governance.domain import retention, retention_runs, subjects, tenants
from governance.models import RetentionPolicy, RetentionRun
from sessions.models import Item, Session
from tests.bench.figures import bar, percentile, table

ROWS = int(os.environ.get("LETHE_BENCH_RETENTION_ROWS", "50000"))
ITEMS = 24
INGEST = 2000
_FILL = """
INSERT INTO agent_sessions_item (session_id, seq, tenant_id, subject_id, kind, role, turn, "group", tokens, content, is_hidden)
SELECT s.id, n, s.tenant_id, s.subject_id, 'message', 'user', n, n, 5, '{"text": "What was said, a sentence or two of it."}', false
FROM agent_sessions_session s CROSS JOIN generate_series(1, %s) AS n WHERE s.tenant_id = %s
"""


def run() -> int:
    tenant = tenants.create_tenant(slug="backlog", name="Backlog")
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    subject = subjects.resolve(tenant_id=tenant.id, value="anna")
    agent = agent_named(tenant_id=tenant.id, name="research")
    rows = _fill(tenant, agent, subject)
    policy = retention.create_policy(tenant_id=tenant.id, category="sessions", age_basis="ended", days=30, by=by)
    RetentionPolicy.objects.filter(pk=policy.pk).update(dry_run_until=None, approved_version=1)
    fresh = Session.objects.create(tenant=tenant, agent=agent, subject=subject, key="fresh")
    with Batches() as batches, Watcher(fresh, _read) as reader, Watcher(fresh, _write) as writer:
        started = time.perf_counter()
        made = retention.run_policy(policy=policy, expected_version=1, by=by)
        done = retention_runs.work(run_id=made.id)
        while done is not None and done.state == RetentionRun.State.RUNNING:
            done = retention_runs.work(run_id=made.id)
        took = time.perf_counter() - started
    left = Session.objects.filter(tenant=tenant).count() - 1
    rate = done.counts["rows"] / took
    table(
        ["rows", "taken", "seconds", "rows/s", "batches", "longest batch s", "p99 batch s", "read max ms", "write max ms"],
        [[rows, done.counts["rows"], took, rate, len(batches.times), max(batches.times), percentile(batches.times, 0.99),
          max(reader.times) * 1000, max(writer.times) * 1000]],
    )  # fmt: skip
    return (
        bar("sessions left of the backlog", left, 0)
        + bar("ingest of 2,000 rows/s against the rate of deletion, at least five times", INGEST * 5 / rate, 1, "x")
        + bar("longest batch", max(batches.times), 0.5, " s")
        + bar("longest read beside it", max(reader.times) * 1000, 200, " ms")
    )


def _fill(tenant, agent, subject) -> int:
    number = max(1, ROWS // (ITEMS + 1))
    for start in range(0, number, 5000):
        Session.objects.bulk_create(
            Session(tenant=tenant, agent=agent, subject=subject, key=f"old-{index}")
            for index in range(start, min(start + 5000, number))
        )
    Session.objects.filter(tenant=tenant).update(ended_at=F("created_at") - timedelta(days=40), status="closed")
    with connection.cursor() as cursor:
        cursor.execute(_FILL, [ITEMS, tenant.id])
        cursor.execute("ANALYZE agent_sessions_session, agent_sessions_item")
    return number * (ITEMS + 1)


def _read(session):
    list(Session.objects.filter(tenant_id=session.tenant_id).order_by("-last_active_at")[:50].values_list("id"))


def _write(session):
    session.head_seq += 1
    Item.objects.create(
        session=session, seq=session.head_seq, tenant_id=session.tenant_id, subject_id=session.subject_id, kind="message",
        role="user", turn=1, group=1, content={"text": "New."},
    )  # fmt: skip


class Watcher:
    """Does the same small thing over and over, and keeps how long each took."""

    def __init__(self, session, act):
        self.session, self.act, self.times, self._stop = session, act, [], threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()

    def _loop(self):
        while not self._stop.is_set():
            started = time.perf_counter()
            self.act(self.session)
            self.times.append(time.perf_counter() - started)
            self._stop.wait(0.02)
        connections.close_all()


class Batches:
    """How long each batch held its locks."""

    def __enter__(self):
        self.times, self._inner = [], retention_runs._batch
        retention_runs._batch = self._timed
        return self

    def __exit__(self, *error):
        retention_runs._batch = self._inner

    def _timed(self, *arguments):
        started = time.perf_counter()
        try:
            return self._inner(*arguments)
        finally:
            self.times.append(time.perf_counter() - started)
