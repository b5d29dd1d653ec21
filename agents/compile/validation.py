"""The document against its schema: pydantic's errors as plain sentences, and what can still be judged in spite of them."""

from functools import cache
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from agents.compile.nearest import did_you_mean, nearest
from agents.compile.report import Findings, Fix
from agents.definition import Definition, Part
from agents.definition.base import bare, choices_of, known_names, part_in, squash

Loc = tuple[str | int, ...]


def read(document: dict, findings: Findings) -> Definition:
    """The definition of a normalised document. Where it is wrong, it is reported and left at its default or None."""
    try:
        return Definition.model_validate(document)
    except ValidationError as error:
        broken: dict[Loc, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            broken.setdefault(_place(detail), []).append(detail)
        for place, details in broken.items():
            _report(document, place, details, findings)
        return _rest(Definition, document, (), frozenset(broken))


def _place(detail: ErrorDetails) -> Loc:
    """Where in the document an error lies, without pydantic's own steps (a member of a union, a key of a map)."""
    place: list[str | int] = []
    annotation: Any = Definition
    for step in detail["loc"][:-1] if _is_of_key(detail) else detail["loc"]:
        inner = bare(annotation)
        if isinstance(inner, type) and issubclass(inner, Part):
            place.append(step)
            if step not in inner.model_fields:
                break
            annotation = inner.model_fields[step].annotation
        elif get_origin(inner) in (list, dict):
            place.append(step)
            annotation = get_args(inner)[-1]
        else:
            break
    return tuple(place)


def _is_of_key(detail: ErrorDetails) -> bool:
    """Whether the key of a map is wrong, not its value."""
    return detail["loc"][-1:] == ("[key]",) and detail["type"] != "extra_forbidden"


def _report(document: dict, place: Loc, details: list[ErrorDetails], findings: Findings) -> None:
    path = ".".join(str(step) for step in place)
    detail = details[0]
    if detail["type"] == "extra_forbidden":
        _report_unknown_key(document, place, path, findings)
    elif len(details) > 1 and place[-1:] == ("default",):
        findings.error("wrong_type", path, "This must be text, a number, or true or false.")
    elif _is_of_key(detail):
        _report_key(place, path, findings)
    else:
        code, message = _sentence(detail)
        hint = _hint(detail, place)
        findings.error(code, path, message, hint)


def _report_key(place: Loc, path: str, findings: Findings) -> None:
    if place[0] == "instructions_by_culture":
        findings.error(
            "bad_culture", path, f"{place[-1]!r} is not a language tag.", "Write a BCP 47 tag such as de or pt-BR."
        )
    else:
        findings.error("bad_format", path, f"{place[-1]!r} cannot be a name here.", "Letters, digits, _ and - only.")


def _report_unknown_key(document: dict, place: Loc, path: str, findings: Findings) -> None:
    part, key, value = _part_at(place[:-1]), str(place[-1]), _value_at(document, place)
    above = ".".join(str(step) for step in place[:-1])
    prefix = f"{above}." if above else ""
    known = known_names(part).get(squash(key))
    remove = Fix("Remove it", {path: None})
    if known:
        findings.error(
            "duplicate_key", path, f"{key} says {known} a second time.", f"Keep {known} and remove this one.", [remove]
        )
        return
    fixes, hint = [remove], ""
    if meant := nearest(key, part.model_fields):
        hint = f"Did you mean {meant}?"
        if isinstance(_value_at(document, place[:-1]), dict) and meant not in _value_at(document, place[:-1]):
            fixes.insert(0, Fix(f"Rename it to {meant}", {f"{prefix}{meant}": value, path: None}))
    elif homes := _homes(key):
        hint = f"This belongs to {' or '.join(homes)}."
    else:
        hint = did_you_mean(key, part.model_fields)
    findings.error("unknown_key", path, f"There is no setting named {key} here.", hint, fixes)


def _part_at(place: Loc) -> type[Part]:
    part: type[Part] = Definition
    for step in place:
        if isinstance(step, str) and step in part.model_fields:
            part = part_in(part.model_fields[step].annotation) or part
    return part


@cache
def _homes(key: str) -> tuple[str, ...]:
    """The objects of a definition that know this key."""
    found = []
    for name, info in Definition.model_fields.items():
        part = part_in(info.annotation)
        if part and squash(key) in known_names(part):
            found.append(name)
    return tuple(found) or (("the definition itself",) if squash(key) in known_names(Definition) else ())


def _value_at(document: Any, place: Loc) -> Any:
    for step in place:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


_NUMBERS = {"greater_than": "more than", "greater_than_equal": "at least", "less_than": "less than", "less_than_equal": "at most"}
_TYPES = {
    "string": ("not_text", "This must be text."),
    "int": ("not_a_whole_number", "This must be a whole number."),
    "float": ("not_a_number", "This must be a number."),
    "finite": ("not_a_number", "This must be a number."),
    "bool": ("not_true_or_false", "This must be true or false."),
    "list": ("not_a_list", "This must be a list."),
    "dict": ("not_an_object", "This must be an object."),
    "model": ("not_an_object", "This must be an object."),
}


def _sentence(detail: ErrorDetails) -> tuple[str, str]:
    """The stable code and the sentence of one of pydantic's errors."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "required", "This is required."
    if kind in _NUMBERS:
        bound = next(iter(context.values()))
        if isinstance(bound, float) and bound.is_integer():
            bound = int(bound)
        return ("too_small" if "greater" in kind else "too_large"), f"This must be {_NUMBERS[kind]} {bound:,}."
    if kind == "literal_error":
        return "unknown_choice", f"{_shown(detail['input'])} is none of the choices."
    if kind == "string_pattern_mismatch":
        return "bad_format", "This contains characters that are not allowed here."
    if kind == "string_too_short":
        return "required", "This cannot be empty."
    if kind == "string_too_long":
        return "too_long", f"This is longer than {context['max_length']:,} characters."
    if kind == "too_long":
        return "too_many", f"There are more than {context['max_length']:,} entries."
    if kind == "too_short":
        return "too_few", f"There must be at least {context['min_length']:,}."
    for prefix, answer in _TYPES.items():
        if kind.startswith(prefix):
            return answer
    return kind, str(detail["msg"])


def _hint(detail: ErrorDetails, place: Loc) -> str:
    if detail["type"] == "literal_error":
        choices = choices_of(_annotation_at(place)).values()
        found = nearest(str(detail["input"]), choices)
        return (f"Did you mean {found}? " if found else "") + f"Choices: {', '.join(choices)}."
    if detail["type"] == "string_pattern_mismatch":
        return _FORMATS.get(str(place[0]), "Letters, digits and _ only.")
    if detail["type"] == "missing" and place == ("model",):
        return "Choose a provider and one of its models."
    return ""


_FORMATS = {
    "name": "Use letters, digits, dot, _ and -.",
    "tools": "Names of tools have letters, digits, _ and -.",
    "skills": "Use letters, digits, dot, _ and -.",
    "callable_agents": "Use letters, digits, dot, _ and -.",
    "mcp_resource_uris": "Write the server's name, a colon, and the address: docs:file:///readme.md.",
    "memory": "Slashes and control characters are not allowed.",
}


def _annotation_at(place: Loc) -> Any:
    annotation: Any = Definition
    for step in place:
        inner = bare(annotation)
        if isinstance(inner, type) and issubclass(inner, Part):
            annotation = inner.model_fields[step].annotation
        else:
            annotation = get_args(inner)[-1]
    return annotation


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return f"{text[:40]}..." if len(text) > 40 else text or "Empty text"


# --- What can still be judged ---------------------------------------------------------------------------------------


def _rest(part: type[Part], value: Any, place: Loc, broken: frozenset[Loc]) -> Part:
    fields = {}
    for name, info in part.model_fields.items():
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        fields[name] = _kept(info.annotation, value[name], (*place, name), broken) if name in value else default
        if fields[name] is None:
            fields[name] = default
    return part.model_construct(**fields)


def _kept(annotation: Any, value: Any, place: Loc, broken: frozenset[Loc]) -> Any:
    """The value as the schema reads it, with None where it is broken."""
    if place in broken:
        return None
    if not any(other[: len(place)] == place for other in broken):
        return _adapter(annotation).validate_python(value)
    inner = bare(annotation)
    if isinstance(inner, type) and issubclass(inner, Part):
        return _rest(inner, value, place, broken)
    if isinstance(value, list):
        return [_kept(get_args(inner)[-1], entry, (*place, number), broken) for number, entry in enumerate(value)]
    kept = {key: _kept(get_args(inner)[-1], entry, (*place, key), broken) for key, entry in value.items()}
    return {key: entry for key, entry in kept.items() if entry is not None}


@cache
def _adapter(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation)
