"""What the rules need to know about the tenant, read once: at most two queries, however long the definition is."""

from dataclasses import dataclass, field
from uuid import UUID

from agents import queries
from agents.definition import Definition, ModelRef
from agents.models import Agent, Provider


@dataclass(frozen=True, slots=True)
class Facts:
    """`calls` has, for every agent of the tenant, the agents that its published version may call."""

    providers: dict[str, Provider]
    calls: dict[str, list[str]] = field(default_factory=dict)


def gather(definition: Definition, tenant_id: UUID) -> Facts:
    providers = {provider.name: provider for provider in queries.providers_of(tenant_id)}
    if not definition.callable_agents:
        return Facts(providers)
    rows = Agent.objects.of(tenant_id).listed().values_list("name", "published__document__callable_agents")
    return Facts(providers, {name: called or [] for name, called in rows})


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
