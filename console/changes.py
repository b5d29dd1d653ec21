"""Changes between two definitions as pages show them: which setting, and the words that came and went."""

import difflib
import json
import re
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from agents import schema
from agents.domain.diffs import Change
from console.forms.definition.reading import settings_of

# Beyond this many words a text is compared by lines alone.
MOST_WORDS = 6000
CONTEXT = 2
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text: kind is same, added, removed, or gap for lines left out."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One change. `where` are the words of its setting; `pieces` read as one text with both sides in it."""

    path: str
    where: str
    kind: str
    pieces: list[Piece]
    is_code: bool

    @property
    def kind_words(self) -> str:
        return {"added": _("added"), "removed": _("removed"), "changed": _("changed")}[self.kind]


def shown(changes: list[Change]) -> list[Shown]:
    """In the order of the editor."""
    order = {path: number for number, path in enumerate(schema.all_fields())}

    def place(change: Change) -> int:
        steps = change.path.split(".")
        return min((order.get(".".join(steps[:count]), len(order)) for count in range(1, len(steps) + 1)), default=0)

    return [show(change.path, change.kind, change.old, change.new) for change in sorted(changes, key=place)]


def show(path: str, kind: str, old: Any, new: Any) -> Shown:
    old, new = (_in_words(path, value) for value in (old, new))
    plain = all(value is None or isinstance(value, str | bool) or _are_names(value) for value in (old, new))
    return Shown(path, where(path), kind, pieces(old, new), not plain)


def text_of(path: str, value: Any) -> str | None:
    """One side of a change as text; None for nothing."""
    return None if value is None else _text(_in_words(path, value))


def _in_words(path: str, value: Any) -> Any:
    """An object that came or went as a whole, setting by setting."""
    toggle = schema.all_fields().get(path)
    if toggle is None or toggle.kind != "toggle" or not isinstance(value, dict):
        return value
    whole: dict = {}
    *way, last = path.split(".")
    inner = whole
    for step in way:
        inner = inner.setdefault(step, {})
    inner[last] = value
    found = [said for part in settings_of(whole) for said in part.settings]
    return "\n".join(said.text if said.path == path else f"{said.label}: {said.text}" for said in found)


def where(path: str) -> str:
    """`harness.max_output_tokens` as "Harness: Room for the answer"; rows by their number."""
    fields, steps = schema.all_fields(), path.split(".")
    section = next((entry.title for entry in schema.sections() if any(_begins(found.path, steps[0]) for found in entry.fields)), "")
    found, rest = None, steps
    for count in range(len(steps), 0, -1):
        found, rest = fields.get(".".join(steps[:count])), steps[count:]
        if found:
            break
    if found is None:
        return path
    words = [section] if section and found.label != section else []
    return ": ".join([*words, " ".join([found.label, *_inside(found, rest)])])


def _begins(path: str, first: str) -> bool:
    return path == first or path.startswith(f"{first}.")


def _inside(field: schema.Field, rest: list[str]) -> list[str]:
    if not rest:
        return []
    first = str(int(rest[0]) + 1) if rest[0].isdigit() else rest[0]
    inner = {item.path: item.label for item in field.item_fields}
    if first in inner:
        return [f"– {inner[first]}"]
    return [first, *(f"– {inner.get(step, step)}" for step in rest[1:2])]


def pieces(old: Any, new: Any) -> list[Piece]:
    """Both values as one text, word by word where both are text."""
    if isinstance(old, str) and isinstance(new, str):
        return _of_texts(old, new)
    if _are_names(old) and _are_names(new):
        return _of_names(old, new)
    gone = [] if old is None else [Piece("removed", _text(old))]
    return gone + ([] if new is None else [Piece("added", _text(new))])


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if _are_names(value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, indent=2)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _of_names(old: list[str], new: list[str]) -> list[Piece]:
    found: list[Piece] = []
    for kind, before, after in _blocks(old, new):
        for name, entries in (("same" if kind == "equal" else "removed", before), ("added", after if kind != "equal" else [])):
            found += [Piece(name, entry) for entry in entries]
    return _joined(found, ", ")


def _joined(found: list[Piece], separator: str) -> list[Piece]:
    return [piece for entry in found for piece in (Piece("same", separator), entry)][1:]


def _of_texts(old: str, new: str) -> list[Piece]:
    """Changed lines word by word, with a little of what stands around them."""
    found: list[Piece] = []
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    blocks = list(_blocks(before, after))
    for place, (kind, gone, come) in enumerate(blocks):
        if kind == "equal":
            found += _context(gone, is_first=place == 0, is_last=place == len(blocks) - 1)
        else:
            found += _of_words("".join(gone), "".join(come))
    return found


def _context(lines: list[str], *, is_first: bool, is_last: bool) -> list[Piece]:
    head = [] if is_first else lines[:CONTEXT]
    tail = [] if is_last else lines[-CONTEXT:]
    if len(head) + len(tail) >= len(lines):
        return [Piece("same", "".join(lines))]
    found = [Piece("same", "".join(head))] if head else []
    left_out = len(lines) - len(head) - len(tail)
    found.append(Piece("gap", str(left_out)))
    return found + ([Piece("same", "".join(tail))] if tail else [])


def _of_words(old: str, new: str) -> list[Piece]:
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    if len(before) + len(after) > MOST_WORDS:
        return [Piece(kind, text) for kind, text in (("removed", old), ("added", new)) if text]
    found: list[Piece] = []
    for kind, gone, come in _blocks(before, after):
        if kind == "equal":
            found.append(Piece("same", "".join(gone)))
        else:
            found += [Piece(name, "".join(words)) for name, words in (("removed", gone), ("added", come)) if words]
    return found


def _blocks(old: list[str], new: list[str]):
    for tag, old_start, old_end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield tag, old[old_start:old_end], new[new_start:new_end]
