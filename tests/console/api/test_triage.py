"""Rows without a subject over the API."""

import pytest

from governance.domain import subjects
from governance.models import UnattributedWaiver
from sessions.models import Session
from tests.console.api.conftest import problem
from tests.factories import sessions


@pytest.fixture
def person(world):
    return subjects.resolve(tenant_id=world.tenant.id, value="ada@example.com", kind="email")


@pytest.fixture
def orphan(world):
    return sessions.conversation(world.agent, None, key="ada@example.com")


def of_sessions(api):
    return next(row for row in api.get("/unattributed").json()["results"] if row["key"] == "sessions")


def test_rows_are_counted_listed_suggested_and_given(api, world, orphan, person):
    before = of_sessions(api)["open"]
    [row] = [row for row in api.get("/unattributed/sessions").json()["results"] if row["id"] == orphan.id.hex]

    assert (row["suggested_subject"], row["suggested_by"], row["agent"]) == (person.display_ref, "identifier", world.agent.name)
    answer = api.post("/unattributed/sessions/assign", {"ids": [orphan.id.hex], "subject": row["suggested_subject"]})

    assert answer.status_code == 200, answer.content
    assert answer.json()["rows"]["items"] == 4
    assert Session.objects.get(pk=orphan.id).subject_id == person.id
    assert of_sessions(api)["open"] == before - 1 if before > 1 else True


def test_rows_are_waived_and_reopened(api, orphan):
    answer = api.post("/unattributed/sessions/waive", {"ids": [orphan.id.hex], "reason": "cannot_tell"})

    assert (answer.status_code, answer.json()) == (200, {"rows": 1})
    assert of_sessions(api)["waived"] == 1
    assert api.post("/unattributed/sessions/reopen", {"ids": [orphan.id.hex]}).json() == {"waivers": 1}
    assert not UnattributedWaiver.objects.exists()


def test_list_pages(api, world):
    for number in range(3):
        sessions.session(world.agent, None, key=f"s-{number}")

    first = api.get("/unattributed/sessions?limit=2").json()
    second = api.get(f"/unattributed/sessions?limit=2&cursor={first['next_cursor']}").json()

    assert len(first["results"]) == 2
    assert not {row["id"] for row in first["results"]} & {row["id"] for row in second["results"]}


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("sessions/waive", {"reason": "because"}, 400),
        ("sessions/assign", {"ids": [], "subject": "ada@example.com"}, 400),
        ("sessions/assign", {"ids": ["nonsense"], "subject": "ada@example.com"}, 400),
        ("items/waive", {"reason": "other"}, 404),
        ("nothing/waive", {"reason": "other"}, 404),
    ],
)
def test_wrong_calls_are_told(api, orphan, person, path, body, status):
    answer = api.post(f"/unattributed/{path}", body)

    assert answer.status_code == status, answer.content
    assert problem(answer)["status"] == status
