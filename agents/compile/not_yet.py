"""Settings that a definition may carry and that Lethe does not carry out yet. Whoever builds one deletes its row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.compile.report import Findings, Fix
from agents.definition import Definition


@dataclass(frozen=True, slots=True)
class NotYet:
    """`off` is the value that switches the setting off, offered as a fix; `is_on` says whether the setting is used."""

    path: str
    message: str
    off: Any = None
    is_on: Callable[[Any], bool] = bool


NOT_YET = (
    NotYet("memory.enable_vector_search", "Documents cannot be loaded and searched yet.", False),
    NotYet("memory.enable_conversation_memory", "Earlier conversations cannot be searched yet.", False),
    NotYet("memory.enable_facts", "Facts about a person cannot be kept yet.", False),
    NotYet("memory.enable_extraction", "Memories cannot be drawn from conversations yet.", False),
    NotYet("memory.enable_playbooks", "Playbooks cannot be kept yet.", False),
    NotYet("memory.injection.facts", "The place of facts cannot be chosen yet."),
    NotYet("memory.injection.memories", "The place of memories cannot be chosen yet."),
    NotYet("memory.injection.playbooks", "The place of playbooks cannot be chosen yet."),
    NotYet("memory.injection.knowledge", "The place of knowledge cannot be chosen yet."),
)


def check(definition: Definition, findings: Findings) -> None:
    for row in NOT_YET:
        if row.is_on(value_at(definition, row.path)):
            findings.error(
                "not_available_yet",
                row.path,
                row.message,
                "Switch it off to publish; the setting can be used in a later release.",
                [Fix("Switch it off", {row.path: row.off})],
            )


def value_at(definition: Definition, path: str) -> Any:
    """The value of a setting, None when the object that holds is not there."""
    value: Any = definition
    for step in path.split("."):
        if value is None:
            return None
        value = getattr(value, step)
    return value
