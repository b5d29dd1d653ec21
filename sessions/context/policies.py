"""Assembly policies: what each adds to the view, and what each takes from the history. Pure, like compaction.

A policy that takes away works on what those before it left. It never touches the current turn or a group with an open
call, keeps calls and results together, and leaves a view that begins with a subject's message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agents.definition import Policy
from sessions.context.compaction import strategies
from sessions.context.compaction.draft import DROPPED, Described, Draft
from sessions.context.view import ALERTS, ASSEMBLY, RECALL, WORKING_MEMORY, Note, Step

# What a line about a policy costs at most, and the frame around a note.
LINE_TOKENS, FRAME_TOKENS = 16, 12
TALK = frozenset({"message"})
T = TypeVar("T", bound=Described)


@dataclass(frozen=True, slots=True)
class Text:
    """Something to be added: a file or an alert. `ref` names it in the report."""

    ref: str
    text: str


@dataclass(frozen=True, slots=True)
class Texts:
    """What policies may add. `episodes` are those there are, newest first, of `all_episodes`."""

    working: Text | None = None
    episodes: tuple[Text, ...] = ()
    all_episodes: int = 0
    alerts: tuple[Text, ...] = ()


NOTHING = Texts()


@dataclass(frozen=True, slots=True)
class Reduced(Generic[T]):
    """`taken` has, for every step, the items that it took away."""

    kept: list[T]
    steps: tuple[Step, ...] = ()
    taken: tuple[tuple[T, ...], ...] = ()


def added(policies: Sequence[Policy], texts: Texts, *, count: Callable[[str], int]) -> list[Note]:
    """The notes that the policies add, in their order. `count` gives the tokens of a text."""
    notes = []
    for place, policy in enumerate(policies):
        found = _texts_of(policy, texts)
        if found is None:
            continue
        layer, title, parts, total, unit = found
        if not parts and not policy.transparent:
            continue
        lines = [f"{part.ref}:\n{part.text}" if policy.kind != "alert" else part.text for part in parts]
        if policy.transparent:
            lines.append(f"[{policy.kind}] showing {len(parts)} of {total} {unit}")
        text = "\n\n".join(lines)
        sources = tuple(part.ref for part in parts)
        notes.append(Note(layer, title, text, count(text) + FRAME_TOKENS, sources, step=place, own=policy.kind == "alert"))
    return notes


def _texts_of(policy: Policy, texts: Texts) -> tuple[str, str, tuple[Text, ...], int, str] | None:
    """(layer, title, texts, how many there are, what they are); None for a policy that adds nothing."""
    match policy.kind:
        case "working_memory":
            parts = (texts.working,) if texts.working is not None else ()
            return WORKING_MEMORY, "Working notes", parts, len(parts), "files"
        case "episodic_memory":
            parts = texts.episodes[: policy.max_episodes]
            return RECALL, "Recent conversations", parts, max(texts.all_episodes, len(texts.episodes)), "conversations"
        case "alert":
            return ALERTS, "Alerts about this run", texts.alerts, len(texts.alerts), "alerts"
    return None


def reduce(
    items: Sequence[T],
    policies: Sequence[Policy],
    *,
    notes: Sequence[Note] = (),
    shortened: frozenset[int] = frozenset(),
    open_groups: frozenset[int] = frozenset(),
    summary_tokens: int = 0,
    factor: float = 1.0,
) -> Reduced[T]:
    """What is left of `items`, oldest first, when every policy that takes away has had its turn.

    The last item's turn is the current one. A budget of tokens covers the history, the summary in front of it and the
    `notes` that earlier policies added. `factor` corrects counts by what the provider reported.
    """
    kept, steps, taken = list(items), [], []
    for place, policy in enumerate(policies):
        if policy.kind not in ("conversation", "sliding_window", "token_budget") or not kept:
            continue
        draft = Draft(kept, open_groups=open_groups, summary_tokens=summary_tokens, shortened=shortened)
        if policy.kind == "conversation":
            _only_talk(draft)
        elif policy.kind == "sliding_window":
            strategies.drop_groups(draft, _more_items(draft, policy.max_items), set())
        else:
            before = sum(note.tokens for note in notes if note.step is not None and note.step < place)
            strategies.drop_groups(draft, _more_tokens(draft, policy.max_tokens, before, factor), set())
        total = len(kept)
        gone = tuple(item for item, fate in zip(kept, draft.fates, strict=True) if fate == DROPPED)
        kept = [item for item, fate in zip(kept, draft.fates, strict=True) if fate != DROPPED]
        steps.append(Step(policy.kind, len(kept), total))
        taken.append(gone)
    return Reduced(kept, tuple(steps), tuple(taken))


def transparency(policies: Sequence[Policy], steps: Sequence[Step]) -> Note | None:
    """What the model is told about the policies that took something away and say so."""
    reducing = [policy for policy in policies if policy.kind in ("conversation", "sliding_window", "token_budget")]
    lines = [str(step) for policy, step in zip(reducing, steps, strict=False) if policy.transparent]
    if not lines:
        return None
    return Note(ASSEMBLY, "What is shown of this conversation", "\n".join(lines), LINE_TOKENS * len(lines) + FRAME_TOKENS, own=True)


def _only_talk(draft: Draft) -> None:
    """Drop calls, results and reasoning; what was said in the same breath stays."""
    for turn in draft.turns:
        for group in turn.groups:
            if group.is_fixed:
                continue
            places = [place for place in group.places if draft.items[place].kind not in TALK]
            draft.remove_places(turn, group, places)


def _more_items(draft: Draft, most: int | None) -> strategies.Over:
    return lambda: most is not None and draft.left > most


def _more_tokens(draft: Draft, most: int | None, before: int, factor: float) -> strategies.Over:
    return lambda: most is not None and (draft.tokens + before) * factor > most
