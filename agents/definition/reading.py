"""Reading a document that may be anything: its shape is checked first, then it is brought to one spelling."""

import hashlib
import json
import math
from typing import Any

from agents.definition.base import Part, bare, part_in, tidy_object
from agents.definition.document import Definition
from agents.errors import DefinitionUnreadable
from governance.text import clean_json

MAX_DEPTH = 40
MAX_CHARACTERS = 2_000_000


def normalise(document: Any) -> dict:
    """The document in snake_case with aliases resolved, choices spelled as ours and defaults left out.

    Unknown keys and wrong values stay as they are: `compile_definition` reports them. Raises DefinitionUnreadable
    when the document is no JSON object, or nested or large beyond any definition.
    """
    check_shape(document)
    return _tidy(Definition, clean_json(_whole_numbers(document)))


def canonical(document: Any) -> str:
    """The one JSON text of a document: keys sorted, no spaces, whole numbers without a fraction."""
    return json.dumps(_whole_numbers(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(document: dict) -> str:
    """SHA-256 over the canonical text of the normalised document, as hex."""
    return hashlib.sha256(canonical(normalise(document)).encode()).hexdigest()


def check_shape(document: Any, *, depth: int = MAX_DEPTH, characters: int = MAX_CHARACTERS) -> None:
    """Raise DefinitionUnreadable unless `document` is a JSON object of sane depth and size. Never recurses."""
    if not isinstance(document, dict):
        raise DefinitionUnreadable("A definition is a JSON object, for example {\"name\": \"helper\", ...}.")
    size, waiting = 0, [(document, 1)]
    while waiting:
        value, level = waiting.pop()
        if level > depth:
            raise DefinitionUnreadable(f"The definition is nested more than {depth} levels deep.")
        size += _weight(value)
        if size > characters:
            raise DefinitionUnreadable(f"The definition is larger than {characters:,} characters.")
        if isinstance(value, dict):
            waiting += [(entry, level + 1) for entry in value.values()]
        elif isinstance(value, list):
            waiting += [(entry, level + 1) for entry in value]


def _weight(value: Any) -> int:
    """About how many characters a value itself takes, without what is inside it."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise DefinitionUnreadable("Every key of a definition is text.")
        return 2 + sum(len(key) + 4 for key in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise DefinitionUnreadable("A definition cannot contain NaN or infinite numbers.")
    if isinstance(value, int):
        # Three bits and a third make a decimal digit; beyond that Python would not print the number.
        if value.bit_length() > 1024:
            raise DefinitionUnreadable("The definition contains a number with more than 300 digits.")
        return 8
    if value is None or isinstance(value, float | list):
        return 8
    raise DefinitionUnreadable(f"A definition holds JSON values only, not {type(value).__name__}.")


def _whole_numbers(value: Any) -> Any:
    """1.0 is 1 in JSON: written one way, equal documents have equal digests."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_whole_numbers(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _whole_numbers(entry) for key, entry in value.items()}
    return value


def _tidy(part: type[Part], value: dict) -> dict:
    own, tidy = tidy_object(part, value), {}
    order = {name: number for number, name in enumerate(part.model_fields)}
    for key in sorted(own, key=lambda name: order.get(name, len(order))):
        entry, info = own[key], part.model_fields.get(key)
        if info is not None:
            entry = _tidy_value(info.annotation, entry)
            if not info.is_required() and same(entry, default_of(part, key)):
                continue
        tidy[key] = entry
    return tidy


def _tidy_value(annotation: Any, value: Any) -> Any:
    part = part_in(annotation)
    if part is None:
        return value
    if bare(annotation) is part:
        value = part.shorthand(value)
        return _tidy(part, value) if isinstance(value, dict) else value
    if isinstance(value, list):
        return [_tidy_value(part, entry) for entry in value]
    if isinstance(value, dict):
        return {key: _tidy_value(part, entry) for key, entry in value.items()}
    return value


def default_of(part: type[Part], name: str) -> Any:
    """The default of a field as it would stand in a normalised document: a part of nothing but defaults is {}."""
    default = part.model_fields[name].get_default(call_default_factory=True)
    return default.model_dump(mode="json", exclude_defaults=True) if isinstance(default, Part) else default


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return type(one) is type(other) and canonical(one) == canonical(other)
