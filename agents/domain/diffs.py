"""What changed between two definitions."""

import difflib
from dataclasses import dataclass
from typing import Any, Literal

from agents.definition.reading import same

# From here on a text is compared line by line.
LONG_TEXT = 80


@dataclass(frozen=True, slots=True)
class Change:
    """`lines` is for long texts: [["same" | "added" | "removed", line], ...], with unchanged stretches shortened."""

    path: str
    kind: Literal["added", "removed", "changed"]
    old: Any = None
    new: Any = None
    lines: list[list[str]] | None = None


def diff(old: dict, new: dict) -> list[Change]:
    """Every changed setting by path, in the order of the new document, then what is gone."""
    return list(_changes("", old, new))


def _changes(path: str, old: Any, new: Any):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            yield from _entry(f"{path}.{key}" if path else key, key, old, new)
    elif isinstance(old, list) and isinstance(new, list) and _are_objects(old + new):
        for number in range(max(len(old), len(new))):
            yield from _entry(f"{path}.{number}", number, dict(enumerate(old)), dict(enumerate(new)))
    elif not same(old, new):
        yield Change(path, "changed", old, new, _lines(old, new))


def _entry(path: str, key: Any, old: dict, new: dict):
    if key not in old:
        yield Change(path, "added", None, new[key])
    elif key not in new:
        yield Change(path, "removed", old[key], None)
    else:
        yield from _changes(path, old[key], new[key])


def _are_objects(entries: list) -> bool:
    """Lists of objects are compared entry by entry; lists of names as a whole."""
    return bool(entries) and all(isinstance(entry, dict) for entry in entries)


def _lines(old: Any, new: Any) -> list[list[str]] | None:
    if not (isinstance(old, str) and isinstance(new, str)):
        return None
    if "\n" not in old + new and max(len(old), len(new)) < LONG_TEXT:
        return None
    before, after = old.splitlines(), new.splitlines()
    found = []
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(3):
        if found:
            found.append(["same", "..."])
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                found += [["same", line] for line in before[old_start:old_end]]
                continue
            found += [["removed", line] for line in before[old_start:old_end]]
            found += [["added", line] for line in after[new_start:new_end]]
    return found
