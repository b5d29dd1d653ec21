"""Compile: one report of everything that is wrong with a definition. It never writes and never calls a model."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from agents.compile import not_yet, validation
from agents.compile.facts import gather
from agents.compile.report import Findings, Fix, Message, Report, apply_fix
from agents.compile.rules import RULES
from agents.definition import Definition, normalise
from agents.errors import DefinitionUnreadable


def compile_definition(
    document: Any, *, tenant_id: UUID, agent_name: str | None = None, coming_skills: Iterable[str] = ()
) -> Report:
    """All problems of a definition in one tenant, errors first.

    `agent_name` is the agent that the definition is for, whose name cannot change; None for a new one. `coming_skills`
    are skills that an import brings along. Publishing, saving and rolling back use this same function, and so does the
    editor while somebody types. One query, and one for each kind of thing that the definition names.
    """
    findings = Findings()
    try:
        document = normalise(document)
    except DefinitionUnreadable as error:
        findings.error(error.code, "", error.detail)
        return Report(findings.in_order())
    definition = validation.read(document, findings)
    well_formed = not findings.messages
    _name(definition, agent_name, findings)
    facts = gather(definition, tenant_id, coming_skills)
    for rule in RULES:
        rule(definition, facts, findings)
    not_yet.check(definition, findings)
    return Report(findings.in_order(), definition if well_formed else None, findings.inconclusive)


def _name(definition: Definition, agent_name: str | None, findings: Findings) -> None:
    if agent_name and definition.name and definition.name != agent_name:
        findings.error(
            "name_immutable",
            "name",
            f"This is the agent {agent_name}; its name cannot change.",
            "To have it under another name, export it and import it as a new agent.",
            [Fix(f"Keep {agent_name}", {"name": agent_name})],
        )
