"""The definition that a run follows: parsed once a version, compiled again now and then.

A version never changes, but what it names can: a provider or tool may be gone since it was published. The report is
therefore kept for a few seconds only, so that a burst of runs pays for one compilation.
"""

import time
from collections import OrderedDict
from threading import Lock
from uuid import UUID

from agents.compile import compile_definition
from agents.definition import Definition, check_parameters, fill, instructions_for
from agents.errors import DefinitionInvalid
from agents.models import AgentVersion

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


def instructions(definition: Definition, *, parameters: dict, culture: str | None) -> str:
    """The system prompt: by culture (exact tag, then its parents, then the default), with parameters filled in."""
    text = instructions_for(definition, culture)
    return _with_harness(fill(text, check_parameters(definition, parameters)), definition)


def as_written(definition: Definition) -> str:
    """The system prompt of a run that fills in nothing and has no culture of its own."""
    return _with_harness(definition.instructions, definition)


def _with_harness(text: str, definition: Definition) -> str:
    harness = definition.harness
    if harness is not None and harness.harness_instructions:
        return f"{text}\n\n{harness.harness_instructions}" if text else harness.harness_instructions
    return text
