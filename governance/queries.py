"""What governance reads. Every query is of one tenant; what is somebody else's does not exist."""

from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Case, DateTimeField, ExpressionWrapper, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from governance import crypto
from governance.errors import AmbiguousIdentifier, NotFound, UnknownFilter
from governance.identifiers import candidates
from governance.ids import parse
from governance.models import (
    ApiKey,
    AuditEvent,
    Fence,
    Hold,
    Membership,
    RequestAlarm,
    RetentionPolicy,
    RetentionRun,
    Subject,
    SubjectRequest,
)

# -- members, keys, audit


def members_of(tenant_id: UUID) -> QuerySet[Membership]:
    return Membership.objects.filter(tenant_id=tenant_id).select_related("member").order_by("member__username")


def memberships_for(member_id: UUID) -> QuerySet[Membership]:
    """Where a person may act, for the tenant switch."""
    return Membership.objects.filter(member_id=member_id).select_related("tenant", "member").order_by("tenant__name")


def membership_by(*, tenant_id: UUID, id: str | UUID) -> Membership:
    return _one(members_of(tenant_id), "mem", id)


def keys_of(tenant_id: UUID) -> QuerySet[ApiKey]:
    """Living keys first, then by name."""
    return ApiKey.objects.filter(tenant_id=tenant_id).select_related("subject").order_by("-revoked_at", "name")


def key_by(*, tenant_id: UUID, id: str | UUID) -> ApiKey:
    return _one(keys_of(tenant_id), "key", id)


def audit_events(tenant_id: UUID, **filters) -> QuerySet[AuditEvent]:
    """Newest first. Filters: `actor` (ref or label), `action` (whole, or a noun: "agent"), `object` (ref, label or
    type), `after` and `before` (datetimes). Raises UnknownFilter for any other.
    """
    known = {"actor", "action", "object", "after", "before"}
    if unknown := set(filters) - known:
        raise UnknownFilter(unknown, known=known)
    events = AuditEvent.objects.filter(tenant_id=tenant_id)
    given = {name: value for name, value in filters.items() if value not in (None, "")}
    if actor := given.get("actor"):
        events = events.filter(Q(actor_ref=_bare(actor)) | Q(actor_label=actor))
    if action := given.get("action"):
        events = events.filter(Q(action=action) if "." in action else Q(action__startswith=f"{action}."))
    if thing := given.get("object"):
        events = events.filter(Q(object_ref=_bare(thing)) | Q(object_label=thing) | Q(object_type=thing))
    if (after := given.get("after")) is not None:
        events = events.filter(at__gte=_time(after))
    if (before := given.get("before")) is not None:
        events = events.filter(at__lt=_time(before))
    return events.order_by("-id")


# -- subjects


def subjects_named(tenant_id: UUID, q: str) -> list[Subject]:
    """Subjects that `q` names exactly: by an identifier of any kind, by id, or by display reference."""
    q = q.strip() if isinstance(q, str) else q
    matches = Q(display_ref=q.upper())
    try:
        matches |= Q(id=parse("sub", q))
    except NotFound:
        pass
    for kind, value in candidates(q):
        marks = crypto.identifier_hmacs(tenant_id=tenant_id, kind=kind, value=value)
        matches |= Q(identifiers__tenant_id=tenant_id, identifiers__kind=kind, identifiers__value_hmac__in=marks)
    return list(Subject.objects.filter(matches, tenant_id=tenant_id).distinct().order_by("id")[:20])


def subject_of(tenant_id: UUID, ref: str | UUID) -> Subject:
    """The one subject that a path names: our id, the display reference or an identifier of the calling application.

    Raises NotFound, and AmbiguousIdentifier when it names two.
    """
    found = subjects_named(tenant_id, str(ref))
    if not found:
        raise NotFound("There is no such subject.")
    if len(found) > 1:
        refs = [subject.display_ref for subject in found]
        raise AmbiguousIdentifier(f"This names more than one subject: {' and '.join(refs)}.", subjects=refs)
    return found[0]


def open_fence_of(subject_id: UUID) -> Fence | None:
    return Fence.objects.filter(subject_id=subject_id, lifted_at=None).first()


