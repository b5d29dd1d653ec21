"""An erasure whose worker is killed, in a process of its own, at random steps: it ends unaided and counts nothing twice."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from django.db import connection
from django.db.models import Sum

from governance.domain import clock, erasure, previews, requests
from governance.models import ErasureStep, PlanChunk, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.snapshots import rows_of

WORKER = """
import sys
import django
django.setup()
from django.db import connections
connections["default"].settings_dict["NAME"] = sys.argv[1]
from governance.domain import erasure
erasure.BATCH_SECONDS = float(sys.argv[3])
print("ready", flush=True)
erasure.work(request_id=sys.argv[2])
"""


def worker(request, ledger, batch):
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, connection.settings_dict["NAME"], str(request.id), str(batch)], stdout=subprocess.PIPE,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings", "LETHE_LEDGER_DIR": str(ledger)},
    )  # fmt: skip
    process.stdout.readline()
    return process


def kill_after(process, request, steps):
    """Kill the worker as soon as so many steps are committed, wherever it then is. True when it was still at work."""
    deadline = time.monotonic() + 60
    while ErasureStep.objects.filter(request=request).count() < steps and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    was_running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    return was_running


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.django_db(transaction=True)
def test_killed_erasure_ends_with_steps_equal_to_its_preview(kills, settings, monkeypatch):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    # Small chunks make many steps, so that a kill can fall between any two.
    monkeypatch.setattr("governance.domain.tables.CHUNK_ROWS", 50)
    tenant = make.tenant("acme")
    by, agent, neighbour = make.lethe(tenant), talk.agent(tenant), make.subject(tenant, "bert")
    talk.conversation(agent, neighbour)
    kept, done_kills, dice = rows_of("subject_id", neighbour.id), 0, random.Random(kills)
    while done_kills < kills:
        subject = make.subject(tenant)
        session = talk.conversation(agent, subject)
        talk.turns(session, 400)
        _, token = previews.preview(subject=subject, by=by)
        request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="other", by=by)
        planned = dict(PlanChunk.objects.filter(request=request).values_list("category").annotate(rows=Sum("rows")))
        total = PlanChunk.objects.filter(request=request).count()

        while kills > done_kills:
            # A chunk in each batch, or several.
            process = worker(request, settings.LEDGER_DIR, dice.choice([0, erasure.BATCH_SECONDS]))
            was_running = kill_after(process, request, ErasureStep.objects.filter(request=request).count() + dice.randrange(total))
            done_kills += was_running
            if not was_running:
                break
            SubjectRequest.objects.filter(pk=request.pk, lease_until__isnull=False).update(lease_until=clock.now())
        erasure.work(request_id=request.id)

        done = SubjectRequest.objects.get(pk=request.pk)
        steps = ErasureStep.objects.filter(request=request)
        assert (done.state, done.failure) == ("completed", None)
        assert dict(steps.values_list("category").annotate(rows=Sum("rows"))) == planned
        assert steps.count() == steps.values("category", "chunk_no").distinct().count() == total
        assert rows_of("subject_id", neighbour.id) == kept
        assert not [table for table, rows in rows_of("subject_id", subject.id).items() if rows and table.startswith("agent_sessions")]
