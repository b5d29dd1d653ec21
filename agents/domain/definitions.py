"""The life of an agent: a draft that is edited, versions that never change, one of them published."""

from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.db.models.functions import Now
from pydantic import TypeAdapter, ValidationError

from agents import code_defined, dependents, queries
from agents.compile import Report, compile_definition
from agents.definition import digest, normalise
from agents.definition.document import Name
from agents.errors import AgentExists, AgentInUse, AgentReadOnly, DefinitionInvalid
from agents.models import Agent, AgentVersion
from governance.actors import Actor
from governance.domain import audit
from governance.errors import Invalid, NotFound, VersionConflict
from governance.text import clean

_NAME = TypeAdapter(Name)
MAX_NOTE = 2000
_SAVED = ["draft", "draft_counter", "draft_saved_by", "draft_saved_at", "display_name", "description"]


def create_agent(*, tenant_id: UUID, document: Any, by: Actor) -> Agent:
    """A new agent with `document` as its draft, which may have problems; only its name must be right.

    Raises DefinitionUnreadable, Invalid for the name, and AgentExists.
    """
    check_tenant(tenant_id, by, "agents.write")
    draft = normalise(document)
    name = checked_name(draft.get("name"))
    code_defined.materialise(tenant_id, name)
    agent = insert(tenant_id=tenant_id, draft=draft, by=by)
    _record("agent.created", agent, by)
    return agent


def insert(*, tenant_id: UUID, draft: dict, by: Actor) -> Agent:
    """The row of a new agent. Raises AgentExists, also when somebody else creates it at the same moment."""
    agent = Agent(tenant_id=tenant_id, name=draft["name"], draft=draft, draft_saved_by=by.label, **_texts(draft))
    try:
        with transaction.atomic():
            agent.save(force_insert=True)
    except IntegrityError:
        raise AgentExists(draft["name"]) from None
    agent.refresh_from_db(fields=["created_at", "draft_saved_at"])
    return agent


@transaction.atomic
def save_draft(*, agent: Agent, document: Any, expected: int, by: Actor) -> Agent:
    """Store the draft, valid or not. `expected` is the counter that the editor opened.

    Raises VersionConflict when somebody saved meanwhile: `extra` has `current` ({"counter", "saved_by", "saved_at",
    "document"}) and `yours`, both whole documents.
    """
    draft = normalise(document)
    locked = _locked(agent, by)
    if draft.setdefault("name", locked.name) != locked.name:
        raise Invalid(
            f"This is the agent {locked.name}; its name cannot change.",
            errors={"name": ["The name of an agent cannot change."]},
        )
    if locked.draft_counter != expected:
        raise VersionConflict(current=_current(locked), yours=draft)
    if locked.draft != draft:
        saved = {"draft": draft, "draft_counter": expected + 1, "draft_saved_by": by.label, **_texts(draft)}
        Agent.objects.filter(pk=locked.pk).update(**saved, draft_saved_at=Now())
        _record("agent.saved", locked, by, counter=expected + 1)
    agent.refresh_from_db(fields=_SAVED)
    return agent


@transaction.atomic
def publish(*, agent: Agent, note: str = "", by: Actor, expected: int | None = None) -> AgentVersion:
    """Make the draft an immutable version that new runs use. Running sessions keep theirs.

    A draft that says what is published already publishes nothing: the published version is returned. With `expected`
    only that state of the draft is published. Raises DefinitionInvalid with the whole report, and VersionConflict.
    """
    locked = _locked(agent, by)
    if expected is not None and locked.draft_counter != expected:
        raise VersionConflict(current=_current(locked))
    return _published(locked, agent, document=locked.draft, note=note, by=by, action="agent.published")


@transaction.atomic
def rollback(*, agent: Agent, number: int, note: str = "", by: Actor) -> AgentVersion:
    """Publish an earlier definition again, as a new version, if it still compiles. The draft stays as it is.

    Raises NotFound for an unknown number and DefinitionInvalid.
    """
    locked = _locked(agent, by)
    old = queries.version_numbered(locked, number)
    note = note or f"Back to version {number}"
    return _published(locked, agent, document=old.document, note=note, by=by, action="agent.rolled_back", source=number)


def check(*, agent: Agent) -> Report:
    """What compile says about the agent's draft."""
    return compile_definition(agent.draft, tenant_id=agent.tenant_id, agent_name=agent.name)


def disable(*, agent: Agent, by: Actor) -> Agent:
    """New runs are refused until it is enabled again."""
    return _switch(agent, by, "agent.disabled", is_disabled=True)


def enable(*, agent: Agent, by: Actor) -> Agent:
    return _switch(agent, by, "agent.enabled", is_disabled=False)


def archive(*, agent: Agent, by: Actor) -> Agent:
    """Hide it from lists and refuse new runs; everything is kept."""
    return _switch(agent, by, "agent.archived", archived_at=Now())


