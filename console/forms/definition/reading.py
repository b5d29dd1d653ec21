"""A document for reading: what it says, setting by setting, in the words of the editor. Defaults are left out."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from agents import schema
from console.forms.definition.tree import root


@dataclass(frozen=True, slots=True)
class Said:
    """One setting. `is_long` for texts that need a block of their own, `is_code` for JSON."""

    label: str
    text: str
    path: str
    is_long: bool = False
    is_code: bool = False


@dataclass(slots=True)
class Part:
    title: str
    settings: list[Said] = field(default_factory=list)


def settings_of(document: dict) -> list[Part]:
    """The sections that say something. Keys that no section knows come last."""
    parts = []
    for section in schema.sections():
        found = [said for entry in section.fields if (said := _said(entry, document)) is not None]
        if found:
            parts.append(Part(section.title, found))
    unknown = {key: value for key, value in document.items() if key not in root().entries}
    if unknown:
        parts.append(Part(_("Unknown settings"), [Said(key, _json(value), key, is_code=True) for key, value in unknown.items()]))
    return parts


def _said(entry: schema.Field, document: dict) -> Said | None:
    value: Any = document
    for step in entry.path.split("."):
        if not isinstance(value, dict) or step not in value:
            return None
        value = value[step]
    if entry.kind == "toggle":
        return Said(entry.label, _("on"), entry.path) if value is not None else None
    return _as_words(entry, value)


def _as_words(entry: schema.Field, value: Any) -> Said:
    if isinstance(value, bool):
        return Said(entry.label, _("yes") if value else _("no"), entry.path)
    if isinstance(value, str):
        text = dict(entry.choices).get(value, value)
        return Said(entry.label, text, entry.path, is_long="\n" in text or len(text) > 120)
    if isinstance(value, int | float):
        unit = f" {entry.unit}" if entry.unit else ""
        return Said(entry.label, f"{value:,}{unit}", entry.path)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Said(entry.label, ", ".join(dict(entry.choices).get(item, item) for item in value), entry.path)
    return Said(entry.label, _json(value), entry.path, is_code=True)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


