"""Runs: taking a request in through the gates, and cancelling one.

A run is a row before anything is spent. `start` walks the gates in order, stores the run and the message, and hands
its id to an executor (`sessions.dispatch`); from then on the request and the run are two things.
"""

import copy
import hashlib
import json
from dataclasses import dataclass, field

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from agents import queries as catalogue
from agents.definition import check_parameters
from agents.models import Agent, AgentVersion
from governance import sql
from governance.actors import Actor
from governance.domain import expiry, fences
from governance.errors import Invalid, NotFound
from governance.ids import parse, shown
from governance.models import Subject
from governance.text import clean, clean_json
from sessions import dispatch, notify
from sessions.domain import approvals, blobs, definitions, endings, executions, idempotency, leases, opening, quotas
from sessions.domain import sessions as session_verbs
from sessions.errors import Draining, EmptyMessage, MessageTooLong, QueueFull, RunFinished, SessionBusy, SessionClosed
from sessions.models import Approval, Run, Session

METADATA_BYTES = 16 * 1024


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
    target = _draft(agent_name, by) if draft else _target(agent_name, request, subject, by)
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
            return _stored(target, request, by, subject, where, reservation)
    except BaseException:
        if reservation is not None:
            idempotency.free(reservation)
        raise


def check(*, agent_name: str, request: RunRequest, by: Actor) -> None:
    """Raise what `start` would say of the request and the agent, before anybody is remembered for it."""
    _checked(request)
    by.require("runs.write")
    catalogue.runnable(tenant_id=by.tenant_id, name=agent_name)


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
        attachments=blobs.checked(request.attachments), culture=request.culture, metadata=_metadata(request.metadata),
    )  # fmt: skip


def _metadata(given: dict) -> dict:
    """They go along with the run wherever it is read: references to an application's own data, not the data."""
    if len(json.dumps(given).encode()) > METADATA_BYTES:
        raise Invalid("The metadata are larger than 16 KiB.", errors={"metadata": ["At most 16 KiB as JSON."]})
    return clean_json(given)


@dataclass(frozen=True, slots=True)
class _Target:
    """What is to run: a version, or a document without one; and the session, if there is one already."""

    agent: Agent
    version: AgentVersion | None
    document: dict
    session: Session | None = None
    is_busy: bool = False


def _draft(agent_name: str, by: Actor) -> _Target:
    by.require("agents.write")
    agent = catalogue.agent_named(tenant_id=by.tenant_id, name=agent_name)
    return _Target(agent, None, agent.draft)


def _target(agent_name: str, request: RunRequest, subject: Subject | None, by: Actor) -> _Target:
    """Both in one round trip."""
    reads = [catalogue.asking_runnable(tenant_id=by.tenant_id, name=agent_name)]
    if request.session_key is not None:
        reads.append(session_verbs.asking(tenant_id=by.tenant_id, agent_name=agent_name, subject=subject, key=request.session_key))
    agents, *sessions = sql.batch(*reads)
    agent, version = catalogue.runnable_of(agents)
    session, is_busy = session_verbs.found(sessions[0]) if sessions else (None, False)
    return _Target(agent, version, version.document, session, bool(is_busy))


def _continue(*, request: RunRequest, agent_name: str, by: Actor) -> Run:
    """Answer approvals and return the run that goes on."""
    run: Run | None = None
    for number, entry in enumerate(request.approvals):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise Invalid("An approval needs an id.", errors={f"approvals.{number}.id": ["Required."]})
        # Of this agent only, and known before anything is decided.
        found = Approval.objects.filter(id=parse("apr", entry["id"]), tenant_id=by.tenant_id, run__agent__name=agent_name)
        approval = found.first()
        if approval is None or (by.subject_id is not None and approval.subject_id != by.subject_id):
            raise NotFound
        approvals.decide(
            approval=approval, decision=entry.get("decision", ""), reason=entry.get("reason") or "",
            arguments=entry.get("arguments"), remember=entry.get("remember"), by=by,
        )  # fmt: skip
        run = Run.objects.select_related("agent", "version", "session").get(id=approval.run_id)
    assert run is not None
    return run


