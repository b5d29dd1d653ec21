"""How runs end: the final status, the totals of the ledger, the last event, the lease given back.

Every function works inside the caller's transaction and expects the run's row to be locked, the session's before it.
"""

from django.db.models.functions import Now

from sessions.domain import approvals, events, history, leases, quotas
from sessions.models import Item, ModelCall, Run, Session


def end(run: Run, status: str, last_events: list[tuple[str, dict]]) -> None:
    """Write the final status with the totals of the ledger. The caller holds the run's row."""
    run.status, run.ended_at, run.lease_expires_at = status, Now(), None
    _total(run)
    run.request = {}
    run.save(
        update_fields=[
            "status", "ended_at", "lease_expires_at", "error", "output", "request", "model_name", "model_calls", "tool_calls",
            "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost",
        ]
    )  # fmt: skip
    if last_events[0][0] == "run.completed":
        last_events[0][1].update(_usage_of(run))
    events.append(run=run, events=last_events)
    if run.session_id is not None:
        leases.release(session_id=run.session_id, run_id=run.id)
    quotas.settle(run=run)


def items_of(run: Run):
    """The run's own items. The lower bound keeps this cheap in a session of any length."""
    return Item.objects.filter(session_id=run.session_id, seq__gte=run.first_seq or 0, run_id=run.id)


def _total(run: Run) -> None:
    calls = list(
        ModelCall.objects.filter(run_id=run.id)
        .order_by("number")
        .values_list("model", "cost", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    )
    run.model_calls, run.model_name = len(calls), calls[-1][0] if calls else ""
    run.input_tokens, run.cached_tokens, run.output_tokens, run.reasoning_tokens = (
        sum(call[column] for call in calls) for column in (2, 3, 4, 5)
    )
    costs = [call[1] for call in calls]
    run.cost = sum(costs) if costs and None not in costs else None
    if run.session_id is not None and run.first_seq is not None:
        run.tool_calls = items_of(run).filter(kind=Item.Kind.TOOL_RESULT).count()


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
