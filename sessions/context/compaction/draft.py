"""A plan while it is being made: what happens to each item, and how large the view is at every moment.

Items of one group (a call, its results, its reasoning) share one fate. What cannot be touched is fixed from the
start: the current turn and groups with an open call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sessions.context.compaction.texts import SHORTENED_TOKENS

KEPT, SHORTENED, DROPPED, SUMMARISED = 0, 1, 2, 3
# Only this share of the kept turns may go beyond need, so that the beginning of the view holds still meanwhile.
_STEADY_SHARE = 4


class Described(Protocol):
    """What a planner may know of an item."""

    @property
    def seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def turn(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def tokens(self) -> int: ...


@dataclass(slots=True, eq=False)
class Group:
    """Items that stand or fall together, by their places in the history."""

    places: list[int] = field(default_factory=list)
    is_fixed: bool = False
    is_gone: bool = False


@dataclass(slots=True, eq=False)
class Turn:
    """A subject's message and everything up to the next one. `number` is the session's own count."""

    number: int
    groups: list[Group] = field(default_factory=list)
    has_question: bool = False
    left: int = 0

    @property
    def is_fixed(self) -> bool:
        return any(group.is_fixed for group in self.groups)


class Draft:
    """`tokens`, `messages`, `left` (items) and `turns_left` are of the view as it is at the moment, a summary in front
    included. Items whose seq is in `shortened` are one line already."""

    def __init__(
        self,
        items: Sequence[Described],
        *,
        open_groups: frozenset[int] = frozenset(),
        summary_tokens: int = 0,
        shortened: frozenset[int] = frozenset(),
    ):
        self.items = items
        self.fates = bytearray(SHORTENED if item.seq in shortened else KEPT for item in items) if shortened else bytearray(len(items))
        self.summary_tokens = summary_tokens
        self.tokens = summary_tokens + sum(SHORTENED_TOKENS if item.seq in shortened else item.tokens for item in items)
        self.left = len(items)
        self.messages = sum(item.kind == "message" for item in items)
        self.groups: list[Group] = []
        self.turns: list[Turn] = []
        self._build(open_groups)
        self.turns_left = len(self.turns)

    def _build(self, open_groups: frozenset[int]) -> None:
        last = self.items[-1].turn if self.items else None
        by_id: dict[int, Group] = {}
        for place, item in enumerate(self.items):
            group = by_id.get(item.group)
            if group is None:
                group = by_id[item.group] = Group()
                self.groups.append(group)
                if not self.turns or self.turns[-1].number != item.turn:
                    self.turns.append(Turn(item.turn, has_question=item.kind == "message" and item.role == "user"))
                self.turns[-1].groups.append(group)
                self.turns[-1].left += 1
            group.places.append(place)
            group.is_fixed |= item.turn == last or item.group in open_groups

    def preserved(self, *, groups: int = 0, turns: int = 0) -> set[Group]:
        """The newest groups and all groups of the newest turns."""
        kept = set(self.groups[max(0, len(self.groups) - groups) :]) if groups else set()
        for turn in self.turns[max(0, len(self.turns) - turns) :] if turns else ():
            kept.update(turn.groups)
        return kept

    def shorten(self, group: Group) -> None:
        """Leave a line of each tool result that is longer than one."""
        for place in group.places:
            item = self.items[place]
            if item.kind == "tool_result" and item.tokens > SHORTENED_TOKENS and self.fates[place] == KEPT:
                self.fates[place] = SHORTENED
                self.tokens -= item.tokens - SHORTENED_TOKENS

    def remove(self, turn: Turn, group: Group, fate: int = DROPPED) -> None:
        group.is_gone = True
        turn.left -= 1
        self.turns_left -= turn.left == 0
        self._take(group.places, fate)

    def remove_places(self, turn: Turn, group: Group, places: list[int]) -> None:
        """Drop a part of a group. Whoever calls this sees to it that calls go with their results."""
        if len(places) == len(group.places):
            self.remove(turn, group)
            return
        self._take(places, DROPPED)
        group.places = [place for place in group.places if self.fates[place] != DROPPED]

    def _take(self, places: list[int], fate: int) -> None:
        for place in places:
            self.tokens -= self.size(place)
            self.messages -= self.items[place].kind == "message"
            self.left -= 1
            self.fates[place] = fate

    def remove_turn(self, turn: Turn, fate: int = DROPPED) -> None:
        for group in turn.groups:
            if not group.is_gone:
                self.remove(turn, group, fate)

    def size(self, place: int) -> int:
        """Tokens of an item as it is shown at the moment."""
        return SHORTENED_TOKENS if self.fates[place] == SHORTENED else self.items[place].tokens

    def hold_still(self, preserved: set[Group]) -> None:
        """Drop a little more, so that the view begins at the same turn for a while.

        Providers' prompt caches work by prefix: a view that loses its first turn with each new one is never cached.
        The first turn is put on a multiple of a step, by the session's own count of turns.
        """
        kept = [turn for turn in self.turns if turn.left and not turn.is_fixed]
        step = 1 << max(0, (len(kept) // _STEADY_SHARE).bit_length() - 1)
        if step == 1:
            return
        whole = [turn for turn in kept if turn.left == len(turn.groups)]
        if not whole:
            return
        begin = -(-whole[0].number // step) * step
        for turn in kept:
            if turn.number >= begin or not preserved.isdisjoint(turn.groups):
                return
            self.remove_turn(turn)
