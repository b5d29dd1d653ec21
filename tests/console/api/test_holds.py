"""Legal holds over the API."""

import pytest

from governance.domain import subjects
from governance.models import Hold
from sessions.models import Session
from tests.console.api.conftest import problem
from tests.factories import sessions


@pytest.fixture
def person(world):
    made = subjects.resolve(tenant_id=world.tenant.id, value="ada@example.com")
    sessions.conversation(world.agent, made)
    return made


def body(scope, **values):
    return {"matter": "M-17", "reason": "litigation", "scope": scope, **values}


def test_hold_is_placed_listed_and_read(api, person):
    made = api.post("/holds", body({"type": "subject", "subjectId": "ada@example.com"}))

    assert made.status_code == 201, made.content
    document = made.json()
    assert (document["matter"], document["scope"]) == ("M-17", {"type": "subject", "subject_id": f"sub_{person.id.hex}"})
    assert document["covered_rows"] > 10
    assert made["Location"] == f"/api/holds/{document['id']}"
    detail = api.get(f"/holds/{document['id']}").json()
    assert (detail["by_category"]["items"], detail["waiting"]) == (4, [])
    assert [row["id"] for row in api.get("/holds?matter=M-17&released=false").json()["results"]] == [document["id"]]
    assert api.get("/holds?matter=M-17&released=true").json()["results"] == []


def test_every_scope_can_be_named(api, person, world):
    session = Session.objects.get(subject=person)
    scopes = [
        {"type": "session", "session_id": f"ses_{session.id.hex}"},
        {"type": "agent", "agent": world.agent.name},
        {"type": "category", "category": "items"},
        {"type": "query", "category": "sessions", "subject_id": person.display_ref, "after": "2020-01-01T00:00:00Z"},
    ]

    answers = [api.post("/holds", body(scope)) for scope in scopes]

    assert [answer.status_code for answer in answers] == [201] * 4, [answer.content for answer in answers]
    assert all(answer.json()["covered_rows"] >= 4 for answer in answers)


@pytest.mark.parametrize(
    "change, path",
    [
        ({"reason": "spite"}, "reason"),
        ({"scope": {"type": "planet"}}, "scope.type"),
        ({"scope": {"type": "subject"}}, "scope.subject_id"),
        ({"scope": {"type": "category", "category": "nothing"}}, "scope.category"),
        ({"matter": "two words"}, "matter"),
    ],
)
def test_hold_is_refused_by_field(api, change, path):
    answer = api.post("/holds", {**body({"type": "category", "category": "items"}), **change})

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == [path]


def test_held_session_is_not_deleted(api, person):
    session = Session.objects.get(subject=person)
    api.post("/holds", body({"type": "session", "session_id": f"ses_{session.id.hex}"}))

    answer = api.delete(f"/sessions/ses_{session.id.hex}")

    assert answer.status_code == 409
    assert problem(answer)["code"] == "held"
    assert Session.objects.filter(pk=session.pk).exists()


def test_keys_never_release(api, world):
    answer = api.post(f"/holds/hld_{world.things['hold'].id.hex}/release")

    assert answer.status_code == 403
    assert Hold.objects.filter(pk=world.things["hold"].pk, released_at=None).exists()
