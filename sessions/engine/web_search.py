"""The provider's own web search: offered to models that have one, its searches told and paid for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelResponse, NativeToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.usage import RequestUsage

from agents.definition import Definition
from governance.text import clean, clean_json
from sessions.engine.models import Candidate

NAME = "web_search"


@dataclass(frozen=True, slots=True)
class Search:
    """One search of the provider's: `arguments` as it says what it looked for."""

    id: str
    arguments: dict[str, Any]


def offered(definition: Definition, candidate: Candidate, parameters: ModelRequestParameters) -> ModelRequestParameters:
    """The parameters with the provider's search, for an agent that wants it and a model that has it."""
    harness = definition.harness
    if harness is None or not harness.enable_web_search or harness.disable_web_search or not _has_search(candidate):
        return parameters
    return replace(parameters, native_tools=[*parameters.native_tools, WebSearchTool()])


def _has_search(candidate: Candidate) -> bool:
    provider = candidate.provider
    return provider.kind in ("anthropic", "google") or (provider.kind == "openai" and provider.api != "chat")


def billed(usage: RequestUsage) -> int:
    """How many searches the provider charges for: what it says, for Google what its rules make of it."""
    own = getattr(usage, "web_searches", None)
    return own if own is not None else (usage.details or {}).get("web_search_requests", 0)


def is_paused(response: ModelResponse) -> bool:
    """Anthropic pauses a turn that searches for long, and goes on with it when it gets it back (`pause_turn`)."""
    return response.state == "suspended"


def searches_in(parts: Sequence[Any]) -> list[Search]:
    return [
        Search(clean(part.tool_call_id or "")[:64], _arguments(part))
        for part in parts
        if isinstance(part, NativeToolCallPart) and part.tool_name == NAME
    ]


def _arguments(part: NativeToolCallPart) -> dict[str, Any]:
    try:
        found = part.args_as_dict()
    except (ValueError, AssertionError):
        return {}
    return clean_json(found) if isinstance(found, dict) else {}


def events_of(searches: Sequence[Search]) -> list[tuple[str, dict[str, Any]]]:
    """A search as a tool that the provider ran: what it found went to the model and is in its answer."""
    events: list[tuple[str, dict[str, Any]]] = []
    for search in searches:
        about = {"call_id": search.id, "name": NAME, "hosted": True}
        events.append(("tool.called", {**about, "arguments": search.arguments}))
        events.append(("tool.completed", {**about, "text": "Searched by the provider.", "outcome": "success", "duration_ms": 0}))
    return events
