"""The functions that agents may call: registered in code, listed in the console, never made there."""

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, get_args
from uuid import UUID

import jsonschema
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from agents.definition.document import TOOL_NAME

Effect = Literal["read", "write", "destructive", "external"]
EFFECTS: tuple[str, ...] = get_args(Effect)
# Lethe's own tools; an application's tool may not take their names.
RESERVED = (
    "file_access_*",
    "file_memory_*",
    "todos_*",
    "mode_*",
    "state_*",
    "skill_*",
    "agent_*",
    "mcp_*",
    "workspace_*",
    "playbook_*",
    "history_read",
    "web_search",
    "search_conversation_memory",
    "search_knowledge",
    "search_memories",
    "remember_fact",
    "forget_fact",
)


def agent_tool_name(agent_name: str) -> str:
    """How an agent is called as a tool of another: in the letters that providers take, 64 at most."""
    plain = f"agent_{re.sub(r'[^A-Za-z0-9_-]', '_', agent_name)}"
    if plain == f"agent_{agent_name}" and len(plain) <= 64:
        return plain
    return f"{plain[:55]}_{hashlib.sha256(agent_name.encode()).hexdigest()[:8]}"


class ToolFailed(Exception):
    """Raised inside a tool to tell the model, in one sentence, what went wrong. Other errors are never shown to it."""


class BadArguments(ValueError):
    """The arguments of a call do not fit the tool's schema. The text is for the model."""


class SessionAccess(Protocol):
    """What a tool may do with the session it is called in: its structured task data, by key."""

    async def get(self, key: str, default: Any = None) -> Any: ...

    async def set(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a tool is called. `session` is None in a run without one."""

    tenant_id: UUID
    agent_name: str
    session_id: UUID | None = None
    run_id: UUID | None = None
    subject_id: UUID | None = None
    mode: str = "execute"
    session: SessionAccess | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered function. `schema` is the JSON schema of its arguments, `origin` says where it comes from."""

    name: str
    description: str
    schema: dict
    effect: Effect
    origin: str
    run: Callable[..., Awaitable[Any]]
    parameters: type[BaseModel] | None = None

    @property
    def is_read_only(self) -> bool:
        return self.effect == "read"

    def arguments(self, given: Any) -> dict[str, Any]:
        """The arguments as the function takes them. Raises BadArguments with a sentence for the model."""
        if self.parameters is None:
            return _checked_by_schema(self.schema, given)
        try:
            checked = self.parameters.model_validate(given)
        except ValidationError as error:
            raise BadArguments(_sentence(error)) from None
        return {name: getattr(checked, name) for name in type(checked).model_fields}


_tools: dict[str, Tool] = {}


def register_tool(effect: Effect, name: str | None = None, schema: dict | None = None, origin: str | None = None):
    """Make `async def f(context, *, ...)` callable by agents.

    The arguments' schema comes from the type hints, their help from `Annotated[..., Field(description=)]`, the tool's
    description from the docstring. With `schema` the arguments arrive as plain JSON values. Raises ValueError or
    TypeError at once: a wrong tool stops the start-up, not a run.
    """

    def register(function):
        tool = _tool_of(function, effect, name or function.__name__, schema, origin)
        known = _tools.get(tool.name)
        if known and (known.run.__module__, known.run.__qualname__) != (function.__module__, function.__qualname__):
            raise ValueError(f"There is already a tool named {tool.name}, from {known.origin}.")
        _tools[tool.name] = tool
        return function

    return register


def unregister_tool(name: str) -> None:
    """Take a tool back; nothing happens when there is none."""
    _tools.pop(name, None)


def get(name: str) -> Tool | None:
    return _tools.get(name)


def all_tools() -> list[Tool]:
    return [_tools[name] for name in sorted(_tools)]


def is_reserved(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in RESERVED)


def _tool_of(function, effect, name, schema, origin) -> Tool:
    if effect not in EFFECTS:
        raise ValueError(f"The effect of {name} is one of {', '.join(EFFECTS)}, not {effect!r}.")
    if not re.fullmatch(TOOL_NAME, name) or len(name) > 64:
        raise ValueError(f"{name!r} is no name for a tool: letters, digits, _ and -, at most 64.")
    if is_reserved(name):
        raise ValueError(f"The name {name} is kept for Lethe's own tools.")
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"The tool {name} must be an async function.")
    description = inspect.getdoc(function)
    if not description:
        raise ValueError(f"The tool {name} needs a docstring: it tells the model what the tool does.")
    parameters = None if schema else _parameters_of(function, name)
    if schema:
        jsonschema.Draft202012Validator.check_schema(schema)
    return Tool(
        name=name,
        description=description,
        schema=schema or _plain_schema(parameters),
        effect=effect,
        origin=origin or f"code:{function.__module__}",
        run=function,
        parameters=parameters,
    )


def _parameters_of(function, name: str) -> type[BaseModel]:
    context, *rest = inspect.signature(function, eval_str=True).parameters.values()
    fields = {}
    for parameter in rest:
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(f"The arguments of {name} follow a *: async def {name}({context.name}, *, ...).")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"The argument {parameter.name} of {name} needs a type.")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (parameter.annotation, default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _plain_schema(parameters: type[BaseModel]) -> dict:
    """The schema without the titles that pydantic makes up: the model pays for every token of it."""
    schema = parameters.model_json_schema()
    schema.pop("title", None)
    for entry in schema.get("properties", {}).values():
        entry.pop("title", None)
    return schema


def _checked_by_schema(schema: dict, given: Any) -> dict:
    error = next(jsonschema.Draft202012Validator(schema).iter_errors(given), None)
    if error is not None:
        where = ".".join(str(step) for step in error.absolute_path)
        raise BadArguments(f"Invalid arguments: {where + ': ' if where else ''}{error.message[:300]}")
    return dict(given)


def _sentence(error: ValidationError) -> str:
    found = [f"{'.'.join(str(step) for step in entry['loc']) or 'arguments'}: {entry['msg']}" for entry in error.errors()]
    return "Invalid arguments: " + "; ".join(found[:5])
