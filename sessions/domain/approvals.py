"""Approvals: tool calls that wait for a person, the decisions on them, and standing answers.

A decision is stored before it acts, in a transaction of its own. The run goes on when none of its calls waits any
more. Rows are locked in one order: the run, then its approvals.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import jsonschema
from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from referencing import Registry

from agents import tools
from agents.models import Agent
from governance.actors import Actor, system
from governance.domain import audit, fences
from governance.errors import Forbidden, NotFound
from governance.ids import shown
from governance.models import Fence
from governance.text import clean, clean_json
from sessions.domain import rules
from sessions.engine.store import PendingCall
from sessions.errors import (
    AlreadyDecided,
    ApprovalUnknown,
    ArgumentsInvalid,
    DecisionConflict,
    InvalidDecision,
    InvalidRule,
    RunFinished,
    ToolGone,
)
from sessions.models import Approval, ApprovalRule, Run, Session

REASON_LENGTH = 2_000
LONGEST_RULE_DAYS = 3_650
_DECISIONS = {"approve": Approval.Status.APPROVED, "reject": Approval.Status.REJECTED}
_REMEMBER = frozenset({"scope", "condition", "same_arguments", "expires_in_days"})
# What the model reads where no person gave a reason.
_UNDECIDED = {
    Approval.Status.EXPIRED: "Nobody decided in time.",
    Approval.Status.WITHDRAWN: "The run went on without this call.",
}


# Asking


@transaction.atomic
def request(*, run: Run, calls: Sequence[PendingCall]) -> list[Approval]:
    """Let `calls` of the run wait for a person, in order. Asking again for the same call returns what is stored."""
    hours = models.Value(timedelta(hours=settings.LETHE["approval_hours"]), output_field=models.DurationField())
    Approval.objects.bulk_create(
        [
            Approval(
                tenant_id=run.tenant_id,
                subject_id=run.subject_id,
                run_id=run.id,
                session_id=run.session_id,
                agent_id=run.agent_id,
                call_id=call.call_id,
                tool=call.name,
                origin=call.origin,
                arguments=clean_json(call.arguments),
                expires_at=Now() + hours,
            )
            for call in calls
        ],
        ignore_conflicts=True,
    )
    stored = {row.call_id: row for row in Approval.objects.filter(run_id=run.id, call_id__in=[call.call_id for call in calls])}
    return [stored[call.call_id] for call in calls]


def has_pending(*, run: Run) -> bool:
    return Approval.objects.filter(run_id=run.id, status=Approval.Status.PENDING).exists()


def as_event(approval: Approval) -> dict[str, Any]:
    """The data of `approval.requested`."""
    return {
        "approval_id": shown("apr", approval.id),
        "call_id": approval.call_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "expires_at": approval.expires_at.isoformat(),
    }


def as_decision(approval: Approval) -> dict[str, Any]:
    """What the engine acts on: {"approve": bool, "reason"?, "arguments"? (edited)}. Not for a pending approval."""
    assert approval.status != Approval.Status.PENDING
    decision: dict[str, Any] = {"approve": approval.status == Approval.Status.APPROVED}
    if reason := approval.reason or _UNDECIDED.get(approval.status, ""):
        decision["reason"] = reason
    if approval.edited_arguments is not None:
        decision["arguments"] = approval.edited_arguments
    return decision


# Deciding


def decide(
    *,
    approval: Approval,
    decision: str,
    reason: str = "",
    arguments: dict | None = None,
    remember: dict | None = None,
    by: Actor,
) -> Approval:
    """Store the decision "approve" or "reject"; the run continues once all its calls are decided.

    `arguments` run instead of the model's. `remember` makes a standing answer of an approval: {"scope": "session" |
    "agent", "same_arguments": bool or "condition": {...} (see `rules`), "expires_in_days": int or None}. The same
    decision again changes nothing and returns the stored one. Raises ApprovalUnknown, InvalidDecision, InvalidRule,
    ArgumentsInvalid, ToolGone, DecisionConflict, AlreadyDecided (it expired or was withdrawn), SubjectFenced.
    """
    by.require("approvals.decide")
    status, reason = _checked_decision(decision, reason, arguments, remember)
    with fences.told():
        decided = _store(approval, status, reason, arguments, remember, by)
    if decided.status in _UNDECIDED:
        raise AlreadyDecided(status=decided.status)
    return decided


@transaction.atomic
def _store(approval: Approval, status: str, reason: str, arguments: dict | None, remember: dict | None, by: Actor) -> Approval:
    run, locked = _lock(approval, by)
    edited = _edited(locked, arguments)
    if locked.status == Approval.Status.PENDING:
        if run.is_finished:
            raise RunFinished(status=run.status)
        if _is_overdue(locked):
            # Whoever is late ends it: the refusal is stored, and told by the caller after the commit.
            _expire([locked])
        else:
            rule = _remembered(locked, remember, by) if remember is not None else None
            locked.status, locked.reason, locked.edited_arguments = status, reason, edited
            locked.decided_by, locked.decided_ref, locked.decided_at = by.label[:200], by.ref[:64], Now()
            locked.rule_id = rule.id if rule else None
            locked.save(
                update_fields=["status", "reason", "edited_arguments", "decided_by", "decided_ref", "decided_at", "rule_id"]
            )
            _record(f"approval.{status}", locked, by, edited=edited is not None, rule=shown("rul", rule.id) if rule else None)
            locked.refresh_from_db()
    elif locked.status not in _UNDECIDED and (locked.status, locked.edited_arguments) != (status, edited):
        raise DecisionConflict(status=locked.status)
    _resume_when_decided(run)
    return locked


def expire_due(*, limit: int = 500) -> int:
    """Reject what nobody decided in time; returns how many expired. For the sweeper.

    Also wakes runs whose calls are all decided, should the wake-up after the decision have been lost. Calls of a
    subject that is fenced stay as they are until the fence ends.
    """
    due = _unfenced(Approval.objects.filter(status=Approval.Status.PENDING, expires_at__lte=Now())).order_by("expires_at")
    run_ids = list(dict.fromkeys(due.values_list("run_id", flat=True)[:limit]))
    expired = sum(_expire_run(run_id) for run_id in run_ids)
    pending = Approval.objects.filter(run_id=OuterRef("id"), status=Approval.Status.PENDING)
    waiting = _unfenced(Run.objects.filter(~Exists(pending), status=Run.Status.AWAITING_APPROVAL))
    for run_id in waiting.values_list("id", flat=True)[:limit]:
        _resume(run_id)
    return expired


def _unfenced(rows: models.QuerySet) -> models.QuerySet:
    return rows.exclude(Exists(Fence.objects.filter(subject_id=OuterRef("subject_id"), lifted_at=None)))


@transaction.atomic
def _expire_run(run_id: UUID) -> int:
    run = Run.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).filter(id=run_id).first()
    if run is None:
        # Somebody works on it at this moment; the next sweep comes back.
        return 0
    due = list(
        Approval.objects.select_for_update(no_key=True).filter(run_id=run_id, status=Approval.Status.PENDING, expires_at__lte=Now())
    )
    _expire(due)
    _resume_when_decided(run)
    return len(due)


def _expire(due: list[Approval]) -> None:
    for approval in due:
        approval.status = Approval.Status.EXPIRED
        Approval.objects.filter(id=approval.id).update(status=approval.status, decided_by="lethe", decided_at=Now())
        _record("approval.expired", approval, system(approval.tenant_id))


def withdraw(*, run: Run) -> int:
    """The run ends or goes on without its waiting calls. The caller holds the run's row; returns how many waited."""
    waiting = list(Approval.objects.select_for_update(no_key=True).filter(run_id=run.id, status=Approval.Status.PENDING))
    for approval in waiting:
        Approval.objects.filter(id=approval.id).update(
            status=Approval.Status.WITHDRAWN, decided_by="lethe", decided_at=Now()
        )
        _record("approval.withdrawn", approval, system(approval.tenant_id))
    return len(waiting)


