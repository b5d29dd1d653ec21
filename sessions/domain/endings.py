"""How runs end: the final status, the totals of the ledger, the last event, the lease given back.

Every function works inside the caller's transaction and expects the run's row to be locked, the session's before it.
"""

from psycopg.types.json import Jsonb

from governance import sql
from sessions import notify
from sessions.domain import approvals, history, leases, quotas
from sessions.models import Item, Run, Session


def end(run: Run, status: str, event: tuple[str, dict]) -> None:
    """Write the final status with the totals of the ledger, and the last event. The caller holds the run's row."""
    _ended(run, sql.script(sql.Write(_END, _values(run, status, event))))


def end_running(run: Run, status: str, event: tuple[str, dict], before: sql.Write | None = None) -> bool | None:
    """`end` for who executes the run, locks included, in one round trip outside a transaction; `before` is written first.

    Returns whether another run is queued behind it; None when it does not run any more.
    """
    # The session first, as whoever starts a run does: a message that interrupts holds it and wants the run.
    lock = sql.Write("SELECT FROM agent_sessions_session WHERE id = %s FOR UPDATE", [run.session_id])
    end = sql.Write(_END, _values(run, status, event) | {"unfinished": [Run.Status.RUNNING]})
    row = sql.script(lock, *filter(None, [before]), end)
    return _ended(run, row) if row else None


def _values(run: Run, status: str, event: tuple[str, dict]) -> dict:
    kind, data = event
    return {
        "run": run.id, "session": run.session_id, "first_seq": run.first_seq, "status": status, "error": _stored(run.error),
        "output": _stored(run.output), "type": kind, "data": Jsonb(data), "events": notify.EVENTS, "ended": notify.ENDED, "hex": run.id.hex,
        "unfinished": [Run.Status.RUNNING, Run.Status.QUEUED, Run.Status.AWAITING_APPROVAL],
    }  # fmt: skip


def _stored(value):
    return Jsonb(value) if value is not None else None


def _ended(run: Run, row: tuple | None) -> bool:
    run.lease_expires_at, run.request = None, {}
    if row is None:
        return False
    (
        run.status, run.ended_at, run.model_name, run.model_calls, run.tool_calls, run.input_tokens, run.cached_tokens,
        run.output_tokens, run.reasoning_tokens, run.cost, known_cost, holds_quota, is_next, *_,
    ) = row  # fmt: skip
    if holds_quota:
        quotas.settle(run=run, cost=known_cost)
    return is_next


# The lower bound of the items keeps this cheap in a session of any length. Who is queued is asked while the session's
# row is locked: whoever queues later finds it free.
_END = f"""
WITH totals AS (
  SELECT count(*) AS calls, coalesce((array_agg(model ORDER BY number DESC))[1], '') AS model,
         coalesce(sum(input_tokens), 0) AS input, coalesce(sum(cached_tokens), 0) AS cached,
         coalesce(sum(output_tokens), 0) AS output, coalesce(sum(reasoning_tokens), 0) AS reasoning,
         coalesce(sum(cost), 0) AS known_cost, count(*) > 0 AND count(cost) = count(*) AS is_priced
  FROM agent_sessions_modelcall WHERE run_id = %(run)s),
ended AS (
  UPDATE agent_sessions_run run SET
    status = %(status)s, error = %(error)s, output = %(output)s, ended_at = statement_timestamp(), lease_expires_at = NULL,
    request = '{{}}', model_name = totals.model, model_calls = totals.calls, input_tokens = totals.input,
    cached_tokens = totals.cached, output_tokens = totals.output, reasoning_tokens = totals.reasoning,
    cost = CASE WHEN totals.is_priced THEN totals.known_cost END,
    tool_calls = CASE WHEN %(session)s::uuid IS NULL
      THEN (SELECT count(*) FROM agent_sessions_runevent WHERE run_id = %(run)s AND type IN ('tool.completed', 'tool.failed'))
      ELSE (SELECT count(*) FROM agent_sessions_item
            WHERE session_id = %(session)s AND seq >= %(first_seq)s AND run_id = %(run)s AND kind = 'tool_result') END
  FROM totals WHERE run.id = %(run)s AND run.status = ANY(%(unfinished)s)
  RETURNING run.*, totals.known_cost),
event AS (
  INSERT INTO agent_sessions_runevent (run_id, seq, tenant_id, subject_id, type, data)
  SELECT id, 1 + (SELECT coalesce(max(seq), 0) FROM agent_sessions_runevent WHERE run_id = %(run)s), tenant_id, subject_id,
         %(type)s::text, %(data)s || CASE WHEN %(type)s = 'run.completed' THEN jsonb_build_object(
           'usage', jsonb_build_object('input_tokens', input_tokens, 'cached_tokens', cached_tokens,
                                       'output_tokens', output_tokens, 'reasoning_tokens', reasoning_tokens),
           'cost', trim_scale(cost)::text) ELSE '{{}}' END
  FROM ended),
released AS (
  UPDATE agent_sessions_session SET {leases.RELEASED}
  WHERE id = %(session)s AND lease_run_id = %(run)s)
SELECT status, ended_at, model_name, model_calls, tool_calls, input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost,
       known_cost, EXISTS (SELECT FROM agent_sessions_quotareservation WHERE run_id = %(run)s),
       EXISTS (SELECT FROM agent_sessions_run WHERE session_id = %(session)s AND status = 'queued' AND id <> %(run)s),
       pg_notify(%(events)s, %(hex)s), pg_notify(%(ended)s, %(hex)s)
FROM ended
"""


def items_of(run: Run):
    """The run's own items. The lower bound keeps this cheap in a session of any length."""
    return Item.objects.filter(session_id=run.session_id, seq__gte=run.first_seq or 0, run_id=run.id)


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
    end(run, Run.Status.INTERRUPTED, ("run.interrupted", {"reason": "lost"}))


def withdraw_waiting(session: Session) -> None:
    """A new message goes on without the calls that still wait for a person."""
    for waiting in Run.objects.select_for_update().filter(session_id=session.id, status=Run.Status.AWAITING_APPROVAL):
        approvals.withdraw(run=waiting)
        end(waiting, Run.Status.INTERRUPTED, ("run.interrupted", {"reason": "superseded"}))
