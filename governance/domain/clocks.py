"""The clock of a request: first answer, extension, pause, alarms. The arithmetic is in `deadlines`."""

import re
from datetime import datetime, timedelta

from django.db import connection, transaction

from governance.actors import Actor, system
from governance.domain import audit, clock, deadlines, rules
from governance.errors import Conflict, Invalid, NotFound
from governance.models import RequestAlarm, SubjectRequest

State = SubjectRequest.State

EXTENSION_REASONS = {
    "complex": "The request is complex",
    "many_requests": "There are many requests at once",
}
# A reference under which the notice is on file; not a place for the notice itself.
_NOTICE = re.compile(r"[\w.:+\-/#]{1,64}")


class AlreadyExtended(Conflict):
    code, title = "already_extended", "This was extended before"
    detail = "A request is extended once. Answer it by the date it has now."


class ExtensionTooLate(Conflict):
    code, title = "extension_too_late", "The time is over"
    detail = "An extension must be told to the person before the request is due. This one is due already."


class ExtensionNotOffered(Conflict):
    code, title = "extension_not_offered", "There is no extension"
    detail = "The law this request is answered under knows no extension."


@transaction.atomic
def extend(*, request: SubjectRequest, reason: str, notice_ref: str, by: Actor) -> SubjectRequest:
    """Move the deadline once, before it has passed. `reason`: one of EXTENSION_REASONS; `notice_ref` says where the
    notice to the person is on file.

    Raises AlreadyExtended, ExtensionTooLate, ExtensionNotOffered, Conflict for an ended request, Invalid by field.
    """
    by.require("request.extend")
    request = _locked(request, by)
    _check_extension(reason, notice_ref)
    if request.is_final:
        raise Conflict(f"{request.ref} has ended.")
    if not deadlines.profile_of(request.profile).may_extend:
        raise ExtensionNotOffered
    if request.extended_until is not None:
        raise AlreadyExtended
    if clock.now() >= request.due_at:
        raise ExtensionTooLate
    zone = request.tenant.timezone
    until = deadlines.extended(profile=request.profile, received_at=request.received_at, zone=zone)
    until = deadlines.shifted(until, by=timedelta(seconds=request.paused_seconds), zone=zone)
    request.due_at = request.extended_until = until
    request.extension_reason, request.extension_notice = reason, notice_ref.strip()
    request.save(update_fields=["due_at", "extended_until", "extension_reason", "extension_notice"])
    _record("request.extended", request, by, reason=reason, notice=request.extension_notice, due_at=until)
    return request


@transaction.atomic
def ask_identity(*, request: SubjectRequest, by: Actor) -> SubjectRequest:
    """Ask the person to show who they are. The clock rests only where profile and tenant allow it; looking at what is
    held (a preview, an export) ends the wait. Raises Conflict once that was done.
    """
    by.require("request.extend")
    request = _locked(request, by)
    if request.state != State.RECEIVED:
        raise Conflict(f"{request.ref} has gone on. Proof of identity is asked for before anything is looked at.")
    may_pause = deadlines.profile_of(request.profile).may_pause and rules.of(request.tenant).pause_for_identity
    request.state, request.paused_at = State.IDENTITY_PENDING, clock.now() if may_pause else None
    request.save(update_fields=["state", "paused_at"])
    _record("request.identity_asked", request, by, is_paused=may_pause)
    return request


def end_pause(request: SubjectRequest, now: datetime) -> None:
    """Let the clock of a locked request run on. Sets columns; the caller saves them."""
    if request.paused_at is None:
        return
    pause = now - request.paused_at
    request.paused_seconds += int(pause.total_seconds())
    request.due_at = deadlines.shifted(request.due_at, by=pause, zone=request.tenant.timezone)
    request.paused_at = None


@transaction.atomic
def answer_first(*, request: SubjectRequest, by: Actor) -> SubjectRequest:
    """Record that the person has the first answer: that the request arrived, or whether anything is held. Again changes nothing."""
    by.require("request.extend")
    request = _locked(request, by)
    if request.first_due_at is None:
        raise Conflict(f"{request.ref} needs no first answer.")
    if request.first_answered_at is None:
        request.first_answered_at = clock.now()
        request.save(update_fields=["first_answered_at"])
        _record("request.first_answered", request, by)
    return request


