"""What the model sees in one call, as a pure function over descriptions of items: no database, no model library.

The layers go in a fixed order: instructions and tools first (they do not change during a session, so providers'
prompt caches hold), then the history, then what changes every turn, then the current turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

INSTRUCTIONS, TOOLS, HISTORY, RECALL, WORKING_MEMORY, MESSAGE = (
    "instructions",
    "tools",
    "history",
    "recall",
    "working_memory",
    "message",
)
# Without compaction the oldest turns go first, down to these; then recall and working memory, then the rest.
KEPT_TURNS = 2
DEFAULT_OUTPUT_TOKENS = 4096

_SEEN = frozenset({"message", "tool_call", "tool_result", "reasoning"})


class Described(Protocol):
    """What a planner may know of an item."""

    @property
    def seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def turn(self) -> int: ...
    @property
    def tokens(self) -> int: ...


T = TypeVar("T", bound=Described)


@dataclass(frozen=True, slots=True)
class Note:
    """Text that goes to the model as fenced data before the current message: recall, working memory.

    `sources` are ids of what it was made from.
    """

    layer: str
    title: str
    text: str
    tokens: int
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One line of a context report."""

    layer: str
    tokens: int
    sources: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "tokens": self.tokens,
            "sources": list(self.sources),
            "left_out": list(self.left_out),
        }


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """The history, the notes and the current turn that go into the call, and the report of all layers.

    `fits` is false when even the smallest view is larger than the window leaves room for.
    """

    history: list[T]
    notes: list[Note]
    current: list[T]
    layers: list[Layer] = field(default_factory=list)
    limit: int | None = None
    fits: bool = True

    @property
    def tokens(self) -> int:
        return sum(layer.tokens for layer in self.layers)

    def report(self) -> list[dict[str, Any]]:
        return [layer.as_dict() for layer in self.layers]


def input_limit(window: int | None, output: int | None) -> int | None:
    """Tokens that may go in: the window without the room kept for the answer. None when the window is unknown."""
    if window is None:
        return None
    return max(0, window - min(output or DEFAULT_OUTPUT_TOKENS, window // 2))


def assemble(
    items: Sequence[T],
    *,
    instructions: int = 0,
    tools: int = 0,
    tool_names: Sequence[str] = (),
    notes: Sequence[Note] = (),
    limit: int | None = None,
    factor: float = 1.0,
) -> View[T]:
    """Choose what goes into the call.

    `instructions` and `tools` are token counts. `limit` is what `input_limit` gives; None takes everything. `factor`
    corrects the counts by what the provider reported for an earlier call of the same run. Whole turns are left out,
    oldest first, never the current one: the last turn of `items`.
    """
    last = items[-1].turn if items else None
    # Reasoning goes back to the provider only inside the turn it belongs to.
    seen = [item for item in items if item.kind in _SEEN and (item.kind != "reasoning" or item.turn == last)]
    current = [item for item in seen if item.turn == last]
    turns = _turns(item for item in seen if item.turn != last)
    fixed = instructions + tools + _tokens(current)
    sizes = [_tokens(turn) for turn in turns]
    kept_notes = list(notes)
    room = None if limit is None else int(limit / factor) - fixed

    first = _first_that_fits(sizes, room, kept_notes, keep=KEPT_TURNS)
    for layer in (RECALL, WORKING_MEMORY):
        if _over(sizes[first:], room, kept_notes):
            kept_notes = [note for note in kept_notes if note.layer != layer]
    first = max(first, _first_that_fits(sizes, room, kept_notes, keep=0))

    history = [item for turn in turns[first:] for item in turn]
    dropped = [item for turn in turns[:first] for item in turn]
    return View(
        history=history,
        notes=kept_notes,
        current=current,
        layers=[
            Layer(INSTRUCTIONS, instructions, ("definition",) if instructions else ()),
            *([Layer(TOOLS, tools, tuple(tool_names))] if tools else []),
            Layer(HISTORY, _tokens(history), ranges(history), _left_out(dropped)),
            *_note_layers(notes, kept_notes),
            Layer(MESSAGE, _tokens(current), ranges(current)),
        ],
        limit=limit,
        fits=not _over(sizes[first:], room, kept_notes),
    )


def ranges(items: Iterable[Described]) -> tuple[str, ...]:
    """The seqs of `items` as ranges of at most 20: ("3-41", "44")."""
    found: list[list[int]] = []
    for item in items:
        if found and item.seq == found[-1][1] + 1:
            found[-1][1] = item.seq
        else:
            found.append([item.seq, item.seq])
    if len(found) > 20:
        found = [*found[:19], [found[19][0], found[-1][1]]]
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _tokens(entries: Iterable[Any]) -> int:
    return sum(entry.tokens for entry in entries)


def _turns(items: Iterable[T]) -> list[list[T]]:
    turns: list[list[T]] = []
    for item in items:
        if turns and turns[-1][0].turn == item.turn:
            turns[-1].append(item)
        else:
            turns.append([item])
    return turns


def _over(sizes: list[int], room: int | None, notes: list[Note]) -> bool:
    return room is not None and sum(sizes) + _tokens(notes) > room


def _first_that_fits(sizes: list[int], room: int | None, notes: list[Note], *, keep: int) -> int:
    """The index of the first turn to keep: as many of the newest as fit, but not fewer than `keep`."""
    if room is None:
        return 0
    room -= _tokens(notes)
    first = len(sizes)
    while first > 0 and (sizes[first - 1] <= room or len(sizes) - first < keep):
        first -= 1
        room -= sizes[first]
    return first


def _left_out(dropped: Sequence[Described]) -> tuple[dict[str, Any], ...]:
    if not dropped:
        return ()
    return (
        {
            "items": ", ".join(ranges(dropped)),
            "tokens": _tokens(dropped),
            "reason": "does not fit the model's context window",
        },
    )


def _note_layers(notes: Sequence[Note], kept: Sequence[Note]) -> list[Layer]:
    layers = []
    for name in dict.fromkeys(note.layer for note in notes):
        inside = [note for note in kept if note.layer == name]
        outside = [note for note in notes if note.layer == name and note not in inside]
        layers.append(
            Layer(
                name,
                _tokens(inside),
                tuple(source for note in inside for source in note.sources),
                tuple(
                    {
                        "items": note.title,
                        "tokens": note.tokens,
                        "reason": "does not fit the model's context window",
                    }
                    for note in outside
                ),
            )
        )
    return layers
