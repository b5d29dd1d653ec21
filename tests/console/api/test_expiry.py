"""Whatever is asked, over the API or on a page: what a retention policy has ended is not there."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance import ids
from governance.domain.recent import OVER
from governance.models import RetentionPolicy
from governance.permissions import ROLES
from sessions.models import AgentFile, Session
from tests.console.api.routes import CALLS
from tests.factories import governance

OF_ENDED = [
    call for call in CALLS if call.method == "GET" and any(name in call.path for name in ("{session}", "{run}", "{agent_file}"))
]
LISTS = ["/sessions", "/sessions?q=Title", "/sessions?key=case-1&agent=support", "/runs", "/runs?agent=support", "/files", "/files?q=notes"]
PAGES = [
    "/sessions/{session}", "/sessions/{session}/items/1", "/sessions/{session}/workspace", "/sessions/{session}/workspace.zip",
    "/sessions/{session}/transcript.md", "/sessions/{session}/transcript.json", "/runs/{run}", "/runs/{run}/events", "/runs/{run}/saw",
    "/runs/{run}/turn", "/runs/{run}/context/1/instructions", "/runs?session={session}", "/files/{file}",
]  # fmt: skip


def end(world):
    """The world's session and its agent's file are a day past their time; `personal` is not."""
    old = timezone.now() - timedelta(days=11)
    Session.objects.filter(id=world.session.id).update(last_active_at=old)
    AgentFile.objects.filter(id=world.agent_file.id).update(updated_at=old)
    for category in ("sessions", "agent_files"):
        RetentionPolicy.objects.create(
            tenant=world.tenant, category=category, age_basis="last_activity", days=10, approved_version=1
        )
    OVER.forget(world.tenant.id)


def queries_of(api, path):
    api.get(path)
    with CaptureQueriesContext(connection) as captured:
        api.get(path)
    return len(captured)


def named(world, path):
    return path.format(
        session=ids.shown("ses", world.session.id), run=ids.shown("run", world.run.id), file=ids.shown("fil", world.agent_file.id)
    )


@pytest.mark.parametrize("call", OF_ENDED, ids=str)
def test_what_is_over_is_not_found(api, world, call):
    assert call.send(api, world).status_code == 200

    end(world)

    assert call.send(api, world).status_code == 404


@pytest.mark.parametrize("path", LISTS)
def test_what_is_over_is_in_no_list(api, world, path):
    gone = {ids.shown("ses", world.session.id), ids.shown("run", world.run.id), ids.shown("fil", world.agent_file.id)}

    def shown():
        return gone & {row["id"] for row in api.get(path).json()["results"]}

    assert shown()

    end(world)

    assert not shown()


@pytest.fixture
def member(world):
    client = Client()
    client.force_login(governance.member(world.tenant, tuple(ROLES)))
    return client


@pytest.mark.parametrize("path", PAGES)
def test_page_of_what_is_over_is_not_found(member, world, path):
    assert member.get(named(world, path)).status_code < 400

    end(world)

    assert member.get(named(world, path)).status_code == 404


@pytest.mark.parametrize("path", ["/sessions", "/sessions?q=Title", "/runs", "/files", "/", "/agents/support", "/playground?agent=support"])
def test_page_lists_nothing_that_is_over(member, world, path):
    gone = [ids.shown("ses", world.session.id), ids.shown("run", world.run.id), ids.shown("fil", world.agent_file.id)]

    def shown():
        text = member.get(path).content.decode()
        return [name for name in gone if name in text]

    assert shown()

    end(world)

    assert not shown()


@pytest.mark.parametrize("thing", ["session", "run"])
def test_palette_finds_nothing_that_is_over(member, world, thing):
    words = {"q": named(world, f"{{{thing}}}")}
    assert len(member.post("/find", words).json()["results"]) == 1

    end(world)

    assert member.post("/find", words).json()["results"] == []


def test_lists_cost_the_same_with_policies(api, world):
    before = queries_of(api, "/sessions")

    end(world)

    assert queries_of(api, "/sessions") == before
