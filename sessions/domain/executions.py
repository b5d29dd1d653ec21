"""Executing runs: starting the one whose turn it is, pausing, ending, handing back.

Whoever executes a run holds its session's lease. Locks are taken in one order: the session, then the run.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from governance import sql
from governance.ids import shown
from sessions import dispatch, notify
from sessions.context.tokens import count_item
from sessions.domain import approvals, endings, events, history, leases, metering
from sessions.models import Item, Run, RunEvent, Session


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


def begin_at_once(run: Run, session: Session, reads: Sequence[sql.Write]) -> list[list[tuple]] | None:
    """`begin` for a new run, locks included, in one round trip outside a transaction; returns what was read after it.

    It does not wait for the disk: whoever asked is still waiting, and the run's end, which is told, takes everything
    before it to the disk. Until then it may be lost with the server, never with a process. See docs/decisions/0004.

    None when the session is not open and free of other runs; then nothing was stored.
    """
    content = {"text": run.request["message"]}
    item = Item(
        session_id=session.id, tenant_id=run.tenant_id, subject_id=run.subject_id, run_id=run.id, kind=Item.Kind.MESSAGE,
        role="user", content=content, tokens=count_item("message", content),
    )  # fmt: skip
    event = RunEvent(
        run_id=run.id, seq=1, tenant_id=run.tenant_id, subject_id=run.subject_id, type="run.started", data=_as_started(run, session)
    )
    asked, run.request = run.request, _kept(run.request)
    run.status, run.attempts = Run.Status.RUNNING, 1
    begun = sql.combined(
        taken=leases.taking_free(session=session, run=run),
        item=sql.insertion(item, source="taken", seq=_HEAD, turn=("taken.turns", []), group=_HEAD),
        run=_insertion(run, source="taken", first_seq=_HEAD),
        event=sql.insertion(event, source="taken"),
        # Nobody is woken: nobody knows the run's id yet.
        then=sql.Write("SELECT head_seq, turns, version, state, set_config('synchronous_commit', 'off', true) FROM taken"),
    )  # fmt: skip
    # A statement of its own, so that those after it see what was committed while it waited.
    lock = sql.Write("SELECT FROM agent_sessions_session WHERE id = %s FOR UPDATE", [session.id])
    _, taken, *found = sql.batch(lock, begun, *reads)
    if not taken:
        run.request, run.status, run.attempts = asked, Run.Status.QUEUED, 0
        return None
    session.head_seq, session.turns, session.version, state, *_ = taken[0]
    # Not as it was before the lock: a turn may have ended since, or a person changed the todos.
    session.state = json.loads(state)
    session.lease_run_id, run.first_seq, run.session, run._state.adding = run.id, session.head_seq, session, False
    return found


_HEAD = ("taken.head_seq", [])


def _insertion(run: Run, *, source: str = "", **expressions: tuple[str, list]) -> sql.Write:
    expressions["started_at"] = ("statement_timestamp()", [])
    expressions["lease_expires_at"] = (leases.UNTIL, [settings.LETHE["lease_seconds"]])
    return sql.insertion(run, source=source, **expressions)


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
    run.request = _kept(request)
    return history.insertion(session=session, first_seq=session.head_seq, entries=[entry])


def _kept(request: dict) -> dict:
    """What a continuation needs. The words live in the history now."""
    return {name: request[name] for name in ("parameters", "culture") if request.get(name)}


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
            endings.end(run, Run.Status.CANCELLED, ("run.cancelled", {}))
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


def finish(
    *, run: Run, status: str, error: dict | None = None, output: dict | None = None, before: sql.Write | None = None
) -> bool:
    """End a run that this process executes: status, totals, last event, lease, quota; then the next in the queue.

    With a status of `BY_ITSELF`, `before` is written in the same transaction: what the run had still to say.
    Returns False when the run was ended by somebody else, or its lease is lost.
    """
    run.error, run.output = error, output
    if status in BY_ITSELF:
        # Whoever sees a run ended sees its share of the quotas settled, too.
        with transaction.atomic() if metering.known(run.tenant_id).quotas else nullcontext():
            is_next = endings.end_running(run, status, endings.last_event(run, status, error, output), before)
    else:
        is_next = _stop(run, status)
    if is_next:
        begin_next(session_id=run.session_id)
    return is_next is not None


# How a run ends when nobody asked it to stop.
BY_ITSELF = (Run.Status.COMPLETED, Run.Status.FAILED, Run.Status.BUDGET_EXCEEDED)


@transaction.atomic
def _stop(run: Run, status: str) -> bool | None:
    """Pause or stop a running run. Returns whether another is queued behind it; None when it does not run any more."""
    if run.session_id is not None:
        leases.lock(run.session_id)
    locked = Run.objects.select_for_update().filter(id=run.id, status=Run.Status.RUNNING).first()
    if locked is None:
        return None
    locked.error, locked.output = run.error, run.output
    if status == Run.Status.AWAITING_APPROVAL:
        _pause(locked)
    else:
        if locked.cancel_reason == "rollback":
            endings.items_of(locked).update(is_hidden=True)
        endings.end(locked, status, endings.last_event(locked, status, run.error, run.output))
    return locked.session_id is not None and leases.has_queued(locked.session_id)


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
    notify.send(notify.ENDED, run.id)
    if not approvals.has_pending(run=run):
        # Everything was decided while the run was still on its way into the pause.
        transaction.on_commit(lambda: resume(run_id=run.id))
