"""The tools of a run: those its definition names, and those of its session."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import jsonschema
from referencing import Registry

from agents import tools as registry
from agents.definition import Definition
from sessions.context import tokens
from sessions.context.working_memory import keeps_todos
from sessions.engine.store import Store

logger = logging.getLogger("lethe.engine")

# Effects that reach beyond reading: refused in plan mode, noted before they run, never run a second time.
EFFECTS = frozenset({"write", "destructive", "external"})
# Without a setting of the definition, these wait for a person.
ASKING = frozenset({"destructive", "external"})
OWN = "lethe"
DEFAULT_TIMEOUT = 30.0
DEFAULT_CAP = 20_000


@dataclass(frozen=True, slots=True)
class Identity:
    """For whom the tools of a run are called. Comes from the run's row, never from a model."""

    tenant_id: UUID
    agent_name: str
    session_id: UUID | None = None
    run_id: UUID | None = None
    subject_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the loop runs it.

    `check` turns the model's arguments into those of `run`, or raises registry.BadArguments; without it they are
    checked against `schema`. `timeout` in seconds, `cap` in characters of the result.
    """

    name: str
    description: str
    schema: dict[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[Any]]
    effect: str = "read"
    origin: str = OWN
    asks: bool = False
    timeout: float = DEFAULT_TIMEOUT
    cap: int = DEFAULT_CAP
    check: Callable[[Any], dict[str, Any]] | None = None

    def arguments(self, given: Any) -> dict[str, Any]:
        """The arguments for `run`. Raises registry.BadArguments with a sentence for the model."""
        if self.check is not None:
            return self.check(given)
        # With a registry of its own, a schema from outside cannot make us fetch an address.
        validator = jsonschema.Draft202012Validator(self.schema, registry=Registry())
        try:
            error = next(validator.iter_errors(given), None)
        except Exception as cause:
            raise registry.BadArguments(f"The schema of {self.name} cannot be applied.") from cause
        if error is not None:
            where = ".".join(str(step) for step in error.absolute_path)
            raise registry.BadArguments(f"Invalid arguments: {where + ': ' if where else ''}{error.message[:300]}")
        return dict(given)


@dataclass(frozen=True, slots=True)
class ToolBox:
    """The tools by name. `missing` are named by the definition and registered nowhere.

    `initial_mode` is None for an agent without modes, `has_todos` says whether it keeps a list.
    """

    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    initial_mode: str | None = None
    has_todos: bool = False

    @classmethod
    def from_definition(
        cls,
        definition: Definition,
        *,
        store: Store,
        identity: Identity,
        default_cap: int = DEFAULT_CAP,
        extra: Iterable[ToolSpec] = (),
    ) -> "ToolBox":
        """Registered tools and session tools of `definition`; `extra` are further ones (MCP, memory, workspace).

        Names of the session's own tools win over all others.
        """
        from sessions.engine import session_tools  # noqa: PLC0415 -- it builds on ToolSpec

        extra = list(extra)
        given = {spec.name for spec in extra}
        named = [name for name in definition.tools if name not in given]
        found = [_registered(name, definition, store, identity, default_cap) for name in named]
        harness = definition.harness
        has_modes = harness is not None and not harness.disable_agent_mode_provider
        has_todos = keeps_todos(definition)
        own = session_tools.build(store, modes=has_modes, todos=has_todos, state=harness is not None)
        specs = [*(spec for spec in found if spec is not None), *extra, *own]
        return cls(
            specs={spec.name: spec for spec in specs},
            missing=tuple(name for name, spec in zip(named, found, strict=True) if spec is None),
            initial_mode=harness.initial_mode if harness is not None and has_modes else None,
            has_todos=has_todos,
        )

    def mode(self, state: Mapping[str, Any]) -> str | None:
        """The session's mode; None when the agent has none and may use all its tools."""
        return None if self.initial_mode is None else state.get("mode") or self.initial_mode

    def tokens(self, family: str) -> int:
        """What describing the tools costs in every call."""
        return sum(
            8 + tokens.count_again(f"{spec.name} {spec.description} {json.dumps(spec.schema)}", family)
            for spec in self.specs.values()
        )


def asks(definition: Definition, name: str, effect: str, *, by_origin: bool | None = None) -> bool:
    """Whether a call waits for a person: the tool's own setting, else the harness's, else what its origin wants, else the
    effect."""
    setting = definition.tool_settings.get(name)
    if setting is not None and setting.approval is not None:
        return setting.approval == "always"
    if definition.harness is not None and definition.harness.disable_tool_auto_approval:
        return True
    return effect in ASKING if by_origin is None else by_origin


class TaskAccess:
    """The structured data of the session's task, for registered tools."""

    def __init__(self, store: Store):
        self._store = store

    async def get(self, key: str, default: Any = None) -> Any:
        return (await self._store.read_task()).get(key, default)

    async def set(self, key: str, value: Any) -> None:
        await self._store.patch_task({key: value})


def _registered(
    name: str, definition: Definition, store: Store, identity: Identity, default_cap: int
) -> ToolSpec | None:
    tool = registry.get(name)
    if tool is None:
        logger.warning("tool is not registered: %s", name)
        return None
    setting = definition.tool_settings.get(name)
    initial_mode = definition.harness.initial_mode if definition.harness else "execute"

    async def run(arguments: dict[str, Any]) -> Any:
        context = registry.ToolContext(
            tenant_id=identity.tenant_id,
            agent_name=identity.agent_name,
            session_id=identity.session_id,
            run_id=identity.run_id,
            subject_id=identity.subject_id,
            mode=store.state.get("mode") or initial_mode,
            session=TaskAccess(store) if store.has_session else None,
        )
        return await tool.run(context, **arguments)

    return ToolSpec(
        name=tool.name,
        description=tool.description,
        schema=tool.schema,
        run=run,
        effect=tool.effect,
        origin=tool.origin,
        asks=asks(definition, name, tool.effect),
        timeout=(setting.timeout_s if setting else None) or DEFAULT_TIMEOUT,
        cap=(setting.max_output_chars if setting else None) or default_cap,
        check=tool.arguments,
    )
