"""One agent as a file: its draft, all its versions and the skills it uses, for another tenant or another installation.

A file is somebody else's text. It is read whole before anything is written, and nothing in it is trusted: numbers and
digests are checked, unknown keys are refused, and what this tenant lacks is listed.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agents import code_defined, queries, skills
from agents.compile import Report, compile_definition
from agents.definition import digest, normalise
from agents.definition.document import NAME
from agents.definition.reading import MAX_DEPTH, check_shape
from agents.domain import skills as skill_verbs
from agents.domain.definitions import MAX_NOTE, check_tenant, checked_name, insert
from agents.errors import AgentExists, DefinitionUnreadable, ImportIncomplete, ImportInvalid, SkillInvalid
from agents.models import Agent, AgentVersion, Skill
from governance.actors import Actor
from governance.domain import audit
from governance.errors import Invalid
from governance.text import clean_json

FORMAT = "lethe.agent/1"
MAX_VERSIONS = 1000
MAX_CHARACTERS = 20_000_000
# Ten each of the draft and of every version would be more; beyond this a file is no agent any more.
MAX_SKILLS = 500
# Findings that say that this tenant lacks something, and what it is.
_LACKS = {
    "unknown_provider": "provider",
    "unknown_tool": "tool",
    "unknown_agent": "agent",
    "unknown_mcp_server": "MCP server",
    "unknown_skill": "skill",
    "skill_disabled": "skill",
    "skill_not_published": "skill",
    "not_available_yet": "setting",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class VersionFile(_Strict):
    number: Annotated[int, Field(ge=1, le=2_000_000_000)]
    document: dict[str, JsonValue]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""
    published_by: Annotated[str, Field(max_length=200)] = ""
    created_at: str = ""


class SkillFile(_Strict):
    """The published version of a skill."""

    name: Annotated[str, Field(pattern=NAME, max_length=64)]
    document: dict[str, JsonValue]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AgentFile(_Strict):
    format: Literal["lethe.agent/1"]
    name: str
    draft: dict[str, JsonValue]
    published: int | None = None
    versions: Annotated[list[VersionFile], Field(max_length=MAX_VERSIONS)] = []
    skills: Annotated[list[SkillFile], Field(max_length=MAX_SKILLS)] = []


def export_agent(*, agent: Agent, by: Actor) -> dict:
    """The agent as a JSON object: {"format", "name", "draft", "published", "versions": [...], "skills": [...]}, oldest
    version first. Of each skill that the draft or a version uses it has the published version.

    It holds no key, no session and no person's data.
    """
    check_tenant(agent.tenant_id, by, "agents.read")
    versions = list(queries.versions_of(agent).order_by("number"))
    audit.record(
        "agent.exported", by=by, object_type="agent", object_ref=agent.pk, object_label=agent.name, versions=len(versions)
    )
    return {
        "format": FORMAT,
        "name": agent.name,
        "draft": agent.draft,
        "published": agent.published.number if agent.published else None,
        "versions": [_as_file(version) for version in versions],
        "skills": _skills_of(agent, versions),
    }


def _skills_of(agent: Agent, versions: list[AgentVersion]) -> list[dict]:
    documents = [agent.draft, *(version.document for version in versions)]
    lists = [document.get("skills") for document in documents]
    names = {name for entries in lists if isinstance(entries, list) for name in entries if isinstance(name, str)}
    if not names:
        return []
    used = queries.skills_of(agent.tenant_id).filter(name__in=names).exclude(published=None).order_by("name")
    return [{"name": skill.name, "document": skill.published.document, "digest": skill.published.digest} for skill in used]


def check_import(*, tenant_id: UUID, document: Any, name: str | None = None) -> dict:
    """What importing would meet; writes nothing.

    {"name", "exists", "versions", "publishes": bool, "skills": [{"name", "exists"}], "missing": [{"kind", "name",
    "path", "message"}], "report": compile report of what would be published}. Skills that are here already stay as they
    are. Raises ImportInvalid.
    """
    file = read(document, name)
    code_defined.materialise(tenant_id, file.name)
    report, missing = _judged(file, tenant_id)
    known = _known_skills(file, tenant_id)
    return {
        "name": file.name,
        "exists": Agent.objects.of(tenant_id).filter(name=file.name).exists(),
        "versions": len(file.versions),
        "publishes": file.published is not None and report.valid,
        "skills": [{"name": skill.name, "exists": skill.name in known} for skill in file.skills],
        "missing": missing,
        "report": report.as_dict(),
    }


@transaction.atomic
def import_agent(
    *, tenant_id: UUID, document: Any, by: Actor, name: str | None = None, allow_missing: bool = False
) -> Agent:
    """Write the agent with its draft and versions, under another `name` if one is given.

    Skills that come with it and are not here are made and published. What was published is published here too, if it
    compiles; otherwise the agent waits unpublished. Raises
    ImportInvalid, AgentExists, and ImportIncomplete with the list of what is missing, unless that is allowed.
    """
    check_tenant(tenant_id, by, "agents.write")
    file = read(document, name)
    code_defined.materialise(tenant_id, file.name)
    if Agent.objects.of(tenant_id).filter(name=file.name).exists():
        raise AgentExists(file.name)
    report, missing = _judged(file, tenant_id)
    if missing and not allow_missing:
        raise ImportIncomplete(missing)
    made = _insert_skills(file, tenant_id, by)
    agent = insert(tenant_id=tenant_id, draft=file.draft, by=by)
    versions = AgentVersion.objects.bulk_create([_as_row(agent, version) for version in file.versions])
    if report.valid:
        agent.published = next((version for version in versions if version.number == file.published), None)
        agent.save(update_fields=["published"])
    audit.record(
        "agent.imported",
        by=by,
        object_type="agent",
        object_ref=agent.pk,
        object_label=agent.name,
        versions=len(versions),
        skills=made,
        published=agent.published is not None,
    )
    return agent


def _known_skills(file: AgentFile, tenant_id: UUID) -> set[str]:
    names = [skill.name for skill in file.skills]
    return set(Skill.objects.filter(tenant_id=tenant_id, name__in=names).values_list("name", flat=True)) if names else set()


def _insert_skills(file: AgentFile, tenant_id: UUID, by: Actor) -> int:
    """Make and publish the skills that are not here. Returns how many."""
    known = _known_skills(file, tenant_id)
    coming = [skill for skill in file.skills if skill.name not in known]
    for entry in coming:
        skill = skill_verbs.insert(tenant_id=tenant_id, name=entry.name, draft=entry.document, by=by)
        skill_verbs.add_version(skill=skill, document=entry.document, note="Came with an agent", by=by)
        audit.record("skill.imported", by=by, object_type="skill", object_ref=skill.pk, object_label=skill.name)
    return len(coming)


def read(document: Any, name: str | None = None) -> AgentFile:
    """The checked content of a file, renamed if asked. Raises ImportInvalid with the problems by path."""
    try:
        check_shape(document, depth=MAX_DEPTH + 3, characters=MAX_CHARACTERS)
        file = AgentFile.model_validate(clean_json(document))
        file.name = checked_name(name or file.name)
        file.draft = normalise(file.draft | {"name": file.name})
    except ValidationError as error:
        raise ImportInvalid(errors=_problems(error)) from None
    except DefinitionUnreadable as error:
        raise ImportInvalid(error.detail.replace("The definition", "The file")) from None
    except Invalid as error:
        raise ImportInvalid(error.detail, errors=error.errors) from None
    if errors := _version_problems(file) | _skill_problems(file):
        raise ImportInvalid(errors=errors)
    for version in file.versions:
        version.document = normalise(version.document | {"name": file.name})
    return file


def _version_problems(file: AgentFile) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    seen: set[int] = set()
    for place, version in enumerate(file.versions):
        if version.number in seen:
            errors[f"versions.{place}.number"] = ["This number appears twice."]
        seen.add(version.number)
        if digest(version.document) != version.digest:
            errors[f"versions.{place}.digest"] = ["The definition is not the one that was exported: it was changed."]
    if file.published is not None and file.published not in seen:
        errors["published"] = ["There is no version of this number in the file."]
    return errors


def _skill_problems(file: AgentFile) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for place, skill in enumerate(file.skills):
        path = f"skills.{place}"
        if skill.name in [other.name for other in file.skills[:place]]:
            errors[f"{path}.name"] = ["This name appears twice."]
        if skills.digest(skill.document) != skill.digest:
            errors[f"{path}.digest"] = ["The skill is not the one that was exported: it was changed."]
            continue
        try:
            skill.document = skills.read(skill.document)
        except SkillInvalid as error:
            errors |= {f"{path}.document.{at}".rstrip("."): found for at, found in (error.errors or {"": [error.detail]}).items()}
        else:
            errors |= {f"{path}.document.{at}": found for at, found in skills.problems_of_publishing(skill.document).items()}
    return errors


def _problems(error: ValidationError) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False)[:50]:
        path = ".".join(str(step) for step in detail["loc"])
        errors.setdefault(path, []).append(f"{detail['msg']}.")
    return errors


def _judged(file: AgentFile, tenant_id: UUID) -> tuple[Report, list[dict]]:
    """The report and what is missing, of what the file has published; of its draft when that is nothing."""
    published = next((version for version in file.versions if version.number == file.published), None)
    document = published.document if published else file.draft
    coming = [skill.name for skill in file.skills]
    report = compile_definition(document, tenant_id=tenant_id, agent_name=file.name, coming_skills=coming)
    return report, _missing(report, document)


def _missing(report: Report, document: dict) -> list[dict]:
    return [
        {
            "kind": _LACKS[message.code],
            "name": message.path if message.code == "not_available_yet" else _at(document, message.path),
            "path": message.path,
            "message": message.message,
        }
        for message in report.errors
        if message.code in _LACKS
    ]


def _at(document: Any, path: str) -> str:
    for step in path.split("."):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return str(document)


def _as_file(version: AgentVersion) -> dict:
    return {
        "number": version.number,
        "document": version.document,
        "digest": version.digest,
        "note": version.note,
        "published_by": version.published_by,
        "created_at": version.created_at.isoformat(),
    }


def _as_row(agent: Agent, version: VersionFile) -> AgentVersion:
    """Digests are computed here: another name is another document."""
    row = AgentVersion(
        agent=agent,
        tenant_id=agent.tenant_id,
        number=version.number,
        document=version.document,
        digest=digest(version.document),
        note=version.note,
        published_by=f"{version.published_by[:180]} (imported)".strip(),
    )
    if when := _time(version.created_at):
        row.created_at = when
    return row


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None
