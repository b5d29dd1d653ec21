"""The engine's store, on PostgreSQL: what a run adds is kept as it happens, in small transactions.

State is only rows. The history is written under the session's lease with a compare-and-swap on its version, so a
process that lost its lease can add nothing. `sessions.engine.store.Store` says what each method promises.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import Sum

from governance import sql, subject_keys
from governance.domain import fences
from governance.errors import SubjectFenced
from governance.models import Subject
from governance.text import clean_json
from sessions import notify
from sessions.domain import approvals, blobs, events, executions, history, leases, usage
from sessions.domain import sessions as session_verbs
from sessions.engine.store import CallRecord, Entry, ItemView, PendingCall, RunStopped, Spent
from sessions.models import Approval, Item, ModelCall, Run, Session
from sessions.threads import in_thread

_DELTA_SECONDS = 0.05
# What `lease_held()` raises in the database.
LEASE_LOST = "LE005"
# Takes seqs of the session's history; when a turn began and ended is what counts as activity.
_CLAIM = (
    "UPDATE agent_sessions_session SET version = version + 1, head_seq = head_seq + %s{also}"
    " WHERE id = %s AND lease_run_id = %s AND version = %s RETURNING id"
)
# Progress that need not be on disk before the work goes on: the ledger keeps the report itself.
_LAZY = frozenset({"context.assembled"})
_NAMED_BY_ITEM = {"message.completed": ("text",), "tool.called": ("name", "arguments"),
                  "tool.completed": ("name", "text", "outcome", "duration_ms"), "tool.failed": ("name", "text", "outcome", "duration_ms")}  # fmt: skip


@dataclass(slots=True)
class _Buffer:
    """Events that wait to be written, in order: deltas, of which neighbours of one kind become one, and progress."""

    pending: list[tuple[str, dict]] = field(default_factory=list)
    written_at: float = 0.0

    def put_delta(self, kind: str, text: str) -> None:
        if self.pending and self.pending[-1][0] == kind:
            text = self.pending.pop()[1]["text"] + text
        self.pending.append((kind, {"text": text}))

    def put(self, kind: str, data: dict) -> None:
        self.pending.append((kind, data))

    def take(self) -> list[tuple[str, dict]]:
        pending, self.pending = self.pending, []
        return [(kind, clean_json(data)) for kind, data in pending]


@dataclass(frozen=True, slots=True)
class _Held:
    """The answer that ends a turn, to be written with the run's end; and the events until then."""

    writes: dict[str, sql.Write]
    events: list[tuple[str, dict]]


