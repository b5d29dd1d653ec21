"""The OpenAPI document holds for the API: generated requests against every operation.

Whatever is sent, nothing answers with a 5xx, and each answer is one that the document describes. Requests are
generated from the document with a fixed seed; each runs in a savepoint, so none sees what another has done.
"""

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connection
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)

from console.api.views.system import openapi
from tests.console.api.conftest import make_world, undone
from tests.console.api.routes import ids

pytestmark = pytest.mark.django_db
EXAMPLES = 12
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, response_headers_conformance]
# Streams are read in test_streams: over WSGI they would wait for a run that nobody executes.
HEADERS = {
    ("POST", "/api/agents/{name}/run"): {"Prefer": "respond-async"},
    ("GET", "/api/runs/{id}/events"): {"Accept": "application/json"},
}
# What a path's variable names, by the first part of the path.
NAMED = {
    "agents": {"name": "agent", "number": "1", "old": "1", "new": "draft"}, "providers": {"name": "provider"}, "tools": {"name": "tool"},
    "sessions": {"ref": "session"}, "runs": {"id": "run"}, "approvals": {"id": "approval"}, "approval-rules": {"id": "rule"},
    "subjects": {"ref": "person"}, "subject-requests": {"id": "request"}, "retention-policies": {"id": "policy"},
    "quotas": {"id": "quota"}, "api-keys": {"id": "api_key"}, "members": {"id": "membership"},
}  # fmt: skip

SCHEMA = schemathesis.openapi.from_dict(openapi())
SCHEMA.app = get_wsgi_application()
OPERATIONS = {operation.label: operation for operation in (result.ok() for result in SCHEMA.get_all_operations())}


@pytest.fixture(scope="module")
def world(django_db_setup, django_db_blocker):
    """One for all: requests leave nothing behind, and the connection stays open between them, as in Django's client."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch, undone():
        # Each test's own bracket closes the connection at its end; the world has to outlive it.
        patch.setattr(connection, "close", lambda: None)
        yield make_world("acme", "blue")
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


# Takes no key and no parameter: there is nothing that could be sent wrongly.
PUBLIC = "/api/signing-key"
CASES = [
    pytest.param(label, mode, id=f"{label}-{mode.value}")
    for label in OPERATIONS
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if (label, mode) != (f"GET {PUBLIC}", GenerationMode.NEGATIVE)
]
# Acts of people: with the session of a browser as well.
DECISIONS = {"/api/retention-policies/{id}/approve", "/api/subject-requests/{id}/approve", "/api/subject-requests/{id}/decline"}


@pytest.mark.parametrize("label, mode", CASES)
def test_operation_keeps_what_the_document_says(label, mode, world):
    operation = OPERATIONS[label]
    real = ids(world)
    named = {name: real.get(value, value) for name, value in NAMED.get(operation.path.split("/")[2], {}).items()}

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def keeps(case):
        send(case, world)
        if case.path_parameters:
            case.path_parameters = {**case.path_parameters, **{name: named[name] for name in case.path_parameters if name in named}}
            send(case, world)

    keeps()


def send(case, world):
    case.headers = {**(case.headers or {}), **HEADERS.get((case.method, case.operation.path), {})}
    case.headers["Authorization"] = f"Bearer {world.api.secret}"
    with undone():
        response = case.call()
    case.validate_response(response, checks=CHECKS)


def test_every_operation_has_an_id_of_its_own_and_a_tag():
    found = [described for path in openapi()["paths"].values() for described in path.values()]

    assert len({described["operationId"] for described in found}) == len(found)
    assert all(described["tags"][0] for described in found)


def test_every_operation_describes_its_errors():
    for path, methods in openapi()["paths"].items():
        for method, described in methods.items():
            problems = {code for code, answer in described["responses"].items() if "application/problem+json" in answer.get("content", {})}
            needed = {"400", "default"} if path == PUBLIC else {"400", "401", "403", "default"}
            assert needed <= problems, f"{method} {path}"
            ways = [] if path == PUBLIC else ["session", "apiKey"] if path in DECISIONS else ["apiKey"]
            assert [list(way) for way in described.get("security", []) if way] == [[way] for way in ways], f"{method} {path}"


def test_run_has_examples_that_are_taken(world):
    body = openapi()["paths"]["/api/agents/{name}/run"]["post"]["requestBody"]["content"]["application/json"]
    examples = [example["value"] for example in body["examples"].values()]

    with undone():
        statuses = [world.api.post("/agents/support/run", example, prefer="respond-async").status_code for example in examples]

    # The last one names an approval that is not there.
    assert statuses == [202, 202, 404]