def restore(*, agent: Agent, by: Actor) -> Agent:
    return _switch(agent, by, "agent.restored", archived_at=None)


@transaction.atomic
def delete_agent(*, agent: Agent, with_sessions: bool = False, by: Actor) -> None:
    """Delete the agent and its versions. Raises AgentInUse while sessions exist, unless they go along.

    Taking sessions along deletes people's conversations and needs the permission to delete sessions, too.
    """
    agent = _locked(agent, by)
    counts = dependents.counts(agent)
    if counts and not with_sessions:
        raise AgentInUse(agent.name, counts)
    if counts:
        by.require("sessions.delete")
        dependents.delete_all(agent, by)
    versions = agent.versions.count()
    _record("agent.deleted", agent, by, versions=versions, **{_key(label): number for label, number in counts.items()})
    agent.delete()


# --- Shared by the verbs --------------------------------------------------------------------------------------------


def check_tenant(tenant_id: UUID, by: Actor, permission: str) -> None:
    """Raise MissingPermission, or NotFound for another tenant's things."""
    by.require(permission)
    if by.tenant_id != tenant_id:
        raise NotFound


def checked_name(name: Any) -> str:
    """The name of a new agent. Raises Invalid."""
    try:
        if _NAME.validate_python(name, strict=True).strip("."):
            return name
    except ValidationError:
        pass  # The sentence below says what a name is.
    raise Invalid(
        "The agent needs a name: letters, digits, dot, _ and -, at most 64.",
        errors={"name": ["Use 1 to 64 letters, digits, dots, _ and -."]},
    )


def add_version(*, agent: Agent, document: dict, note: str, by: Actor) -> AgentVersion:
    """The next version of a locked agent, not yet published."""
    number = (agent.versions.aggregate(last=Max("number"))["last"] or 0) + 1
    version = AgentVersion.objects.create(
        agent=agent,
        tenant_id=agent.tenant_id,
        number=number,
        document=document,
        digest=digest(document),
        note=clean(note)[:MAX_NOTE],
        published_by=by.label,
    )
    version.refresh_from_db(fields=["created_at"])
    return version


def _published(locked: Agent, agent: Agent, *, document: dict, note: str, by: Actor, action: str, **payload) -> AgentVersion:
    report = compile_definition(document, tenant_id=locked.tenant_id, agent_name=locked.name)
    if not report.valid or report.definition is None:
        raise DefinitionInvalid(report)
    document = report.definition.as_document()
    if locked.published is not None and locked.published.digest == digest(document):
        return locked.published
    version = add_version(agent=locked, document=document, note=note, by=by)
    Agent.objects.filter(pk=locked.pk).update(published=version)
    # The caller's object tells the truth as well.
    agent.published = locked.published = version
    _record(action, locked, by, version=version.number, **payload)
    return version


def _locked(agent: Agent, by: Actor) -> Agent:
    """The agent's row, locked until the transaction ends. Raises NotFound and AgentReadOnly.

    The published version is read afterwards, by a statement of its own: joined to the locking one, it would be the
    version from before the wait.
    """
    check_tenant(agent.tenant_id, by, "agents.write")
    locked = Agent.objects.of(by.tenant_id).select_for_update().filter(pk=agent.pk).first()
    if locked is None:
        raise NotFound
    if code_defined.is_read_only(locked):
        raise AgentReadOnly
    return locked


@transaction.atomic
def _switch(agent: Agent, by: Actor, action: str, **values: Any) -> Agent:
    """Set one field. An agent that already is what is asked for stays untouched, without an entry in the trail."""
    check_tenant(agent.tenant_id, by, "agents.write")
    ((field, value),) = values.items()
    rows = Agent.objects.of(by.tenant_id).filter(pk=agent.pk)
    changed = rows.filter(**_unless(field, value)).update(**values)
    if not changed and not rows.exists():
        raise NotFound
    agent.refresh_from_db(fields=[field])
    if changed:
        _record(action, agent, by)
    return agent


def _unless(field: str, value: Any) -> dict:
    if field == "archived_at":
        return {"archived_at__isnull": value is not None}
    return {field: not value}


def _current(agent: Agent) -> dict:
    return {
        "counter": agent.draft_counter,
        "saved_by": agent.draft_saved_by,
        "saved_at": agent.draft_saved_at.isoformat(),
        "document": agent.draft,
    }


def _texts(draft: dict) -> dict[str, str]:
    """What lists show, copied out of a draft in which it may be anything."""
    found = {"display_name": draft.get("display_name", ""), "description": draft.get("description", "")}
    limits = {"display_name": 200, "description": 2000}
    return {name: text[: limits[name]] if isinstance(text, str) else "" for name, text in found.items()}


def _key(label: str) -> str:
    return label.lower().replace(" ", "_")


def _record(action: str, agent: Agent, by: Actor, **payload: Any) -> None:
    audit.record(action, by=by, object_type="agent", object_ref=agent.pk, object_label=agent.name, **payload)