def _resume_when_decided(run: Run) -> None:
    """Once committed. A decision that is repeated wakes the run again, should the first wake-up have been lost."""
    if run.status == Run.Status.AWAITING_APPROVAL and not has_pending(run=run):
        transaction.on_commit(partial(_resume, run.id))


def _resume(run_id: UUID) -> None:
    from sessions.domain import executions  # noqa: PLC0415 -- runs ask for approvals, approvals resume runs

    executions.resume(run_id=run_id)


def _lock(approval: Approval, by: Actor) -> tuple[Run, Approval]:
    """The run and the approval, both locked, so that of two last decisions one sees the other."""
    run = Run.objects.select_for_update(of=("self",), no_key=True).filter(id=approval.run_id, tenant_id=by.tenant_id).first()
    locked = Approval.objects.select_for_update(of=("self",), no_key=True).filter(id=approval.id, tenant_id=by.tenant_id).first()
    if run is None or locked is None or (speaks_for := _subject_of(by)) and locked.subject_id != speaks_for:
        raise ApprovalUnknown
    return run, locked


def _subject_of(by: Actor) -> UUID | None:
    """The subject that a key speaks for: it sees that subject's approvals and no others."""
    return by.subject_id if by.kind == "api_key" else None


def _is_overdue(approval: Approval) -> bool:
    return Approval.objects.filter(id=approval.id, expires_at__lte=Now()).exists()


