"""Executing runs: starting the one whose turn it is, pausing, ending, handing back.

Whoever executes a run holds its session's lease. Locks are taken in one order: the session, then the run.
"""

from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from governance import sql
from governance.ids import shown
from sessions import dispatch, notify
from sessions.context.tokens import count_item
from sessions.domain import approvals, endings, events, history, leases
from sessions.models import Item, Run, Session


def begin(run: Run, session: Session | None, *, running: bool) -> None:
    """Take the lease and store the message. `run` may be new, or queued and about to start."""
    if not running:
        run.save(force_insert=True)
        return
    is_new = run._state.adding
    run.status = Run.Status.RUNNING
    run.attempts += 1
    writes = {}
    if session is not None:
        if "message" in run.request:
            writes["item"] = _message(run, session)
        writes["session"] = leases.taking(session=session, run=run)
    if is_new:
        writes["run"] = _insertion(run)
        run._state.adding = False
    else:
        run.lease_expires_at = leases.until()
        if run.started_at is None:
            run.started_at = Now()
        run.save(force_update=True)
    first_seq = 1 if is_new else events.last_seq(run) + 1
    writes["event"] = events.insertion(run=run, first_seq=first_seq, events=[("run.started", _as_started(run, session))])
    # Foreign keys are checked at commit, so the order of the rows is free.
    sql.together(**writes, then=events.waking(run))


def _insertion(run: Run) -> sql.Write:
    lease = (leases.UNTIL, [settings.LETHE["lease_seconds"]])
    return sql.insertion(run, started_at=("statement_timestamp()", []), lease_expires_at=lease)


def _as_started(run: Run, session: Session | None) -> dict:
    return {
        "agent": run.agent.name, "version": run.version.number if run.version else None,
        "session_id": shown("ses", session.id) if session else None, "session_key": session.key if session else None,
    }  # fmt: skip


def _message(run: Run, session: Session) -> sql.Write:
    """Puts the message into the history; the counters of the locked session are written with the lease."""
    request = run.request
    content = {"text": request["message"]}
    if request.get("attachments"):
        content["attachments"] = request["attachments"]
    session.head_seq += 1
    session.turns += 1
    session.version += 1
    run.first_seq = session.head_seq
    entry = history.NewItem(
        kind=Item.Kind.MESSAGE, role="user", content=content, turn=session.turns, group=session.head_seq,
        tokens=count_item("message", content), run_id=run.id,
    )  # fmt: skip
    # The words live in the history now; the row keeps what a continuation needs.
    run.request = {name: request[name] for name in ("parameters", "culture") if request.get(name)}
    return history.insertion(session=session, first_seq=session.head_seq, entries=[entry])


def begin_next(*, session_id: UUID, where: str = "here") -> Run | None:
    """Start the queued run whose turn it is, if the session is free. Idempotent: many may call it at once."""
    with transaction.atomic():
        session = leases.lock(session_id)
        if session is None:
            return None
        if session.lease_run_id is not None:
            if leases.is_live(session):
                return None
            endings.interrupt_expired(session=session)
        run = leases.next_queued(session_id)
        if run is None:
            return None
        if run.cancel_requested_at is not None:
            endings.end(run, Run.Status.CANCELLED, [("run.cancelled", {})])
            return None
        if "message" in run.request:
            endings.withdraw_waiting(session)
        begin(run, session, running=True)
    dispatch.submit(run.id)
    return run


def claim(*, run_id: UUID) -> bool:
    """Take a queued run for this process. False when somebody else has it, or it is not its turn."""
    run = Run.objects.select_related("agent", "version", "session").filter(id=run_id, status=Run.Status.QUEUED).first()
    if run is None:
        return False
    if run.session_id is not None:
        return begin_next(session_id=run.session_id) is not None
    with transaction.atomic():
        locked = Run.objects.select_for_update(of=("self",)).select_related("agent", "version").filter(id=run_id, status=Run.Status.QUEUED).first()
        if locked is None:
            return False
        begin(locked, None, running=True)
    dispatch.submit(run_id)
    return True


def resume(*, run_id: UUID) -> None:
    """Continue a run whose approvals are all decided: it goes to the front of its session's queue."""
    changed = Run.objects.filter(id=run_id, status=Run.Status.AWAITING_APPROVAL).update(
        status=Run.Status.QUEUED, priority=leases.FRONT
    )
    if not changed:
        return
    session_id = Run.objects.values_list("session_id", flat=True).get(id=run_id)
    begin_next(session_id=session_id)


def finish(*, run: Run, status: str, error: dict | None = None, output: dict | None = None, event_seq: int | None = None) -> bool:
    """End a run that this process executes: status, totals, last event, lease, quota; then the next in the queue.

    Returns False when the run was ended by somebody else, or its lease is lost.
    """
    with transaction.atomic():
        if run.session_id is not None:
            # The session first, as whoever starts a run does: a message that interrupts holds it and wants the run.
            sql.execute("SELECT FROM agent_sessions_session WHERE id = %s FOR UPDATE", [run.session_id])
        found = _LOCKED.first([run.id])
        if found is None:
            return False
        (locked,) = found
        locked.error, locked.output = error, output
        if status == Run.Status.AWAITING_APPROVAL:
            _pause(locked)
        else:
            if locked.cancel_reason == "rollback" and status in (Run.Status.INTERRUPTED, Run.Status.CANCELLED):
                endings.items_of(locked).update(is_hidden=True)
            endings.end(locked, status, [endings.last_event(locked, status, error, output)])
        # Asked while the session's row is locked by its release: who queues later finds it free.
        is_next = locked.session_id is not None and leases.has_queued(locked.session_id)
    if is_next:
        begin_next(session_id=locked.session_id)
    return True


_LOCKED = sql.Reader("SELECT {run} FROM agent_sessions_run run WHERE id = %s AND status = 'running' FOR UPDATE", run=Run)


def hand_back(*, run: Run) -> None:
    """Return a running run to the queue: this process shuts down before the run has ended."""
    with transaction.atomic():
        if run.session_id is not None:
            leases.lock(run.session_id)
        if Run.objects.filter(id=run.id, status=Run.Status.RUNNING).update(
            status=Run.Status.QUEUED, lease_expires_at=None, priority=leases.FRONT
        ):
            if run.session_id is not None:
                leases.release(session_id=run.session_id, run_id=run.id)
            dispatch.enqueue(run.id)


def _pause(run: Run) -> None:
    run.status, run.lease_expires_at = Run.Status.AWAITING_APPROVAL, None
    run.save(update_fields=["status", "lease_expires_at", "error", "output"])
    leases.release(session_id=run.session_id, run_id=run.id)
    notify.send(notify.EVENTS, run.id)
    if not approvals.has_pending(run=run):
        # Everything was decided while the run was still on its way into the pause.
        transaction.on_commit(lambda: resume(run_id=run.id))
