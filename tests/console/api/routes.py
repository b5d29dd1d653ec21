"""Every address of the API with what it takes, for tests that walk over all of them.

A route that is missing here fails `test_walk`: whoever adds one says how to call it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from console.api.urls import urlpatterns

DOCUMENT = {"name": "helper", "model": {"provider": "demo", "model": "demo"}}


@dataclass(frozen=True)
class Call:
    """`path` is filled with the ids of a world. `query` is what the endpoint insists on."""

    method: str
    path: str
    body: Any = None
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self):
        return f"{self.method} {self.path}"

    def send(self, api, world):
        path = self.path.format(**ids(world)) + self.query
        return api.ask(self.method, path, self.body, **dict(self.headers))


ANY = (("if_match", "*"),)
CALLS = [
    Call("POST", "/agents/{agent}/run", {"message": "Hello"}, headers=(("prefer", "respond-async"),)),
    Call("GET", "/runs/{run}/events", headers=(("accept", "application/json"),)),
    Call("GET", "/agents"),
    Call("POST", "/agents", DOCUMENT),
    Call("POST", "/agents/validate", DOCUMENT),
    Call("POST", "/agents/import", {"document": {}, "dry_run": True}),
    Call("GET", "/agents/{agent}"),
    Call("PUT", "/agents/{agent}", {**DOCUMENT, "name": "support"}, headers=ANY),
    Call("PATCH", "/agents/{agent}", {"description": "New"}, headers=ANY),
    Call("DELETE", "/agents/{agent}", query="?with_sessions=true"),
    Call("POST", "/agents/{agent}/context-preview", {"messages": [{"role": "user", "text": "Hello"}]}),
    Call("POST", "/agents/{agent}/publish", {"note": "First"}),
    Call("POST", "/agents/{agent}/rollback", {"number": 1}),
    Call("POST", "/agents/{agent}/disable"),
    Call("POST", "/agents/{agent}/enable"),
    Call("POST", "/agents/{agent}/archive"),
    Call("POST", "/agents/{agent}/restore"),
    Call("GET", "/agents/{agent}/export"),
    Call("GET", "/agents/{agent}/versions"),
    Call("GET", "/agents/{agent}/versions/1"),
    Call("GET", "/agents/{agent}/versions/1/diff/draft"),
    Call("GET", "/providers"),
    Call("POST", "/providers", {"name": "second", "kind": "demo"}),
    Call("GET", "/providers/{provider}"),
    Call("PATCH", "/providers/{provider}", {"max_concurrency": 3}),
    Call("DELETE", "/providers/{provider}"),
    Call("POST", "/providers/{provider}/test", {}),
    Call("GET", "/utility-model"),
    Call("PUT", "/utility-model", {"provider": "demo", "model": "demo"}),
    Call("DELETE", "/utility-model"),
    Call("GET", "/mcp-servers"),
    Call("POST", "/mcp-servers", {"name": "second", "url": "https://tools.example.com/mcp"}),
    Call("GET", "/mcp-servers/{mcp_server}"),
    Call("PATCH", "/mcp-servers/{mcp_server}", {"timeout_s": 5}),
    Call("DELETE", "/mcp-servers/{mcp_server}"),
    Call("POST", "/mcp-servers/{mcp_server}/test"),
    Call("GET", "/skills"),
    Call("POST", "/skills", {"name": "second"}),
    Call("GET", "/skills/{skill}"),
    Call("PUT", "/skills/{skill}", {"description": "New", "instructions": "New"}, headers=ANY),
    Call("DELETE", "/skills/{skill}"),
    Call("POST", "/skills/{skill}/publish", {"note": "First"}),
    Call("POST", "/skills/{skill}/rollback", {"number": 1}),
    Call("POST", "/skills/{skill}/disable"),
    Call("POST", "/skills/{skill}/enable"),
    Call("GET", "/skills/{skill}/versions"),
    Call("GET", "/skills/{skill}/versions/1"),
    Call("GET", "/tools"),
    Call("GET", "/tools/{tool}"),
    Call("GET", "/sessions"),
    Call("GET", "/sessions/{session}"),
    Call("PATCH", "/sessions/{session}", {"title": "New"}),
    Call("DELETE", "/sessions/{session}"),
    Call("GET", "/sessions/{session}/items"),
    Call("GET", "/sessions/{session}/state"),
    Call("PATCH", "/sessions/{session}/state", {"task": {"step": 1}}, headers=ANY),
    Call("POST", "/sessions/{session}/fork", {"key": "case-2"}),
    Call("POST", "/sessions/{session}/compact"),
    Call("POST", "/sessions/{session}/close"),
    Call("POST", "/sessions/{session}/reopen"),
    Call("GET", "/sessions/{session}/transcript"),
    Call("GET", "/sessions/{session}/files"),
    Call("GET", "/sessions/{session}/files.zip"),
    Call("GET", "/sessions/{session}/files/{file_path}"),
    Call("PUT", "/sessions/{session}/files/{file_path}", {"content": "New"}, headers=ANY),
    Call("DELETE", "/sessions/{session}/files/{file_path}"),
    Call("GET", "/files"),
    Call("POST", "/files", {"agent": "support", "scope": "agent", "path": "/new.md", "content": "New"}),
    Call("GET", "/files/search", query="?agent=support&scope=agent&q=notes"),
    Call("GET", "/files/{agent_file}"),
    Call("PUT", "/files/{agent_file}", {"content": "New"}, headers=ANY),
    Call("DELETE", "/files/{agent_file}"),
    Call("GET", "/runs"),
    Call("GET", "/runs/{run}"),
    Call("GET", "/runs/{run}/context"),
    Call("GET", "/runs/{run}/context/1/instructions"),
    Call("POST", "/runs/{waiting}/cancel"),
    Call("GET", "/approvals"),
    Call("GET", "/approvals/{approval}"),
    Call("POST", "/approvals/{approval}/decide", {"decision": "reject"}),
    Call("GET", "/approval-rules"),
    Call("POST", "/approval-rules", {"agent": "support", "tool": "send_mail", "origin": "code:tests"}),
    Call("GET", "/approval-rules/{rule}"),
    Call("DELETE", "/approval-rules/{rule}"),
    Call("GET", "/subjects", query="?q=person-1"),
    Call("GET", "/subjects/{person}"),
    Call("POST", "/subjects/{person}/preview", {}),
    Call("POST", "/subjects/{person}/merge", {"other": "nobody"}),
    Call("POST", "/subjects/{person}/split", {"identifiers": ["nobody"]}),
    Call("POST", "/subjects/{person}/export"),
    Call("POST", "/subjects/{person}/erase", {"preview_token": "x", "confirm": "person-1"}),
    Call("GET", "/unattributed"),
    Call("GET", "/unattributed/{unowned}"),
    Call("POST", "/unattributed/{unowned}/assign", {"ids": ["00000000000000000000000000000001"], "subject": "person-1"}),
    Call("POST", "/unattributed/{unowned}/waive", {"reason": "not_personal"}),
    Call("POST", "/unattributed/{unowned}/reopen", {}),
    Call("GET", "/subject-requests"),
    Call("GET", "/subject-requests/{request}"),
    Call("POST", "/subject-requests", {"subject": "person-1", "kind": "rectify"}),
    Call("POST", "/subject-requests/{request}/approve", {"digest": "sha256:0"}),
    Call("POST", "/subject-requests/{request}/decline", {"reason": "other"}),
    Call("POST", "/subject-requests/{request}/extend", {"reason": "complex", "notice_ref": "MAIL-1"}),
    Call("POST", "/subject-requests/{request}/identity"),
    Call("POST", "/subject-requests/{request}/first-answer"),
    Call("POST", "/subject-requests/{request}/corrections", {"category": "items", "what": "title"}),
    Call("POST", "/subject-requests/{request}/complete"),
    Call("POST", "/subject-requests/{request}/recipients", {"ref": "crm"}),
    Call("POST", "/subject-requests/{request}/cancel", {}),
    Call("GET", "/subject-requests/{request}/receipt"),
    Call("GET", "/subject-requests/{request}/archive"),
    Call("POST", "/subject-requests/{request}/archive-links"),
    Call("GET", "/holds"),
    Call("POST", "/holds", {"matter": "M-1", "reason": "audit", "scope": {"type": "category", "category": "items"}}),
    Call("GET", "/holds/{hold}"),
    Call("POST", "/holds/{hold}/release"),
    Call("GET", "/retention-policies"),
    Call("POST", "/retention-policies", {"category": "sessions", "days": 30}),
    Call("GET", "/retention-policies/{policy}"),
    Call("PATCH", "/retention-policies/{policy}", {"expected_version": 1, "days": 60}),
    Call("DELETE", "/retention-policies/{policy}", {"expected_version": 1}),
    Call("POST", "/retention-policies/{policy}/preview"),
    Call("POST", "/retention-policies/{policy}/run", {"expected_version": 1}),
    Call("POST", "/retention-policies/{policy}/approve", {"expected_version": 1}),
    Call("GET", "/retention-runs"),
    Call("GET", "/audit"),
    Call("GET", "/audit/verify"),
    Call("GET", "/usage"),
    Call("GET", "/quotas"),
    Call("POST", "/quotas", {"scope": "tenant", "measure": "tokens", "period": "day", "limit": "10"}),
    Call("GET", "/quotas/{quota}"),
    Call("PATCH", "/quotas/{quota}", {"limit": "20"}),
    Call("DELETE", "/quotas/{quota}"),
    Call("GET", "/api-keys"),
    Call("POST", "/api-keys", {"name": "second", "scopes": ["agents:read"]}),
    Call("GET", "/api-keys/{api_key}"),
    Call("DELETE", "/api-keys/{api_key}"),
    Call("GET", "/members"),
    Call("POST", "/members", {"username": "ada", "roles": ["viewer"]}),
    Call("GET", "/members/{membership}"),
    Call("PATCH", "/members/{membership}", {"roles": ["builder"]}),
    Call("DELETE", "/members/{membership}"),
    Call("GET", "/tenant"),
    Call("PATCH", "/tenant", {"name": "New"}),
    Call("GET", "/me"),
]
# Answer by name or without a tenant: another tenant gets its own, or what everybody gets.
SHARED = {"/tools/{tool}", *(f"/unattributed/{{unowned}}{act}" for act in ("", "/waive", "/reopen"))}
_PREFIXES = {
    "session": "ses", "run": "run", "waiting": "run", "approval": "apr", "rule": "rul", "request": "req", "policy": "pol", "hold": "hld",
    "quota": "quo", "api_key": "key", "membership": "mem", "person": "sub",
    "agent_file": "fil",
}  # fmt: skip


def ids(world) -> dict[str, str]:
    found = {name: f"{prefix}_{world.things[name].id.hex}" for name, prefix in _PREFIXES.items()}
    return {**found, "agent": world.agent.name, "provider": world.provider.name, "skill": world.skill.name, "mcp_server": world.mcp_server.name, "tool": "current_time", "file_path": "notes/plan.md", "unowned": "sessions"}


def declared() -> Iterator[tuple[str, str, type]]:
    """(method, route, view class) of every method that a view of the API answers."""
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "cls", None)
        if view is None or not pattern.name:
            continue
        for method in ("get", "post", "put", "patch", "delete"):
            if hasattr(view, method):
                yield method.upper(), str(pattern.pattern), view