def _checked_decision(decision: str, reason: str, arguments: Any, remember: Any) -> tuple[str, str]:
    if decision not in _DECISIONS:
        raise InvalidDecision("The decision is approve or reject.", errors={"decision": ["approve or reject."]})
    if not isinstance(reason, str) or len(reason) > REASON_LENGTH:
        raise InvalidDecision(
            f"A reason has at most {REASON_LENGTH:,} characters.", errors={"reason": [f"At most {REASON_LENGTH:,} characters."]}
        )
    if decision == "reject" and arguments is not None:
        raise InvalidDecision("A rejected call has no arguments to edit.", errors={"arguments": ["Only when approving."]})
    if decision == "reject" and remember is not None:
        raise InvalidDecision("Only an approval can be remembered.", errors={"remember": ["Only when approving."]})
    if arguments is not None and not isinstance(arguments, dict):
        raise InvalidDecision("The arguments are a JSON object.", errors={"arguments": ["A JSON object."]})
    return _DECISIONS[decision], clean(reason.strip())


def _edited(approval: Approval, arguments: dict | None) -> dict | None:
    """The arguments that a person wrote, if they differ from the model's and fit the tool."""
    if arguments is None:
        return None
    arguments = clean_json(arguments)
    if rules.same(arguments, approval.arguments):
        return None
    tool = tools.get(approval.tool)
    if tool is None or tool.origin != approval.origin:
        raise ToolGone(approval.tool)
    errors: dict[str, list[str]] = {}
    # With a registry of its own, a schema cannot make us fetch an address.
    for error in jsonschema.Draft202012Validator(tool.schema, registry=Registry()).iter_errors(arguments):
        path = ".".join(["arguments", *(str(step) for step in error.absolute_path)])
        errors.setdefault(path, []).append(error.message[:300])
    if not errors:
        try:
            tool.arguments(arguments)
        except tools.BadArguments as error:
            errors["arguments"] = [str(error)]
    if errors:
        raise ArgumentsInvalid(errors)
    return arguments


# Standing answers


@transaction.atomic
def create_rule(
    *,
    tenant_id: UUID,
    agent: Agent,
    tool: str,
    origin: str,
    session: Session | None = None,
    condition: dict | None = None,
    expires_in_days: int | None = None,
    subject_id: UUID | None = None,
    by: Actor,
) -> ApprovalRule:
    """Allow calls of this tool of this origin from now on, for one session or the whole agent.

    `condition` narrows it to certain arguments (see `rules`), None allows any. `subject_id` marks a rule that repeats
    what a person's conversation said: it goes with them. Raises InvalidRule by path, NotFound for what is not the
    tenant's, Forbidden for a key that speaks for one subject and asks for all.
    """
    by.require("approvals.decide")
    if tenant_id != by.tenant_id or agent.tenant_id != tenant_id:
        raise NotFound
    if session is not None and (session.tenant_id, session.agent_id) != (tenant_id, agent.id):
        raise NotFound
    if speaks_for := _subject_of(by):
        if session is None:
            raise Forbidden("A key that speaks for one subject can remember an answer for its own sessions only.")
        if session.subject_id != speaks_for:
            raise NotFound
    rule = ApprovalRule.objects.create(
        tenant_id=tenant_id,
        agent=agent,
        session=session,
        subject_id=session.subject_id if session is not None else subject_id,
        tool=_text(tool, "tool"),
        origin=_text(origin, "origin"),
        condition=rules.checked(condition),
        created_by=by.label[:200],
        expires_at=_expiry(expires_in_days, "expires_in_days"),
    )
    rule.refresh_from_db()
    audit.record(
        "approval_rule.created",
        by=by,
        object_type="approval_rule",
        object_ref=shown("rul", rule.id),
        object_label=rule.tool,
        scope="session" if session is not None else "agent",
        agent=agent.id,
        conditions=len(rule.condition or {}),
        expires_in_days=expires_in_days,
    )
    return rule


