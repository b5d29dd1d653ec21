"""Wake-ups between processes: each event loop hears what somebody there waits for."""

import asyncio
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from sessions import notify
from tests.owner import as_owner

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 20


@pytest.fixture
async def hub():
    yield notify.hub()
    await notify.hub().close()


def _send(channel, run_id):
    notify.send(channel, run_id)
    connection.close()


async def test_bell_rings_for_its_run_and_channel_only(hub):
    mine, other = uuid4(), uuid4()
    with hub.bell(notify.CANCEL, mine) as bell, hub.bell(notify.CANCEL, other) as last:
        await hub.ready(notify.CANCEL)
        bell.clear()
        last.clear()

        await sync_to_async(_send)(notify.EVENTS, mine)
        await sync_to_async(_send)(notify.CANCEL, other)
        await asyncio.wait_for(last.wait(), SECONDS)
        heard_of_others = bell.is_set()
        await sync_to_async(_send)(notify.CANCEL, mine)

        await asyncio.wait_for(bell.wait(), SECONDS)
    assert not heard_of_others


async def test_channel_that_somebody_asks_for_later_is_heard_too(hub):
    run_id = uuid4()
    with hub.bell(notify.CANCEL, run_id):
        await hub.ready(notify.CANCEL)
        with hub.bell(notify.ENDED, run_id) as ended:
            await hub.ready(notify.ENDED)
            ended.clear()
            await sync_to_async(_send)(notify.ENDED, run_id)
            await asyncio.wait_for(ended.wait(), SECONDS)


async def test_who_rings_before_anybody_listens_makes_them_look(hub):
    """The connection is made while the caller goes on: what is told meanwhile is found by looking, once it listens."""
    with hub.bell(notify.ENDED, uuid4()) as bell:
        assert not bell.is_set()

        await asyncio.wait_for(bell.wait(), SECONDS)


async def test_lost_connection_wakes_everybody_and_is_made_again(hub):
    run_id = uuid4()
    with hub.bell(notify.CANCEL, run_id) as bell:
        await hub.ready(notify.CANCEL)
        bell.clear()
        await sync_to_async(_cut)()
        await asyncio.wait_for(bell.wait(), SECONDS)

        await hub.ready(notify.CANCEL)
        bell.clear()
        await sync_to_async(_send)(notify.CANCEL, run_id)
        await asyncio.wait_for(bell.wait(), SECONDS)


def _cut():
    as_owner("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^LISTEN'")
    connection.close()
