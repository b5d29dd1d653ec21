"""The planner: which items the model sees as they are, shortened, behind a summary, or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agents.definition import Compaction, Definition
from sessions.context.compaction import strategies
from sessions.context.compaction.draft import DROPPED, KEPT, SHORTENED, SUMMARISED, Described, Draft

DEFAULT_OUTPUT_TOKENS = 4096
T = TypeVar("T", bound=Described)


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """What happens to a history. `kept` has the items that stay, in order; `shortened` are seqs among them.

    `summarised` stand behind a summary that is still to be written, together with what the one in front says. `before`
    and `after` are tokens of the whole history, the summary in front included; `summary_tokens` are its own, expected
    when something is to be summarised.
    """

    kept: list[T]
    shortened: frozenset[int]
    dropped: list[T]
    summarised: list[T]
    before: int
    after: int
    summary_tokens: int = 0

    @property
    def changes(self) -> bool:
        return bool(self.shortened or self.dropped or self.summarised)


def compaction_of(definition: Definition) -> Compaction | None:
    """The settings that hold for an agent's runs; None when nothing is compacted."""
    harness, settings = definition.harness, definition.compaction
    if settings is None or settings.strategy == "none" or (harness is not None and harness.disable_compaction):
        return None
    return settings


def plan(
    items: Sequence[T],
    settings: Compaction | None,
    *,
    fixed: int = 0,
    output: int | None = None,
    open_groups: frozenset[int] = frozenset(),
    summary_tokens: int = 0,
    factor: float = 1.0,
) -> Plan[T]:
    """Carry out a strategy on `items`, oldest first; the last one's turn is the current one and stays whole.

    `fixed` are tokens of the call that are not history, `output` what the model keeps for its answer; both matter to
    the context_window strategy only. `open_groups` have a call that waits for its result or for a person.
    `summary_tokens` is the size of a stored summary in front of `items`. `factor` corrects counts by what the
    provider reported. No trigger reached, nothing changed.
    """
    draft = Draft(items, open_groups=open_groups, summary_tokens=summary_tokens)
    before = draft.tokens
    if settings is not None and items:
        _carry_out(draft, settings, fixed=fixed, output=output, factor=factor)
    return _finished(draft, items, before)


def _carry_out(draft: Draft, settings: Compaction, *, fixed: int, output: int | None, factor: float) -> None:
    over = strategies.triggered(draft, settings, factor)
    turns, groups = settings.minimum_preserved_turns, settings.minimum_preserved_groups
    match settings.strategy:
        case "sliding_window":
            strategies.drop_turns(draft, over, draft.preserved(turns=turns))
        case "truncation":
            strategies.drop_groups(draft, over, draft.preserved(groups=groups))
        case "tool_result":
            strategies.shorten_results(draft, over, draft.preserved(groups=groups, turns=turns))
        case "summarization":
            strategies.summarise(draft, over, draft.preserved(groups=groups, turns=turns))
        case "context_window":
            output = settings.max_output_tokens or output or DEFAULT_OUTPUT_TOKENS
            strategies.by_window(draft, settings, output=output, fixed=fixed, factor=factor)
        case "pipeline":
            strategies.shorten_results(draft, over, draft.preserved(groups=groups, turns=turns))
            strategies.drop_turns(draft, over, draft.preserved(turns=turns))
            strategies.summarise(draft, over, draft.preserved(groups=groups))


def _finished(draft: Draft, items: Sequence[T], before: int) -> Plan[T]:
    by_fate: dict[int, list[T]] = {KEPT: [], DROPPED: [], SUMMARISED: []}
    shortened = []
    for item, fate in zip(items, draft.fates, strict=True):
        if fate == SHORTENED:
            shortened.append(item.seq)
            fate = KEPT
        by_fate[fate].append(item)
    return Plan(
        kept=by_fate[KEPT],
        shortened=frozenset(shortened),
        dropped=by_fate[DROPPED],
        summarised=by_fate[SUMMARISED],
        before=before,
        after=draft.tokens,
        summary_tokens=draft.summary_tokens,
    )
