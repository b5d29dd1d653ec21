"""Events of a run: one vocabulary for streams that are live, resumed or read afterwards.

Texts that a session keeps as items are not stored again: such an event names the item (`item_seq`) and is completed
when it is read. Deltas live until the run is over; then `message.completed` stands for them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from psycopg.types.json import Jsonb

from governance import sql
from governance.errors import NotFound
from sessions import notify
from sessions.domain.vocabulary import TYPES
from sessions.models import Item, ModelCall, Run, RunEvent
from sessions.threads import in_thread

ENDINGS = frozenset({"run.completed", "run.failed", "run.cancelled", "run.interrupted"})
DELTAS = ("message.delta", "reasoning.delta")
_READ_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    type: str
    data: dict
    at: datetime


def insertion(*, run: Run, first_seq: int, events: Sequence[tuple[str, dict]]) -> sql.Write:
    """Writes events with the seqs from `first_seq` on; `waking` goes with it.

    The executing process counts the seqs itself; a second writer would violate the primary key and so learn that the
    run is no longer its own.
    """
    rows = []
    for offset, (kind, data) in enumerate(events):
        assert kind in TYPES, kind
        rows += [run.id, first_seq + offset, run.tenant_id, run.subject_id, kind, Jsonb(data)]
    return sql.Write(
        "INSERT INTO agent_sessions_runevent (run_id, seq, tenant_id, subject_id, type, data) VALUES "
        + ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(events)),
        rows,
    )


def waking(run: Run) -> sql.Write:
    """Wakes the readers of the run's events at commit."""
    return sql.Write("SELECT pg_notify(%s, %s)", [notify.EVENTS, run.id.hex])


def last_seq(run: Run) -> int:
    """The seq of the run's newest event, 0 before the first."""
    return sql.row("SELECT coalesce(max(seq), 0) FROM agent_sessions_runevent WHERE run_id = %s", [run.id])[0]


def read(*, run: Run, after: int = 0) -> list[Event]:
    """Up to 500 events after the seq `after`, in order, with the texts of their items."""
    rows = list(
        RunEvent.objects.filter(run_id=run.id, seq__gt=after).order_by("seq").values_list("seq", "type", "data", "at")[:_READ_LIMIT]
    )
    texts, reports = _contents(run, rows), _reports(run, rows)
    return [Event(seq, kind, _completed(kind, data, texts, reports), at) for seq, kind, data, at in rows]


def _contents(run: Run, rows: list[tuple]) -> dict[int, dict]:
    """Contents of the items that the events name, by seq."""
    seqs = {data["item_seq"] for _, _, data, _ in rows if "item_seq" in data}
    if not seqs:
        return {}
    return dict(Item.objects.filter(session_id=run.session_id, seq__in=seqs, run_id=run.id).values_list("seq", "content"))


def _reports(run: Run, rows: list[tuple]) -> dict[int, list]:
    """Context reports that only the ledger has any more, by the number of the call."""
    numbers = {data["call"] for _, kind, data, _ in rows if kind == "context.assembled" and "layers" not in data}
    if not numbers:
        return {}
    return dict(ModelCall.objects.filter(run_id=run.id, number__in=numbers).values_list("number", "context"))


def _completed(kind: str, data: dict, contents: dict[int, dict], reports: dict[int, list]) -> dict:
    if kind == "context.assembled":
        layers = data.get("layers") or reports.get(data["call"], [])
        return {**data, "layers": layers, "tokens": sum(layer["tokens"] for layer in layers)}
    content = contents.get(data.get("item_seq"))
    if content is None:
        return data
    if kind == "message.completed":
        return {**data, "text": content.get("text", "")}
    if kind == "tool.called":
        return {**data, "call_id": content["id"], "name": content["name"], "arguments": content.get("arguments", {})}
    if kind in ("tool.completed", "tool.failed"):
        return {
            **data, "call_id": content["id"], "name": content["name"], "text": content.get("text", ""),
            "outcome": content.get("outcome"), "duration_ms": content.get("duration_ms"),
        }  # fmt: skip
    return data


def _run_and_events(run_id: UUID, tenant_id: UUID, after: int) -> tuple[Run, list[Event]]:
    run = Run.objects.filter(id=run_id, tenant_id=tenant_id).first()
    if run is None:
        raise NotFound
    return run, read(run=run, after=after)


async def tail(*, run_id: UUID, tenant_id: UUID, after: int = 0) -> AsyncIterator[Event | None]:
    """The events after the seq `after`, live until the run's last one. None now and then keeps a connection alive.

    Works in any process: a notification wakes it, then it reads the rows. Raises NotFound for a foreign run, also when
    the run is erased meanwhile.
    """
    with notify.hub().bell(notify.EVENTS, run_id) as bell:
        while True:
            bell.clear()
            run, events = await in_thread(_run_and_events, run_id, tenant_id, after)
            for event in events:
                after = event.seq
                yield event
                if event.type in ENDINGS:
                    return
            if events:
                continue
            if run.is_finished:
                return
            try:
                await asyncio.wait_for(bell.wait(), settings.LETHE["keepalive_seconds"])
            except TimeoutError:
                yield None


async def wait(*, run_id: UUID, tenant_id: UUID) -> Run:
    """The run once it is finished or waits for an approval."""

    def load() -> Run:
        run = Run.objects.select_related("agent", "version", "session").filter(id=run_id, tenant_id=tenant_id).first()
        if run is None:
            raise NotFound
        return run

    with notify.hub().bell(notify.ENDED, run_id) as bell:
        while True:
            bell.clear()
            run = await in_thread(load)
            if run.is_finished or run.status == Run.Status.AWAITING_APPROVAL:
                return run
            try:
                await asyncio.wait_for(bell.wait(), settings.LETHE["keepalive_seconds"])
            except TimeoutError:
                continue


def fold(*, older_than_seconds: int = 120, limit: int = 5000) -> int:
    """Leave out of finished runs' events what another row says, in one bounded batch; returns how many changed.

    Deltas go: `message.completed` stands for them. Context reports go where the ledger has them. The grace lets a
    reader that was cut resume delta by delta. Runs of fenced subjects are left to the erasure;
    those under a hold stay as they are.
    """
    batch = [older_than_seconds, older_than_seconds, limit]
    folded = sql.execute(
        f"DELETE FROM agent_sessions_runevent WHERE (run_id, seq) IN ({_OVER.format(what=_DELTA)})", batch
    )
    return folded + sql.execute(
        "UPDATE agent_sessions_runevent SET data = data - 'layers' - 'tokens'"
        f" WHERE (run_id, seq) IN ({_OVER.format(what=_REPORT)})",
        batch,
    )


# As the conditions of the indexes run_event_deltas and run_event_reports have it.
_DELTA = "event.type IN ('message.delta', 'reasoning.delta')"
_REPORT = """event.type = 'context.assembled' AND event.data ? 'layers' AND EXISTS (
    SELECT FROM agent_sessions_modelcall WHERE run_id = run.id AND number = (event.data ->> 'call')::int)"""
_OVER = """
SELECT event.run_id, event.seq FROM agent_sessions_runevent event
JOIN agent_sessions_run run ON run.id = event.run_id
WHERE {what} AND event.at < now() - make_interval(secs => %s)
  AND run.ended_at < now() - make_interval(secs => %s)
  AND NOT EXISTS (SELECT FROM governance_fence fence
                  WHERE fence.subject_id = event.subject_id AND fence.lifted_at IS NULL)
  AND hold_over(event.tenant_id, event.subject_id, 'sessions', ARRAY[run.id, run.session_id], run.agent_id) IS NULL
LIMIT %s"""
