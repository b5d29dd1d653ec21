"""What the guards of a personal table cost a writer: fence and hold, against the same writes without triggers."""

import time

from django.db import connection, transaction

from agents.domain.demo import seed_demo_agents
from agents.queries import agent_named
from governance import database_roles
from governance.actors import system
from governance.domain import holds, subjects, tenants
from governance.domain.holds import Target
from sessions.models import Session
from tests.bench.figures import bar, median, table

ROUNDS, WRITES, BULK = 7, 300, 20_000
_INSERT = """
INSERT INTO agent_sessions_item (session_id, seq, tenant_id, subject_id, kind, role, turn, "group", tokens, content, is_hidden)
SELECT %s, n, %s, %s, 'message', 'user', n, n, 5, '{"text": "What was said, a sentence or two of it."}', false
FROM generate_series(%s, %s) AS n
"""


def run() -> int:
    tenant = tenants.create_tenant(slug="guarded", name="Guarded")
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    subject, neighbour = (subjects.resolve(tenant_id=tenant.id, value=name) for name in ("anna", "bert"))
    session = Session.objects.create(
        tenant=tenant, agent=agent_named(tenant_id=tenant.id, name="research"), subject=subject, key="s"
    )
    writer = Writer(session)
    writer.measure()
    times = {"no triggers": [], "guards": [], "guards, another is held": []}
    for _ in range(ROUNDS):
        for name, found in times.items():
            hold = holds.place(target=Target("subject", subject=neighbour), matter="M-1", reason="audit", by=by) if "held" in name else None
            _switch(on=name != "no triggers")
            found.append(writer.measure())
            if hold:
                holds.release(hold=hold, by=by)
    _switch(on=True)
    figures = {name: [median(column) for column in zip(*found, strict=True)] for name, found in times.items()}
    table(
        ["", "inserts/s, one a transaction", "bulk inserts, rows/s", "bulk deletes, rows/s"],
        [[name, *row] for name, row in figures.items()],
    )
    bare, guarded, held = figures.values()
    return (
        bar("inserts lost to the guards", (1 - guarded[0] / bare[0]) * 100, 20, " %")
        + bar("inserts lost while another subject is held", (1 - held[0] / bare[0]) * 100, 20, " %")
    )


class Writer:
    def __init__(self, session):
        self.session, self.seq = session, 0

    def measure(self) -> tuple[float, float, float]:
        single = self._per_second(WRITES, lambda: [self._insert(1) for _ in range(WRITES)])
        bulk = self._per_second(BULK, lambda: self._insert(BULK))
        return single, bulk, self._per_second(BULK + WRITES, self._delete)

    def _per_second(self, number, act) -> float:
        started = time.perf_counter()
        act()
        return number / (time.perf_counter() - started)

    def _insert(self, rows):
        owner = [self.session.id, self.session.tenant_id, self.session.subject_id]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_INSERT, [*owner, self.seq + 1, self.seq + rows])
        self.seq += rows

    def _delete(self):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM agent_sessions_item WHERE session_id = %s", [self.session.id])


def _switch(*, on: bool):
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE agent_sessions_item {'ENABLE' if on else 'DISABLE'} TRIGGER USER")
