"""The editor's form: read into a document, drawn from one, and changed by the acts on its page (fix, add, remove, move)."""

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from agents.compile import Report, apply_fix, compile_definition
from agents.definition import normalise
from agents.errors import DefinitionUnreadable
from console.forms.definition import codecs
from console.forms.definition.tree import Node, root
from governance.errors import Invalid

# What the page adds to the settings themselves.
_OURS = ("csrfmiddlewaretoken", "act", "counter", "panel", "shown", "what_if_session")
_ROW = re.compile(r"[a-z_]+(?:\.[a-z0-9_]+)*\.\d{1,6}")


class DefinitionForm:
    """`data` is what the browser holds: names and their texts. `document` is what it means.

    `problems` are sentences by name for what cannot be read at all; while there are any, nothing may be saved. Such a
    text stays in the document as it is, so that neither the form nor the checks take it for an empty field.
    """

    def __init__(self, data: codecs.Data):
        self.data = data
        # Lists to which the person asked for one more row.
        self.more_rows: set[str] = set()

    @classmethod
    def of_document(cls, document: dict) -> "DefinitionForm":
        return cls(codecs.draw_fields(root().entries, _tidy(document), ""))

    @classmethod
    def of_post(cls, post: QueryDict) -> "DefinitionForm":
        return cls({name: texts for name, texts in post.lists() if name not in _OURS})

    @cached_property
    def _read(self) -> tuple[codecs.Reading, dict]:
        reading = codecs.Reading(self.data)
        return reading, _tidy(codecs.read_fields(root().entries, reading, "", ""))

    @property
    def document(self) -> dict:
        """The whole document, normalised; defaults are left out."""
        return self._read[1]

    @property
    def problems(self) -> dict[str, list[str]]:
        return self._read[0].problems

    @property
    def places(self) -> dict[str, str]:
        """Where rows of the document stand in the form: `parameters.0` may be the third row, `parameters.2`."""
        return self._read[0].places

    def report(self, *, tenant_id, agent_name: str | None) -> Report:
        return compile_definition(self.document, tenant_id=tenant_id, agent_name=agent_name)

    @property
    def extras(self) -> dict[str, set[str]]:
        """The keys that no field shows, by the name of the control that has them."""
        return self._read[0].extras

    # --- Acts on the page. Each changes the form only; nothing is saved. ---

    def fix(self, values: dict[str, Any]) -> set[str]:
        """Set values by path, as a fix of the compile report asks for. Returns the names that were drawn anew.

        Everything else in the form stays as it was typed. Raises Invalid when the form has changed too much since.
        """
        if not all(_has_rows(self.document, path) for path in values):
            raise Invalid(_("The form has changed since: check it again, then fix it."))
        try:
            changed = apply_fix(self.document, {"set": values})
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise Invalid(_("The form has changed since: check it again, then fix it.")) from None
        drawn = codecs.draw_fields(root().entries, _tidy(changed), "")
        touched = {name for path in values for name in _touched(path)}
        if self._read[0].lost & touched:
            raise Invalid(_("First solve what is marked in that list by hand."))
        self._replace(touched, drawn)
        return touched

    def _replace(self, touched: Iterable[str], drawn: codecs.Data) -> None:
        def is_touched(name: str) -> bool:
            return any(name == part or name.startswith(f"{part}.") for part in touched)

        kept = {name: texts for name, texts in self.data.items() if not is_touched(name)}
        self._set(kept | {name: texts for name, texts in drawn.items() if is_touched(name)})
        # A fix inside an object that is off switches it on.
        for part in touched:
            for name in _above(part):
                if name in drawn:
                    self.data[name] = drawn[name]

    def add_row(self, name: str) -> None:
        self.more_rows.add(name)

    def remove_row(self, row: str) -> None:
        """Take a row out; `row` is the name of its controls without their last part."""
        _check_row(row)
        self._set({name: texts for name, texts in self.data.items() if not name.startswith(f"{row}.")})

    def move_row_up(self, row: str) -> None:
        """Let a row and the one above it change places."""
        _check_row(row)
        name, _dot, number = row.rpartition(".")
        above = [other for other in codecs.row_numbers(self.data, name) if other < int(number)]
        if above:
            other = f"{name}.{above[-1]}"
            self._set({_swapped(key, row, other): texts for key, texts in self.data.items()})

    def _set(self, data: codecs.Data) -> None:
        self.data = data
        self.__dict__.pop("_read", None)


def _tidy(document: dict) -> dict:
    """Normalised, unless it is beyond that: then the checks say so."""
    try:
        return normalise(document)
    except DefinitionUnreadable:
        return document


def _check_row(row: str) -> None:
    if not _ROW.fullmatch(row):
        raise Invalid(_("There is no such row."))


def _swapped(key: str, one: str, other: str) -> str:
    for here, there in ((one, other), (other, one)):
        if key.startswith(f"{here}."):
            return there + key[len(here) :]
    return key


def _touched(path: str) -> list[str]:
    """The names to draw anew for a change at `path`: the field that holds it, or its object's unknown keys."""
    node, prefix = root(), ""
    for step in path.split("."):
        entry = node.entries.get(step)
        if entry is None:
            return [f"{prefix}{codecs.EXTRA}"]
        if not isinstance(entry, Node):
            return [f"{prefix}{step}", f"{prefix}{codecs.EXTRA}"]
        node, prefix = entry, f"{prefix}{step}."
    return [node.path]


def _has_rows(document: Any, path: str) -> bool:
    """Whether the rows that a path names by number are still there."""
    for step in path.split("."):
        if isinstance(document, list):
            if not step.isdecimal() or int(step) >= len(document):
                return False
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        elif step.isdecimal():
            return False
        else:
            document = None
    return True


def _above(name: str) -> list[str]:
    steps = name.split(".")
    return [".".join(steps[:count]) for count in range(1, len(steps))]
