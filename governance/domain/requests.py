"""Requests about a subject: confirm an erasure, ask for an export, call it off."""

from django.db import transaction

from governance import queries
from governance.actors import Actor, system
from governance.domain import audit, clock, fences, jobs, previews, registry
from governance.domain.previews import SubjectErased
from governance.errors import Conflict, Invalid, NotFound, SubjectFenced, Unprocessable
from governance.models import Fence, Subject, SubjectRequest

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


def erase(*, subject: Subject, token: str, confirm: str, reason: str, by: Actor) -> SubjectRequest:
    """Confirm a preview: what it showed will be erased, by a worker. The same token from the same actor again returns
    the same request.

    `confirm` is the display reference or the subject's id as given; `reason` one of REASONS. Raises PreviewExpired,
    PreviewStale, PreviewUsed, PreviewDrift, ConfirmationMismatch, SubjectFenced for a restricted subject, Invalid.
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
    return _confirm(subject, token, claims, reason, by)


@transaction.atomic
def _confirm(subject: Subject, token: str, claims: dict, reason: str, by: Actor) -> SubjectRequest:
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
    _check_current(request, claims)
    request.state, request.reason = State.FENCING, reason
    request.requester, request.requester_label = by.ref, by.label
    request.attempts, request.lease_until, request.failure = 0, None, None
    request.save(
        update_fields=["state", "reason", "requester", "requester_label", "attempts", "lease_until", "failure"]
    )
    audit.record(
        "request.confirmed", by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=subject.id, reason=reason, digest=request.digest,
    )  # fmt: skip
    jobs.enqueue("governance.work_request", request.id)
    return request


def _check_current(request: SubjectRequest, claims: dict) -> None:
    subject = request.subject
    if subject.state == Subject.State.ERASED:
        raise SubjectErased
    fence = queries.open_fence_of(subject.id)
    if fence is not None and fence.request_id != request.id:
        raise SubjectFenced("This subject is restricted. Lift the restriction before an erasure.")
    now = (subject.epoch, request.digest, registry.fingerprint(), previews.policy_version(request.tenant))
    if now != (claims["epoch"], claims["digest"], claims["registry"], claims["policy"]):
        raise PreviewStale


def _confirms(subject: Subject, confirm: str) -> bool:
    if not isinstance(confirm, str) or not confirm.strip():
        return False
    return any(found.id == subject.id for found in queries.subjects_named(subject.tenant_id, confirm))


@transaction.atomic
def export(*, subject: Subject, by: Actor, profile: str = "gdpr") -> SubjectRequest:
    """Ask for an archive of everything held on the subject; a worker makes it. An export that is under way is returned."""
    by.require("subject.export")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    subject = Subject.objects.select_for_update(no_key=True).select_related("tenant").get(pk=subject.pk)
    if subject.state == Subject.State.ERASED:
        raise SubjectErased
    if subject.state == Subject.State.ERASING:
        raise SubjectFenced("This subject is being erased.")
    unfinished = SubjectRequest.objects.filter(subject=subject, kind=SubjectRequest.Kind.EXPORT).exclude(
        state__in=SubjectRequest.FINAL
    )
    request = unfinished.order_by("-id").first() or previews.open_request(subject, "export", by, profile)
    if request.state not in previews.OPEN:
        return request
    request.state = State.EXECUTING
    request.requester, request.requester_label = by.ref, by.label
    request.save(update_fields=["state", "requester", "requester_label"])
    previews.wipe([request])
    audit.record(
        "export.requested", by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=subject.id,
    )  # fmt: skip
    jobs.enqueue("governance.work_request", request.id)
    return request


def cancel(*, request: SubjectRequest, reason: str, by: Actor) -> SubjectRequest:
    """End a request before anything was erased; the fence of one that drifted is lifted. `reason`: one of
    CANCEL_REASONS. Raises NotCancellable: cancelling and claiming are updates of the same row, and one of them wins.
    """
    by.require("request.cancel")
    if request.tenant_id != by.tenant_id:
        raise NotFound
    if reason not in CANCEL_REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(CANCEL_REASONS)}."]})
    with transaction.atomic():
        open_now = SubjectRequest.objects.filter(pk=request.pk, state__in=CANCELLABLE)
        if not open_now.update(state=State.CANCELLED, reason=reason, ended_at=clock.ClockTime(), drift=None):
            raise NotCancellable
        request.refresh_from_db()
        previews.wipe([request])
        audit.record(
            "request.cancelled", by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
            subject=request.subject_id, reason=reason,
        )  # fmt: skip
    lift_fence_of(request)
    request.refresh_from_db()
    return request


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


