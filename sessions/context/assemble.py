"""What the model sees in one call, as a pure function over descriptions of items: no database, no model library.

The layers go in a fixed order: instructions and tools first (they do not change during a session, so providers'
prompt caches hold), then the summary of what is long past, the history, what changes every turn, the current turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agents.definition import Compaction
from sessions.context.compaction import SHORTENED_TOKENS, Plan, plan
from sessions.context.compaction.draft import Described

INSTRUCTIONS, TOOLS, SUMMARY, HISTORY, RECALL, WORKING_MEMORY, MESSAGE = (
    "instructions",
    "tools",
    "summary",
    "history",
    "recall",
    "working_memory",
    "message",
)
# What compaction leaves must still fit: the oldest turns go first, down to these; then recall and working memory, then
# the rest.
KEPT_TURNS = 2
DEFAULT_OUTPUT_TOKENS = 4096
_NO_ROOM = "does not fit the model's context window"

SEEN = frozenset({"message", "tool_call", "tool_result", "reasoning"})


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
class SummaryView:
    """A stored text that stands for the items `from_seq` to `to_seq`, which had `source_tokens`."""

    ref: str
    from_seq: int
    to_seq: int
    text: str
    tokens: int
    source_tokens: int = 0


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

    `summary` stands in front of the history. Items whose seq is in `shortened` are shown as one line. `plan` is what
    compaction made of the history, None without compaction. `crowded_out` are items that compaction would have kept
    or summarised, and for which the window has no room. `fits` is false when even the smallest view is larger than
    the window leaves room for.
    """

    history: list[T]
    notes: list[Note]
    current: list[T]
    layers: list[Layer] = field(default_factory=list)
    limit: int | None = None
    fits: bool = True
    summary: SummaryView | None = None
    shortened: frozenset[int] = frozenset()
    plan: Plan[T] | None = None
    crowded_out: tuple[T, ...] = ()

    @property
    def wanted(self) -> int | None:
        """The seq up to which a summary is to be written; None when none is."""
        return self.plan.summarised[-1].seq if self.plan is not None and self.plan.summarised else None

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
    system: Sequence[Layer] = (),
    notes: Sequence[Note] = (),
    limit: int | None = None,
    output: int | None = None,
    factor: float = 1.0,
    compaction: Compaction | None = None,
    summary: SummaryView | None = None,
    open_groups: frozenset[int] = frozenset(),
    as_if_summarised: bool = False,
) -> View[T]:
    """Choose what goes into the call.

    `instructions` and `tools` are token counts, `system` the layers that stand behind the instructions. `limit` is what `input_limit` gives; None takes everything. `output`
    is the model's own limit of an answer. `factor` corrects the counts by what the provider reported for an earlier
    call of the same run. `compaction` reduces the history first; items up to the end of `summary` are not shown.
    What compaction would summarise is shown as it is, until its summary is there: `as_if_summarised` makes the view
    that it will be then. Whole turns are left out where there is no room, oldest first, never the current one: the
    last turn of `items`.
    """
    last = items[-1].turn if items else None
    # Reasoning goes back to the provider only inside the turn it belongs to.
    seen = [item for item in items if item.kind in SEEN and (item.kind != "reasoning" or item.turn == last)]
    if summary is not None:
        seen = [item for item in seen if item.seq > summary.to_seq or item.turn == last]
    made: Plan[T] | None = None
    kept, shortened = seen, frozenset[int]()
    if compaction is not None:
        made = plan(
            seen, compaction, fixed=instructions + tools + _tokens(system) + _tokens(notes), output=output, open_groups=open_groups,
            summary_tokens=summary.tokens if summary else 0, factor=factor,
        )  # fmt: skip
        kept = made.kept if as_if_summarised else [*made.summarised, *made.kept]
        shortened = made.shortened
        if as_if_summarised and made.summarised:
            summary = _expected(summary, made)

    current = [item for item in kept if item.turn == last]
    turns = _turns(item for item in kept if item.turn != last)
    fixed = instructions + tools + _tokens(system) + _sizes(current, shortened)
    sizes = [_sizes(turn, shortened) for turn in turns]
    kept_notes = list(notes)
    room = None if limit is None else int(limit / factor) - fixed - (summary.tokens if summary else 0)

    first = _first_that_fits(sizes, room, kept_notes, keep=KEPT_TURNS)
    for layer in (RECALL, WORKING_MEMORY):
        if _over(sizes[first:], room, kept_notes):
            kept_notes = [note for note in kept_notes if note.layer != layer]
    first = max(first, _first_that_fits(sizes, room, kept_notes, keep=0))
    if summary is not None and room is not None and _over(sizes[first:], room, kept_notes):
        # A summary in place of everything else would leave no room for the answer's own turn.
        room, summary = room + summary.tokens, None

    history = [item for turn in turns[first:] for item in turn]
    crowded_out = [item for turn in turns[:first] for item in turn]
    return View(
        history=history,
        notes=kept_notes,
        current=current,
        layers=[
            Layer(INSTRUCTIONS, instructions, ("definition",) if instructions else ()),
            *system,
            *([Layer(TOOLS, tools, tuple(tool_names))] if tools else []),
            *([Layer(SUMMARY, summary.tokens, (_span(summary.from_seq, summary.to_seq),))] if summary else []),
            Layer(
                HISTORY,
                _sizes(history, shortened),
                ranges(history),
                (*_compacted(made, shortened, compaction, as_if_summarised), *_left_out(crowded_out, shortened, _NO_ROOM)),
            ),
            *_note_layers(notes, kept_notes),
            Layer(MESSAGE, _sizes(current, shortened), ranges(current)),
        ],
        limit=limit,
        fits=not _over(sizes[first:], room, kept_notes),
        summary=summary,
        shortened=shortened,
        plan=made,
        crowded_out=tuple(crowded_out),
    )


def _expected(summary: SummaryView | None, made: Plan) -> SummaryView:
    """The summary that a plan counts on, before it is written."""
    first = summary.from_seq if summary else made.summarised[0].seq
    source = (summary.source_tokens if summary else 0) + _tokens(made.summarised)
    return SummaryView("", first, made.summarised[-1].seq, "", made.summary_tokens, source)


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
    return tuple(_span(first, last) for first, last in found)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _sizes(items: Iterable[Described], shortened: frozenset[int]) -> int:
    return sum(SHORTENED_TOKENS if item.seq in shortened else item.tokens for item in items)


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


def _left_out(items: Sequence[Described], shortened: frozenset[int], reason: str) -> tuple[dict[str, Any], ...]:
    if not items:
        return ()
    return ({"items": ", ".join(ranges(items)), "tokens": _sizes(items, shortened), "reason": reason},)


def _compacted(
    made: Plan | None, shortened: frozenset[int], settings: Compaction | None, as_if_summarised: bool
) -> list[dict[str, Any]]:
    """What compaction took out of the history, for the report."""
    if made is None or settings is None:
        return []
    lines = [item for item in made.kept if item.seq in shortened]
    found = [*_left_out(made.dropped, frozenset(), f"dropped by compaction ({settings.strategy})")]
    if as_if_summarised:
        found += _left_out(made.summarised, frozenset(), "summarised")
    if lines:
        saved = _tokens(lines) - SHORTENED_TOKENS * len(lines)
        found.append({"items": ", ".join(ranges(lines)), "tokens": saved, "reason": "shortened to one line each"})
    return found


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
                        "reason": _NO_ROOM,
                    }
                    for note in outside
                ),
            )
        )
    return layers
