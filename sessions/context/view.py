"""What one model call is made of: notes, a summary, the view of a history, and the report of all layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sessions.context.compaction import SHORTENED_TOKENS, Plan
from sessions.context.compaction.draft import Described

INSTRUCTIONS, TOOLS, SUMMARY, HISTORY, RECALL, WORKSPACE, WORKING_MEMORY, ALERTS, ASSEMBLY, MESSAGE = (
    "instructions",
    "tools",
    "summary",
    "history",
    "recall",
    "workspace",
    "working_memory",
    "alerts",
    "assembly",
    "message",
)
# What these say may differ from call to call of a run; what any other layer that is no part of the history says does not.
CHANGING = frozenset({RECALL, WORKSPACE, WORKING_MEMORY, ALERTS, ASSEMBLY})
NO_ROOM = "does not fit the model's context window"
MOST_RANGES = 20

T = TypeVar("T", bound=Described)


@dataclass(frozen=True, slots=True)
class Note:
    """Text that goes to the model as fenced data before the current message: recall, working memory, alerts.

    `sources` are ids of what it was made from. `step` is the place of the assembly policy that adds it. The text of
    one that is `own` to the session is kept in the ledger's report; of others only the sources are.
    """

    layer: str
    title: str
    text: str
    tokens: int
    sources: tuple[str, ...] = ()
    step: int | None = None
    own: bool = False


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
    text: str = ""

    def as_dict(self, *, texts: bool = False) -> dict[str, Any]:
        shown = {"layer": self.layer, "tokens": self.tokens, "sources": list(self.sources), "left_out": list(self.left_out)}
        return {**shown, "text": self.text} if texts and self.text else shown


@dataclass(frozen=True, slots=True)
class Step:
    """What one assembly policy left of the history: `shown` of `total` entries."""

    policy: str
    shown: int
    total: int

    def __str__(self):
        return f"[{self.policy}] showing {self.shown} of {self.total} entries"


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """The history, the notes and the current turn that go into the call, and the report of all layers.

    `summary` stands in front of the history. Items whose seq is in `shortened` are shown as one line. `plan` is what
    compaction made of the history, None without compaction. `reduced` are items that assembly policies took away,
    `steps` what each of them did; `capped` are those beyond the cap of the history. `crowded_out` are items that would
    all have been kept, and for which the window has no room. `fits` is false when even the smallest view is larger
    than the window leaves room for.
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
    reduced: tuple[T, ...] = ()
    steps: tuple[Step, ...] = ()
    capped: tuple[T, ...] = ()
    crowded_out: tuple[T, ...] = ()

    @property
    def wanted(self) -> int | None:
        """The seq up to which a summary is to be written; None when none is."""
        return self.plan.summarised[-1].seq if self.plan is not None and self.plan.summarised else None

    @property
    def not_shown(self) -> set[int]:
        """Seqs of items that are neither shown nor behind the summary."""
        dropped = self.plan.dropped if self.plan else ()
        return {item.seq for item in (*dropped, *self.reduced, *self.capped, *self.crowded_out)}

    @property
    def tokens(self) -> int:
        return sum(layer.tokens for layer in self.layers)

    def report(self, *, texts: bool = False) -> list[dict[str, Any]]:
        """The layers; with `texts`, what the ledger keeps of them: the session's own notes, short texts of the system."""
        return [layer.as_dict(texts=texts) for layer in self.layers]


def ranges(items: Iterable[Described]) -> tuple[str, ...]:
    """The seqs of `items` as ranges of at most 20: ("3-41", "44")."""
    found: list[list[int]] = []
    for item in items:
        if found and item.seq == found[-1][1] + 1:
            found[-1][1] = item.seq
        else:
            found.append([item.seq, item.seq])
    if len(found) > MOST_RANGES:
        found = [*found[: MOST_RANGES - 1], [found[MOST_RANGES - 1][0], found[-1][1]]]
    return tuple(span(first, last) for first, last in found)


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def sizes(items: Iterable[Described], shortened: frozenset[int]) -> int:
    """Tokens of `items` as they are shown."""
    return sum(SHORTENED_TOKENS if item.seq in shortened else item.tokens for item in items)


def left_out(items: Sequence[Described], shortened: frozenset[int], reason: str) -> tuple[dict[str, Any], ...]:
    """The line of a report for items that are not shown; none for no items."""
    if not items:
        return ()
    return ({"items": ", ".join(ranges(items)), "tokens": sizes(items, shortened), "reason": reason},)
