"""Agents that an application defines in its own code. They are shown read-only and win a clash of names."""

import logging
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from agents.definition import Definition, digest
from agents.models import Agent, AgentVersion
from governance import actors
from governance.domain import audit

log = logging.getLogger("lethe.agents")
_registered: dict[str, dict] = {}


def register_agent(definition: Definition | dict) -> Definition:
    """Offer an agent in every tenant. Raises pydantic's ValidationError at once when the definition is wrong.

    The agent appears in a tenant when it is first listed or run there; a changed definition becomes a new version.
    """
    checked = definition if isinstance(definition, Definition) else Definition.model_validate(definition)
    _registered[checked.name] = checked.as_document()
    return checked


def unregister_agent(name: str) -> None:
    """Take an agent back; what a tenant already has of it stays and can be edited there."""
    _registered.pop(name, None)


def is_read_only(agent: Agent) -> bool:
    return agent.origin == Agent.Origin.CODE and agent.name in _registered


def materialise(tenant_id: UUID, name: str | None = None) -> None:
    """Make sure that the tenant's rows say what the code says, of one agent or of all. No query without such agents."""
    wanted = {key: document for key, document in _registered.items() if name is None or key == name}
    if not wanted:
        return
    stored = {
        agent.name: agent for agent in Agent.objects.of(tenant_id).filter(name__in=wanted).select_related("published")
    }
    for key, document in wanted.items():
        if not _is_current(stored.get(key), document):
            _store(tenant_id, key, document)


def _is_current(agent: Agent | None, document: dict) -> bool:
    return (
        agent is not None
        and agent.origin == Agent.Origin.CODE
        and agent.published is not None
        and agent.published.digest == digest(document)
    )


@transaction.atomic
def _store(tenant_id: UUID, name: str, document: dict) -> None:
    texts = {"display_name": document.get("display_name", ""), "description": document.get("description", "")}
    Agent.objects.bulk_create(
        [Agent(tenant_id=tenant_id, name=name, draft=document, origin=Agent.Origin.CODE, **texts)],
        ignore_conflicts=True,
    )
    agent = Agent.objects.select_for_update().get(tenant_id=tenant_id, name=name)
    if _is_current(agent, document):
        return
    if agent.origin == Agent.Origin.CATALOGUE:
        log.warning("The agent %s of the catalogue gives way to the one defined in code.", name)
    number = (agent.versions.aggregate(last=Max("number"))["last"] or 0) + 1
    agent.published = AgentVersion.objects.create(
        agent=agent,
        tenant_id=tenant_id,
        number=number,
        document=document,
        digest=digest(document),
        note="Defined in code",
        published_by="code",
    )
    # The draft of a catalogue agent that gave way stays as it was: somebody wrote it.
    agent.origin, agent.display_name, agent.description = Agent.Origin.CODE, texts["display_name"], texts["description"]
    agent.save(update_fields=["published", "origin", "display_name", "description"])
    audit.record(
        "agent.published",
        by=actors.system(tenant_id, label="code"),
        object_type="agent",
        object_ref=agent.pk.hex,
        object_label=name,
        version=number,
    )
