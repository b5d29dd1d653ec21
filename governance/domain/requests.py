"""Requests about a subject: receive one, confirm an erasure, let a second person agree, ask for an export, call it off."""

from datetime import datetime, timedelta

from django.db import transaction

from governance import queries
from governance.actors import Actor, system
from governance.domain import audit, clock, clocks, fences, jobs, notes, previews, registry, rules
from governance.domain.previews import SubjectErased
from governance.errors import Conflict, Forbidden, Invalid, NotFound, SubjectFenced, Unprocessable
from governance.models import Fence, RequestAlarm, Subject, SubjectRequest

State = SubjectRequest.State

REASONS = {
    "subject_request": "The person asked for it",
    "consent_withdrawn": "Consent was withdrawn",
    "account_closed": "The account was closed",
    "no_longer_needed": "The data is no longer needed",
    "unlawful": "The data should not have been kept",
    "legal_obligation": "The law requires it",
    "test_data": "Test data",
    "other": "Another reason, on file elsewhere",
}
CANCEL_REASONS = {
    "withdrawn": "The person withdrew the request",
    "identity_not_proven": "The person could not show who they are",
    "duplicate": "The same request exists already",
    "mistake": "It was made by mistake",
    "unfounded": "The request is unfounded or excessive",
    "legal_duty_to_keep": "The law requires us to keep the data",
    "other": "Another reason, on file elsewhere",
}
# The person must be told why: the text is kept with the request.
REFUSALS = frozenset({"identity_not_proven", "unfounded", "legal_duty_to_keep"})
DECLINE_REASONS = {
    "too_much": "It would erase more than was asked for",
    "wrong_person": "It is about somebody else",
    "duty_to_keep": "Some of it must be kept",
    "not_convinced": "The reason is not clear",
    "other": "Another reason, on file elsewhere",
}
APPROVAL_LIFE = timedelta(hours=72)
CANCELLABLE = (State.RECEIVED, State.IDENTITY_PENDING, State.PREVIEWED, State.AWAITING_APPROVAL)


class PreviewExpired(Conflict):
    code, title = "preview_expired", "The preview is too old"
    detail = "More than 30 minutes have passed since the preview. Preview again and confirm that one."


class PreviewStale(Conflict):
    code, title = "preview_stale", "The preview no longer applies"
    detail = "The rules or the subject's state changed after the preview. Preview again and confirm that one."


class PreviewUsed(Conflict):
    code, title = "preview_used", "This preview was used already"
    detail = "A newer preview replaced this one, or it was confirmed before. Look at the request, or preview again."


class PreviewDrift(Conflict):
    code, title = "preview_drift", "The data changed"


class ConfirmationMismatch(Unprocessable):
    code, title = "confirmation_mismatch", "The confirmation does not match"
    detail = "Type the subject's reference, as in S-7Q4K-2M9D, or its id exactly as you used it."


class NotCancellable(Conflict):
    code, title = "not_cancellable", "This can no longer be cancelled"
    detail = "The request has ended or is being carried out; what has gone cannot come back."


class NotAwaiting(Conflict):
    code, title = "not_awaiting_approval", "Nobody's agreement is waited for"
    detail = "This request was approved, declined or called off meanwhile, or nobody has confirmed it yet."


class ApprovalExpired(Conflict):
    code, title = "approval_expired", "The wait for an approval is over"
    detail = "An approval is waited for 72 hours. The request must be previewed and confirmed again."


class SelfApproval(Forbidden):
    code, title = "self_approval", "A second person is needed"
    detail = "You asked for this, yourself or through a key of yours. Somebody else must look at it."


def receive(
    *, subject: Subject, kind: str, by: Actor, profile: str = "gdpr", received_at: datetime | None = None
) -> SubjectRequest:
    """Record that a person asked for something, before anything is looked at. An open request of that kind is returned.

    Raises Invalid by field, SubjectErased.
    """
    by.require("subject.rectify" if kind == SubjectRequest.Kind.RECTIFY else "subject.preview")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    previews.check_request(kind, tuple(SubjectRequest.Kind.values), profile, received_at)
    with transaction.atomic():
        subject = Subject.objects.select_for_update(no_key=True).select_related("tenant").get(pk=subject.pk)
        if subject.state == Subject.State.ERASED:
            raise SubjectErased
        unfinished = SubjectRequest.objects.filter(subject=subject, kind=kind).exclude(state__in=SubjectRequest.FINAL)
        if current := unfinished.order_by("-id").first():
            return current
        request = previews.open_request(subject, kind, by, profile, received_at)
        _record("request.received", request, by, kind=kind, profile=profile)
    return request


