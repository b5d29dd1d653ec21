"""Runs: taking a request in, starting it, cancelling it, ending it.

A run is a row before anything is spent. `start` walks the gates in order, stores the run and the message, and hands
its id to an executor (`sessions.dispatch`); from then on the request and the run are two things.
"""

import hashlib
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from agents import queries as catalogue
from agents.definition import check_parameters
from agents.models import Agent, AgentVersion
from governance.actors import Actor
from governance.domain import fences
from governance.errors import Invalid, NotFound
from governance.ids import parse, shown
from governance.models import Subject
from governance.text import clean, clean_json
from sessions import dispatch, notify
from sessions.context.tokens import count as count_text
from sessions.domain import approvals, blobs, definitions, events, history, idempotency, leases, quotas
from sessions.domain import sessions as session_verbs
from sessions.errors import Draining, EmptyMessage, MessageTooLong, QueueFull, RunFinished, SessionBusy, SessionClosed
from sessions.models import Approval, Item, ModelCall, Run, Session


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked of an agent. Texts are cleaned by `start`; `attachments` carry base64 data until they are checked."""

    message: str = ""
    session_key: str | None = None
    parameters: dict = field(default_factory=dict)
    attachments: list[dict | blobs.Attachment] = field(default_factory=list)
    approvals: list[dict] = field(default_factory=list)
    culture: str | None = None
    metadata: dict = field(default_factory=dict)


def start(
    *,
    agent_name: str,
    request: RunRequest,
    by: Actor,
    subject: Subject | None = None,
    idempotency_key: str | None = None,
    body_digest: str | None = None,
    where: str = "here",
    draft: bool = False,
) -> Run:
    """Store a run of the agent and hand it to an executor: `where` is "here" or "worker".

    The same `idempotency_key` and body give the same run. Raises, in this order: Draining, what is wrong with the
    request, MissingPermission, AgentNotFound, AgentDisabled, SubjectFenced, QuotaExceeded, SessionBusy,
    DefinitionInvalid. Nothing is spent and nothing is stored when it raises.
    """
    if dispatch.draining.is_set():
        raise Draining
    request = _checked(request)
    by.require("runs.write")
    if request.approvals:
        return _continue(request=request, agent_name=agent_name, by=by)
    agent, version, document = _runnable(agent_name, by, draft)
    if subject is not None and subject.state != Subject.State.ACTIVE:
        # A kind word early; what holds is the guard in the database.
        fences.check(subject=subject)
    reservation = None
    if idempotency_key is not None:
        reservation, known = idempotency.reserve(
            key=idempotency_key, body_digest=body_digest or digest_of(request), by=by, subject=subject
        )
        if known is not None:
            return known
    try:
        with fences.told():
            return _stored(agent, version, document, request, by, subject, where, reservation)
    except BaseException:
        if reservation is not None:
            idempotency.free(reservation)
        raise


def digest_of(request: RunRequest) -> str:
    """SHA-256 of a request, for callers that have no body of their own."""
    return hashlib.sha256(repr(request).encode("utf-8", "replace")).hexdigest()


def _checked(request: RunRequest) -> RunRequest:
    if request.session_key is not None:
        session_verbs.checked_key(request.session_key)
    if request.approvals:
        if request.message or request.attachments:
            raise Invalid("Send decisions or a message, not both.", errors={"approvals": ["Not together with a message."]})
        return request
    if not request.message.strip() and not request.attachments:
        raise EmptyMessage
    limit = settings.LETHE["message_max_chars"]
    if len(request.message) > limit:
        raise MessageTooLong(characters=len(request.message), limit=limit)
    if request.attachments and request.session_key is None:
        raise Invalid("Attachments need a session: send a session_id.", errors={"attachments": ["Only inside a session."]})
    return RunRequest(
        message=clean(request.message), session_key=request.session_key, parameters=clean_json(request.parameters),
        attachments=blobs.checked(request.attachments), culture=request.culture, metadata=clean_json(request.metadata),
    )  # fmt: skip


def _runnable(agent_name: str, by: Actor, draft: bool) -> tuple[Agent, AgentVersion | None, dict]:
    if draft:
        by.require("agents.write")
        agent = catalogue.agent_named(tenant_id=by.tenant_id, name=agent_name)
        return agent, None, agent.draft
    agent, version = catalogue.runnable(tenant_id=by.tenant_id, name=agent_name)
    return agent, version, version.document


def _continue(*, request: RunRequest, agent_name: str, by: Actor) -> Run:
    """Answer approvals and return the run that goes on."""
    run: Run | None = None
    for number, entry in enumerate(request.approvals):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise Invalid("An approval needs an id.", errors={f"approvals.{number}.id": ["Required."]})
        approval = Approval.objects.filter(id=parse("apr", entry["id"]), tenant_id=by.tenant_id).first()
        if approval is None or (by.subject_id is not None and approval.subject_id != by.subject_id):
            raise NotFound
        approvals.decide(
            approval=approval, decision=entry.get("decision", ""), reason=entry.get("reason") or "",
            arguments=entry.get("arguments"), remember=entry.get("remember"), by=by,
        )  # fmt: skip
        run = Run.objects.select_related("agent", "version", "session").get(id=approval.run_id)
    assert run is not None
    if run.agent.name != agent_name:
        raise NotFound
    return run


def _stored(agent, version, document, request, by, subject, where, reservation) -> Run:
    definition = definitions.compiled(tenant_id=by.tenant_id, version=version, document=document, agent_name=agent.name)
    check_parameters(definition, request.parameters)
    session = None
    if request.session_key is not None:
        session = _open(agent, version, definition, request, subject, by)
    run = Run(
        tenant_id=by.tenant_id, subject_id=subject.id if subject else None, epoch=subject.epoch if subject else 0,
        agent=agent, version=version, session=session, document=None if version else document,
        started_by=by.label, actor_kind=by.kind, actor_ref=by.ref, metadata=request.metadata,
        labels=session.labels if session else [],
        request={"message": request.message, "parameters": request.parameters, "culture": request.culture, "attachments": []},
    )  # fmt: skip
    # Before the session's row is locked: a run that ends holds that row while it waits for the same counters.
    quotas.reserve(
        tenant_id=by.tenant_id, agent_id=agent.id, actor=by, subject_id=run.subject_id, run_id=run.id,
        tokens=definition.limits.max_tokens_per_run if definition.limits else None,
        cost=definition.limits.cost if definition.limits else None,
    )  # fmt: skip
    try:
        with transaction.atomic():
            begun = _placed(run, session, definition, request, where)
            if reservation is not None:
                idempotency.bind(reservation, run=run)
    except BaseException:
        quotas.release(run_id=run.id)
        raise
    if begun:
        dispatch.submit(run.id)
    elif session is not None and where == "here":
        # The session may have become free between the look and the commit; asking again is cheap.
        begin_next(session_id=session.id)
    elif where == "worker":
        dispatch.enqueue(run.id)
    return run


def _open(agent, version, definition, request, subject, by) -> Session:
    pinned = version if definition.sessions.version_policy == "pin" else None
    session, created = session_verbs.get_or_create(
        agent=agent, key=request.session_key, subject=subject, version=pinned, state=definitions.first_state(definition), by=by
    )
    if not created and definition.sessions.on_busy == "reject" and leases.is_live(session):
        # The common refusal costs one read and takes no lock.
        raise SessionBusy(run_id=shown("run", session.lease_run_id))
    return session


def _placed(run: Run, session: Session | None, definition, request: RunRequest, where: str) -> bool:
    """Store the run where it belongs: running now, or queued. Returns whether to execute it here, now."""
    if session is None:
        _begin(run, None, running=where == "here")
        return where == "here"
    locked = leases.lock(session.id)
    if locked is None:
        raise NotFound
    if locked.status == Session.State.CLOSED:
        raise SessionClosed
    run.session = locked
    if request.attachments:
        run.request["attachments"] = blobs.store(
            tenant_id=run.tenant_id, subject_id=run.subject_id, session=locked, attachments=request.attachments
        )
    if locked.lease_run_id is not None and not leases.is_live(locked):
        interrupt_expired(session=locked)
    unfinished = leases.unfinished(locked.id)
    ahead = next((other for other in unfinished if other.status != Run.Status.AWAITING_APPROVAL), None)
    if ahead is not None:
        _yield_or_queue(run, ahead, len(unfinished), definition.sessions.on_busy)
        return False
    if where == "worker":
        run.save(force_insert=True)
        return False
    if unfinished:
        _withdraw_waiting(locked)
    _begin(run, locked, running=True)
    return True


def _yield_or_queue(run: Run, ahead: Run, waiting: int, on_busy: str) -> None:
    if on_busy == "reject":
        raise SessionBusy(run_id=shown("run", ahead.id))
    if waiting > settings.LETHE["queue_limit"]:
        raise QueueFull(waiting=waiting - 1)
    if on_busy in ("interrupt", "rollback"):
        run.priority = leases.FRONT
        if ahead.status == Run.Status.RUNNING:
            _ask_to_stop(ahead, reason=on_busy)
    run.save(force_insert=True)


def _withdraw_waiting(session: Session) -> None:
    """A new message goes on without the calls that still wait for a person."""
    for waiting in Run.objects.select_for_update().filter(session_id=session.id, status=Run.Status.AWAITING_APPROVAL):
        approvals.withdraw(run=waiting)
        _end(waiting, Run.Status.INTERRUPTED, [("run.interrupted", {"reason": "superseded"})])


def _begin(run: Run, session: Session | None, *, running: bool) -> None:
    """Take the lease and store the message. `run` may be new, or queued and about to start."""
    if running:
        run.status, run.started_at, run.lease_expires_at = Run.Status.RUNNING, Now(), leases.until()
        run.attempts += 1
    is_new = run._state.adding
    if session is not None and running:
        if "message" in run.request:
            _store_message(run, session)
        leases.take(session=session, run=run)
    run.save(force_insert=is_new, force_update=not is_new)
    if running:
        started = ("run.started", _as_started(run, session))
        if is_new:
            events.insert(run=run, first_seq=1, events=[started])
        else:
            events.append(run=run, events=[started])


def _as_started(run: Run, session: Session | None) -> dict:
    return {
        "agent": run.agent.name, "version": run.version.number if run.version else None,
        "session_id": shown("ses", session.id) if session else None, "session_key": session.key if session else None,
    }  # fmt: skip


def _store_message(run: Run, session: Session) -> None:
    """Put the message into the history; the counters of the locked session are written with the lease."""
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
        tokens=count_text(request["message"]), run_id=run.id,
    )  # fmt: skip
    # Foreign keys are checked at commit, so the item may come before its run.
    history.insert(session=session, first_seq=session.head_seq, entries=[entry])
    # The words live in the history now; the row keeps what a continuation needs.
    run.request = {name: request[name] for name in ("parameters", "culture") if request.get(name)}


def begin_next(*, session_id: UUID, where: str = "here") -> Run | None:
    """Start the queued run whose turn it is, if the session is free. Idempotent: many may call it at once."""
    with transaction.atomic():
        session = leases.lock(session_id)
        if session is None:
            return None
        if session.lease_run_id is not None:
            if leases.is_live(session):
                return None
            interrupt_expired(session=session)
        run = leases.next_queued(session_id)
        if run is None:
            return None
        if run.cancel_requested_at is not None:
            _end(run, Run.Status.CANCELLED, [("run.cancelled", {})])
            return None
        if "message" in run.request:
            _withdraw_waiting(session)
        _begin(run, session, running=True)
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
        _begin(locked, None, running=True)
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


@transaction.atomic
def cancel(*, run: Run, by: Actor) -> Run:
    """Ask the run to stop, from any process. Idempotent; a run that waits stops at once, a running one within 2 s.

    Raises RunFinished when it ended by itself.
    """
    by.require("runs.write")
    locked = Run.objects.select_for_update(of=("self",)).select_related("agent", "version", "session").get(id=run.id)
    if locked.status == Run.Status.CANCELLED:
        return locked
    if locked.is_finished:
        raise RunFinished(status=locked.status)
    if locked.status == Run.Status.RUNNING:
        _ask_to_stop(locked, reason="cancelled")
        return locked
    approvals.withdraw(run=locked)
    _end(locked, Run.Status.CANCELLED, [("run.cancelled", {})])
    return locked


def _ask_to_stop(run: Run, *, reason: str) -> None:
    Run.objects.filter(id=run.id, cancel_requested_at=None).update(cancel_requested_at=Now(), cancel_reason=reason)
    notify.send(notify.CANCEL, run.id)


def finish(*, run: Run, status: str, error: dict | None = None, output: dict | None = None, event_seq: int | None = None) -> bool:
    """End a run that this process executes: status, totals, last event, lease, quota; then the next in the queue.

    Returns False when the run was ended by somebody else, or its lease is lost.
    """
    with transaction.atomic():
        if run.session_id is not None:
            # The session first, as whoever starts a run does: a message that interrupts holds it and wants the run.
            leases.lock(run.session_id)
        locked = Run.objects.select_for_update().filter(id=run.id).first()
        if locked is None or locked.status != Run.Status.RUNNING:
            return False
        locked.error, locked.output = error, output
        if status == Run.Status.AWAITING_APPROVAL:
            _pause(locked)
        else:
            if locked.cancel_reason == "rollback" and status in (Run.Status.INTERRUPTED, Run.Status.CANCELLED):
                _items_of(locked).update(is_hidden=True)
            _end(locked, status, [_last_event(locked, status, error, output)])
        # Asked while the session's row is locked by its release: who queues later finds it free.
        is_next = locked.session_id is not None and leases.has_queued(locked.session_id)
    if is_next:
        begin_next(session_id=locked.session_id)
    return True


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


def _end(run: Run, status: str, last_events: list[tuple[str, dict]]) -> None:
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


def _items_of(run: Run):
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
        run.tool_calls = _items_of(run).filter(kind=Item.Kind.TOOL_RESULT).count()


def _usage_of(run: Run) -> dict:
    return {
        "usage": {
            "input_tokens": run.input_tokens, "cached_tokens": run.cached_tokens,
            "output_tokens": run.output_tokens, "reasoning_tokens": run.reasoning_tokens,
        },
        "cost": f"{run.cost.normalize():f}" if run.cost is not None else None,
    }  # fmt: skip


def _last_event(run: Run, status: str, error: dict | None, output: dict | None) -> tuple[str, dict]:
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
    _end(run, Run.Status.INTERRUPTED, [("run.interrupted", {"reason": "lost"})])


def sweep() -> dict[str, int]:
    """End runs whose executor died, and start queued ones that nobody started. Safe from many processes at once."""
    counts = {"interrupted": 0, "started": 0}
    for run_id, session_id in _expired():
        with transaction.atomic():
            session = leases.lock(session_id) if session_id else None
            run = (
                Run.objects.select_for_update(skip_locked=True)
                .filter(id=run_id, status=Run.Status.RUNNING, lease_expires_at__lt=Now())
                .first()
            )
            if run is not None:
                with fences.told():
                    interrupt(run=run, session=session)
                counts["interrupted"] += 1
    for run_id in _forgotten():
        counts["started"] += claim(run_id=run_id)
    return counts


def _expired() -> list[tuple[UUID, UUID | None]]:
    return list(
        Run.objects.filter(status=Run.Status.RUNNING, lease_expires_at__lt=Now()).values_list("id", "session_id")[:200]
    )


def _forgotten() -> list[UUID]:
    """Queued runs whose session is free, some seconds old: their message to a worker was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT run.id FROM agent_sessions_run run LEFT JOIN agent_sessions_session session ON session.id = run.session_id
            WHERE run.status = 'queued' AND run.created_at < now() - interval '3 seconds'
              AND (session.id IS NULL OR session.lease_run_id IS NULL OR session.lease_expires_at < now())
            ORDER BY run.priority DESC, run.id LIMIT 50
            """
        )
        return [row[0] for row in cursor.fetchall()]
