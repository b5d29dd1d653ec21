"""Promises that every address of the API keeps, checked for each of them."""

import re

from console.api.permissions import ANY_KEY
from governance.models import Tenant
from governance.permissions import PERMISSIONS
from tests.console.api.conftest import Api, problem, undone
from tests.console.api.routes import CALLS, SHARED, Call, declared

# What answers without a key: it says nothing about a tenant.
PUBLIC = {"schema", "signing-key"}
# Acts that no key may do, whatever it is about.
PEOPLE_ONLY = {
    "POST /subject-requests/{request}/approve",
    "POST /subject-requests/{request}/decline",
    "POST /holds/{hold}/release",
    "POST /retention-policies/{policy}/approve",
}
READING = [call for call in CALLS if call.method == "GET"]
# Reading these is itself recorded, or they carry the time.
CHANGING = {"GET /audit", "GET /agents/{agent}/export", "GET /runs/{run}/context/1/instructions", "GET /subject-requests/{request}"}
SUCCESS = {200, 201, 202, 204}
# Calls that need more than a world has; their own tests carry them out.
REFUSED = {
    "POST /agents/import": 400,
    "DELETE /providers/{provider}": 409,
    "POST /sessions/{session}/compact": 409,
    "POST /subjects/{person}/erase": 400,
    "POST /subjects/{person}/merge": 404,
    "POST /subjects/{person}/split": 409,
    "POST /unattributed/{unowned}/assign": 404,
    "POST /subject-requests/{request}/first-answer": 409,
    "POST /subject-requests/{request}/corrections": 404,
    "POST /subject-requests/{request}/complete": 404,
    "POST /subject-requests/{request}/recipients": 404,
    **dict.fromkeys(PEOPLE_ONLY, 403),
    "GET /subject-requests/{request}/archive": 404,
    "POST /subject-requests/{request}/archive-links": 404,
}


def template(route: str) -> str:
    """A route of the URL configuration or a path of a call, with its variables made alike."""
    return re.sub(r"[<{](?:\w+:)?\w+[>}]", "*", route.lstrip("/")).replace("versions/1/diff/draft", "versions/*/diff/*").replace("context/1/instructions", "context/*/*").replace("versions/1", "versions/*")


def test_every_route_is_in_the_list_of_calls():
    listed = {(call.method, template(call.path)) for call in CALLS}
    inherited = {("GET", "agents/validate"), ("GET", "agents/import")}

    missing = {
        (method, template(route))
        for method, route, _ in declared()
        if route not in PUBLIC and not (route in ("agents/validate", "agents/import") and method != "POST")
    }

    assert missing - inherited - listed == set()
    assert listed - {(method, template(route)) for method, route, _ in declared()} == set()


def test_every_method_declares_a_known_permission():
    undeclared = [(method, route) for method, route, view in declared() if route not in PUBLIC and method not in view.permission]
    unknown = {needed for _, _, view in declared() for needed in view.permission.values()} - set(PERMISSIONS) - {ANY_KEY}

    assert undeclared == []
    assert unknown == set()


def test_every_method_describes_itself():
    assert [(method, route) for method, route, view in declared() if not hasattr(getattr(view, method.lower()), "operation")] == []


def test_every_call_without_a_key_is_refused(world):
    answers = {str(call): call.send(Api(), world).status_code for call in CALLS}

    assert answers == {str(call): 401 for call in CALLS}


def test_every_call_with_a_key_of_no_use_is_refused(world):
    """A key that may only assert subjects can do what any key may: read about itself."""
    nobody = world.key("subjects:assert")
    open_to_all = {"GET /tenant", "GET /me"}

    answers = {str(call): call.send(nobody, world) for call in CALLS}

    assert {name: answer.status_code for name, answer in answers.items()} == {
        str(call): 200 if str(call) in open_to_all else 403 for call in CALLS
    }
    codes = {problem(answer)["code"] for name, answer in answers.items() if name not in open_to_all}
    assert codes == {"missing_permission"}


def test_every_reading_scope_changes_nothing(world):
    reader = world.key("agents:read", "runs:read", "sessions:read", "governance:read")

    answers = {str(call): call.send(reader, world).status_code for call in CALLS if call.method != "GET"}

    checks_only = {
        "POST /agents/validate": 200,
        "POST /subjects/{person}/preview": 200,
        "POST /retention-policies/{policy}/preview": 200,
    }
    assert answers == {**dict.fromkeys(answers, 403), **checks_only}


def test_every_address_of_another_tenants_thing_is_not_found(world, stranger):
    addressed = [call for call in CALLS if "{" in call.path and call.path not in SHARED]

    answers = {str(call): call.send(stranger.api, world) for call in addressed}

    assert {name: answer.status_code for name, answer in answers.items()} == {
        str(call): 403 if str(call) in PEOPLE_ONLY else 404 for call in addressed
    }
    codes = {problem(answer)["code"] for name, answer in answers.items() if name not in PEOPLE_ONLY}
    assert codes <= {"not_found", "approval_unknown", "file_unknown"}


def test_no_reading_call_shows_anything_of_a_twin(world, twin):
    """Both tenants call everything the same: each reads its own mark and never the other's."""
    seen = {}
    for call in READING:
        text = body_of(call.send(world.api, world))
        seen[str(call)] = twin.mark in text or any(thing.id.hex in text for thing in twin.things.values() if hasattr(thing, "id"))

    assert seen == dict.fromkeys(seen, False)


def test_every_call_answers_as_it_should(world):
    """Each in a savepoint: none sees what another has changed."""
    answers = {}
    for call in CALLS:
        with undone():
            answer = call.send(world.api, world)
        answers[str(call)] = answer.status_code if answer.status_code not in SUCCESS else "fine"

    assert answers == {**dict.fromkeys(answers, "fine"), **REFUSED}


def test_every_address_with_a_slash_at_the_end_is_the_same(world):
    for call in READING:
        plain = call.send(world.api, world)
        slashed = Call(call.method, f"{call.path}/", call.body, call.query, call.headers).send(world.api, world)

        assert slashed.status_code == plain.status_code, call
        assert str(call) in CHANGING or scrubbed(slashed) == scrubbed(plain), call


def test_every_reading_call_refuses_an_unknown_filter(world):
    answers = {}
    for call in READING:
        separator = "&" if call.query else "?"
        call = Call(call.method, call.path, query=f"{call.query}{separator}unheard_of=1", headers=call.headers)
        answers[str(call)] = problem(call.send(world.api, world))["code"]

    assert answers == dict.fromkeys(answers, "unknown_filter")


def test_every_call_with_a_body_refuses_unknown_fields(world):
    bodied = [call for call in CALLS if isinstance(call.body, dict) and "agents" not in call.path or str(call).endswith("/run")]
    bodied = [call for call in bodied if str(call) not in PEOPLE_ONLY]
    answers = {}
    for call in bodied:
        call = Call(call.method, call.path, {**(call.body or {}), "unheardOf": 1}, call.query, call.headers)
        answers[str(call)] = call.send(world.api, world)

    assert {name: (answer.status_code, list(problem(answer)["errors"])) for name, answer in answers.items()} == {
        name: (400, ["unheardOf"]) for name in answers
    }
    assert Tenant.objects.get(id=world.tenant.id).name == world.tenant.name


def body_of(answer) -> str:
    return (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode(errors="replace")


def scrubbed(answer) -> str:
    """Cursors are signed with the time."""
    return re.sub(r'"request_id": ?"\w+"|"(next|previous)_cursor": ?"[^"]+"', "", body_of(answer))