def requests_of(tenant_id: UUID, **filters) -> QuerySet[SubjectRequest]:
    """Newest first. Filters: `state` (one or several), `kind`, `profile`, `subject` (id), `due_before`. Raises
    UnknownFilter for any other.
    """
    known = {"state", "kind", "profile", "subject", "due_before"}
    if unknown := set(filters) - known:
        raise UnknownFilter(unknown, known=known)
    requests = SubjectRequest.objects.filter(tenant_id=tenant_id).select_related("subject", "export")
    given = {name: value for name, value in filters.items() if value not in (None, "", [])}
    if state := given.get("state"):
        requests = requests.filter(state__in=[state] if isinstance(state, str) else state)
    for name in ("kind", "profile"):
        if name in given:
            requests = requests.filter(**{name: given[name]})
    if "subject" in given:
        requests = requests.filter(subject_id=given["subject"])
    if "due_before" in given:
        requests = requests.filter(due_at__lt=_time(given["due_before"]))
    return requests.order_by("-id")


# Open requests first, the one that is due first at the top; among the ended ones the newest.
BOARD_ORDER = ("has_ended", "board_time", "id")


def board(tenant_id: UUID, **filters) -> QuerySet[SubjectRequest]:
    """Requests in BOARD_ORDER, with their alarms. Filters as in `requests_of`."""
    has_ended = Q(state__in=SubjectRequest.FINAL)
    far, zero = Value(datetime.max.replace(tzinfo=UTC)), Value(datetime(1970, 1, 1, tzinfo=UTC))
    # Counted backwards for what has ended, so that one ascending order serves both.
    ended_at = ExpressionWrapper(zero + (zero - Coalesce("ended_at", "received_at")), output_field=DateTimeField())
    return (
        requests_of(tenant_id, **filters)
        .annotate(
            has_ended=Case(When(has_ended, then=1), default=0),
            board_time=Case(When(has_ended, then=ended_at), default=Coalesce("due_at", far)),
        )
        .prefetch_related("alarms")
    )


def unseen_alarms(tenant_id: UUID, kind: str, member: str) -> list[RequestAlarm]:
    """Alarms of this kind that the member has not said to have seen, newest first."""
    alarms = RequestAlarm.objects.filter(tenant_id=tenant_id, kind=kind).exclude(seen_by__contains=[member])
    return list(alarms.select_related("request").order_by("-id")[:20])


def request_by(*, tenant_id: UUID, id: str | UUID) -> SubjectRequest:
    """By id or by reference (SR-2026-000123). Raises NotFound."""
    if isinstance(id, str) and id.upper().startswith("SR-"):
        found = requests_of(tenant_id).filter(ref=id.upper()).first()
        if found is None:
            raise NotFound
        return found
    return _one(requests_of(tenant_id), "req", id)


# -- holds


def holds_of(tenant_id: UUID) -> QuerySet[Hold]:
    """Those in force first, newest first."""
    return Hold.objects.filter(tenant_id=tenant_id).select_related("subject").order_by("-released_at", "-id")


def hold_by(*, tenant_id: UUID, id: str | UUID) -> Hold:
    return _one(holds_of(tenant_id), "hld", id)


# -- retention


def policies_of(tenant_id: UUID) -> QuerySet[RetentionPolicy]:
    return RetentionPolicy.objects.filter(tenant_id=tenant_id, deleted_at=None).order_by("category", "agent")


def policy_by(*, tenant_id: UUID, id: str | UUID) -> RetentionPolicy:
    return _one(policies_of(tenant_id), "pol", id)


def retention_runs_of(tenant_id: UUID, *, policy_id: UUID | None = None) -> QuerySet[RetentionRun]:
    """Newest first."""
    runs = RetentionRun.objects.filter(tenant_id=tenant_id).select_related("policy").order_by("-id")
    return runs.filter(policy_id=policy_id) if policy_id else runs


def last_success_of(policy: RetentionPolicy) -> RetentionRun | None:
    """The newest run that went to its end and was no dry one."""
    done = RetentionRun.objects.filter(policy=policy, dry_run=False, state=RetentionRun.State.COMPLETED)
    return done.order_by("-id").first()


def retention_run_by(*, tenant_id: UUID, id: str | UUID) -> RetentionRun:
    return _one(retention_runs_of(tenant_id), "rtr", id)


def _one(rows: QuerySet, prefix: str, id: str | UUID):
    found = rows.filter(pk=id if isinstance(id, UUID) else parse(prefix, id)).first()
    if found is None:
        raise NotFound
    return found


def _bare(ref: str) -> str:
    """An id as the trail keeps it: hex, without prefix or hyphens."""
    head, _, tail = str(ref).rpartition("_")
    text = tail if len(head) == 3 else str(ref)
    return text.replace("-", "") if len(text.replace("-", "")) == 32 else str(ref)


def _time(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("A time needs its zone.")
    return value
