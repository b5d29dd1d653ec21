"""The catalogue holds nothing about a subject: each of its stores is waived, with the reason."""

from datetime import date
from urllib.parse import urlsplit
from uuid import UUID

from agents.models import Agent, McpServer, Provider
from governance.domain import processing
from governance.waivers import waive

_OWNER = "agents"
_REVIEW = date(2028, 12, 31)

waive(
    "agents_agent",
    "agents_agentversion",
    reason="Definitions are written by members for everybody; what people say to an agent is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_skill",
    "agents_skillversion",
    reason="Ways of working that members write down for agents; what people say to an agent is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_provider",
    reason="Addresses and keys of model providers; the tests of a connection send a fixed text.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_mcpserver",
    reason="Addresses, secrets and lists of tools of MCP servers; what their tools answer is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive("agents_egressrule", reason="Names of hosts that providers may reach.", owner=_OWNER, review_by=_REVIEW)


def recipients(tenant_id: UUID) -> list[dict[str, str]]:
    """Who outside may receive data of the tenant's people: providers of models with their web search, and MCP servers."""
    searching = Agent.objects.filter(tenant_id=tenant_id, published__document__harness__enable_web_search=True)
    searches = set(searching.values_list("published__document__model__provider", flat=True))
    providers = Provider.objects.filter(tenant_id=tenant_id).exclude(kind="demo").order_by("name")
    found = [
        {"kind": kind, "name": provider.name, "address": _host(provider.base_url)}
        for provider in providers
        for kind in ("provider of models", *(["web search of a provider"] if provider.name in searches else []))
    ]
    servers = McpServer.objects.filter(tenant_id=tenant_id, is_disabled=False)
    return found + [
        {"kind": "MCP server", "name": server.name, "address": _host(server.url) or server.command} for server in servers
    ]


def _host(url: str) -> str:
    # An address may carry a key in its path or its query.
    return urlsplit(url).hostname or ""


processing.tell_recipients(recipients)
