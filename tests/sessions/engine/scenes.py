"""Short ways to set a scene for the loop: a definition, tools that are plain functions, a run."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agents.definition import Definition
from sessions.engine.loop import Outcome, run_turn
from sessions.engine.models import Candidate, ModelSource, ProviderConfig, Retries
from sessions.engine.toolbox import ToolBox, ToolSpec
from tests.sessions.engine.memory_store import MemoryStore

QUICK = Retries(attempts=3, base_delay=0.005, longest_delay=1.0)
ALL = ["chat", "responses", "anthropic", "gemini"]
ANY = {"type": "object", "properties": {}, "additionalProperties": True}


def definition(**changes: Any) -> Definition:
    document = {"name": "helper", "model": {"provider": "main", "model": "m"}, **changes}
    return Definition.model_validate(document)


def tool(
    name: str, run: Callable[..., Awaitable[Any]], *, schema: dict[str, Any] | None = None, **options: Any
) -> ToolSpec:
    """A tool whose function takes its arguments by name."""
    return ToolSpec(name, f"The tool {name}.", schema or ANY, lambda arguments: run(**arguments), **options)


def returning(name: str, value: Any = "ok", *, after: float = 0.0, **options: Any) -> ToolSpec:
    async def run(**arguments: Any) -> Any:
        await asyncio.sleep(after)
        return value

    return tool(name, run, **options)


def box(*specs: ToolSpec, mode: str | None = None, todos: bool = False, missing: Iterable[str] = ()) -> ToolBox:
    return ToolBox({spec.name: spec for spec in specs}, tuple(missing), mode, todos)


def source(*pairs: tuple[ProviderConfig, str], **options: Any) -> ModelSource:
    return ModelSource(tuple(Candidate(*pair) for pair in pairs), **{"retries": QUICK, **options})


async def take_turn(
    store: MemoryStore,
    models: ModelSource,
    tools: ToolBox | None = None,
    *,
    instructions: str = "You are helpful.",
    seconds: float | None = None,
    **changes: Any,
) -> Outcome:
    deadline = None if seconds is None else time.monotonic() + seconds
    return await run_turn(
        definition=definition(**changes),
        instructions=instructions,
        store=store,
        models=models,
        tools=tools or box(),
        deadline=deadline,
    )
