"""The engine's store in memory: what tests of the loop read instead of tables."""

import asyncio
import copy
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from sessions.engine.store import CallRecord, Entry, ItemView, PendingCall, RunStopped, Spent


class MemoryStore:
    """Keeps items, events and ledger lines. `log` has everything in the order in which it happened.

    `restarted()` is another process that continues the run: what only lived in the engine is gone.
    """

    def __init__(self, *, session: bool = True, price: Decimal = Decimal(0)):
        self.rows: list[ItemView] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.calls: list[CallRecord] = []
        self.log: list[tuple[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.saved_state: dict[str, Any] = {}
        self.task: dict[str, Any] = {}
        self.blobs: dict[str, bytes] = {}
        self.given: dict[str, dict[str, Any]] = {}
        self.rules: Callable[[PendingCall], str | None] = lambda call: None
        self.asked: list[PendingCall] = []
        self.has_session = session
        self.price = price
        self.effects: set[str] = set()
        self.effects_before: frozenset[str] = frozenset()
        self.stopped: str | None = None
        self.lost = False
        self.turn = 0
        self.started = time.monotonic()

    # What a caller of the engine does

    def says(self, text: str, **content: Any) -> ItemView:
        """A message of the subject begins the next turn."""
        self.turn += 1
        return self._insert(Entry("message", "user", {"text": text, **content}, tokens=len(text) // 4 + 4))

    def put(self, *entries: Entry) -> list[ItemView]:
        return [self._insert(entry) for entry in entries]

    def decide(self, call_id: str, **decision: Any) -> None:
        self.given[call_id] = decision
        self._insert(Entry("approval_response", "system", {"call_id": call_id, **decision}))

    def restarted(self) -> "MemoryStore":
        other = copy.copy(self)
        other.rows = copy.deepcopy(self.rows)
        other.effects_before = frozenset(self.effects)
        other.state = copy.deepcopy(self.saved_state)
        other.stopped = None
        return other

    # What tests look at

    def kinds(self) -> list[str]:
        return [row.kind for row in self.rows]

    def texts(self, kind: str) -> list[str]:
        return [row.content.get("text", "") for row in self.rows if row.kind == kind]

    def results(self) -> dict[str, dict[str, Any]]:
        return {row.content["id"]: row.content for row in self.rows if row.kind == "tool_result"}

    def told(self, *types: str) -> list[tuple[str, dict[str, Any]]]:
        return [event for event in self.events if event[0] in types]

    def event_types(self) -> list[str]:
        """Types in order, deltas of one kind in a row as one."""
        found: list[str] = []
        for kind, _ in self.events:
            if not (kind.endswith(".delta") and found and found[-1] == kind):
                found.append(kind)
        return found

    def streamed(self, type: str = "message.delta") -> str:
        return "".join(data["text"] for kind, data in self.events if kind == type)

    # The protocol

    def items(self) -> Sequence[ItemView]:
        return self.rows

    def decisions(self) -> dict[str, dict[str, Any]]:
        return self.given

    def spent(self) -> Spent:
        results = [row for row in self.rows if row.kind == "tool_result" and row.turn == self.turn]
        return Spent(
            tokens=sum(call.input_tokens + call.output_tokens for call in self.calls),
            cost=self.price * len(self.calls),
            tool_calls=sum(row.content["outcome"] in ("success", "failed") for row in results),
            seconds=time.monotonic() - self.started,
            model_calls=len(self.calls),
        )

    def effects_started(self) -> frozenset[str]:
        return self.effects_before

    async def add(self, entries, *, events=(), call=None, last=False) -> list[ItemView]:
        await asyncio.sleep(0)
        if self.lost:
            raise RunStopped("lease_lost")
        views = [self._insert(entry) for entry in entries]
        if call is not None:
            self.calls.append(call)
            self.log.append(("call", call))
        for kind, data in events:
            if kind == "message.completed":
                (message,) = [view for view in views if view.kind == "message"]
                data = {**data, "item_seq": message.seq}
            self._event(kind, data)
        return views

    async def emit(self, type: str, data: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self._event(type, data)

    async def delta(self, type: str, text: str) -> None:
        self._event(type, {"text": text})

    async def ask(self, calls: list[PendingCall]) -> None:
        for call in calls:
            self.asked.append(call)
            content = {"approval_id": f"apr_{call.call_id}", "call_id": call.call_id, "name": call.name}
            self._insert(Entry("approval_request", "system", content))
            data = {"approval_id": content["approval_id"], "call_id": call.call_id, "tool": call.name}
            self._event("approval.requested", {**data, "arguments": call.arguments, "expires_at": None})

    async def standing_answer(self, call: PendingCall) -> str | None:
        return self.rules(call)

    async def save_state(self) -> None:
        self.saved_state = copy.deepcopy(self.state)

    async def effect_started(self, call_id: str) -> None:
        self.effects.add(call_id)
        self.log.append(("effect", call_id))

    async def check(self) -> None:
        if self.stopped:
            raise RunStopped(self.stopped)

    async def blob(self, sha256: str) -> bytes | None:
        return self.blobs.get(sha256)

    async def read_task(self) -> dict[str, Any]:
        return self.task

    async def patch_task(self, patch: dict[str, Any]) -> dict[str, Any]:
        self.task = {name: value for name, value in {**self.task, **patch}.items() if value is not None}
        return self.task

    def _insert(self, entry: Entry) -> ItemView:
        seq = len(self.rows) + 1
        group = seq
        if entry.kind == "tool_result":
            group = next((row.group for row in self.rows if row.kind == "tool_call" and row.content["id"] == entry.content["id"]), seq)
        elif entry.joins:
            group = self.rows[-1].group
        view = ItemView(seq, entry.kind, entry.role, self.turn, group, entry.tokens, dict(entry.content))
        self.rows.append(view)
        self.log.append(("item", view))
        return view

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self.events.append((kind, dict(data)))
        self.log.append(("event", (kind, data)))

    def rewrite(self, seq: int, **changes: Any) -> None:
        self.rows[seq - 1] = self.rows[seq - 1]._replace(**changes)
