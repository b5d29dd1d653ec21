"""The strategies. Each goes over the draft once, oldest first, and stops as soon as the view is small enough.

The names and the meaning of the settings are those that Microsoft Agent Framework's users know, with turns as units
of their own.
"""

from collections.abc import Callable

from agents.definition import Compaction
from sessions.context.compaction.draft import SUMMARISED, Draft, Group
from sessions.context.compaction.texts import WORTH_SUMMARISING, expected_summary

Over = Callable[[], bool]


def triggered(draft: Draft, settings: Compaction, factor: float) -> Over:
    """Whether one of the triggers is reached by the view as it is. Tokens are corrected by `factor`."""
    tokens, messages, turns = settings.trigger_tokens, settings.trigger_messages, settings.trigger_turns

    def over() -> bool:
        return bool(
            (tokens and draft.tokens * factor >= tokens)
            or (messages and draft.messages >= messages)
            or (turns and draft.turns_left >= turns)
        )

    return over


def shorten_results(draft: Draft, over: Over, preserved: set[Group]) -> None:
    for group in draft.groups:
        if not over():
            return
        if not group.is_fixed and not group.is_gone and group not in preserved:
            draft.shorten(group)


def drop_turns(draft: Draft, over: Over, preserved: set[Group]) -> None:
    """Drop the oldest turns, whole."""
    if not over():
        return
    for turn in draft.turns:
        if not over():
            draft.hold_still(preserved)
            return
        if not turn.is_fixed and preserved.isdisjoint(turn.groups):
            draft.remove_turn(turn)


def drop_groups(draft: Draft, over: Over, preserved: set[Group]) -> None:
    """Drop the oldest groups. A turn's question goes with the last of its answers: what is kept keeps its question,
    so the view begins with a subject's message, which Anthropic and Google require."""
    if not over():
        return
    for turn in draft.turns:
        if not over():
            draft.hold_still(preserved)
            return
        question = turn.groups[0] if turn.has_question else None
        answers = [group for group in turn.groups if group is not question]
        for group in answers:
            last = question is not None and turn.left == 2
            if group.is_fixed or group in preserved or (last and (question.is_fixed or question in preserved)):
                continue
            if not over():
                draft.hold_still(preserved)
                return
            draft.remove(turn, group)
            if last:
                draft.remove(turn, question)
        if not answers and question is not None and not question.is_fixed and question not in preserved:
            draft.remove(turn, question)


def summarise(draft: Draft, over: Over, preserved: set[Group]) -> None:
    """Have a summary stand for the oldest turns: all that are not preserved, so that the next one is long away."""
    if not over():
        return
    covered = []
    for turn in draft.turns:
        if turn.is_fixed or not preserved.isdisjoint(turn.groups):
            break
        covered.append(turn)
    size = sum(draft.size(place) for turn in covered for group in turn.groups if not group.is_gone for place in group.places)
    if size < WORTH_SUMMARISING:
        return
    for turn in covered:
        draft.remove_turn(turn, SUMMARISED)
    expected = expected_summary(size + draft.summary_tokens)
    draft.tokens += expected - draft.summary_tokens
    draft.summary_tokens = expected


def by_window(draft: Draft, settings: Compaction, *, output: int, fixed: int, factor: float) -> None:
    """Shorten, then drop, by how full the window is. `fixed` tokens of the call are not history."""
    room = max(1, (settings.max_context_window_tokens or 0) - output)
    preserved = draft.preserved(groups=settings.minimum_preserved_groups)

    def above(share: float) -> Over:
        return lambda: (fixed + draft.tokens) * factor > share * room

    shorten_results(draft, above(settings.tool_eviction_threshold), preserved)
    drop_groups(draft, above(settings.truncation_threshold), preserved)
