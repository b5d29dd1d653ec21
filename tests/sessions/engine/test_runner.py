"""The watch over a running turn: its lease is renewed, and whoever wants it to stop is heard, whatever the database does meanwhile."""

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import OperationalError

from sessions.engine import runner


@pytest.fixture
def looks(monkeypatch, settings):
    """What the rows say, look by look (an error is raised); of every look it is noted whether the lease was due."""
    settings.LETHE = {**settings.LETHE, "heartbeat_seconds": 0.15}
    monkeypatch.setattr(runner, "_FIRST_LOOK_SECONDS", 0.05)
    answers, made = [], []

    async def in_thread(look, job, is_due):
        made.append(is_due)
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(runner, "in_thread", in_thread)
    return SimpleNamespace(answers=answers, made=made)


async def stopped_by(seconds):
    """A turn that takes so long; what it was told when it was stopped before."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as stopped:
        return stopped.args[0]


async def watched(seconds=2.0, *, asked="", ring_every=None):
    """Watch a turn that never ends; returns why it was stopped, None when it was not."""
    job = SimpleNamespace(run=SimpleNamespace(id=uuid4(), cancel_reason=asked), store=SimpleNamespace(stop_reason=None))
    bell = asyncio.Event()
    turn = asyncio.create_task(stopped_by(seconds))
    watcher = asyncio.create_task(runner._watch(job, turn, bell))
    while ring_every and not turn.done():
        await asyncio.sleep(ring_every)
        bell.set()
    reason = await turn
    assert (reason, watcher.done()) == (job.store.stop_reason, reason is not None)
    watcher.cancel()
    return reason


async def test_first_look_is_soon_and_renews_nothing(looks):
    looks.answers.append("cancelled")

    assert await watched() == "cancelled"
    assert looks.made == [False]


async def test_lease_is_renewed_at_every_heartbeat_and_a_lost_one_stops_the_run(looks):
    looks.answers.extend([None, None, "lease_lost"])

    assert await watched() == "lease_lost"
    assert looks.made == [False, True, True]


@pytest.mark.parametrize("failing", [1, 3])
async def test_database_that_does_not_answer_ends_neither_the_watch_nor_the_run(looks, failing):
    looks.answers.extend([OperationalError("the connection is gone")] * failing + ["cancelled"])

    assert await watched() == "cancelled"
    assert len(looks.made) == failing + 1


async def test_bell_is_heard_at_once_and_does_not_put_off_the_heartbeat(looks):
    assert await watched(0.5, ring_every=0.02) is None
    assert looks.made[0] is False
    # Three fit into the time; a busy machine may miss some.
    assert 1 <= sum(looks.made) <= 3 < len(looks.made)


async def test_whoever_asked_before_the_turn_began_is_heard_without_a_look(looks):
    assert await watched(asked="superseded") == "interrupted"
    assert looks.made == []
