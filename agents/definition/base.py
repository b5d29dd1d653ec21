"""How every part of a definition is read: any case style for keys and choices, unknown keys refused, defaults left out."""

import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Where a field's hints for the editor live in the JSON schema of the definition.
UI = "x-lethe"


def setting(
    default: Any = ...,
    *,
    title: str,
    about: str,
    kind: str = "",
    labels: dict[str, str] | None = None,
    choices_from: str = "",
    unit: str = "",
    placeholder: str = "",
    aliases: tuple[str, ...] = (),
    **bounds: Any,
):
    """A field of a definition: `title` and one sentence `about` it, read by people in the editor and the API's docs.

    `kind` overrides the widget that the type suggests (long_text, code), `labels` names the choices, `choices_from`
    says which list of the tenant offers choices (providers, models, tools, agents), `placeholder` tells what an empty
    field means, `aliases` are names other systems use. `bounds` go to pydantic.
    """
    hints = {
        "kind": kind,
        "labels": labels,
        "choices_from": choices_from,
        "unit": unit,
        "placeholder": placeholder,
        "aliases": list(aliases),
    }
    extra = {UI: {name: value for name, value in hints.items() if value}}
    if callable(default):
        bounds["default_factory"] = default
    elif default is not ...:
        bounds["default"] = default
    return Field(title=title, description=about, json_schema_extra=extra if extra[UI] else None, **bounds)


def hints_of(info) -> dict:
    """The hints that `setting` stored in a pydantic FieldInfo."""
    return (info.json_schema_extra or {}).get(UI, {})


class Part(BaseModel):
    """Base of every object inside a definition. Types are strict: the text "5" is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return tidy_object(cls, value) if isinstance(value, dict) else cls.shorthand(value)

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        """What a value that is no object stands for; itself, unless a part has a short form."""
        return value


def squash(name: str) -> str:
    """`BeforeEachTurn`, `before_each_turn` and `before-each-turn` are one name."""
    return name.replace("_", "").replace("-", "").lower()


@cache
def known_names(part: type[Part]) -> dict[str, str]:
    """Squashed spelling -> field name, aliases included."""
    names = {squash(name): name for name in part.model_fields}
    for name, info in part.model_fields.items():
        for alias in hints_of(info).get("aliases", ()):
            names.setdefault(squash(alias), name)
    return names


def tidy_object(part: type[Part], value: dict) -> dict:
    """One object with the fields' own names and choices in their own spelling; its inner objects stay as they are.

    A key that means a field which is already given keeps its spelling, so that validation names it as unknown.
    """
    names, tidy = known_names(part), {key: entry for key, entry in value.items() if key in part.model_fields}
    for key, entry in value.items():
        if key in tidy:
            continue
        name = names.get(squash(key)) if isinstance(key, str) else None
        tidy[name if name and name not in tidy else key] = entry
    return {key: _tidy_choice(part, key, entry) for key, entry in tidy.items()}


def _tidy_choice(part: type[Part], key: str, value: Any) -> Any:
    info = part.model_fields.get(key)
    if info is None or not isinstance(value, str | list):
        return value
    choices = choices_of(info.annotation)
    if isinstance(value, str):
        return choices.get(squash(value), value)
    return [choices.get(squash(entry), entry) if isinstance(entry, str) else entry for entry in value]


@cache
def choices_of(annotation: Any) -> dict[str, str]:
    """Squashed spelling -> value of every Literal in a type, also inside `| None` and lists, not inside objects."""
    if get_origin(annotation) is Literal:
        return {squash(value): value for value in get_args(annotation)}
    found: dict[str, str] = {}
    if get_origin(annotation) in (Union, types.UnionType, list):
        for inner in get_args(annotation):
            found |= choices_of(inner)
    return found


def bare(annotation: Any) -> Any:
    """A type without `| None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [inner for inner in get_args(annotation) if inner is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return annotation


def part_in(annotation: Any) -> type[Part] | None:
    """The Part that a type is, or is made of as list or map; None for plain values."""
    inner = bare(annotation)
    if get_origin(inner) in (list, dict):
        inner = get_args(inner)[-1]
    return inner if isinstance(inner, type) and issubclass(inner, Part) else None