def erase(
    *, subject: Subject, token: str, confirm: str, reason: str, break_glass: bool = False, by: Actor
) -> SubjectRequest:
    """Confirm a preview: what it showed will be erased by a worker, or after somebody else has agreed, by the tenant's
    rules. The same token from the same actor again returns the same request.

    `confirm` is the display reference or the subject's id as given; `reason` one of REASONS. `break_glass` goes on
    without the second person; all approvers are told. Raises PreviewExpired, PreviewStale, PreviewUsed, PreviewDrift,
    ConfirmationMismatch, SubjectFenced for a restricted subject, Invalid, Forbidden for a key that breaks the glass.
    """
    by.require("subject.erase")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    if reason not in REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(REASONS)}."]})
    claims = previews.read_token(token)
    if (claims["tenant"], claims["subject"]) != (subject.tenant_id.hex, subject.id.hex):
        raise Invalid("This token belongs to another preview.")
    if claims["requester"] != f"{by.kind}:{by.ref}":
        raise Invalid("Somebody else made this preview. Preview again; a token serves whoever asked for it.")
    if not _confirms(subject, confirm):
        raise ConfirmationMismatch
    if break_glass and by.kind == "api_key":
        raise Forbidden("Only a person may go on without the second one. Leave it out, and an approver is asked.")
    return _confirm(token, claims, reason, break_glass, by)


@transaction.atomic
def _confirm(token: str, claims: dict, reason: str, break_glass: bool, by: Actor) -> SubjectRequest:
    request = (
        SubjectRequest.objects.select_for_update(of=("self",))
        .select_related("tenant", "subject")
        .filter(pk=claims["request"], tenant_id=by.tenant_id, kind=SubjectRequest.Kind.ERASE)
        .first()
    )
    if request is None:
        raise NotFound
    is_its_token = request.token_digest == previews.token_digest(token)
    if request.state not in previews.OPEN:
        if is_its_token:
            return request
        raise PreviewUsed
    if request.drift:
        raise PreviewDrift(_told(request.drift), delta=request.drift["categories"])
    if not is_its_token:
        raise PreviewUsed
    if clock.now().timestamp() > claims["expires"]:
        raise PreviewExpired
    _check_current(request)
    if request.follows_id and request.approver:
        # Confirmed and approved with the request before it, and shown again since without anything new.
        _record("request.confirmed", request, by, reason=reason, digest=request.digest)
        return _hand_over(request)
    needs_second = rules.of(request.tenant).needs_second_person(by=by, rows=previews.rows_of(request))
    request.reason = reason
    previews.void_approval(request)
    previews.name_requester(request, by)
    _record("request.confirmed", request, by, reason=reason, digest=request.digest)
    if needs_second and not break_glass:
        return _await_approval(request)
    if needs_second:
        request.break_glass = True
        RequestAlarm.objects.get_or_create(
            request=request, kind=RequestAlarm.Kind.BREAK_GLASS, defaults={"tenant_id": request.tenant_id}
        )
        _record("request.break_glass", request, by, digest=request.digest)
    return _hand_over(request)


def _await_approval(request: SubjectRequest) -> SubjectRequest:
    request.state, request.approval_expires_at = State.AWAITING_APPROVAL, clock.now() + APPROVAL_LIFE
    request.save()
    return request


def _hand_over(request: SubjectRequest) -> SubjectRequest:
    """To a worker, who carries it out. An export reads everything anew and needs no plan."""
    is_export = request.kind == SubjectRequest.Kind.EXPORT
    request.state = State.EXECUTING if is_export else State.FENCING
    request.attempts, request.lease_until, request.failure = 0, None, None
    request.save()
    if is_export:
        previews.wipe([request])
    jobs.enqueue("governance.work_request", request.id)
    return request


