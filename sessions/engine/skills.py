"""Skills in a run: the model is told what there is, and opens what it needs."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agents import queries
from agents.definition import Definition
from agents.queries import UsableSkill
from agents.skills import MAX_RESOURCE
from agents.tools import ToolFailed
from sessions.engine.system import SystemText
from sessions.engine.toolbox import ToolSpec
from sessions.threads import in_thread

LAYER = "skills"
# An opened skill is read whole: its length has a limit of its own.
_CAP = MAX_RESOURCE + 20_000
_HEAD = "Skills are ways of working that you can open with skill_open. Open one before a task that it describes, and follow it."


@dataclass(frozen=True, slots=True)
class Offered:
    tools: tuple[ToolSpec, ...] = ()
    system: tuple[SystemText, ...] = ()


def build(tenant_id: UUID, definition: Definition) -> Offered:
    """What an agent is told of its skills, and the tools that open them. No query without skills.

    A run keeps the versions that it began with.
    """
    if not definition.skills:
        return Offered()
    found = {skill.name: skill for skill in queries.usable_skills(tenant_id, definition.skills)}
    if not found:
        return Offered()
    lines = [f"- {skill.name}: {skill.description}" for skill in found.values()]
    text = SystemText(LAYER, "\n".join([_HEAD, *lines]), tuple(f"{skill.name} v{skill.number}" for skill in found.values()))
    return Offered((_open(found), _read(found)), (text,))


def _open(known: dict[str, UsableSkill]) -> ToolSpec:
    async def run(arguments: dict[str, Any]) -> str:
        document = await _document(known, arguments["name"])
        resources = [
            f"- {resource['name']}{': ' + resource['description'] if resource.get('description') else ''}"
            for resource in document.get("resources", [])
        ]
        tail = ["", "Resources, to be read with skill_read when needed:", *resources] if resources else []
        return "\n".join([document["instructions"], *tail])

    schema = _schema({"name": {"type": "string", "enum": list(known), "description": "The skill"}})
    return ToolSpec("skill_open", "Open a skill: how its kind of task is done.", schema, run, cap=_CAP)


def _read(known: dict[str, UsableSkill]) -> ToolSpec:
    async def run(arguments: dict[str, Any]) -> str:
        document = await _document(known, arguments["name"])
        texts = {resource["name"]: resource.get("text", "") for resource in document.get("resources", [])}
        if arguments["resource"] not in texts:
            names = ", ".join(texts) or "none"
            raise ToolFailed(f"The skill {arguments['name']} has no resource {arguments['resource']!r}. It has: {names}.")
        return texts[arguments["resource"]]

    schema = _schema(
        {
            "name": {"type": "string", "enum": list(known), "description": "The skill"},
            "resource": {"type": "string", "maxLength": 100, "description": "A resource that the opened skill lists"},
        }
    )
    return ToolSpec("skill_read", "Read a text that belongs to a skill.", schema, run, cap=_CAP)


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


async def _document(known: dict[str, UsableSkill], name: str) -> dict:
    return await in_thread(queries.skill_document, known[name].version_id)
