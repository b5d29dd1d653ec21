"""Audit events a second, by 8 writers that commit each: one tenant, whose chain has one end, and a hundred tenants."""

import os
import threading
import time

from django.db import connection, connections

from governance import database_roles
from governance.actors import system
from governance.domain import anchors, audit, tenants, trail
from governance.models import AuditEvent
from tests.bench.figures import bar, table

WRITERS = 8
SECONDS = float(os.environ.get("LETHE_BENCH_SECONDS", "60"))


def run() -> int:
    many = [system(tenants.create_tenant(slug=f"audit-{number}", name=f"Audit {number}").id) for number in range(100)]
    one = many[0]
    rows = [["one tenant", alone := _measure([one])], ["100 tenants", _measure(many)], ["without the chain", _unchained(one)]]
    table(["8 writers", "events/s"], rows)
    started = time.perf_counter()
    anchors.checkpoint(tenant_id=one.tenant_id)
    verdict = trail.verify(tenant_id=one.tenant_id)
    took = time.perf_counter() - started
    print(f"  {verdict.to_seq} events of one tenant verified in {took:.2f} s: {verdict.verdict}")
    broken = sum(trail.verify(tenant_id=by.tenant_id).verdict not in ("valid", "not_anchored") for by in many)
    return bar("appends a second of one tenant", alone, 300, "/s", at_least=True) + bar("broken chains", broken, 0)


def _measure(actors, write=None) -> float:
    """Events a second over all writers."""
    stop, counts = time.monotonic() + SECONDS, [0] * WRITERS

    def work(place):
        try:
            turn = place
            while time.monotonic() < stop:
                (write or _record)(actors[turn % len(actors)])
                counts[place], turn = counts[place] + 1, turn + WRITERS
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(WRITERS)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - started)


def _record(by):
    audit.record("agent.saved", by=by, object_type="agent", number=1)


def _unchained(by) -> float:
    """The same rows without triggers: what the chain costs."""
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE governance_auditevent DISABLE TRIGGER USER")
    try:
        return _measure([by])
    finally:
        with database_roles.as_owner(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE governance_auditevent ENABLE TRIGGER USER")
            # What was written without a place would read as tampering.
            cursor.execute("ALTER TABLE governance_auditevent DISABLE TRIGGER audit_guard")
            AuditEvent.objects.filter(seq=None).delete()
            cursor.execute("ALTER TABLE governance_auditevent ENABLE TRIGGER audit_guard")