def _check_current(request: SubjectRequest) -> None:
    subject = request.subject
    if subject.state == Subject.State.ERASED:
        raise SubjectErased
    fence = queries.open_fence_of(subject.id)
    may_export = fence is not None and fence.mode == Fence.Mode.RESTRICT and request.kind == SubjectRequest.Kind.EXPORT
    if fence is not None and fence.request_id != request.id and not may_export:
        raise SubjectFenced("This subject is restricted. Lift the restriction before an erasure.")
    now = (subject.epoch, registry.fingerprint(), previews.policy_version(request.tenant))
    if now != (request.epoch, request.registry_hash, request.policy_version):
        raise PreviewStale


def approve(*, request: SubjectRequest, digest: str, by: Actor) -> SubjectRequest:
    """Agree to exactly what was previewed and confirmed; a worker then carries it out. `digest` is the one looked at.

    Only a person, and not the one who asked. Raises SelfApproval, NotAwaiting, ApprovalExpired, PreviewStale for another
    digest or changed rules, SubjectFenced, MissingPermission for every key.
    """
    with transaction.atomic():
        request = _to_decide(request, by)
        if request.approval_expires_at <= clock.now():
            raise ApprovalExpired
        if digest != request.digest:
            raise PreviewStale("This is not what waits for an approval now. Look at the request again.")
        _check_current(request)
        request.approver, request.approver_label, request.approved_at = by.ref, by.label, clock.now()
        _record("request.approved", request, by, digest=request.digest)
        return _hand_over(request)


def decline(*, request: SubjectRequest, reason: str, text: str | None = None, by: Actor) -> SubjectRequest:
    """Disagree: the request is back at its preview, and whoever asked may preview and confirm again, or cancel.

    `reason`: one of DECLINE_REASONS; `text` is for those who asked. Raises SelfApproval, NotAwaiting, Invalid.
    """
    if reason not in DECLINE_REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(DECLINE_REASONS)}."]})
    text = notes.check(text)
    with transaction.atomic():
        request = _to_decide(request, by)
        _back_to_preview(request)
        note = _note(request, "declined", text, by)
        _record("request.declined", request, by, reason=reason, **note)
    return request


def expire_approvals() -> int:
    """Send back what nobody has decided in time. Returns how many."""
    waiting = SubjectRequest.objects.filter(state=State.AWAITING_APPROVAL, approval_expires_at__lte=clock.ClockTime())
    count = 0
    for request_id in waiting.values_list("id", flat=True)[:200]:
        with transaction.atomic():
            # Looked at again under the lock: somebody may have decided meanwhile.
            request = waiting.select_for_update(of=("self",)).filter(pk=request_id).first()
            if request is not None:
                _back_to_preview(request)
                _record("request.expired", request, system(request.tenant_id), what="approval")
                count += 1
    return count


def _to_decide(request: SubjectRequest, by: Actor) -> SubjectRequest:
    """The request as it is now, locked, for somebody who may decide about it."""
    by.require("request.approve")
    if request.tenant_id != by.tenant_id:
        raise NotFound
    request = (
        SubjectRequest.objects.select_for_update(of=("self",)).select_related("tenant", "subject").get(pk=request.pk)
    )
    if request.state != State.AWAITING_APPROVAL:
        raise NotAwaiting
    if by.person in (request.requester, request.requester_person):
        raise SelfApproval
    return request


def _back_to_preview(request: SubjectRequest) -> None:
    """The old token ends, so that nobody confirms without looking again."""
    previews.void_approval(request)
    request.state, request.token_digest = State.PREVIEWED, ""
    request.token_expires_at = clock.now()
    request.save()


def _confirms(subject: Subject, confirm: str) -> bool:
    if not isinstance(confirm, str) or not confirm.strip():
        return False
    return any(found.id == subject.id for found in queries.subjects_named(subject.tenant_id, confirm))


