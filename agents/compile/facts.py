"""What the rules need to know about the tenant, read once: one query for providers, one more for each kind of thing that
the definition names, however long it is."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from agents import queries, tools
from agents.definition import Definition, ModelRef
from agents.mcp.naming import server_of
from agents.models import Agent, McpServer, Provider, Skill


@dataclass(frozen=True, slots=True)
class KnownSkill:
    """`is_draft`: nothing of it is published."""

    is_disabled: bool = False
    is_draft: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """`calls` has, for every agent of the tenant, the agents that its published version may call; those in `unpublished`
    cannot be called now. `utility` is the tenant's utility model, while its provider is there and switched on."""

    providers: dict[str, Provider]
    calls: dict[str, list[str]] = field(default_factory=dict)
    unpublished: frozenset[str] = frozenset()
    skills: dict[str, KnownSkill] = field(default_factory=dict)
    mcp: dict[str, McpServer] = field(default_factory=dict)
    utility: ModelRef | None = None


def gather(definition: Definition, tenant_id: UUID, coming: Iterable[str] = ()) -> Facts:
    """`coming` are names of skills that will be there when the definition is stored."""
    agents = _agents(tenant_id) if definition.callable_agents else []
    # With the tenant, whose settings name the utility model: a run that compiles asks nothing more for it.
    providers = {provider.name: provider for provider in queries.providers_of(tenant_id).select_related("tenant")}
    return Facts(
        providers=providers,
        calls={name: called or [] for name, _, _, called in agents},
        unpublished=frozenset(name for name, published, is_disabled, _ in agents if is_disabled or published is None),
        skills={name: KnownSkill() for name in coming} | _skills(tenant_id) if definition.skills else {},
        mcp={server.name: server for server in queries.mcp_servers_of(tenant_id)} if _names_servers(definition) else {},
        utility=_utility(providers),
    )


def _utility(providers: dict[str, Provider]) -> ModelRef | None:
    some = next(iter(providers.values()), None)
    named = queries.utility_model_of(some.tenant) if some else None
    provider = providers.get(named.provider) if named else None
    return named if provider and not provider.is_disabled else None


def _names_servers(definition: Definition) -> bool:
    return bool(definition.mcp_resource_uris) or any(name and not tools.get(name) and server_of(name) for name in definition.tools)


def _agents(tenant_id: UUID) -> list[tuple]:
    """(name, id of the published version, is disabled, whom it may call) of each agent."""
    rows = Agent.objects.of(tenant_id).listed()
    return list(rows.values_list("name", "published_id", "is_disabled", "published__document__callable_agents"))


def _skills(tenant_id: UUID) -> dict[str, KnownSkill]:
    rows = Skill.objects.filter(tenant_id=tenant_id).values_list("name", "is_disabled", "published_id")
    return {name: KnownSkill(is_disabled, published is None) for name, is_disabled, published in rows}


def models_of(definition: Definition) -> list[tuple[str, ModelRef]]:
    """Every model that the definition names, with its path. The agent's own comes first."""
    found: list[tuple[str, ModelRef | None]] = [("model", definition.model)]
    if definition.model:
        found += [(f"model.fallbacks.{number}", ref) for number, ref in enumerate(definition.model.fallbacks)]
    if definition.compaction:
        found.append(("compaction.summarization_model", definition.compaction.summarization_model))
    if definition.memory:
        found.append(("memory.extraction_model", definition.memory.extraction_model))
    found += [
        (f"aggregation.{number}.model", aggregate.model)
        for number, aggregate in enumerate(definition.aggregation)
        if aggregate
    ]
    return [(path, ref) for path, ref in found if ref is not None]