def _stored(target: _Target, request: RunRequest, by, subject, where, reservation) -> Run:
    agent, version = target.agent, target.version
    definition = definitions.compiled(tenant_id=by.tenant_id, version=version, document=target.document, agent_name=agent.name)
    check_parameters(definition, request.parameters)
    session = None
    if request.session_key is not None:
        session = _open(target, definition, request, subject, by)
    run = Run(
        tenant_id=by.tenant_id, subject_id=subject.id if subject else None, epoch=subject.epoch if subject else 0,
        agent=agent, version=version, session=session, document=None if version else target.document,
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
        fresh = None
        if session is not None and where == "here" and reservation is None and not request.attachments:
            fresh = _begun_at_once(run, session, definition)
        begun = fresh is not None
        if not begun:
            _refuse_early(session, definition)
            with transaction.atomic():
                begun = _placed(run, session, definition, request, where)
                if reservation is not None:
                    idempotency.bind(reservation, run=run)
    except BaseException:
        quotas.release(run_id=run.id)
        raise
    if begun:
        dispatch.submit(run.id, fresh=fresh)
    elif session is not None and where == "here":
        # The session may have become free between the look and the commit; asking again is cheap.
        executions.begin_next(session_id=session.id)
    elif where == "worker":
        dispatch.enqueue(run.id)
    return run


def _copied(run: Run) -> Run:
    """The run for its executor, who changes it while the caller still reads its own."""
    twin = copy.copy(run)
    twin._state = copy.copy(run._state)
    twin._state.fields_cache = dict(run._state.fields_cache)
    return twin


def _open(target: _Target, definition, request: RunRequest, subject, by: Actor) -> Session:
    if target.session is not None and not expiry.is_over(target.session):
        if target.is_busy and definition.sessions.on_busy == "reject":
            # The common refusal takes no lock.
            raise SessionBusy(run_id=shown("run", target.session.lease_run_id))
        return target.session
    pinned = target.version if definition.sessions.version_policy == "pin" else None
    session, _ = session_verbs.get_or_create(
        agent=target.agent, key=request.session_key, subject=subject, version=pinned, state=definitions.first_state(definition), by=by
    )
    return session


def _begun_at_once(run: Run, session: Session, definition) -> opening.Fresh | None:
    """Most turns find their session free, and have nothing else to store. None: nothing was stored, look closer."""
    run.session = session
    reads = [] if opening.starts_at_a_summary(definition) else opening.asking(run, definition)
    found = executions.begin_at_once(run, session, reads)
    return None if found is None else opening.Fresh(_copied(run), opening.read(found))


def _refuse_early(session: Session | None, definition) -> None:
    """Of many who come at once for a free session, all but one need not wait for each other to be told."""
    if session is not None and definition.sessions.on_busy == "reject" and (holder := leases.holder(session.id)) is not None:
        raise SessionBusy(run_id=shown("run", holder))


def _placed(run: Run, session: Session | None, definition, request: RunRequest, where: str) -> bool:
    """Store the run where it belongs: running now, or queued. Returns whether to execute it here, now."""
    if session is None:
        executions.begin(run, None, running=where == "here")
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
        endings.interrupt_expired(session=locked)
    unfinished = leases.unfinished(locked.id)
    ahead = next((other for other in unfinished if other.status != Run.Status.AWAITING_APPROVAL), None)
    if ahead is not None:
        _yield_or_queue(run, ahead, len(unfinished), definition.sessions.on_busy)
        return False
    if where == "worker":
        run.save(force_insert=True)
        return False
    if unfinished:
        endings.withdraw_waiting(locked)
    executions.begin(run, locked, running=True)
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
    endings.end(locked, Run.Status.CANCELLED, ("run.cancelled", {}))
    return locked


def _ask_to_stop(run: Run, *, reason: str) -> None:
    Run.objects.filter(id=run.id, cancel_requested_at=None).update(cancel_requested_at=Now(), cancel_reason=reason)
    notify.send(notify.CANCEL, run.id)
