"""How agents, versions and providers are read. Every question names its tenant."""

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import genai_prices
from django.db.models import Count, QuerySet
from django.db.models.fields.json import KeyTextTransform
from genai_prices import data_snapshot

from agents import code_defined
from agents.definition import Definition, ModelRef
from agents.errors import AgentDisabled, AgentNotPublished
from agents.models import Agent, AgentVersion, EgressRule, McpServer, Provider, Skill, SkillVersion
from governance import sql
from governance.errors import NotFound
from governance.models import Tenant

# How a kind of provider is called in the list of prices and models.
PRICED_AS = {"openai": "openai", "anthropic": "anthropic", "google": "google"}
# Where a tenant's settings keep its utility model.
UTILITY_MODEL = "utility_model"


def agents_of(tenant_id: UUID, *, archived: bool = False) -> QuerySet[Agent]:
    """The tenant's agents by name, each with its published version and `version_count`."""
    code_defined.materialise(tenant_id)
    # Named here: Django forgets the model's own order as soon as a query counts.
    found = Agent.objects.of(tenant_id).select_related("published").annotate(version_count=Count("versions")).order_by("name")
    return found.exclude(archived_at=None) if archived else found.listed()


def agent_named(*, tenant_id: UUID, name: str) -> Agent:
    """One agent with its published version, archived ones too. Raises NotFound."""
    code_defined.materialise(tenant_id, name)
    agent = Agent.objects.of(tenant_id).filter(name=name).select_related("published", "tenant").first()
    if agent is None:
        raise NotFound
    return agent


def runnable(*, tenant_id: UUID, name: str) -> tuple[Agent, AgentVersion]:
    """The agent and the version that new runs use, in one query: versions are kept.

    Raises NotFound, AgentDisabled (also for archived agents) and AgentNotPublished.
    """
    return runnable_of(sql.batch(asking_runnable(tenant_id=tenant_id, name=name))[0])


def asking_runnable(*, tenant_id: UUID, name: str) -> sql.Write:
    """What `runnable` reads, for a batch with other reads; `runnable_of` makes the answer of its rows."""
    code_defined.materialise(tenant_id, name)
    return _RUNNABLE.asking([tenant_id, name])


def runnable_of(rows: list[tuple]) -> tuple[Agent, AgentVersion]:
    if not rows:
        raise NotFound
    (agent,) = _RUNNABLE.read(rows[0])
    if agent.archived_at:
        raise AgentDisabled("This agent is archived. Restore it to run it.")
    if agent.is_disabled:
        raise AgentDisabled
    if agent.published_id is None:
        raise AgentNotPublished
    agent.published = version_by(agent.published_id)
    return agent, agent.published


# The draft may be large and is not what runs.
_RUNNABLE = sql.Reader(
    "SELECT {agent} FROM agents_agent agent WHERE tenant_id = %s AND name = %s", agent=sql.Columns(Agent, without=["draft"])
)
_versions: dict[UUID, AgentVersion] = {}


def version_by(version_id: UUID) -> AgentVersion:
    """A version by its id. Versions never change, so each is read once per process."""
    version = _versions.get(version_id)
    if version is None:
        if len(_versions) >= 512:
            _versions.clear()
        version = _versions[version_id] = AgentVersion.objects.get(id=version_id)
    return version


def versions_of(agent: Agent) -> QuerySet[AgentVersion]:
    """The agent's versions, newest first."""
    return AgentVersion.objects.filter(agent=agent, tenant_id=agent.tenant_id).select_related("agent")


def version_numbered(agent: Agent, number: int) -> AgentVersion:
    """One version. Raises NotFound."""
    version = versions_of(agent).filter(number=number).first() if 0 < number < 2**31 else None
    if version is None:
        raise NotFound
    return version


_definitions: dict[UUID, Definition] = {}


def definition_of(version: AgentVersion) -> Definition:
    """A version's definition as an object. Versions never change, so each is read once per process."""
    definition = _definitions.get(version.pk)
    if definition is None:
        if len(_definitions) >= 512:
            _definitions.clear()
        definition = _definitions[version.pk] = Definition.model_validate(version.document)
    return definition


def providers_of(tenant_id: UUID) -> QuerySet[Provider]:
    return Provider.objects.filter(tenant_id=tenant_id)


def provider_named(*, tenant_id: UUID, name: str) -> Provider:
    """Raises NotFound."""
    provider = providers_of(tenant_id).filter(name=name).select_related("tenant").first()
    if provider is None:
        raise NotFound
    return provider


