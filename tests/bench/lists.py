"""The first page of 100,000 sessions, the same list for a tenant with one, and with a retention policy that ended half of them."""

import time

from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.domain.demo import seed_demo_agents
from agents.queries import agent_named
from governance.actors import system
from governance.domain import tenants
from governance.domain.recent import OVER
from governance.models import Hold, RetentionPolicy, Subject
from sessions.models import Session
from sessions.queries import sessions_of
from tests.bench.figures import bar, median, table

SESSIONS = 100_000


def run() -> int:
    rows = []
    for slug, number in (("one", 1), ("many", SESSIONS)):
        tenant = tenants.create_tenant(slug=slug, name=slug)
        _fill(tenant, number)
        rows.append([f"{number:,}", *_measure(tenant)])
    _end_half(tenant)
    rows.append([f"{SESSIONS:,}, half are over", *_measure(tenant)])
    table(["sessions", "first page ms", "queries"], rows)
    return (
        bar("first page of 100,000 sessions", rows[1][1], 50, " ms")
        + bar("the same where half are over", rows[2][1], 50, " ms")
        + bar("queries, many against one", rows[1][2] / rows[0][2], 1, "x")
        + bar("queries, with a policy", rows[2][2] / rows[1][2], 1, "x")
    )


def _fill(tenant, number):
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    agent = agent_named(tenant_id=tenant.id, name="research")
    for start in range(0, number, 5000):
        Session.objects.bulk_create(
            Session(tenant=tenant, agent=agent, key=f"case-{index}", title=f"Case {index}", state={"schema": 1})
            for index in range(start, min(start + 5000, number))
        )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agent_sessions_session")


def _end_half(tenant):
    """The older half is past its time, and a hold is on a person who has none of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agent_sessions_session SET last_active_at = now() - interval '40 days' WHERE tenant_id = %s AND id <"
            " (SELECT id FROM agent_sessions_session WHERE tenant_id = %s ORDER BY id OFFSET %s LIMIT 1)",
            [tenant.id, tenant.id, SESSIONS // 2],
        )
        cursor.execute("ANALYZE agent_sessions_session")
    RetentionPolicy.objects.create(tenant=tenant, category="sessions", age_basis="last_activity", days=30, approved_version=1)
    person = Subject.objects.create(tenant=tenant)
    Hold.objects.create(
        tenant=tenant, matter="M-1", reason="audit", scope="subject", subject=person, placed_by="bench", placed_by_label="bench"
    )
    OVER.forget(tenant.id)


def _measure(tenant) -> tuple[float, int]:
    list(sessions_of(tenant.id)[:51])
    times = []
    for _ in range(20):
        with CaptureQueriesContext(connection) as queries:
            started = time.perf_counter()
            list(sessions_of(tenant.id)[:51])
            times.append((time.perf_counter() - started) * 1000)
    return median(times), len(queries)
