"""What is held on a subject, row for row, and what an erasure would do with it.

An erasure is bound to its preview: the preview's digest covers every chunk of every category, and the token carries
it. `take_plan` is what both the preview and the erasure under its fence see.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.db import connection, transaction

from governance.actors import Actor, system
from governance.domain import (
    audit,
    clock,
    clocks,
    closure,
    coverage,
    deadlines,
    plans,
    protection,
    registry,
    rules,
    triage,
)
from governance.domain.plans import Plan, Planned
from governance.domain.snapshots import snapshot
from governance.errors import Conflict, Invalid, NotFound, SubjectFenced
from governance.ids import shown
from governance.models import Fence, PlanChunk, Subject, SubjectRequest

TOKEN_LIFE = timedelta(minutes=30)
SAMPLES = 20
_SALT = "lethe.preview"
State = SubjectRequest.State
OPEN = (State.RECEIVED, State.IDENTITY_PENDING, State.PREVIEWED)
PREVIEWABLE = (SubjectRequest.Kind.ERASE, SubjectRequest.Kind.EXPORT)


class SubjectErased(Conflict):
    code, title = "subject_erased", "This subject was erased"
    detail = "This subject was erased; nothing is held under this id. A person who returned has a new one."


def preview(
    *, subject: Subject, kind: str = "erase", by: Actor, profile: str = "gdpr", received_at: datetime | None = None
) -> tuple[SubjectRequest, str]:
    """Count what is held on the subject at one moment, and open the request that an erasure or export continues.

    Returns the request, previewed, and a token that is good for one erasure by the same actor within 30 minutes. An
    open request of the subject and kind is used again: its clock runs on, and its earlier token ends. So does the wait
    for an approver, who was to agree to what was shown before; only those who may confirm can end it like that.
    """
    by.require("subject.preview")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    check_request(kind, PREVIEWABLE, profile, received_at)
    request = _open(subject, kind, by, profile, received_at)
    # An export takes everything; an erasure leaves out what a hold covers, unless it waits for just that.
    plan = take_plan(
        registry.Scope(subject.tenant_id, subject.id), sparing=kind != SubjectRequest.Kind.EXPORT and not request.follows_id
    )
    return _store(request, plan, by)


def with_holds(scope: registry.Scope) -> registry.Scope:
    """The scope without the rows that must be kept now."""
    return coverage.with_names(coverage.spare(scope))


def take_plan(scope: registry.Scope, *, sparing: bool, with_samples: bool = True) -> Plan:
    """Everything in scope at one moment, in the order of erasure; when `sparing`, without what a hold covers. Its own
    transaction, which reads only.
    """
    with snapshot(), connection.cursor() as cursor:
        # Chunks are sorted and read to their end.
        cursor.execute("SET LOCAL cursor_tuple_fraction = 1; SET LOCAL work_mem = '32MB'")
        epoch = Subject.objects.values_list("epoch", flat=True).get(pk=scope.subject_id)
        planned, derived, prints = [], closure.of(scope), plans.Prints()
        if sparing:
            derived = closure.with_holds(scope.tenant_id, derived)
        # Without what would be rebuilt, which a difference knows by its key.
        whole = closure.extend(scope, replace(derived, held={}))
        scope = closure.extend(scope, derived)
        if sparing:
            scope = with_holds(scope)
        for category in registry.erase_order():
            chunks = [prints.keep(chunk) for chunk in category.plan(scope=scope)]
            samples = category.sample(scope=scope, limit=SAMPLES) if chunks and with_samples else []
            held = category.held(scope=scope)
            counts = _with_mixed(category.count(plan=chunks), len(derived.mixed.get(category.key, ())))
            kept = plans.beside(chunks, category.plan(scope=whole)) if held.rows else b""
            planned.append(Planned(category, chunks, with_held(counts, held), samples, held.grounds, kept))
        unattributed = triage.open_rows(tenant_id=scope.tenant_id) if with_samples else 0
    return Plan(epoch, planned, unattributed, derived)


def _with_mixed(counts: registry.Counts, rows: int) -> registry.Counts:
    """Derived rows with other sources are shown beside what goes: they are rebuilt."""
    buckets = {**counts.buckets, "regenerate": rows}
    return registry.Counts(counts.rows + rows, counts.size, buckets)


def describe(*, request: SubjectRequest, token: str | None = None) -> dict[str, Any]:
    """The preview as a JSON document: what the API answers and the page draws. Samples' titles are decrypted here.

    Whoever calls this for a person with samples shows personal content; the preview itself was audited.
    """
    stored = request.preview or {"categories": [], "unattributed_in_tenant": 0}
    samples = _read_samples(request)
    return {
        "request_id": shown("req", request.id),
        "request_ref": request.ref,
        "kind": request.kind,
        "state": request.state,
        "due_at": _text(request.due_at),
        "digest": request.digest,
        "preview_token": token,
        "token_expires_at": _text(request.token_expires_at),
        "unattributed_in_tenant": stored["unattributed_in_tenant"],
        "categories": [{**entry, "samples": samples.get(entry["key"], [])} for entry in stored["categories"]],
    }


def read_token(token: str) -> dict[str, Any]:
    """What a preview's token says. Raises Invalid for one that we did not make."""
    try:
        return signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        raise Invalid("This is not a preview token. Preview again and use the token of that answer.") from None


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def policy_version(tenant) -> int:
    """Rises when the tenant's rules for erasures change, so that a preview made under the old ones is refused."""
    return tenant.settings.get("policy_version", 1)


