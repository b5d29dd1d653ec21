"""Every list: pages by cursor, the same queries for one row and for three."""

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import AgentVersion
from governance.domain import audit, subjects
from governance.models import RetentionPolicy, RetentionRun, SubjectRequest
from sessions.models import Quota
from tests.console.api.conftest import problem
from tests.factories import governance, sessions

_numbers = itertools.count(1)


def _session(world):
    person = subjects.resolve(tenant_id=world.tenant.id, value=f"person-{next(_numbers)}")
    return sessions.session(sessions.agent(world.tenant), person)


def _version(world):
    number = world.agent.versions.count() + 1
    return AgentVersion.objects.create(
        agent=world.agent, tenant_id=world.tenant.id, number=number, document={}, digest=f"{number:064}", published_by="test"
    )


def _run(world):
    return sessions.run(session=_session(world))


def _request(world):
    person = subjects.resolve(tenant_id=world.tenant.id, value=f"person-{next(_numbers)}")
    return SubjectRequest.objects.create(tenant=world.tenant, subject=person, ref=f"SR-2025-{next(_numbers):06}", kind="export")


def _policy(world):
    return RetentionPolicy.objects.create(tenant=world.tenant, category="runs", agent=f"a{next(_numbers)}", days=3)


def _retention_run(world):
    return RetentionRun.objects.create(
        tenant=world.tenant, policy=_policy(world), policy_version=1, cutoff=timezone.now(),
        scheduled_for=timezone.now() + timedelta(seconds=next(_numbers)),
    )  # fmt: skip


MORE: dict[str, Callable] = {
    "/agents": lambda world: sessions.agent(world.tenant),
    "/agents/support/versions": _version,
    "/providers": lambda world: sessions.provider(world.tenant),
    "/sessions": _session,
    "/runs": _run,
    "/approvals": lambda world: sessions.approval(_run(world)),
    "/approval-rules": lambda world: sessions.rule(sessions.agent(world.tenant)),
    "/subject-requests": _request,
    "/retention-policies": _policy,
    "/retention-runs": _retention_run,
    "/audit": lambda world: audit.record("tenant.renamed", by=governance.lethe(world.tenant)),
    "/quotas": lambda world: Quota.objects.create(
        tenant=world.tenant, scope="agent", scope_ref=sessions.agent(world.tenant).id.hex, measure="runs", period="day", limit=1
    ),
    "/api-keys": lambda world: world.key("agents:read", name=f"key {next(_numbers)}"),
    "/members": lambda world: governance.member(world.tenant, ("viewer",)),
}
PAGED = sorted(MORE)
# What nobody adds to over REST has pages all the same.
LISTS = (*PAGED, "/tools", "/unattributed")


def queries_of(api, path) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert api.get(path).status_code == 200
    return len(captured)


@pytest.mark.parametrize("path", MORE)
def test_list_needs_the_same_queries_for_one_and_for_three_more_rows(api, world, path):
    MORE[path](world)
    api.get(path)
    with_one = queries_of(api, path)
    for _ in range(3):
        MORE[path](world)

    assert queries_of(api, path) == with_one


@pytest.mark.parametrize("path", PAGED)
def test_list_is_paged_both_ways_without_a_gap(api, world, path):
    for _ in range(4):
        MORE[path](world)
    whole = [id_of(row) for row in api.get(f"{path}?limit=200").json()["results"]]

    forwards, page = [], api.get(f"{path}?limit=2").json()
    first = page
    while True:
        forwards.append([id_of(row) for row in page["results"]])
        if page["next_cursor"] is None:
            break
        page = api.get(f"{path}?limit=2&cursor={page['next_cursor']}").json()
    backwards = [[id_of(row) for row in page["results"]]]
    while page["previous_cursor"] is not None:
        page = api.get(f"{path}?limit=2&cursor={page['previous_cursor']}").json()
        backwards.append([id_of(row) for row in page["results"]])

    assert list(itertools.chain(*forwards)) == whole
    assert list(itertools.chain(*reversed(backwards))) == whole
    assert first["previous_cursor"] is None


def id_of(row):
    return row.get("id") or row["number"]


def test_every_list_refuses_a_cursor_it_did_not_make(api):
    cursors = ["x", "W10:abc:def", "%F0%9F%92%A9"]

    codes = {problem(api.get(f"{path}?cursor={cursor}"))["code"] for path in LISTS for cursor in cursors}

    assert codes == {"bad_cursor"}


def test_cursor_of_another_list_is_refused(api, world):
    _run(world)
    cursor = api.get("/runs?limit=1").json()["next_cursor"]

    assert api.get(f"/approvals?cursor={cursor}").status_code == 400


def test_cursor_shows_no_more_of_another_tenant(api, world, twin):
    for _ in range(2):
        _run(world)
    cursor = api.get("/runs?limit=1").json()["next_cursor"]

    rows = twin.api.get(f"/runs?cursor={cursor}").json()["results"]

    assert {row["id"] for row in rows} <= {f"run_{twin.run.id.hex}", f"run_{twin.waiting.id.hex}"}


def test_page_that_shrank_is_empty_not_an_error(api, world):
    doomed = _run(world)
    _run(world)
    cursor = api.get("/runs?limit=1").json()["next_cursor"]
    type(doomed).objects.filter(tenant=world.tenant).exclude(id=world.run.id).exclude(id=world.waiting.id).delete()

    answer = api.get(f"/runs?limit=5&cursor={cursor}").json()

    assert [row["id"] for row in answer["results"]] == [f"run_{world.waiting.id.hex}", f"run_{world.run.id.hex}"]


def test_short_lists_have_pages_too(api):
    whole = [row["name"] for row in api.get("/tools?limit=200").json()["results"]]
    first = api.get("/tools?limit=2").json()
    second = api.get(f"/tools?limit=2&cursor={first['next_cursor']}").json()
    again = api.get(f"/tools?limit=2&cursor={second['previous_cursor']}").json()

    assert [row["name"] for row in (*first["results"], *second["results"])] == whole[:4]
    assert (again, first["previous_cursor"]) == (first, None)
    assert problem(api.get(f"/quotas?cursor={first['next_cursor']}"))["code"] == "bad_cursor"
