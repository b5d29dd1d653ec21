"""Locks are taken in one order: the session, its run, its approvals. Otherwise a start and an end wait for each other."""

import threading

import pytest

from sessions import dispatch
from sessions.domain import executions, leases, runs
from sessions.domain.runs import RunRequest
from sessions.models import Run, Session
from tests.factories import sessions as made
from tests.sessions.extras.parallel import in_parallel

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def busy(tenant, lethe, monkeypatch):
    """A session whose agent lets a new message interrupt, and its running run."""
    monkeypatch.setattr(dispatch, "submit", lambda run_id, **_: None)
    made.provider(tenant, name="demo")
    agent = made.agent(
        tenant, "hasty",
        document={"name": "hasty", "model": {"provider": "demo", "model": "demo"}, "sessions": {"on_busy": "interrupt"}},
    )  # fmt: skip
    run = runs.start(agent_name=agent.name, request=RunRequest(message="One", session_key="case-1"), by=lethe)
    assert Run.objects.get(id=run.id).status == "running"
    return run


@pytest.mark.parametrize(
    "ending, statuses",
    # What was handed back is next in the queue, and whoever looks first may begin it.
    [("finish", {"completed"}), ("hand_back", {"queued", "running"})],
)
def test_a_run_may_end_while_a_new_message_interrupts_it(busy, lethe, monkeypatch, ending, statuses):
    """The end holds its run and the start holds the session, unless both begin with the session."""
    ending_began, start_locked = threading.Event(), threading.Event()
    lock, release = leases.lock, leases.release

    def slow_lock(session_id):
        if threading.current_thread().name == "start":
            ending_began.wait(5)
            found = lock(session_id)
            start_locked.set()
            return found
        return lock(session_id)

    def slow_release(**values):
        ending_began.set()
        start_locked.wait(0.5)
        release(**values)

    monkeypatch.setattr(leases, "lock", slow_lock)
    monkeypatch.setattr(leases, "release", slow_release)
    monkeypatch.setattr(dispatch, "enqueue", lambda run_id: None)

    def work(index):
        if index == 0:
            return executions.finish(run=busy, status="completed") if ending == "finish" else executions.hand_back(run=busy)
        threading.current_thread().name = "start"
        return runs.start(agent_name="hasty", request=RunRequest(message="Two", session_key="case-1"), by=lethe)

    results = in_parallel(2, work)

    assert [result for result in results if isinstance(result, Exception)] == []
    assert Run.objects.get(id=busy.id).status in statuses
    assert Session.objects.get(key="case-1").runs.count() == 2