@transaction.atomic
def revoke_rule(*, rule: ApprovalRule, by: Actor) -> ApprovalRule:
    """The tool asks again from now on. Revoking again changes nothing."""
    by.require("approvals.decide")
    locked = ApprovalRule.objects.select_for_update(of=("self",), no_key=True).filter(id=rule.id, tenant_id=by.tenant_id).first()
    if locked is None or ((speaks_for := _subject_of(by)) and (locked.session_id is None or locked.subject_id != speaks_for)):
        raise NotFound
    if locked.revoked_at is None:
        with fences.told():
            ApprovalRule.objects.filter(id=locked.id).update(revoked_at=Now())
        audit.record(
            "approval_rule.revoked", by=by, object_type="approval_rule", object_ref=shown("rul", locked.id), object_label=locked.tool
        )
        locked.refresh_from_db()
    return locked


def matching_rule(
    *, tenant_id: UUID, agent_id: UUID, session_id: UUID | None, tool: str, origin: str, arguments: dict
) -> ApprovalRule | None:
    """The standing answer that allows this call: of the session first, then of the agent, the newest first."""
    living = ApprovalRule.objects.filter(
        Q(session_id=session_id) | Q(session_id=None) if session_id else Q(session_id=None),
        Q(expires_at=None) | Q(expires_at__gt=Now()),
        tenant_id=tenant_id,
        agent_id=agent_id,
        tool=tool,
        origin=origin,
        revoked_at=None,
    ).order_by(models.F("session_id").asc(nulls_last=True), "-id")
    return next((rule for rule in living.iterator(chunk_size=200) if rules.holds(rule.condition, arguments)), None)


def _remembered(approval: Approval, remember: Any, by: Actor) -> ApprovalRule:
    """The rule that `remember` asks for, made of what was decided."""
    if not isinstance(remember, dict):
        raise _invalid("remember", "Say what to remember as a JSON object.")
    if unknown := set(remember) - _REMEMBER:
        raise _invalid("remember", f"Unknown: {', '.join(sorted(map(str, unknown)))}. Known: {', '.join(sorted(_REMEMBER))}.")
    scope = remember.get("scope", "session")
    if scope not in ("session", "agent"):
        raise _invalid("remember.scope", "The scope is session or agent.")
    if scope == "session" and approval.session_id is None:
        raise _invalid("remember.scope", "This run has no session to remember it for.")
    condition = rules.checked(remember.get("condition"), path="remember.condition")
    if remember.get("same_arguments"):
        if condition is not None:
            raise _invalid("remember.condition", "Send either same_arguments or a condition.")
        condition = rules.exactly(approval.arguments)
    _expiry(remember.get("expires_in_days"), "remember.expires_in_days")
    return create_rule(
        tenant_id=approval.tenant_id,
        agent=Agent.objects.get(id=approval.agent_id, tenant_id=approval.tenant_id),
        session=Session.objects.get(id=approval.session_id) if scope == "session" else None,
        tool=approval.tool,
        origin=approval.origin,
        condition=condition,
        expires_in_days=remember.get("expires_in_days"),
        # A condition that was written while looking at a person's call may repeat what it says.
        subject_id=approval.subject_id if condition is not None else None,
        by=by,
    )


def _expiry(days: Any, path: str):
    """When a rule of so many days ends, as an expression by the database's clock; None for one that stays."""
    if days is None:
        return None
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= LONGEST_RULE_DAYS:
        raise _invalid(path, f"A rule lasts 1 to {LONGEST_RULE_DAYS:,} days, or until it is revoked.")
    return Now() + models.Value(timedelta(days=days), output_field=models.DurationField())


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 200:
        raise _invalid(path, "1 to 200 characters.")
    return clean(value)


def _invalid(path: str, sentence: str) -> InvalidRule:
    return InvalidRule(sentence, errors={path: [sentence]})


def _record(action: str, approval: Approval, by: Actor, **payload: Any) -> None:
    audit.record(
        action,
        by=by,
        object_type="approval",
        object_ref=shown("apr", approval.id),
        object_label=approval.tool,
        run=shown("run", approval.run_id),
        **payload,
    )
