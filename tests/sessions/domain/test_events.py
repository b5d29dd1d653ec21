"""Streams: live, cut and resumed, from another event loop, after the end."""

import asyncio

import pytest
from asgiref.sync import sync_to_async

from governance.errors import NotFound
from sessions import notify
from sessions.domain import events, runs
from sessions.domain.runs import RunRequest
from sessions.models import Run

pytestmark = pytest.mark.django_db(transaction=True)


async def read_all(run, actor, *, after=0):
    return [event async for event in events.tail(run_id=run.id, tenant_id=actor.tenant_id, after=after) if event is not None]


def start(actor, message="Tell me about yourself."):
    return runs.start(agent_name="research", request=RunRequest(message=message, session_key="s"), by=actor)


async def test_tail_follows_a_run_to_its_end(agent, actor):
    run = await sync_to_async(start)(actor)

    seen = await asyncio.wait_for(read_all(run, actor), 20)

    assert [event.seq for event in seen] == sorted({event.seq for event in seen})
    assert (seen[0].type, seen[-1].type) == ("run.started", "run.completed")
    await notify.hub().close()


async def test_stream_cut_after_its_first_event_ends_with_the_same_text(agent, actor):
    run = await sync_to_async(start)(actor)
    first = await anext(events.tail(run_id=run.id, tenant_id=actor.tenant_id))

    resumed = await asyncio.wait_for(read_all(run, actor, after=first.seq), 20)
    whole = await asyncio.wait_for(read_all(run, actor), 20)

    assert [(event.seq, event.type) for event in [first, *resumed]] == [(event.seq, event.type) for event in whole]
    completed = [event.data["text"] for event in resumed if event.type == "message.completed"]
    assert completed == [event.data["text"] for event in whole if event.type == "message.completed"]
    await notify.hub().close()


async def test_leaving_the_stream_does_not_stop_the_run(agent, actor):
    run = await sync_to_async(start)(actor)
    stream = events.tail(run_id=run.id, tenant_id=actor.tenant_id)
    await anext(stream)
    await stream.aclose()

    done = await asyncio.wait_for(events.wait(run_id=run.id, tenant_id=actor.tenant_id), 20)

    assert done.status == Run.Status.COMPLETED
    await notify.hub().close()


async def test_foreign_run_has_no_events(agent, actor, stranger):
    run = await sync_to_async(start)(actor)

    with pytest.raises(NotFound):
        await anext(events.tail(run_id=run.id, tenant_id=stranger.tenant_id))
    await asyncio.wait_for(events.wait(run_id=run.id, tenant_id=actor.tenant_id), 20)
    await notify.hub().close()


async def test_idle_stream_is_kept_alive(agent, actor, settings):
    settings.LETHE = {**settings.LETHE, "keepalive_seconds": 0.05}
    run = await sync_to_async(Run.objects.create)(
        tenant_id=actor.tenant_id, agent=agent, status="running", started_by="x", actor_kind="system", actor_ref="x"
    )

    assert await anext(events.tail(run_id=run.id, tenant_id=actor.tenant_id)) is None
    await notify.hub().close()
