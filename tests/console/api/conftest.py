"""Two tenants whose names for everything are the same, and keys for them."""

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from agents.domain import definitions
from console import stepup
from governance.domain import audit, keys, subjects
from governance.models import Hold, RetentionPolicy, RetentionRun, SubjectRequest, Tenant
from governance.permissions import SCOPES
from sessions.models import Quota
from tests.factories import agents as agent_factories
from tests.factories import governance, sessions

ALL_SCOPES = [scope for scope in SCOPES if scope != "subjects:assert"]


class Api(Client):
    """A client that sends JSON with a key. `api.get("/agents")` asks for /api/agents."""

    def __init__(self, secret: str | None = None, **headers):
        super().__init__(raise_request_exception=True)
        self.secret, self.sent = secret, headers

    def ask(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers):
        """Names of headers in snake_case; `content_type` is one of them."""
        headers = {name.replace("_", "-"): value for name, value in {**self.sent, **headers}.items()}
        if self.secret:
            headers.setdefault("authorization", f"Bearer {self.secret}")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        content_type = headers.pop("content-type", "application/json")
        return self.generic(method, f"/api{path}", data, content_type=content_type, headers=headers)

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, body=None, **headers):
        return self.ask("POST", path, body, **headers)

    def put(self, path, body=None, **headers):
        return self.ask("PUT", path, body, **headers)

    def patch(self, path, body=None, **headers):
        return self.ask("PATCH", path, body, **headers)

    def delete(self, path, body=None, **headers):
        return self.ask("DELETE", path, body, **headers)


@dataclass
class World:
    """A tenant with one of everything. `mark` is in every text of it and in no name."""

    tenant: Tenant
    mark: str
    api: Api = field(default_factory=Api)
    things: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name):
        try:
            return self.things[name]
        except KeyError:
            raise AttributeError(name) from None

    def key(self, *scopes: str, **options) -> Api:
        """A client with a key of these scopes."""
        _, secret = keys.create_key(
            tenant_id=self.tenant.id, name=options.pop("name", f"key {len(scopes)} {timezone.now().timestamp()}"),
            scopes=list(scopes), by=governance.lethe(self.tenant), **options,
        )  # fmt: skip
        return Api(secret)


def make_world(slug: str, mark: str) -> World:
    tenant = governance.tenant(slug)
    world = World(tenant, mark)
    world.api = world.key(*ALL_SCOPES, name="application")
    person = subjects.resolve(tenant_id=tenant.id, value="person-1")
    provider = sessions.provider(tenant, name="demo", model_list=[{"name": "demo"}])
    document = {"name": "support", "description": mark, "model": {"provider": "demo", "model": "demo"}}
    agent = definitions.create_agent(tenant_id=tenant.id, document=document, by=governance.lethe(tenant))
    definitions.publish(agent=agent, by=governance.lethe(tenant))
    skill = agent_factories.skill(tenant, "claims", description=f"Claims {mark}")
    mcp_server = agent_factories.mcp_server(tenant, "docs", tools=[agent_factories.mcp_tool("docs", "read", mark)])
    session = sessions.session(agent, None, "case-1", title=f"Title {mark}", labels=[mark])
    personal = sessions.session(agent, person, "case-1", title=f"Personal {mark}")
    run = sessions.run(session=session, metadata={"mark": mark})
    sessions.item(session, content={"text": f"Question {mark}"}, run_id=run.id)
    sessions.item(session, role="assistant", content={"text": f"Answer {mark}"}, run_id=run.id)
    sessions.event(run, 1, "run.started", {"agent": "support", "mark": mark})
    sessions.event(run, 2, "run.completed", {"status": "completed"})
    sessions.model_call(run, context=[{"layer": "instructions", "tokens": 3, "sources": [mark]}])
    waiting = sessions.run(session=personal, status="awaiting_approval")
    approval = sessions.approval(waiting, arguments={"to": mark})
    rule = sessions.rule(agent, tool=f"tool_{mark}")
    sessions.workspace_file(session, "notes/plan.md", f"Plan {mark}", written_by=mark)
    agent_file = sessions.agent_file(agent, None, "/notes.md", f"notes {mark}", written_by=mark)
    quota = Quota.objects.create(tenant=tenant, scope="tenant", measure="runs", period="day", limit=1000)
    policy = RetentionPolicy.objects.create(tenant=tenant, category="runs", days=30)
    # A hold on a session that is not there keeps nothing of this world.
    hold = Hold.objects.create(
        tenant=tenant, matter="M-1", reason="audit", scope="session", session_id=tenant.id, placed_by="somebody",
        placed_by_label=mark,
    )  # fmt: skip
    retention_run = RetentionRun.objects.create(
        tenant=tenant, policy=policy, policy_version=1, scheduled_for=timezone.now(), cutoff=timezone.now(),
        state="completed", started_by=mark,
    )  # fmt: skip
    request = SubjectRequest.objects.create(
        tenant=tenant, subject=person, ref="SR-2026-000001", kind="erase", requester_label=mark,
        due_at=timezone.now() + timedelta(days=20), receipt={"mark": mark},
    )  # fmt: skip
    audit.record("tenant.renamed", by=governance.lethe(tenant), object_type="tenant", object_ref=tenant.id, mark=mark)
    member = governance.actor(tenant, "viewer", username=f"viewer-{mark}")
    world.things = {
        "person": person, "provider": provider, "skill": skill, "mcp_server": mcp_server, "agent": agent, "session": session, "personal": personal, "run": run,
        "waiting": waiting, "approval": approval, "rule": rule, "agent_file": agent_file, "quota": quota, "policy": policy, "hold": hold,
        "retention_run": retention_run, "request": request, "member": member,
        "membership": tenant.memberships.get(member_id=member.ref), "api_key": tenant.api_keys.get(name="application"),
    }  # fmt: skip
    return world


@pytest.fixture
def world(db) -> World:
    return make_world("acme", "blue")


@pytest.fixture
def twin(world) -> World:
    """Another tenant in which everything has the same name."""
    return make_world("twin", "green")


@pytest.fixture
def stranger(world) -> World:
    """Another tenant with nothing in it."""
    tenant = governance.tenant("stranger")
    other = World(tenant, "red")
    other.api = other.key(*ALL_SCOPES, name="application")
    return other


@pytest.fixture
def api(world) -> Api:
    """A key that may do everything an API key may do, and speaks for nobody."""
    return world.api


@contextmanager
def undone():
    """What happens inside is rolled back. Verbs that insist on a transaction of their own take it for the test's."""
    block = transaction.atomic()
    block._from_testcase = True
    with block:
        yield
        transaction.set_rollback(True)


def problem(response) -> dict:
    """The problem document of an answer, checked for its shape."""
    assert response["Content-Type"] == "application/problem+json", response.content
    document = json.loads(response.content)
    assert document["status"] == response.status_code
    assert {"type", "title", "detail", "code", "errors", "request_id"} <= set(document)
    return document


def browser(tenant, *roles, proven=True, csrf=True) -> Api:
    """A person with the session of a browser, as an Api without a key."""
    made = Api()
    made.handler.enforce_csrf_checks = True
    made.force_login(governance.member(tenant, roles))
    if proven:
        session = made.session
        session[stepup.KEY] = time.time()
        session.save()
    if csrf:
        token = "a" * 32
        made.cookies["lethe_csrf"] = token
        made.sent = {"x_csrftoken": token}
    return made
