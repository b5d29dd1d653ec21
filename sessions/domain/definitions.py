"""The definition that a run follows: parsed once a version, compiled again now and then.

A version never changes, but what it names can: a provider or tool may be gone since it was published. The report is
therefore kept for a few seconds only, so that a burst of runs pays for one compilation.
"""

import time
from collections import OrderedDict
from threading import Lock
from uuid import UUID

from agents.compile import compile_definition
from agents.definition import Definition
from agents.errors import DefinitionInvalid
from agents.models import AgentVersion
from governance.errors import Invalid

_FRESH_SECONDS = 10.0
_KEPT = 256
_cache: OrderedDict[tuple[UUID, UUID], tuple[float, Definition]] = OrderedDict()
_lock = Lock()


def compiled(*, tenant_id: UUID, version: AgentVersion | None, document: dict, agent_name: str) -> Definition:
    """The valid definition. Raises DefinitionInvalid with the whole report."""
    key = (tenant_id, version.id) if version is not None else None
    if key is not None and (known := _recall(key)):
        return known
    report = compile_definition(document, tenant_id=tenant_id, agent_name=agent_name)
    if not report.valid or report.definition is None:
        raise DefinitionInvalid(report)
    if key is not None:
        _remember(key, report.definition)
    return report.definition


def forget() -> None:
    """Drop what is kept, for tests and after a change of providers in this process."""
    with _lock:
        _cache.clear()


def _recall(key) -> Definition | None:
    with _lock:
        made_at, definition = _cache.get(key, (0.0, None))
        return definition if time.monotonic() - made_at < _FRESH_SECONDS else None


def _remember(key, definition: Definition) -> None:
    with _lock:
        _cache[key] = (time.monotonic(), definition)
        _cache.move_to_end(key)
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)


def first_state(definition: Definition) -> dict:
    """The state of a new session: the harness's first mode and no todos."""
    harness = definition.harness
    if harness is None or harness.disable_agent_mode_provider:
        return {}
    return {"mode": str(harness.initial_mode)}


def checked_parameters(definition: Definition, given: dict) -> dict:
    """The values of the definition's parameters. Raises Invalid for unknown, missing or mistyped ones."""
    declared = {parameter.name: parameter for parameter in definition.parameters}
    errors = {f"parameters.{name}": ["This agent has no such parameter."] for name in given if name not in declared}
    values = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.default)
        if value is None:
            if parameter.required:
                errors[f"parameters.{name}"] = ["Required."]
            continue
        if not _fits(value, str(parameter.kind)):
            errors[f"parameters.{name}"] = [f"A {parameter.kind} is expected."]
        values[name] = value
    if errors:
        raise Invalid("The parameters do not fit the agent.", errors=errors)
    return values


def _fits(value, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def instructions(definition: Definition, *, parameters: dict, culture: str | None) -> str:
    """The system prompt: by culture (exact tag, then its parents, then the default), with parameters filled in."""
    text = definition.instructions
    tag = (culture or "").lower()
    by_culture = {name.lower(): value for name, value in definition.instructions_by_culture.items()}
    while tag:
        if tag in by_culture:
            text = by_culture[tag]
            break
        tag = tag.rpartition("-")[0]
    values = checked_parameters(definition, parameters)
    for name, value in values.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        text = text.replace("{{" + name + "}}", shown).replace("{{ " + name + " }}", shown)
    harness = definition.harness
    if harness is not None and harness.harness_instructions:
        text = f"{text}\n\n{harness.harness_instructions}" if text else harness.harness_instructions
    return text
