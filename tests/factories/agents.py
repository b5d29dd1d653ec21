"""Definitions, agents and providers for tests, made by the product's own verbs."""

import itertools
from typing import Any

from django.utils import timezone

from agents.domain import definitions, providers, skills
from agents.mcp.naming import offered_name
from agents.models import Agent, McpServer, Provider, Skill
from governance.actors import system
from governance.models import Tenant

_numbers = itertools.count(1)
MODELS = [{"name": "demo-1", "context_window": 32_768, "max_output_tokens": 4096, "output_price": "0"}]


def document(name: str | None = None, **values: Any) -> dict:
    """A definition without any problem on the provider `demo`, plus what is given."""
    return {
        "name": name or f"agent-{next(_numbers)}",
        "instructions": "Help.",
        "model": {"provider": "demo", "model": "demo-1"},
        "compaction": {"strategy": "none"},
        **values,
    }


def provider(tenant: Tenant, name: str = "demo", kind: str = "demo", **values: Any) -> Provider:
    """The tenant's provider of that name; a new one unless it is there."""
    found = Provider.objects.filter(tenant=tenant, name=name).first()
    values.setdefault("models", MODELS if kind == "demo" else [])
    by = system(tenant.id)
    return found or providers.create_provider(tenant_id=tenant.id, by=by, name=name, kind=kind, **values)


def skill(tenant: Tenant, name: str | None = None, *, published: bool = True, **values: Any) -> Skill:
    """A skill whose draft is published as version 1, unless told otherwise."""
    by, name = system(tenant.id), name or f"skill-{next(_numbers)}"
    document = {"description": f"How {name} is done.", "instructions": f"Do {name} step by step.", **values}
    made = skills.create_skill(tenant_id=tenant.id, name=name, document=document, by=by)
    if published:
        skills.publish(skill=made, note="First", by=by)
    return made


def mcp_tool(server: str, name: str, description: str = "Does something.", **values: Any) -> dict:
    """A tool as a server's row keeps it."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"name": name, "offered": offered_name(server, name), "description": description, "schema": schema, "reads": False, **values}


def mcp_server(tenant: Tenant, name: str = "docs", *, reachable: bool | None = True, **values: Any) -> McpServer:
    """A server as it is after a check that went well, or badly, or (None) before any."""
    check = {"ok": reachable, "code": None if reachable else "mcp_unreachable", "message": "" if reachable else "Not reached."}
    check |= {"latency_ms": 20, "left_out": [], "at": timezone.now().isoformat()}
    given = {"url": "https://192.0.2.7/mcp", "last_check": None if reachable is None else check, **values}
    return McpServer.objects.create(tenant=tenant, name=name, **given)


def draft(tenant: Tenant, name: str | None = None, **values: Any) -> Agent:
    """An agent with a draft and nothing published."""
    provider(tenant)
    return definitions.create_agent(tenant_id=tenant.id, document=document(name, **values), by=system(tenant.id))


def published(tenant: Tenant, name: str | None = None, **values: Any) -> Agent:
    """An agent whose draft is published as version 1."""
    made = draft(tenant, name, **values)
    definitions.publish(agent=made, note="First", by=system(tenant.id))
    made.refresh_from_db()
    return made