def utility_model(tenant_id: UUID) -> ModelRef | None:
    """The model for work beside the answers of agents, such as summaries; None: each agent's own does it. One query."""
    tenant = Tenant.objects.filter(pk=tenant_id).only("settings").first()
    return utility_model_of(tenant) if tenant is not None else None


def utility_model_of(tenant: Tenant) -> ModelRef | None:
    """`utility_model` of a tenant that was read already."""
    kept = tenant.settings.get(UTILITY_MODEL)
    return ModelRef(**kept) if kept else None


def egress_hosts(tenant_id: UUID) -> list[str]:
    """The hosts that the tenant's providers may reach; empty means every public host."""
    return EgressRule.objects.filter(tenant_id=tenant_id).values_list("hosts", flat=True).first() or []


def model_entry(provider: Provider, model_name: str) -> dict[str, Any] | None:
    """What the provider's own list says about a model; None when it is not listed."""
    return next((entry for entry in provider.model_list if entry.get("name") == model_name), None)


def model_limits(provider: Provider, model_name: str) -> dict[str, int | None]:
    """{"context_window", "max_output_tokens"} in tokens; None when nobody knows.

    The operator's list wins; the window of well-known models comes from genai-prices.
    """
    entry = model_entry(provider, model_name) or {}
    return {
        "context_window": entry.get("context_window") or _known_window(PRICED_AS.get(provider.kind), model_name),
        "max_output_tokens": entry.get("max_output_tokens"),
    }


def search_price(provider: Provider, model_name: str) -> tuple[Decimal, str] | None:
    """US dollars for 1,000 web searches of the provider's own, and whose price that is; None when nobody knows.

    The operator's price wins over the list price.
    """
    if own := provider.pricing.get("web_search"):
        return Decimal(own), "operator"
    listed = _listed_search_price(PRICED_AS.get(provider.kind), model_name)
    return None if listed is None else (listed, f"genai-prices {genai_prices.__version__}")


@lru_cache(maxsize=1024)
def _listed_search_price(priced_as: str | None, model_name: str) -> Decimal | None:
    if priced_as is None:
        return None
    try:
        price = genai_prices.calc_price(genai_prices.Usage(web_searches=1000), model_name, provider_id=priced_as).total_price
    except LookupError:
        return None
    # The list has no free searches: nothing means that it does not say.
    return price or None


@lru_cache(maxsize=1024)
def _known_window(priced_as: str | None, model_name: str) -> int | None:
    if priced_as is None:
        return None
    try:
        _, model = data_snapshot.get_snapshot().find_provider_model(model_name, None, priced_as, None)
    except LookupError:
        return None
    return model.context_window


def skills_of(tenant_id: UUID) -> QuerySet[Skill]:
    """The tenant's skills by name, each with its published version."""
    return Skill.objects.filter(tenant_id=tenant_id).select_related("published")


def skill_named(*, tenant_id: UUID, name: str) -> Skill:
    """Raises NotFound."""
    skill = skills_of(tenant_id).filter(name=name).select_related("published", "tenant").first()
    if skill is None:
        raise NotFound
    return skill


def skill_version(skill: Skill, number: int) -> SkillVersion:
    """Raises NotFound."""
    rows = SkillVersion.objects.filter(skill=skill, tenant_id=skill.tenant_id)
    version = rows.filter(number=number).first() if 0 < number < 2**31 else None
    if version is None:
        raise NotFound
    return version


@dataclass(frozen=True, slots=True)
class UsableSkill:
    """A skill as an agent is told of it; its texts are read through `version_id` when it is opened."""

    name: str
    description: str
    version_id: UUID
    number: int


def usable_skills(tenant_id: UUID, names: list[str]) -> list[UsableSkill]:
    """The published skills of these names that are switched on, in the order of the names. One query."""
    rows = Skill.objects.filter(tenant_id=tenant_id, name__in=names, is_disabled=False).exclude(published=None)
    shown = rows.values_list("name", KeyTextTransform("description", "published__document"), "published_id", "published__number")
    found = {row[0]: UsableSkill(*row) for row in shown}
    return [found[name] for name in names if name in found]


@lru_cache(maxsize=256)
def skill_document(version_id: UUID) -> dict:
    """What a version says. Versions never change, so each is read once per process."""
    return SkillVersion.objects.values_list("document", flat=True).get(id=version_id)


def mcp_servers_of(tenant_id: UUID) -> QuerySet[McpServer]:
    return McpServer.objects.filter(tenant_id=tenant_id)


def mcp_server_named(*, tenant_id: UUID, name: str) -> McpServer:
    """Raises NotFound."""
    server = mcp_servers_of(tenant_id).filter(name=name).select_related("tenant").first()
    if server is None:
        raise NotFound
    return server
