"""How the editor arranges fields: which stand side by side, and which matter only under a condition.

Nothing here knows every field: one that is added to the definition appears by itself, at full sight.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Literal

from agents.definition import NEEDS_TRIGGER, SUMMARISES
from agents.schema import Field

Width = Literal["short", "check", "long"]
_SHORT = {"integer", "number", "choice", "text", "value"}
ON = ("on",)
# In letters with the unit, for a third of the form's width.
LONGEST_LABEL = 25

# (path of the field or part of it) -> (name of the control that decides, values for which the field matters).
# Inside rows both are relative to the row.
_CONDITIONS = {
    "response_format.json_schema": ("response_format.kind", ("json_schema",)),
    **dict.fromkeys(
        ("compaction.trigger_tokens", "compaction.trigger_messages", "compaction.trigger_turns"),
        ("compaction.strategy", NEEDS_TRIGGER),
    ),
    "compaction.minimum_preserved_turns": ("compaction.strategy", ("sliding_window", "tool_result", "summarization", "pipeline")),
    "compaction.minimum_preserved_groups": (
        "compaction.strategy",
        ("truncation", "tool_result", "summarization", "context_window", "pipeline"),
    ),
    **dict.fromkeys(
        (
            "compaction.max_context_window_tokens",
            "compaction.max_output_tokens",
            "compaction.tool_eviction_threshold",
            "compaction.truncation_threshold",
        ),
        ("compaction.strategy", ("context_window",)),
    ),
    **dict.fromkeys(
        ("compaction.summarization_prompt", "compaction.summarization_model", "compaction.background"),
        ("compaction.strategy", SUMMARISES),
    ),
    "compaction.keep_dropped": ("compaction.strategy", (*NEEDS_TRIGGER, "context_window")),
    "memory.vector_collections": ("memory.enable_vector_search", ON),
    "memory.conversation_memory_search": ("memory.enable_conversation_memory", ON),
    "memory.conversation_memory_max_results": ("memory.enable_conversation_memory", ON),
    "memory.fact_categories": ("memory.enable_facts", ON),
    "memory.unknown_subject_instructions": ("memory.enable_facts", ON),
    "memory.known_subject_instructions": ("memory.enable_facts", ON),
    "memory.extraction_topics": ("memory.enable_extraction", ON),
    "memory.extraction_model": ("memory.enable_extraction", ON),
    "memory.memory_pool": ("memory.enable_extraction", ON),
    "memory.scope": ("memory.enable_file_memory", ON),
    "memory.injection.facts": ("memory.enable_facts", ON),
    "memory.injection.memories": ("memory.enable_extraction", ON),
    "memory.injection.playbooks": ("memory.enable_playbooks", ON),
    "memory.injection.knowledge": ("memory.enable_vector_search", ON),
    "workspace.read_only": ("workspace.enabled", ON),
    "workspace.disable_read_approval": ("workspace.enabled", ON),
}
_IN_ROWS = {
    "assembly": {
        "max_episodes": ("kind", ("episodic_memory",)),
        "max_items": ("kind", ("sliding_window",)),
        "max_tokens": ("kind", ("token_budget",)),
    },
}
# Objects whose boxes come first, as an overview, before what each of them asks for.
BOXES_FIRST = ("memory",)
# Lists whose order means something.
ORDERED = ("model.fallbacks", "assembly", "parameters")


def condition_of(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The control that decides whether a field matters, by its name in the form, and the values for which it does."""
    if name in _CONDITIONS:
        return _CONDITIONS[name]
    for rows, conditions in _IN_ROWS.items():
        if name.startswith(f"{rows}."):
            row, _dot, last = name.rpartition(".")
            if last in conditions:
                control, values = conditions[last]
                return f"{row}.{control}", values
    return None


def width_of(entry: Field) -> Width:
    if entry.kind == "boolean":
        return "check"
    return "short" if entry.kind in _SHORT else "long"


def in_blocks(fields: Iterable[tuple[Width, str]]) -> list[tuple[str, int]]:
    """Runs of equally wide fields, given with their labels, as (CSS class, how many)."""
    found = []
    for width, run in groupby(fields, key=lambda field: field[0]):
        labels = [label for _width, label in run]
        found.append((_css(width, labels), len(labels)))
    return found


def _css(width: Width, labels: list[str]) -> str:
    if width == "long":
        return "stack"
    # Three in a row where that leaves no gap, and where each label fits into its line.
    is_wide = width == "check" or len(labels) in (1, 2, 4) or any(len(label) > LONGEST_LABEL for label in labels)
    return "row2" if is_wide else "row3"