class RunStore:
    """Implements `sessions.engine.store.Store` for one run in one event loop."""

    def __init__(self, *, run: Run, session: Session | None, items: list[ItemView], event_seq: int, spent: Spent, calls: int, decisions: dict):
        self.run, self.session = run, session
        self.has_session = session is not None
        self.state: dict[str, Any] = dict(session_verbs.readable_state(session)) if session else {}
        self.final_text: str | None = None
        self._items = items
        self._event_seq = event_seq
        self._before, self._decisions = spent, decisions
        self._calls, self._tokens, self._cost, self._tool_calls = calls, spent.tokens, spent.cost, spent.tool_calls
        self._started = time.monotonic()
        # The first events wait for a moment: an answer that is there by then is written with them.
        self._buffer = _Buffer(written_at=time.monotonic() - _DELTA_SECONDS / 2)
        self._held: _Held | None = None
        self._lock = asyncio.Lock()
        self._flusher: asyncio.Task | None = None
        self._effects_before = frozenset(run.effects)
        self.stop_reason: str | None = None

    # What the engine reads, without I/O.

    def items(self) -> Sequence[ItemView]:
        return self._items

    def decisions(self) -> dict[str, dict[str, Any]]:
        return self._decisions

    def effects_started(self) -> frozenset[str]:
        return self._effects_before

    def spent(self) -> Spent:
        return Spent(
            tokens=self._tokens, cost=self._cost, tool_calls=self._tool_calls,
            seconds=self._before.seconds + time.monotonic() - self._started, model_calls=self._calls,
        )  # fmt: skip

    async def check(self) -> None:
        if self.stop_reason:
            raise RunStopped(self.stop_reason)

    # What the engine writes.

    async def add(
        self, entries: list[Entry], *, events: Sequence[tuple[str, dict]] = (), call: CallRecord | None = None, last: bool = False
    ) -> list[ItemView]:
        async with self._lock:
            if last and self.session is not None and self._held is None:
                if not subject_keys.is_configured():
                    return self._add(entries, list(events), call, hold=True)
                # Whether the tenant wants a key, and the key, may have to be read.
                return await self._written(partial(self._add, hold=True), entries, list(events), call)
            return await self._written(self._add, entries, list(events), call)

    async def emit(self, type: str, data: dict[str, Any]) -> None:
        if type in _LAZY:
            self._buffer.put(type, data)
            self._flush_in_background()
            return
        async with self._lock:
            await self._written(self._emit, [(type, clean_json(data))])

    async def delta(self, type: str, text: str) -> None:
        self._buffer.put_delta(type, text)
        self._flush_in_background()

    async def ask(self, calls: list[PendingCall]) -> None:
        async with self._lock:
            await self._written(self._ask, calls)

    async def standing_answer(self, call: PendingCall) -> str | None:
        rule = await in_thread(
            approvals.matching_rule, tenant_id=self.run.tenant_id, agent_id=self.run.agent_id,
            session_id=self.session.id if self.session else None, tool=call.name, origin=call.origin, arguments=call.arguments,
        )  # fmt: skip
        return str(rule.id) if rule else None

    async def save_state(self) -> None:
        async with self._lock:
            await self._written(self._save_state, dict(self.state))

    async def effect_started(self, call_id: str) -> None:
        async with self._lock:
            self.run.effects = [*self.run.effects, call_id]
            await self._written(self._save_effects)

    async def blob(self, sha256: str) -> bytes | None:
        found = await in_thread(blobs.load, session=self.session, hashes=[sha256]) if self.session else {}
        return bytes(found[sha256].data) if sha256 in found else None

    async def read_task(self) -> dict[str, Any]:
        return await in_thread(lambda: Session.objects.values_list("task", flat=True).get(id=self.session.id))

    async def patch_task(self, patch: dict[str, Any]) -> dict[str, Any]:
        changed = await in_thread(session_verbs.patch_task, session=self.session, patch=patch)
        return changed.task

    async def settle(self) -> None:
        """Write what is still to be written: the run stops, or pauses."""
        await self._stop_flushing()
        async with self._lock:
            if self._buffer.pending or self._held:
                await in_thread(self._emit, [])

    async def finish(self, *, status: str, error: dict | None = None, output: dict | None = None) -> None:
        """End the run by itself; what is still to be written goes with it. Raises RunStopped as `add` does."""
        await self._stop_flushing()
        async with self._lock:
            await self._written(self._finish, status, error, output)

    def give_up_last(self) -> None:
        """Let go of an answer that cannot be written, so that the end can."""
        self._held = None

    async def _stop_flushing(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)

    # Inside a database thread.

    async def _written(self, write, *args):
        """Do `write` to its end even when this task is cancelled meanwhile: what was paid for is kept."""
        work = asyncio.ensure_future(in_thread(self._told, write, *args))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _told(self, write, *args):
        try:
            with fences.told():
                return write(*args)
        except SubjectFenced:
            self.stop_reason = "fenced"
            raise RunStopped("fenced") from None
        except DatabaseError as error:
            if fences.sqlstate(error) == LEASE_LOST:
                self._lost()
            raise

    def _flush_in_background(self) -> None:
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        wait = self._buffer.written_at + _DELTA_SECONDS - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        async with self._lock:
            if self._buffer.pending:
                try:
                    await self._written(self._emit, [])
                except (RunStopped, DatabaseError):
                    # The next write meets the same fault and ends the run; a lost delta is in the whole message.
                    return
            self._buffer.written_at = time.monotonic()

    def _add(self, entries: list[Entry], new_events: list[tuple[str, dict]], call: CallRecord | None, *, hold: bool = False) -> list[ItemView]:
        views = self._number(entries)
        writes: dict[str, sql.Write] = {}
        if views and self.session is not None:
            rows = [self._row(view) for view in views]
            writes["claim"] = self._claim(len(views))
            writes["items"] = history.insertion(session=self.session, first_seq=views[0].seq, entries=rows)
        if call is not None:
            writes["ledger"] = self._ledger(call)
        named = [self._named(event, views) for event in new_events]
        if hold:
            self._held = _Held(writes, [*self._buffer.take(), *named])
        else:
            self._write(named, **writes)
        if "claim" in writes:
            self.session.version += 1
            self.session.head_seq += len(views)
        self._items = [*self._items, *views]
        self._note_progress(views)
        return views

    def _emit(self, new_events: list[tuple[str, dict]]) -> None:
        # Deltas and progress may be lost with the server; what is paid for is written by `_add`.
        self._write(new_events, lazily=True)

    @transaction.atomic
    def _ask(self, calls: list[PendingCall]) -> None:
        rows = approvals.request(run=self.run, calls=calls)
        entries = [
            Entry(kind="approval_request", role="system", joins=True, content={"approval_id": row.id.hex, "call_id": row.call_id, "name": row.tool})
            for row in rows
        ]
        self._add(entries, [("approval.requested", approvals.as_event(row)) for row in rows], None)

    def _save_state(self, state: dict) -> None:
        if self.session is None:
            return
        if not Session.objects.filter(id=self.session.id, lease_run_id=self.run.id).update(state=clean_json(state)):
            self._lost()

    def _save_effects(self) -> None:
        if not Run.objects.filter(id=self.run.id, status=Run.Status.RUNNING).update(effects=self.run.effects):
            self._lost()

    def _claim(self, number: int) -> sql.Write:
        """Reserves `number` seqs, unless the lease or the version is not ours any more."""
        return sql.Write(_CLAIM.format(also=""), [number, self.session.id, self.run.id, self.session.version])

    def _lost(self):
        self.stop_reason = self.stop_reason or "lease_lost"
        raise RunStopped(self.stop_reason)

    def _number(self, entries: list[Entry]) -> list[ItemView]:
        seq = self.session.head_seq if self.session else len(self._items)
        turn = self._items[-1].turn if self._items else 1
        groups = {view.content.get("id"): view.group for view in self._items if view.kind == "tool_call"}
        views: list[ItemView] = []
        for entry in entries:
            seq += 1
            content = clean_json(entry.content)
            group = seq
            if entry.kind in ("tool_result", "approval_request", "approval_response"):
                group = groups.get(content.get("id") or content.get("call_id"), seq)
            elif entry.joins and (views or self._items):
                group = (views or self._items)[-1].group
            if entry.kind == "tool_call":
                groups[content.get("id")] = group
            views.append(ItemView(seq, entry.kind, entry.role, turn, group, entry.tokens, content))
        return views

    def _row(self, view: ItemView) -> history.NewItem:
        return history.NewItem(
            kind=view.kind, role=view.role, content=view.content, turn=view.turn, group=view.group,
            tokens=view.tokens, run_id=self.run.id,
        )  # fmt: skip

    def _named(self, event: tuple[str, dict], views: list[ItemView]) -> tuple[str, dict]:
        """The event with its item's seq in place of the text that the item keeps."""
        kind, data = event
        if self.session is None or kind not in _NAMED_BY_ITEM:
            return kind, clean_json(data)
        view = _item_of(kind, data, views)
        if view is None:
            return kind, clean_json(data)
        return kind, {**{name: value for name, value in data.items() if name not in _NAMED_BY_ITEM[kind]}, "item_seq": view.seq}

    def _ledger(self, call: CallRecord) -> sql.Write:
        priced = call.price(call) if call.price else usage.UNKNOWN
        self._calls += 1
        self._tokens += call.input_tokens + call.output_tokens
        self._cost += priced.cost or Decimal(0)
        line = ModelCall(
            tenant_id=self.run.tenant_id, subject_id=self.run.subject_id, run_id=self.run.id, agent_id=self.run.agent_id,
            number=self._calls, provider=call.provider, model=call.model, input_tokens=call.input_tokens,
            cached_tokens=call.cached_tokens, output_tokens=call.output_tokens, reasoning_tokens=call.reasoning_tokens,
            is_estimated=call.is_estimated, cost=priced.cost, prices=priced.prices, context=call.context,
            duration_ms=call.duration_ms,
        )  # fmt: skip
        return sql.insertion(line)

    def _write(self, new_events: list[tuple[str, dict]], *, lazily: bool = False, **writes: sql.Write) -> None:
        """What waits first, then `new_events`, and `writes` with them, in one round trip.

        `lazily` does not wait for the disk: for what may be lost with the server.
        """
        if writes and self._held:
            # Each claims the session's next version.
            self._write([])
        held = self._held
        whole, count = self._whole(new_events, writes, lazily=lazily and held is None)
        if whole is not None:
            sql.row(whole.statement, whole.values)
        self._sent(count)

    def _finish(self, status: str, error: dict | None, output: dict | None) -> None:
        if status not in executions.BY_ITSELF:
            self._write([])
        elif self._held is not None and "claim" in self._held.writes:
            # The session's row is written once instead of twice.
            self._held.writes["claim"] = replace(self._held.writes["claim"], statement=_CLAIM.format(also=f", {leases.RELEASED}"))
        whole, count = self._whole([], {})
        executions.finish(run=self.run, status=status, error=error, output=output, before=whole)
        self._sent(count)

    def _sent(self, events: int) -> None:
        self._event_seq += events
        self._held = None

    def _whole(self, new_events: list[tuple[str, dict]], writes: dict[str, sql.Write], *, lazily: bool = False) -> tuple[sql.Write | None, int]:
        """All that is to be written as one statement, and how many events it has. None when there is nothing."""
        pending = [*self._buffer.take(), *new_events]
        if self._held:
            writes, pending = self._held.writes | writes, [*self._held.events, *pending]
        then, values = ["1"], []
        if "claim" in writes:
            then.append("lease_held(EXISTS (SELECT FROM claim))")
        if pending:
            writes = writes | {"events": events.insertion(run=self.run, first_seq=self._event_seq + 1, events=pending)}
            then.append("pg_notify(%s, %s)")
            values += [notify.EVENTS, self.run.id.hex]
        if lazily:
            then.append("set_config('synchronous_commit', 'off', true)")
        whole = sql.combined(**writes, then=sql.Write("SELECT " + ", ".join(then), values)) if writes else None
        return whole, len(pending)

    def _note_progress(self, views: list[ItemView]) -> None:
        for view in views:
            if view.kind == "tool_result" and view.content.get("outcome") in ("success", "failed"):
                self._tool_calls += 1
            if view.kind == "message" and view.role == "assistant":
                self.final_text = view.content.get("text", "")