def rows_of(request: SubjectRequest) -> int:
    """How many rows the preview showed."""
    return sum(entry["rows"] for entry in (request.preview or {}).get("categories", []))


def wipe(requests: Iterable[SubjectRequest] | Any) -> None:
    """Remove what previews keep beside their counts: chunks, samples, tokens."""
    for request in requests:
        PlanChunk.objects.filter(request=request).delete()
        kept = {name: value for name, value in (request.preview or {}).items() if name not in ("samples", "derived")}
        SubjectRequest.objects.filter(pk=request.pk).update(preview=kept or None, token_digest="", token_expires_at=None)


def check_request(kind: str, kinds: tuple[str, ...], profile: str, received_at: datetime | None) -> None:
    """Raise Invalid by field for what no request can be opened with."""
    errors = {}
    if kind not in kinds:
        errors["kind"] = [f"Choose one of {', '.join(kinds)}."]
    if profile not in deadlines.PROFILES:
        errors["profile"] = [f"Choose one of {', '.join(deadlines.PROFILES)}."]
    if received_at is not None and received_at.tzinfo is None:
        errors["received_at"] = ["Give the time with its zone."]
    elif received_at is not None and received_at > clock.now() + timedelta(minutes=5):
        errors["received_at"] = ["This time is still to come."]
    if errors:
        raise Invalid("The request cannot be opened like this.", errors=errors)


@transaction.atomic
def _open(subject: Subject, kind: str, by: Actor, profile: str, received_at: datetime | None) -> SubjectRequest:
    # The subject's row is the lock: two previews at once share one request.
    subject = Subject.objects.select_for_update(no_key=True).select_related("tenant").get(pk=subject.pk)
    if subject.state == Subject.State.ERASED:
        raise SubjectErased
    unfinished = SubjectRequest.objects.filter(subject=subject, kind=kind).exclude(state__in=SubjectRequest.FINAL)
    current = unfinished.order_by("-id").first()
    if current is not None and not _may_preview(current, by):
        raise SubjectFenced(f"{current.ref} is being carried out for this subject.", request_ref=current.ref)
    return current or open_request(subject, kind, by, profile, received_at)


def _may_preview(request: SubjectRequest, by: Actor) -> bool:
    if request.follows_id and not request.drift:
        # It waits for holds, and was shown and approved before.
        return False
    return request.state in OPEN or (request.state == State.AWAITING_APPROVAL and by.may("subject.erase"))


def open_request(
    subject: Subject, kind: str, by: Actor, profile: str = "gdpr", received_at: datetime | None = None
) -> SubjectRequest:
    """A new request with its clock, counted per tenant and year. Inside the caller's transaction."""
    received, zone = received_at or clock.now(), subject.tenant.timezone
    return SubjectRequest.objects.create(
        tenant=subject.tenant,
        subject=subject,
        ref=_next_ref(subject.tenant_id, received.year),
        kind=kind,
        profile=profile,
        received_at=received,
        due_at=deadlines.due_at(profile=profile, received_at=received, zone=zone),
        first_due_at=deadlines.first_due_at(
            profile=profile, received_at=received, zone=zone, days_off=rules.of(subject.tenant).days_off()
        ),
        requester=by.ref,
        requester_label=by.label,
        requester_person=by.person,
    )


def _next_ref(tenant_id, year: int) -> str:
    """SR-2026-000123. The lock makes counting and taking the number one step."""
    prefix = f"SR-{year}-"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{tenant_id}|{prefix}"])
    last = SubjectRequest.objects.filter(tenant_id=tenant_id, ref__startswith=prefix).order_by("-ref").first()
    return f"{prefix}{int(last.ref.removeprefix(prefix)) + 1 if last else 1:06}"


@transaction.atomic
def _store(request: SubjectRequest, plan: Plan, by: Actor) -> tuple[SubjectRequest, str]:
    request = SubjectRequest.objects.select_for_update().select_related("tenant", "subject").get(pk=request.pk)
    if not _may_preview(request, by):
        raise Conflict(f"{request.ref} went on meanwhile. Look at it before you preview again.")
    # A follow-up was confirmed, and perhaps approved, with the request before it: that holds for what was shown then.
    is_confirmed = bool(request.follows_id and request.reason) and not plans.difference(request, plan)
    plans.store(request, plan)
    now = clock.now()
    request.state, request.drift, request.failure = State.PREVIEWED, None, None
    clocks.end_pause(request, now)
    request.epoch, request.digest, request.registry_hash = plan.epoch, plan.digest, registry.fingerprint()
    request.policy_version = policy_version(request.tenant)
    request.preview = _summary(request, plan)
    if request.follows_id:
        _show_held(request, plan)
    request.previewed_at, request.token_expires_at = now, now + TOKEN_LIFE
    if not is_confirmed:
        void_approval(request)
        name_requester(request, by)
        if request.follows_id:
            request.reason = ""
    token = _sign(request, by)
    request.token_digest = token_digest(token)
    request.save()
    rows = sum(planned.counts.rows for planned in plan.categories)
    audit.record(
        "request.previewed", by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=request.subject_id, kind=request.kind, rows=rows, digest=request.digest,
    )  # fmt: skip
    return request, token


