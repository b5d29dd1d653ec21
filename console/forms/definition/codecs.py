"""Between values of a definition and what a form submits, both ways, for every kind of field.

A form is a mapping of names to lists of texts. `draw` says how a value stands in it, `read` what stands there; drawing
a value and reading it back gives the same value, or `draw_fields` puts it into the `_extra` of its object as JSON,
where it is seen and kept. Numbers and JSON that cannot be read stay the text they are, with a problem at their name.
"""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from agents.definition.reading import same
from agents.schema import Field
from console.forms.definition.tree import Node
from governance.text import clean

Data = dict[str, list[str]]
# What a field means that is left empty.
ABSENT = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__bool__": lambda self: False})()
EXTRA, KEY, VALUE, MORE, CRLF = "_extra", "_key", "_value", "_more", "_crlf"
MAX_ROWS = 500

_WHOLE = re.compile(r"[+-]?\d{1,300}")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,_ \u00a0\u202f]\d{3})+")
_DECIMAL = re.compile(r"[+-]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,3})?")


class Undrawable(Exception):
    """The value is of another kind than its field: it is shown as JSON instead."""


@dataclass(slots=True)
class Reading:
    """A form while it is read. `problems` are sentences by the name of the control; `places` leads from a place in the
    document to the name it has in the form, where the two differ; `lost` names maps in which a key appears twice;
    `extras` are the keys in each `_extra`."""

    data: Data
    problems: dict[str, list[str]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    extras: dict[str, set[str]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        entries = self.data.get(name)
        return _lines(entries[-1]) if entries else ""

    def texts(self, name: str) -> list[str]:
        return [_lines(entry) for entry in self.data.get(name, [])]

    def problem(self, name: str, sentence: str) -> None:
        self.problems.setdefault(name, []).append(sentence)

    def rows(self, name: str) -> list[int]:
        return row_numbers(self.data, name)


def row_numbers(data: Data, name: str) -> list[int]:
    """The numbers of the rows that a form has of a list or map, in order."""
    found = re.compile(rf"{re.escape(name)}\.(\d{{1,6}})\.")
    return sorted({int(match[1]) for key in data if (match := found.match(key))})[:MAX_ROWS]


def _lines(text: str) -> str:
    """Line ends as documents have them: browsers send CRLF."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")


# --- Objects --------------------------------------------------------------------------------------------------------

Entries = dict[str, Field | Node]


def draw_fields(entries: Entries, value: dict, prefix: str) -> Data:
    """An object's fields. What is left out of the document is drawn as its default."""
    data, extra = {}, {key: entry for key, entry in value.items() if key not in entries}
    for key, entry in entries.items():
        name = f"{prefix}{key}"
        drawn = _drawn(entry, value[key], name, value) if key in value else None
        if drawn is None:
            if key in value:
                extra[key] = value[key]
            drawn = draw(entry, _shown_default(entry), name)
        data |= drawn
    if extra:
        data[f"{prefix}{EXTRA}"] = [as_json(extra)]
    return data


def _drawn(entry: Field | Node, value: Any, name: str, siblings: dict) -> Data | None:
    """The value in the form, or None when the form could not say it exactly."""
    try:
        data = draw(entry, value, name)
    except Undrawable:
        return None
    beside = {} if isinstance(entry, Node) else _beside(entry, name, siblings)
    found = read(entry, Reading(data | beside), name, name)
    return data if found is not ABSENT and same(found, value) else None


def _beside(entry: Field, name: str, siblings: dict) -> Data:
    """A default is read by the kind of its parameter."""
    if entry.kind != "value":
        return {}
    kind = siblings.get("kind", "text")
    return {f"{name.rpartition('.')[0]}.kind": [kind if isinstance(kind, str) else ""]}


def read_fields(entries: Entries, reading: Reading, prefix: str, path: str) -> dict:
    """An object without what stands at its default. `path` is where it lies in the document, with its final dot."""
    found = {}
    for key, entry in entries.items():
        value = read(entry, reading, f"{prefix}{key}", f"{path}{key}")
        if value is not ABSENT and not (is_optional(entry) and same(value, default_of(entry))):
            found[key] = value
    return found | _read_extra(reading, f"{prefix}{EXTRA}")


def _read_extra(reading: Reading, name: str) -> dict:
    text = reading.text(name).strip()
    value = _read_json(reading, name, text) if text else {}
    if isinstance(value, dict):
        if value:
            reading.extras[name] = set(value)
        return value
    if name not in reading.problems:
        reading.problem(name, _("Write a JSON object here, or leave it empty."))
    return {}


def _shown_default(entry: Field | Node) -> Any:
    """What is drawn for a field that the document leaves out: boxes and choices as they stand, the rest as placeholder."""
    if isinstance(entry, Node) or entry.kind in ("boolean", "choice", "choices"):
        return default_of(entry)
    return None


def default_of(entry: Field | Node) -> Any:
    """The value that is meant by leaving it out."""
    return (None if entry.toggle else {}) if isinstance(entry, Node) else entry.default


def is_optional(entry: Field | Node) -> bool:
    """Whether it may be left out of the document when it says its default."""
    return isinstance(entry, Node) or not entry.required


# --- By kind --------------------------------------------------------------------------------------------------------


def draw(entry: Field | Node, value: Any, name: str) -> Data:
    """How a value stands in a form, None for nothing. Raises Undrawable."""
    if isinstance(entry, Node):
        return _draw_node(entry, value, name)
    return _KINDS[entry.kind][0](entry, value, name)


def read(entry: Field | Node, reading: Reading, name: str, path: str) -> Any:
    """The value that stands in a form, ABSENT when nothing does."""
    if isinstance(entry, Node):
        return _read_node(entry, reading, name, path)
    return _KINDS[entry.kind][1](entry, reading, name, path)


def _draw_node(node: Node, value: Any, name: str) -> Data:
    _must_be(value, dict)
    data = draw_fields(node.entries, value or {}, f"{name}.")
    return data | {name: ["on"]} if node.toggle and value is not None else data


def _read_node(node: Node, reading: Reading, name: str, path: str) -> Any:
    if node.toggle and name not in reading.data:
        return ABSENT
    found = read_fields(node.entries, reading, f"{name}.", f"{path}.")
    return found if node.toggle or found else ABSENT


def _draw_text(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, str)
    if not value:
        return {}
    # Browsers write every line end as CRLF, so a text that has them already needs a mark to keep them.
    return {name: [value], f"{name}.{CRLF}": ["on"]} if "\r\n" in value else {name: [value]}


def _read_text(entry: Field, reading: Reading, name: str, path: str) -> Any:
    text = reading.text(name)
    return (text.replace("\n", "\r\n") if f"{name}.{CRLF}" in reading.data else text) or ABSENT


def _draw_number(entry: Field, value: Any, name: str) -> Data:
    if isinstance(value, bool):
        raise Undrawable
    _must_be(value, int | float | str)
    return {} if value is None else {name: [value if isinstance(value, str) else json.dumps(value)]}


def _read_whole(entry: Field, reading: Reading, name: str, path: str) -> Any:
    text = reading.text(name).strip()
    if not text:
        return ABSENT
    if _WHOLE.fullmatch(text):
        return int(text)
    # 61,952 is how we show numbers, so it is how they are pasted.
    if _GROUPED.fullmatch(text):
        return int(re.sub(r"[^\d+-]", "", text))
    reading.problem(name, _("Write a whole number, such as 2048."))
    return reading.text(name)


def _read_decimal(entry: Field, reading: Reading, name: str, path: str) -> Any:
    text = reading.text(name).strip()
    if not text:
        return ABSENT
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    reading.problem(name, _("Write a number, such as 0.5."))
    return reading.text(name)


def _draw_boolean(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, bool)
    return {name: ["on"]} if value else {}


def _read_boolean(entry: Field, reading: Reading, name: str, path: str) -> Any:
    return name in reading.data


def _draw_value(entry: Field, value: Any, name: str) -> Data:
    """Text as it is; numbers, true and false as JSON writes them."""
    if value is None:
        return {}
    _must_be(value, str | int | float)
    return {name: [value if isinstance(value, str) else json.dumps(value)]}


def _read_value(entry: Field, reading: Reading, name: str, path: str) -> Any:
    kind, text = reading.text(f"{name.rpartition('.')[0]}.kind"), reading.text(name)
    if not text or kind not in ("number", "boolean"):
        return text or ABSENT
    if kind == "number":
        return _read_decimal(entry, reading, name, path)
    words = {"true": True, "yes": True, "false": False, "no": False}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    reading.problem(name, _("Write true or false."))
    return text


def _draw_several(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, list)
    _all_texts(value)
    return {name: list(value)} if value else {}


def _read_several(entry: Field, reading: Reading, name: str, path: str) -> Any:
    more = re.split(r"[,\n]", reading.text(f"{name}.{MORE}"))
    return reading.texts(name) + [text.strip() for text in more if text.strip()]


def _draw_texts(entry: Field, value: Any, name: str) -> Data:
    if entry.choices_from:
        return _draw_several(entry, value, name)
    _must_be(value, list)
    _all_texts(value)
    # A list that says its default is left empty: the placeholder shows it.
    return {} if not value or same(value, entry.default) else {name: ["\n".join(value)]}


def _read_texts(entry: Field, reading: Reading, name: str, path: str) -> Any:
    if entry.choices_from:
        return _read_several(entry, reading, name, path)
    found = [line.strip() for line in reading.text(name).split("\n") if line.strip()]
    return found or ABSENT


def _draw_json(entry: Field, value: Any, name: str) -> Data:
    return {} if value is None or same(value, entry.default) else {name: [as_json(value)]}


def _read_json_field(entry: Field, reading: Reading, name: str, path: str) -> Any:
    text = reading.text(name)
    return _read_json(reading, name, text) if text.strip() else ABSENT


def _draw_object(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, dict)
    data = draw_fields(fields_of(entry), value or {}, f"{name}.")
    return data | {name: ["on"]} if value is not None and has_switch(entry) else data


def _read_object(entry: Field, reading: Reading, name: str, path: str) -> Any:
    if has_switch(entry) and name not in reading.data:
        return ABSENT
    found = read_fields(fields_of(entry), reading, f"{name}.", f"{path}.")
    return found if found or has_switch(entry) else ABSENT


def has_switch(entry: Field) -> bool:
    """Whether an object can be there with nothing in it, so that only a switch can say so."""
    return entry.kind == "object" and not any(item.required for item in entry.item_fields)


def _draw_objects(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, list)
    data: Data = {}
    for number, item in enumerate(value or []):
        if not isinstance(item, dict):
            raise Undrawable
        data |= draw_fields(fields_of(entry), item, f"{name}.{number}.")
    return data


def _read_objects(entry: Field, reading: Reading, name: str, path: str) -> Any:
    found = []
    for number in reading.rows(name):
        row = f"{name}.{number}"
        item = read_fields(fields_of(entry), reading, f"{row}.", f"{path}.{len(found)}.")
        if item or _has_problem(reading, row):
            reading.places[f"{path}.{len(found)}"] = row
            found.append(item)
    return found


def _has_problem(reading: Reading, row: str) -> bool:
    return any(name.startswith(f"{row}.") for name in reading.problems)


def _draw_text_map(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, dict)
    _all_texts((value or {}).values())
    data: Data = {}
    for number, (key, text) in enumerate((value or {}).items()):
        data |= {f"{name}.{number}.{KEY}": [key], f"{name}.{number}.{VALUE}": [text]}
    return data


def _draw_object_map(entry: Field, value: Any, name: str) -> Data:
    _must_be(value, dict)
    data: Data = {}
    for number, (key, item) in enumerate((value or {}).items()):
        if not isinstance(item, dict):
            raise Undrawable
        data |= {f"{name}.{number}.{KEY}": [key], **draw_fields(fields_of(entry), item, f"{name}.{number}.")}
    return data


def _read_map(entry: Field, reading: Reading, name: str, path: str) -> Any:
    found: dict[str, Any] = {}
    for number in reading.rows(name):
        row = f"{name}.{number}"
        key = reading.text(f"{row}.{KEY}").strip()
        if entry.kind == "text_map":
            value = reading.text(f"{row}.{VALUE}")
        else:
            value = read_fields(fields_of(entry), reading, f"{row}.", f"{path}.{key}.")
        if key in found:
            reading.problem(f"{row}.{KEY}", _("%s is here twice.") % key)
            reading.lost.add(name)
        elif key:
            found[key] = value
            reading.places[f"{path}.{key}"] = row
        elif value or _has_problem(reading, row):
            reading.problem(f"{row}.{KEY}", _("Say what this belongs to."))
            reading.lost.add(name)
    return found


def fields_of(entry: Field) -> Entries:
    """The fields of one item of a list or map, or of an object."""
    return {item.path: item for item in entry.item_fields}


def _must_be(value: Any, kinds: Any) -> None:
    if value is not None and not isinstance(value, kinds):
        raise Undrawable


def _all_texts(values: Any) -> None:
    if not all(isinstance(value, str) for value in values or ()):
        raise Undrawable


# --- JSON -----------------------------------------------------------------------------------------------------------


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _read_json(reading: Reading, name: str, text: str) -> Any:
    """The value, or the text itself with a problem at its name."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        words = {"line": error.lineno, "column": error.colno, "what": error.msg}
        reading.problem(name, _("This is not JSON: line %(line)d, column %(column)d: %(what)s.") % words)
    except (ValueError, RecursionError) as error:
        reading.problem(name, _("This is not JSON: %s") % str(error)[:200])
    return text


def _once(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for place, (key, _value) in enumerate(pairs) if any(key == other for other, _v in pairs[:place]))
        raise ValueError(_("the key %s appears twice.") % twice)
    return found


def _no_number(text: str) -> Any:
    raise ValueError(_("%s is no JSON number.") % text)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


_KINDS = {
    "text": (_draw_text, _read_text),
    "long_text": (_draw_text, _read_text),
    "choice": (_draw_text, _read_text),
    "integer": (_draw_number, _read_whole),
    "number": (_draw_number, _read_decimal),
    "boolean": (_draw_boolean, _read_boolean),
    "value": (_draw_value, _read_value),
    "choices": (_draw_several, _read_several),
    "texts": (_draw_texts, _read_texts),
    "json": (_draw_json, _read_json_field),
    "object": (_draw_object, _read_object),
    "objects": (_draw_objects, _read_objects),
    "text_map": (_draw_text_map, _read_map),
    "object_map": (_draw_object_map, _read_map),
}