def _item_of(kind: str, data: dict, views: list[ItemView]) -> ItemView | None:
    wanted = {"message.completed": "message", "tool.called": "tool_call"}.get(kind, "tool_result")
    for view in views:
        if view.kind == wanted and (wanted == "message" or view.content.get("id") == data.get("call_id")):
            return view
    return None


def open_store(
    *, run: Run, session: Session | None, last_event: int, token_budget: int, first_message: ItemView | None = None,
    after_seq: int = 0, page: list[tuple] | None = None,
) -> RunStore:  # fmt: skip
    """Load what a run needs, whether it starts, continues after an approval, or after a crash.

    `last_event` is the seq of its last stored event, `after_seq` where a summary of the session ends, `page` what
    `history.newest` has found.
    """
    rows = history.load_tail(session=session, token_budget=token_budget, after_seq=after_seq, page=page) if session else []
    items = [ItemView._make(row) for row in rows]
    if session is None and first_message is not None:
        items = [first_message]
    is_fresh = last_event <= 1
    return RunStore(
        run=run, session=session, items=items, event_seq=last_event,
        spent=Spent() if is_fresh else _spent(run, items), calls=0 if is_fresh else ModelCall.objects.filter(run_id=run.id).count(),
        decisions={} if is_fresh else _decisions(run),
    )  # fmt: skip


