"""How runs end: the final status, the totals of the ledger, the last event, the lease given back.

Every function works inside the caller's transaction and expects the run's row to be locked, the session's before it.
"""

from decimal import Decimal

from psycopg.types.json import Jsonb

from governance import sql
from sessions.domain import approvals, events, history, leases, quotas
from sessions.models import Item, Run, Session


def end(run: Run, status: str, last_events: list[tuple[str, dict]]) -> None:
    """Write the final status with the totals of the ledger. The caller holds the run's row."""
    known_cost, last_seq, holds_quota = _total(run)
    run.status, run.lease_expires_at, run.request = status, None, {}
    if last_events[0][0] == "run.completed":
        last_events[0][1].update(_usage_of(run))
    writes = {
        "run": sql.Write(_END, [*(_stored(getattr(run, name)) for name in _WRITTEN), run.id]),
        "event": events.insertion(run=run, first_seq=last_seq + 1, events=last_events),
    }
    if run.session_id is not None:
        writes["session"] = leases.releasing(session_id=run.session_id, run_id=run.id)
    wake = events.waking(run)
    ended = sql.together(**writes, then=sql.Write(wake.statement + ", ended_at FROM run", wake.values))
    run.ended_at = ended[1] if ended else None
    if holds_quota:
        quotas.settle(run=run, cost=known_cost)


_WRITTEN = (
    "status", "error", "output", "model_name", "model_calls", "tool_calls", "input_tokens", "cached_tokens", "output_tokens",
    "reasoning_tokens", "cost",
)  # fmt: skip
_END = (
    "UPDATE agent_sessions_run SET ended_at = statement_timestamp(), lease_expires_at = NULL, request = '{}', "
    + ", ".join(f"{name} = %s" for name in _WRITTEN)
    + " WHERE id = %s RETURNING ended_at"
)


def _stored(value):
    return Jsonb(value) if isinstance(value, dict | list) else value


def items_of(run: Run):
    """The run's own items. The lower bound keeps this cheap in a session of any length."""
    return Item.objects.filter(session_id=run.session_id, seq__gte=run.first_seq or 0, run_id=run.id)


def _total(run: Run) -> tuple[Decimal, int, bool]:
    """Put the ledger's totals on the run. Returns the known part of its cost, its last event's seq, and whether a quota
    holds something for it."""
    (
        run.model_calls, run.model_name, run.input_tokens, run.cached_tokens, run.output_tokens, run.reasoning_tokens,
        known_cost, is_priced, run.tool_calls, last_seq, holds_quota,
    ) = sql.row(_TOTALS, [run.session_id, run.first_seq, run.id, run.id, run.id, run.id])  # fmt: skip
    run.cost = known_cost if is_priced else None
    return known_cost, last_seq, holds_quota


# The lower bound of the items keeps this cheap in a session of any length.
_TOTALS = """
SELECT count(*), coalesce((array_agg(model ORDER BY number DESC))[1], ''),
       coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(cached_tokens), 0)::bigint,
       coalesce(sum(output_tokens), 0)::bigint, coalesce(sum(reasoning_tokens), 0)::bigint,
       coalesce(sum(cost), 0), count(*) > 0 AND count(cost) = count(*),
       (SELECT count(*) FROM agent_sessions_item WHERE session_id = %s AND seq >= %s AND run_id = %s AND kind = 'tool_result'),
       (SELECT coalesce(max(seq), 0) FROM agent_sessions_runevent WHERE run_id = %s),
       EXISTS (SELECT FROM agent_sessions_quotareservation WHERE run_id = %s)
FROM agent_sessions_modelcall WHERE run_id = %s
"""


def _usage_of(run: Run) -> dict:
    return {
        "usage": {
            "input_tokens": run.input_tokens, "cached_tokens": run.cached_tokens,
            "output_tokens": run.output_tokens, "reasoning_tokens": run.reasoning_tokens,
        },
        "cost": f"{run.cost.normalize():f}" if run.cost is not None else None,
    }  # fmt: skip


def last_event(run: Run, status: str, error: dict | None, output: dict | None) -> tuple[str, dict]:
    if status in (Run.Status.COMPLETED, Run.Status.BUDGET_EXCEEDED):
        extra = {"output": output} if output is not None and run.session_id is None else {}
        return "run.completed", {"status": status, **extra}
    if status == Run.Status.FAILED:
        return "run.failed", {"error": error}
    if status == Run.Status.CANCELLED:
        return "run.cancelled", {}
    return "run.interrupted", {"reason": run.cancel_reason or "lost"}


def interrupt_expired(*, session: Session) -> None:
    """The session's lease ran out: its run is over, what it stored stays. The caller holds the session's row."""
    run = Run.objects.select_for_update().filter(id=session.lease_run_id).first()
    if run is None or run.status != Run.Status.RUNNING:
        leases.release(session_id=session.id, run_id=session.lease_run_id)
    else:
        interrupt(run=run, session=session)
    session.refresh_from_db()


def interrupt(*, run: Run, session: Session | None) -> None:
    """Mark a run whose executor is gone, and note it in the history. The caller holds both rows."""
    if session is not None:
        session.head_seq += 1
        note = history.NewItem(
            kind=Item.Kind.NOTE, role="system", turn=session.turns, group=session.head_seq, run_id=run.id,
            content={"code": "interrupted", "text": "The run was interrupted before it ended."},
        )  # fmt: skip
        Session.objects.filter(id=session.id).update(head_seq=session.head_seq, version=session.version + 1)
        history.insert(session=session, first_seq=session.head_seq, entries=[note])
    end(run, Run.Status.INTERRUPTED, [("run.interrupted", {"reason": "lost"})])


def withdraw_waiting(session: Session) -> None:
    """A new message goes on without the calls that still wait for a person."""
    for waiting in Run.objects.select_for_update().filter(session_id=session.id, status=Run.Status.AWAITING_APPROVAL):
        approvals.withdraw(run=waiting)
        end(waiting, Run.Status.INTERRUPTED, [("run.interrupted", {"reason": "superseded"})])