def name_requester(request: SubjectRequest, by: Actor) -> None:
    request.requester, request.requester_label, request.requester_person = by.ref, by.label, by.person


def void_approval(request: SubjectRequest) -> None:
    """Another digest, another agreement. Sets columns; the caller saves them."""
    request.approver = request.approver_label = ""
    request.approved_at = request.approval_expires_at = None
    request.break_glass = False


def with_held(counts: registry.Counts, held: registry.Held) -> registry.Counts:
    """The counts of a plan, and what stays beside it."""
    buckets = {**counts.buckets, "held": counts.buckets["held"] + held.rows}
    return registry.Counts(counts.rows + held.rows, counts.size + held.size, buckets)


def open_follow_up(*, request: SubjectRequest, plan: Plan, held: dict[str, registry.Held]) -> SubjectRequest:
    """What a hold kept from being erased waits here, with its own clock: it was shown and approved with `request`.

    In the transaction that ends `request`. The fence stays, in the new request's name.
    """
    follow_up = open_request(request.subject, request.kind, system(request.tenant_id), request.profile)
    for name in _TAKEN_OVER:
        setattr(follow_up, name, getattr(request, name))
    follow_up.follows, follow_up.state = request, State.PREVIEWED
    follow_up.epoch, follow_up.digest, follow_up.previewed_at = plan.epoch, plan.digest, clock.now()
    plans.store(follow_up, plan)
    preview = _summary(follow_up, plan)
    for entry in preview["categories"]:
        entry["grounds"] = list(held[entry["key"]].grounds) if entry["key"] in held else []
        entry["buckets"] = {**dict.fromkeys(entry["buckets"], 0), "held": entry["rows"]}
    follow_up.preview = preview
    follow_up.save()
    Fence.objects.filter(request_id=request.id, lifted_at=None).update(request_id=follow_up.id)
    return follow_up


def _show_held(request: SubjectRequest, plan: Plan) -> None:
    """The plan of a request that waits for holds takes what they cover; its preview says that this stays for now."""
    scope = closure.extend(registry.Scope(request.tenant_id, request.subject_id), closure.with_holds(request.tenant_id, plan.derived))
    held = coverage.held_of(with_holds(scope))
    for entry in request.preview["categories"]:
        if (found := held.get(entry["key"])) is not None:
            buckets, left = entry["buckets"], found.rows
            for name in ("erase", "anonymise", "regenerate"):
                moved = min(left, buckets[name])
                buckets[name], buckets["held"], left = buckets[name] - moved, buckets["held"] + moved, left - moved
            entry["grounds"] = list(found.grounds)


_TAKEN_OVER = (
    "reason", "registry_hash", "policy_version", "requester", "requester_label", "requester_person", "approver",
    "approver_label", "approved_at", "break_glass",
)  # fmt: skip


def _summary(request: SubjectRequest, plan: Plan) -> dict[str, Any]:
    """What the request keeps: counts in the clear, samples encrypted and only until the request ends."""
    samples = {
        planned.category.key: [
            {"id": sample.id, "title": sample.title, "created_at": _text(sample.created_at)} for sample in planned.samples
        ]
        for planned in plan.categories
    }
    sealed = protection.encrypt(
        json.dumps(samples).encode(), tenant_id=request.tenant_id, context=f"samples|{request.id}"
    )
    return {
        "unattributed_in_tenant": plan.unattributed,
        "derived": plan.derived.as_json(),
        "samples": base64.b64encode(sealed).decode(),
        "categories": [
            {
                "key": planned.category.key,
                "title": planned.category.title,
                "rows": planned.counts.rows,
                "bytes": planned.counts.size,
                "grounds": list(planned.grounds),
                "buckets": planned.counts.buckets,
            }
            for planned in plan.categories
        ],
    }


def _read_samples(request: SubjectRequest) -> dict[str, list[dict[str, Any]]]:
    sealed = (request.preview or {}).get("samples")
    if not sealed:
        return {}
    return json.loads(
        protection.decrypt(base64.b64decode(sealed), tenant_id=request.tenant_id, context=f"samples|{request.id}")
    )


def _sign(request: SubjectRequest, by: Actor) -> str:
    claims = {
        "request": request.id.hex,
        "tenant": request.tenant_id.hex,
        "subject": request.subject_id.hex,
        "epoch": request.epoch,
        "digest": request.digest,
        "registry": request.registry_hash,
        "policy": request.policy_version,
        "requester": f"{by.kind}:{by.ref}",
        "expires": request.token_expires_at.timestamp(),
    }
    return signing.dumps(claims, key=settings.SECRET_KEY, salt=_SALT, compress=True)


def _text(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
