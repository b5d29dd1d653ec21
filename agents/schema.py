"""The definition as sections and fields, for the editor, the help page and the API's docs. Derived from the models."""

import types
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic.fields import FieldInfo

from agents.compile.not_yet import NOT_YET
from agents.definition import Definition, Part, hints_of
from agents.definition.base import bare, part_in
from agents.definition.reading import default_of

Kind = Literal[
    "text",  # one line
    "long_text",
    "integer",
    "number",
    "boolean",
    "choice",  # one of `choices`, or of the list that `choices_from` names
    "choices",  # several of `choices`
    "value",  # text, a number, or true or false
    "texts",  # a list of single lines, or of choices from `choices_from`
    "json",
    "object",  # `item_fields` of one object that may be left out
    "objects",  # a list of objects, each with `item_fields`
    "text_map",  # a name and a text
    "object_map",  # a name and an object with `item_fields`
    "toggle",  # switches a whole object of the document on: null or {}
]


@dataclass(frozen=True, slots=True)
class Field:
    """One setting. `path` is dotted from the top of the document; in `item_fields` it is relative to the item.

    `default` is a JSON value, None when there is none; `placeholder` says what an empty field means. `minimum` and
    `maximum` are inclusive for whole numbers; `above` marks a minimum that itself is too small. `section_toggle` is
    the path of the toggle that has to be on. `available` is False while Lethe does not carry the setting out.
    """

    path: str
    label: str
    help: str
    kind: Kind
    default: Any = None
    placeholder: str = ""
    required: bool = False
    optional: bool = False
    minimum: float | None = None
    above: bool = False
    maximum: float | None = None
    max_length: int | None = None
    choices: tuple[tuple[str, str], ...] = ()
    choices_from: str = ""
    unit: str = ""
    item_fields: tuple["Field", ...] = ()
    section_toggle: str = ""
    available: bool = True

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Section:
    """`toggle` is the path of the object that the section switches on and off; empty where it is always there."""

    key: str
    title: str
    help: str
    fields: tuple[Field, ...] = field(default=())
    toggle: str = ""


# What each section shows: names of the definition's fields. A part stands for all its fields.
_LAYOUT = (
    ("identity", "Identity", "What the agent is called and what it is for.", ("name", "display_name", "description")),
    (
        "instructions",
        "Instructions",
        "What the model is told, and what a run may fill in.",
        ("instructions", "instructions_by_culture", "parameters", "response_format"),
    ),
    ("model", "Model", "Which model answers, and what stands in for it.", ("model",)),
    (
        "tools",
        "Tools and skills",
        "What the agent can do besides answering.",
        ("tools", "tool_settings", "skills", "callable_agents", "mcp_resource_uris"),
    ),
    ("harness", "Harness", "Todos, modes and a budget around the model.", ("harness",)),
    ("context", "Context", "What happens when a conversation grows long.", ("compaction",)),
    ("memory", "Memory", "What the agent keeps beyond one conversation.", ("memory",)),
    ("workspace", "Workspace", "Files that belong to one session.", ("workspace",)),
    ("assembly", "Assembly", "What the model sees, in order, and what is written down afterwards.", ("assembly", "layer_caps", "aggregation")),
    ("limits", "Limits", "What a run may use, and how sessions behave.", ("limits", "sessions")),
    ("metadata", "Metadata", "Your application's own values.", ("metadata",)),
)


@cache
def sections() -> tuple[Section, ...]:
    """All settings in the order of the editor; every setting of a definition is in exactly one place."""
    return tuple(_section(*row) for row in _LAYOUT)


def all_fields() -> dict[str, Field]:
    """Every field of every section by path, without the fields inside lists and maps."""
    return {entry.path: entry for section in sections() for entry in section.fields}


def _section(key: str, title: str, help: str, names: tuple[str, ...]) -> Section:
    fields = tuple(entry for name in names for entry in _fields(Definition, name, ""))
    toggles = [entry.path for entry in fields if entry.kind == "toggle"]
    # A section of several parts has toggles of its own; only one that is nothing but its part has one as a whole.
    return Section(key, title, help, fields, toggles[0] if names == tuple(toggles) else "")


def _fields(part: type[Part], name: str, above: str, toggle: str = "") -> list[Field]:
    """The fields that one attribute of a part becomes: its own, or those of the part inside it."""
    info, path = part.model_fields[name], f"{above}{name}"
    inner = bare(info.annotation)
    if not (isinstance(inner, type) and issubclass(inner, Part)):
        return [_field(part, name, path, toggle)]
    if _is_optional(info) and above:
        return [_field(part, name, path, toggle)]
    found = [_field(part, name, path, toggle, kind="toggle")] if _is_optional(info) else []
    toggle = path if found else toggle
    return found + [entry for inside in inner.model_fields for entry in _fields(inner, inside, f"{path}.", toggle)]


def _field(part: type[Part], name: str, path: str, toggle: str, kind: Kind | None = None) -> Field:
    info, hints = part.model_fields[name], hints_of(part.model_fields[name])
    kind = kind or _kind(info, hints)
    required = info.is_required()
    return Field(
        path=path,
        label=info.title or name,
        help=info.description or "",
        kind=kind,
        default=None if required else default_of(part, name),
        placeholder=hints.get("placeholder", ""),
        required=required,
        optional=_is_optional(info),
        choices=tuple(hints.get("labels", {}).items()),
        choices_from=hints.get("choices_from", ""),
        unit=hints.get("unit", ""),
        item_fields=_item_fields(info) if kind in ("object", "objects", "object_map") else (),
        section_toggle=toggle,
        available=path not in _NOT_AVAILABLE,
        **_bounds(info),
    )


_NOT_AVAILABLE = frozenset(row.path for row in NOT_YET)


def _item_fields(info: FieldInfo) -> tuple[Field, ...]:
    item = part_in(info.annotation)
    return tuple(_field(item, name, name, "") for name in item.model_fields)


def _kind(info: FieldInfo, hints: dict) -> Kind:
    inner = bare(info.annotation)
    if get_origin(inner) is dict:
        if hints.get("kind") == "json":
            return "json"
        return "object_map" if part_in(inner) else "text_map"
    if get_origin(inner) is list:
        if part_in(inner):
            return "objects"
        return "choices" if hints.get("labels") else "texts"
    if part_in(inner):
        return "object"
    if hints.get("kind"):
        return hints["kind"]
    if hints.get("labels") or hints.get("choices_from"):
        return "choice"
    return {bool: "boolean", int: "integer", float: "number"}.get(_plain(inner), "text")


def _plain(annotation: Any) -> Any:
    """int of int, str of Annotated[str, ...]."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _is_optional(info: FieldInfo) -> bool:
    return get_origin(info.annotation) in (Union, types.UnionType) and type(None) in get_args(info.annotation)


def _bounds(info: FieldInfo) -> dict:
    """Bounds of numbers and lengths of texts, as pydantic keeps them in the field's metadata or its type's."""
    found: dict[str, Any] = {}
    whole = _plain(bare(info.annotation)) is int
    for mark in [*info.metadata, *getattr(bare(info.annotation), "__metadata__", ())]:
        if isinstance(mark, Ge):
            found["minimum"] = mark.ge
        elif isinstance(mark, Gt):
            found |= {"minimum": mark.gt + 1} if whole else {"minimum": mark.gt, "above": True}
        elif isinstance(mark, Le):
            found["maximum"] = mark.le
        elif isinstance(mark, Lt):
            found["maximum"] = mark.lt
        elif isinstance(mark, MaxLen) or getattr(mark, "max_length", None):
            found["max_length"] = mark.max_length
    return found