def _spent(run: Run, items: list[ItemView]) -> Spent:
    sums = ModelCall.objects.filter(run_id=run.id).aggregate(
        into=Sum("input_tokens"), out=Sum("output_tokens"), cost=Sum("cost"), milliseconds=Sum("duration_ms")
    )
    results = Item.objects.filter(session_id=run.session_id, seq__gte=run.first_seq or 0, run_id=run.id, kind=Item.Kind.TOOL_RESULT, content__outcome__in=["success", "failed"]).count()
    return Spent(
        tokens=(sums["into"] or 0) + (sums["out"] or 0), cost=sums["cost"] or Decimal(0), tool_calls=results,
        seconds=(sums["milliseconds"] or 0) / 1000, model_calls=ModelCall.objects.filter(run_id=run.id).count(),
    )  # fmt: skip


def _decisions(run: Run) -> dict[str, dict[str, Any]]:
    decided = Approval.objects.filter(run_id=run.id).exclude(status=Approval.Status.PENDING)
    return {approval.call_id: approvals.as_decision(approval) for approval in decided}


def subject_is_open(subject_id: UUID | None, epoch: int) -> bool:
    """Whether the run's subject is still the incarnation that the run started for."""
    return subject_id is None or Subject.objects.filter(id=subject_id, epoch=epoch, state=Subject.State.ACTIVE).exists()