def export(*, subject: Subject, by: Actor, profile: str = "gdpr") -> SubjectRequest:
    """Ask for an archive of everything held on the subject; a worker makes it, or waits until somebody else has agreed,
    by the tenant's rules. An export that is under way is returned.
    """
    by.require("subject.export")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    with transaction.atomic():
        request = _open_export(subject, by, profile)
        if request.state not in previews.OPEN:
            return request
        # A key that asks is a matter of erasures only.
        if rules.of(request.tenant).four_eyes not in ("always", "above"):
            return _start_export(request, by)
    # What the second person is to agree to has to be counted first, in a transaction that only reads.
    previewed, _ = previews.preview(subject=subject, kind=SubjectRequest.Kind.EXPORT, by=by)
    with transaction.atomic():
        request = SubjectRequest.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=previewed.pk)
        if request.state != State.PREVIEWED or request.digest != previewed.digest:
            return request
        if not rules.of(request.tenant).needs_second_person(by=by, rows=previews.rows_of(request)):
            return _start_export(request, by)
        _record("request.confirmed", request, by, reason="subject_request", digest=request.digest)
        return _await_approval(request)


def _open_export(subject: Subject, by: Actor, profile: str) -> SubjectRequest:
    """The export that is open or under way, or a new one."""
    subject = Subject.objects.select_for_update(no_key=True).select_related("tenant").get(pk=subject.pk)
    if subject.state == Subject.State.ERASED:
        raise SubjectErased
    if subject.state == Subject.State.ERASING:
        raise SubjectFenced("This subject is being erased.")
    unfinished = SubjectRequest.objects.filter(subject=subject, kind=SubjectRequest.Kind.EXPORT).exclude(
        state__in=SubjectRequest.FINAL
    )
    return unfinished.order_by("-id").first() or previews.open_request(subject, "export", by, profile)


def _start_export(request: SubjectRequest, by: Actor) -> SubjectRequest:
    clocks.end_pause(request, clock.now())
    previews.name_requester(request, by)
    _record("export.requested", request, by)
    return _hand_over(request)


def cancel(*, request: SubjectRequest, reason: str, text: str | None = None, by: Actor) -> SubjectRequest:
    """End a request before anything was erased; the fence of one that drifted is lifted. `reason`: one of
    CANCEL_REASONS; for a refusal `text` is what the person was told. Raises NotCancellable: cancelling and claiming are
    updates of the same row, and one of them wins.
    """
    by.require("request.cancel")
    if request.tenant_id != by.tenant_id:
        raise NotFound
    if reason not in CANCEL_REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(CANCEL_REASONS)}."]})
    text = notes.check(text, is_required=reason in REFUSALS)
    with transaction.atomic():
        # What waits for a hold is the rest of an erasure: most of it is gone already.
        open_now = SubjectRequest.objects.filter(pk=request.pk, state__in=CANCELLABLE, follows=None)
        if not open_now.update(
            state=State.CANCELLED, reason=reason, ended_at=clock.ClockTime(), drift=None, paused_at=None
        ):
            raise NotCancellable
        request.refresh_from_db()
        previews.wipe([request])
        note = _note(request, "refusal" if reason in REFUSALS else "cancelled", text, by)
        _record("request.cancelled", request, by, reason=reason, **note)
    lift_fence_of(request)
    request.refresh_from_db()
    return request


def is_cancellable(request: SubjectRequest) -> bool:
    """Whether `cancel` would take it, as far as one can tell beforehand."""
    return request.state in CANCELLABLE and request.follows_id is None


def _note(request: SubjectRequest, kind: str, text: str, by: Actor) -> dict:
    """Keep the text, if there is one; returns what the trail holds of it."""
    if not text:
        return {}
    note, commitment = notes.write(request=request, kind=kind, text=text, by=by)
    return {"note": note.id, "commitment": commitment}


def lift_fence_of(request: SubjectRequest) -> None:
    """Open the subject again after a request that erased nothing."""
    fence = Fence.objects.filter(request_id=request.id, mode=Fence.Mode.ERASE, lifted_at=None).first()
    if fence is not None:
        fences.lift_fence(fence=fence, by=system(request.tenant_id))


def _told(drift: dict) -> str:
    added = sum(entry["added"] for entry in drift["categories"])
    changed = sum(entry["changed"] for entry in drift["categories"])
    parts = [f"{number} rows were {word}" for number, word in ((added, "added"), (changed, "changed")) if number]
    return f"{' and '.join(parts)} after the preview. Preview again and confirm that one."


def _record(action: str, request: SubjectRequest, by: Actor, **payload) -> None:
    audit.record(
        action, by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=request.subject_id, **payload,
    )  # fmt: skip
