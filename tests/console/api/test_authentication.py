"""Who calls, and for whom."""

from datetime import timedelta

import pytest
from django.utils import timezone

from governance.domain import keys, subjects
from governance.models import ApiKey, Subject
from tests.console.api.conftest import Api, problem
from tests.factories import governance, sessions


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "lth_x", "Bearer lth_" + "x" * 43, "Bearer nonsense", "Bearer é", "Token lth_" + "x" * 43],
)
def test_header_that_holds_no_key_is_refused(world, header):
    answer = Api().get("/me", authorization=header)

    assert answer.status_code == 401
    assert problem(answer)["code"] == "unauthenticated"
    assert answer["WWW-Authenticate"] == 'Bearer realm="lethe"'


def test_scheme_may_be_written_in_any_case(world):
    assert Api().get("/me", authorization=f"bearer {world.api.secret}").status_code == 200


def test_revoked_and_expired_keys_are_refused(world):
    short = world.key("agents:read", name="short")
    ApiKey.objects.filter(name="short").update(expires_at=timezone.now() - timedelta(seconds=1))
    keys.revoke_key(key=world.api_key, by=governance.lethe(world.tenant))

    assert [client.get("/me").status_code for client in (short, world.api)] == [401, 401]


def test_signed_in_member_is_nobody_to_the_api(world, client):
    client.force_login(governance.member(world.tenant))

    assert client.get("/api/me").status_code == 401


def test_key_says_who_it_is(world):
    answer = world.key("runs:write", "agents:read", name="shop").get("/me").json()

    assert (answer["name"], answer["scopes"], answer["subject_id"]) == ("shop", ["runs:write", "agents:read"], None)
    assert answer["tenant"]["slug"] == world.tenant.slug


def test_missing_scope_is_named(world):
    answer = world.key("agents:read").post("/agents/support/publish", {})

    assert answer.status_code == 403
    assert problem(answer)["detail"] == "This needs the scope agents:write."


# For whom


@pytest.fixture
def broker(world):
    """A key that may say for whom it calls."""
    return world.key("runs:write", "sessions:read", "sessions:write", "runs:read", "subjects:assert")


def test_subject_header_needs_its_scope(world):
    answer = world.api.get("/sessions", x_lethe_subject="person-1")

    assert answer.status_code == 403
    assert problem(answer)["permission"] == "subjects.assert"


@pytest.mark.parametrize("value", ["", " ", "x" * 201])
def test_subject_header_that_names_nobody_is_refused(broker, value):
    answer = broker.get("/sessions", x_lethe_subject=value)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["X-Lethe-Subject"]


def test_subject_header_narrows_what_is_seen(world, broker):
    everything = broker.get("/sessions").json()["results"]
    own = broker.get("/sessions", x_lethe_subject="person-1").json()["results"]

    assert {row["id"] for row in everything} == {f"ses_{world.session.id.hex}", f"ses_{world.personal.id.hex}"}
    assert [row["id"] for row in own] == [f"ses_{world.personal.id.hex}"]


def test_reading_for_a_person_who_is_unknown_shows_nothing_and_makes_nobody(world, broker):
    before = Subject.objects.count()

    assert broker.get("/sessions", x_lethe_subject="newcomer").json()["results"] == []
    assert broker.get(f"/sessions/ses_{world.personal.id.hex}", x_lethe_subject="newcomer").status_code == 404
    assert Subject.objects.count() == before


def test_subject_header_may_be_any_text(world, broker):
    person = subjects.resolve(tenant_id=world.tenant.id, value="Žofie Ólafsdóttir")
    session = sessions.session(world.agent, person, "hers")

    answer = broker.get("/sessions", x_lethe_subject="Žofie Ólafsdóttir".encode().decode("latin-1"))

    assert [row["id"] for row in answer.json()["results"]] == [f"ses_{session.id.hex}"]


def test_key_with_a_subject_sees_that_subject_only(world):
    bound = world.key("sessions:read", "runs:read", "sessions:write", subject="person-1")

    assert [row["id"] for row in bound.get("/sessions").json()["results"]] == [f"ses_{world.personal.id.hex}"]
    assert [row["id"] for row in bound.get("/runs").json()["results"]] == [f"run_{world.waiting.id.hex}"]
    hidden = [
        f"/sessions/ses_{world.session.id.hex}", f"/sessions/ses_{world.session.id.hex}/items", f"/runs/run_{world.run.id.hex}",
        f"/runs/run_{world.run.id.hex}/events", f"/runs/run_{world.run.id.hex}/context",
    ]  # fmt: skip
    assert [bound.get(path).status_code for path in hidden] == [404] * 5
    assert bound.delete(f"/sessions/ses_{world.session.id.hex}").status_code == 404


def test_key_with_a_subject_cannot_ask_for_another(world):
    bound = world.key("sessions:read", subject="person-1")
    other = subjects.resolve(tenant_id=world.tenant.id, value="person-2")
    sessions.session(world.agent, other, "theirs")

    assert bound.get(f"/sessions?subject={other.display_ref}").json()["results"] == []


def test_subject_in_a_body_is_an_unknown_field(world, broker):
    answer = broker.post("/agents/support/run", {"message": "Hello", "subject": "person-2"})

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["subject"]


def test_key_of_two_subjects_is_told_apart_by_session_key(world):
    """The same session key with and without a subject are two sessions; the tenant's own key must say which."""
    answer = world.api.get("/sessions/case-1?agent=support")

    assert answer.status_code == 409
    assert set(problem(answer)["ids"]) == {f"ses_{world.session.id.hex}", f"ses_{world.personal.id.hex}"}
    assert world.key("sessions:read", subject="person-1").get("/sessions/case-1?agent=support").json()["id"] == (
        f"ses_{world.personal.id.hex}"
    )
