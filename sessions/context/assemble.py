"""What the model sees in one call, as a pure function over descriptions of items: no database, no model library.

The layers go in a fixed order: instructions and tools first (they do not change during a session, so providers'
prompt caches hold), then the summary of what is long past, the history, what changes every turn, the current turn.

What is too much gives way in this order: compaction and assembly policies as they are set, then each layer's own cap,
then, where the sum does not fit the window, recall, working memory, and the oldest turns. Instructions, tools, open
calls and the current turn never do.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from agents.definition import Compaction, LayerCaps, Policy
from sessions.context import policies as assembly
from sessions.context.compaction import SHORTENED_TOKENS, Plan, plan
from sessions.context.compaction.draft import Described
from sessions.context.view import (
    HISTORY,
    INSTRUCTIONS,
    MESSAGE,
    NO_ROOM,
    RECALL,
    SUMMARY,
    TOOLS,
    WORKING_MEMORY,
    WORKSPACE,
    Layer,
    Note,
    SummaryView,
    View,
    left_out,
    ranges,
    sizes,
    span,
)

# Without compaction, nothing but the window bounds a history: its oldest turns go first, down to these. What compaction
# left is meant to stay: recall, the list of files and working memory go before it.
KEPT_TURNS = 2
DEFAULT_OUTPUT_TOKENS = 4096

SEEN = frozenset({"message", "tool_call", "tool_result", "reasoning"})

T = TypeVar("T", bound=Described)


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
    policies: Sequence[Policy] = (),
    caps: LayerCaps | None = None,
    summary: SummaryView | None = None,
    open_groups: frozenset[int] = frozenset(),
    as_if_summarised: bool = False,
) -> View[T]:
    """Choose what goes into the call.

    `instructions` and `tools` are token counts, `system` the layers that stand behind the instructions. `limit` is what
    `input_limit` gives; None takes everything. `output` is the model's own limit of an answer. `factor` corrects the
    counts by what the provider reported for an earlier call of the same run. `compaction` reduces the history first, then `policies` do; items up to the end of `summary`
    are not shown. What compaction would summarise is shown as it is, until its summary is there: `as_if_summarised`
    makes the view that it will be then. Whole turns are left out where there is no room, oldest first, never the
    current one, the last turn of `items`, nor one with an open call.
    """
    caps = caps or LayerCaps()
    last = items[-1].turn if items else None
    # Reasoning goes back to the provider only inside the turn it belongs to.
    seen = [item for item in items if item.kind in SEEN and (item.kind != "reasoning" or item.turn == last)]
    if summary is not None:
        seen = [item for item in seen if item.seq > summary.to_seq or item.turn == last]
    made: Plan[T] | None = None
    kept, shortened = seen, frozenset[int]()
    if compaction is not None:
        made = plan(
            seen, compaction, fixed=instructions + tools + _tokens([*system, *notes]), output=output, open_groups=open_groups,
            summary_tokens=summary.tokens if summary else 0, factor=factor,
        )  # fmt: skip
        kept = made.kept if as_if_summarised else [*made.summarised, *made.kept]
        shortened = made.shortened
        if as_if_summarised and made.summarised:
            summary = _expected(summary, made)
    reduced = assembly.reduce(
        kept, policies, notes=notes, shortened=shortened, open_groups=open_groups,
        summary_tokens=summary.tokens if summary else 0, factor=factor,
    )  # fmt: skip
    told = assembly.transparency(policies, reduced.steps)
    notes = [*notes, told] if told is not None else list(notes)

    current = [item for item in reduced.kept if item.turn == last]
    turns = _Turns((item for item in reduced.kept if item.turn != last), shortened, open_groups)
    dropped_summary = summary if summary is not None and caps.summary is not None and summary.tokens > caps.summary else None
    summary = None if dropped_summary else summary
    kept_notes, capped_notes = _capped(notes, caps)
    if caps.history is not None:
        turns.drop_to(int(caps.history / factor), keep=0)
    capped = turns.take_dropped()

    fixed = instructions + tools + _tokens(system) + sizes(current, shortened)
    room = None if limit is None else int(limit / factor) - fixed - (summary.tokens if summary else 0)
    if made is None and room is not None:
        turns.drop_to(room - _tokens(kept_notes), keep=KEPT_TURNS)
    for layer in (RECALL, WORKSPACE, WORKING_MEMORY):
        if room is not None and turns.tokens + _tokens(kept_notes) > room:
            kept_notes = [note for note in kept_notes if note.layer != layer]
    if room is not None:
        turns.drop_to(room - _tokens(kept_notes), keep=0)
    if summary is not None and room is not None and turns.tokens + _tokens(kept_notes) > room:
        # A summary in place of everything else would leave no room for the answer's own turn.
        room, summary = room + summary.tokens, None

    history, crowded_out = turns.kept(), turns.take_dropped()
    return View(
        history=history,
        notes=kept_notes,
        current=current,
        layers=[
            Layer(INSTRUCTIONS, instructions, ("definition",) if instructions else ()),
            *system,
            *([Layer(TOOLS, tools, tuple(tool_names))] if tools else []),
            *_summary_layer(summary, dropped_summary, caps),
            Layer(
                HISTORY,
                sizes(history, shortened),
                ranges(history),
                (
                    *_compacted(made, shortened, compaction, as_if_summarised),
                    *_reduced(reduced, shortened),
                    *left_out(capped, shortened, _over_cap(caps.history)),
                    *left_out(crowded_out, shortened, NO_ROOM),
                ),
            ),
            *_note_layers(notes, kept_notes, capped_notes, caps),
            Layer(MESSAGE, sizes(current, shortened), ranges(current)),
        ],
        limit=limit,
        fits=room is None or turns.tokens + _tokens(kept_notes) <= room,
        summary=summary,
        shortened=shortened,
        plan=made,
        reduced=tuple(item for gone in reduced.taken for item in gone),
        steps=reduced.steps,
        capped=tuple(capped),
        crowded_out=tuple(crowded_out),
    )


class _Turns:
    """The turns before the current one, from which the oldest are dropped; those with an open call never are."""

    def __init__(self, items: Iterable[Any], shortened: frozenset[int], open_groups: frozenset[int]):
        self.turns: list[list[Any]] = []
        for item in items:
            if self.turns and self.turns[-1][0].turn == item.turn:
                self.turns[-1].append(item)
            else:
                self.turns.append([item])
        self.sizes = [sizes(turn, shortened) for turn in self.turns]
        self.is_open = [bool(open_groups) and any(item.group in open_groups for item in turn) for turn in self.turns]
        self.tokens = sum(self.sizes)
        self.places = list(range(len(self.turns)))
        self._dropped: list[Any] = []

    def drop_to(self, room: int, *, keep: int) -> None:
        """Drop the oldest turns until the rest fits `room` tokens, but leave the newest `keep`."""
        left, stays = len(self.places), []
        for index, place in enumerate(self.places):
            if self.tokens <= room or left <= keep:
                stays += self.places[index:]
                break
            left -= 1
            if self.is_open[place]:
                stays.append(place)
                continue
            self.tokens -= self.sizes[place]
            self._dropped += self.turns[place]
        self.places = stays

    def kept(self) -> list[Any]:
        return [item for place in self.places for item in self.turns[place]]

    def take_dropped(self) -> list[Any]:
        """What was dropped since this was asked last."""
        dropped, self._dropped = self._dropped, []
        return dropped


def _expected(summary: SummaryView | None, made: Plan) -> SummaryView:
    """The summary that a plan counts on, before it is written."""
    first = summary.from_seq if summary else made.summarised[0].seq
    source = (summary.source_tokens if summary else 0) + _tokens(made.summarised)
    return SummaryView("", first, made.summarised[-1].seq, "", made.summary_tokens, source)


def _tokens(entries: Iterable[Any]) -> int:
    return sum(entry.tokens for entry in entries)


def _over_cap(cap: int | None) -> str:
    return f"beyond the layer's limit of {cap} tokens"


def _capped(notes: Sequence[Note], caps: LayerCaps) -> tuple[list[Note], list[Note]]:
    """(notes within the cap of their layer, notes beyond it): the first ones stay."""
    used: dict[str, int] = {}
    inside, outside = [], []
    for note in notes:
        cap = {RECALL: caps.recall, WORKING_MEMORY: caps.working_memory}.get(note.layer)
        used[note.layer] = used.get(note.layer, 0) + note.tokens
        if cap is None or used[note.layer] <= cap:
            inside.append(note)
        else:
            used[note.layer] -= note.tokens
            outside.append(note)
    return inside, outside


def _summary_layer(summary: SummaryView | None, dropped: SummaryView | None, caps: LayerCaps) -> list[Layer]:
    if dropped is not None:
        where = span(dropped.from_seq, dropped.to_seq)
        return [Layer(SUMMARY, 0, (), ({"items": where, "tokens": dropped.tokens, "reason": _over_cap(caps.summary)},))]
    return [Layer(SUMMARY, summary.tokens, (span(summary.from_seq, summary.to_seq),))] if summary else []


def _compacted(
    made: Plan | None, shortened: frozenset[int], settings: Compaction | None, as_if_summarised: bool
) -> list[dict[str, Any]]:
    """What compaction took out of the history, for the report."""
    if made is None or settings is None:
        return []
    lines = [item for item in made.kept if item.seq in shortened]
    found = [*left_out(made.dropped, frozenset(), f"dropped by compaction ({settings.strategy})")]
    if as_if_summarised:
        found += left_out(made.summarised, frozenset(), "summarised")
    if lines:
        saved = _tokens(lines) - SHORTENED_TOKENS * len(lines)
        found.append({"items": ", ".join(ranges(lines)), "tokens": saved, "reason": "shortened to one line each"})
    return found


def _reduced(reduced: assembly.Reduced, shortened: frozenset[int]) -> list[dict[str, Any]]:
    """What each policy took out of the history, for the report."""
    found: list[dict[str, Any]] = []
    for step, gone in zip(reduced.steps, reduced.taken, strict=True):
        found += left_out(gone, shortened, f"left out by the step {step.policy}")
    return found


def _note_layers(notes: Sequence[Note], kept: Sequence[Note], capped: Sequence[Note], caps: LayerCaps) -> list[Layer]:
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
                        "reason": _over_cap(getattr(caps, name)) if note in capped else NO_ROOM,
                    }
                    for note in outside
                ),
                "\n\n".join(note.text for note in inside if note.own),
            )
        )
    return layers
