"""What the engine needs from whoever keeps things: one protocol, and the small values that cross it.

The engine knows no database. Everything that must survive goes through a `Store`, in the order in which it
happened, so that a start, a resumed approval and a continuation after a crash are the same code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A new item.

    `joins` puts it into the group of the entry before it (a call with its answer). A `tool_result` joins the group of
    its call through `content["id"]`; the store resolves that.
    """

    kind: str
    role: str
    content: dict[str, Any]
    tokens: int = 0
    joins: bool = False


class ItemView(NamedTuple):
    """An item of the history as the engine sees it. A tuple, because a turn makes one of each row that it reads."""

    seq: int
    kind: str
    role: str
    turn: int
    group: int
    tokens: int
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The ledger line of one paid model call. `context` is its report: [{"layer", "tokens", "sources", "left_out"}].

    `model` is the one that answered, by the provider's words; `asked` the name that it was asked for by. `price` takes
    the line and gives its price (`sessions.domain.usage.Priced`). `searches` are those that the provider bills.
    """

    provider: str
    model: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    is_estimated: bool
    duration_ms: int
    context: list[dict[str, Any]]
    price: Callable[["CallRecord"], Any] | None = None
    searches: int = 0
    asked: str = ""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A tool call that waits for a person. `arguments` are the model's, valid by the tool's schema."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    origin: str
    effect: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What this run has used so far, earlier attempts included.

    `cost` is in US dollars, of the calls whose price is known. `tool_calls` counts the results with outcome `success`
    or `failed`: a refused call costs nothing. `seconds` is time spent working, without the wait for a person.
    """

    tokens: int = 0
    cost: Decimal = Decimal(0)
    tool_calls: int = 0
    seconds: float = 0.0
    model_calls: int = 0


class RunStopped(Exception):
    """The run may not go on. `reason` is `cancelled`, `interrupted`, `fenced` or `lease_lost`."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class Store(Protocol):
    """Where a run is kept. One event loop, one run; `add` may be called from several tasks of that loop at once."""

    # {"mode": "plan", "todos": [{"id", "title", "done"}]}; changes are kept by `save_state`.
    state: dict[str, Any]
    # False for a sessionless run: nothing outlives it, so nobody can be asked.
    has_session: bool

    def items(self) -> Sequence[ItemView]:
        """The loaded tail of the history, unrepaired, oldest first, with what this run has added. No I/O."""
        ...

    def decisions(self) -> dict[str, dict[str, Any]]:
        """By call id, from stored approval rows: {"approve": bool, "reason"?: str, "arguments"?: edited}."""
        ...

    def spent(self) -> Spent: ...

    def effects_started(self) -> frozenset[str]:
        """Ids of calls for which `effect_started` was called in an earlier attempt of this run. Too many is safe:
        those that have no result are told to the model as interrupted, and are not run again."""
        ...

    async def add(
        self,
        entries: list[Entry],
        *,
        events: Sequence[tuple[str, dict[str, Any]]] = (),
        call: CallRecord | None = None,
        last: bool = False,
    ) -> list[ItemView]:
        """Keep items, their events and the ledger line in one transaction. Buffered deltas go first. What is the `last`
        of a run may be kept with the run's end, or with whatever is kept next.

        A `message.completed` event speaks of the one message in `entries`: the store adds its `item_seq`. Raises
        RunStopped when the lease is lost or the subject fenced. A cancel alone does not refuse what was paid for.
        """
        ...

    async def emit(self, type: str, data: dict[str, Any]) -> None:
        """A durable event, now. Buffered deltas go first."""
        ...

    async def delta(self, type: str, text: str) -> None:
        """A piece of `message.delta` or `reasoning.delta`, coalesced about every 50 ms. What is said within the first
        25 ms of a run is told then; after that, the first piece is told at once."""
        ...

    async def ask(self, calls: list[PendingCall]) -> None:
        """Store an approval row, an `approval_request` item and an `approval.requested` event for each call."""
        ...

    async def standing_answer(self, call: PendingCall) -> str | None:
        """The id of the approval rule that already allows this call."""
        ...

    async def save_state(self) -> None: ...

    async def effect_started(self, call_id: str) -> None:
        """Recorded before a tool that writes, destroys or reaches outside is run."""
        ...

    async def check(self) -> None:
        """Cheap. Raises RunStopped when somebody cancelled, the lease is lost or the subject is fenced."""
        ...

    async def blob(self, sha256: str) -> bytes | None:
        """The bytes of an attachment that an item of this session names."""
        ...

    async def read_task(self) -> dict[str, Any]:
        """The application's structured data of the current task. Only with a session."""
        ...

    async def patch_task(self, patch: dict[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch (RFC 7396) and return the task as it is now."""
        ...