def used(request: SubjectRequest, now: datetime) -> float | None:
    """How much of the request's time is over; None when it has no deadline."""
    if request.due_at is None:
        return None
    return deadlines.share_used(
        received_at=request.received_at, due_at=request.due_at, now=min(now, request.paused_at or now),
        paused=timedelta(seconds=request.paused_seconds),
    )  # fmt: skip


@transaction.atomic
def raise_alarms() -> int:
    """Raise what has become due to be looked at, each once. Returns how many. One statement, whatever is open."""
    with connection.cursor() as cursor:
        cursor.execute(_ALARMS, [[state for state in State.values if state not in SubjectRequest.FINAL]])
        raised = cursor.fetchall()
    requests = SubjectRequest.objects.in_bulk([request_id for request_id, _ in raised])
    for request_id, kind in sorted(raised):
        request = requests[request_id]
        _record("request.alarm", request, system(request.tenant_id), kind=kind)
    return len(raised)


# A clock that rests raises nothing. The moment at which a share s of the time is over: received + paused + s * rest.
_ALARMS = """
INSERT INTO governance_requestalarm (request_id, tenant_id, kind, seen_by)
SELECT r.id, r.tenant_id, alarm.kind, '{}'
FROM governance_subjectrequest r
CROSS JOIN LATERAL (
    SELECT make_interval(secs => r.paused_seconds) AS paused
) pause
CROSS JOIN LATERAL (VALUES
    ('used_50', r.received_at + paused + 0.5 * (r.due_at - r.received_at - paused)),
    ('used_75', r.received_at + paused + 0.75 * (r.due_at - r.received_at - paused)),
    ('used_90', r.received_at + paused + 0.9 * (r.due_at - r.received_at - paused)),
    ('overdue', r.due_at),
    ('first_answer_overdue', CASE WHEN r.first_answered_at IS NULL THEN r.first_due_at END)
) alarm (kind, at)
WHERE r.state = ANY (%s) AND r.paused_at IS NULL AND alarm.at <= clock_timestamp()
  AND NOT EXISTS (SELECT FROM governance_requestalarm a WHERE a.request_id = r.id AND a.kind = alarm.kind)
ON CONFLICT DO NOTHING
RETURNING request_id, kind
"""


@transaction.atomic
def see_alarm(*, request: SubjectRequest, kind: str, by: Actor) -> None:
    """Say that one has seen an alarm; it is then no longer shown to this member."""
    by.require("request.read")
    if request.tenant_id != by.tenant_id:
        raise NotFound
    alarm = RequestAlarm.objects.select_for_update().filter(request=request, kind=kind).first()
    if alarm is None:
        raise NotFound
    if by.ref not in alarm.seen_by:
        alarm.seen_by = [*alarm.seen_by, by.ref]
        alarm.save(update_fields=["seen_by"])
        _record("request.alarm_seen", request, by, kind=kind)


def _locked(request: SubjectRequest, by: Actor) -> SubjectRequest:
    if request.tenant_id != by.tenant_id:
        raise NotFound
    return SubjectRequest.objects.select_for_update(of=("self",)).select_related("tenant", "subject").get(pk=request.pk)


def _check_extension(reason: str, notice_ref: str) -> None:
    errors = {}
    if reason not in EXTENSION_REASONS:
        errors["reason"] = [f"Choose one of {', '.join(EXTENSION_REASONS)}."]
    if not isinstance(notice_ref, str) or not _NOTICE.fullmatch(notice_ref.strip()):
        errors["notice_ref"] = ["Give the reference under which the notice is on file: letters, digits and .:+-/#, up to 64."]
    if errors:
        raise Invalid("The request cannot be extended like this.", errors=errors)


def _record(action: str, request: SubjectRequest, by: Actor, **payload) -> None:
    audit.record(
        action, by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=request.subject_id, **payload,
    )  # fmt: skip
