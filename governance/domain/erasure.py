"""Carrying out an erasure: fence, compare, erase in batches, verify, close.

The request's row is the job and its state says what comes next, so a worker that dies leaves nothing to clean up: the
next one claims the row and goes on after the last committed step. A step commits together with its deletes.
"""

import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef, Sum

from governance.actors import Actor, system
from governance.domain import (
    audit,
    clock,
    closure,
    coverage,
    fences,
    holds,
    jobs,
    ledger,
    plans,
    previews,
    purge,
    receipts,
    recipients,
    registry,
    rules,
    shredding,
)
from governance.errors import LetheError
from governance.models import ErasureStep, Fence, PlanChunk, Subject, SubjectRequest

log = structlog.get_logger("lethe.governance")

State = SubjectRequest.State
WORKING = (State.FENCING, State.EXECUTING, State.VERIFYING, State.FAILED_RETRYABLE)
# Rows that verification found are erased as well, but not for ever: then an unguarded writer is at work.
RESIDUE_ROUNDS = 3
# A batch takes no further chunk after so long: others wait for its locks, and a hold for its end.
BATCH_SECONDS = 0.1
# Nor more chunks than these, which it reads at once.
BATCH_CHUNKS = 32


class Residue(LetheError):
    code, title = "residue", "Rows keep appearing"


def work(*, request_id: UUID) -> SubjectRequest | None:
    """Carry an erasure on, to its end or to what stops it. None when somebody else has it, or nothing is to be done.

    Errors are not raised but kept on the request as `failed_retryable`, from where the sweeper tries again.
    """
    lease = jobs.claim(SubjectRequest, request_id, states=WORKING, resume="resume_state", failure=None)
    if lease is None:
        return None
    try:
        _carry_on(lease)
    except jobs.LeaseLost:
        log.info("lease_lost", request=str(request_id))
    except registry.Drift as drift:
        _fail(lease, "drift", f"{drift.rows} rows of {drift.category} were not in the plan: something writes past the fence.")
    except LetheError as error:
        _fail(lease, error.code, error.detail)
    except Exception as error:
        # The text of a foreign error may carry data; its kind is enough here and the log has the rest.
        log.exception("erasure_failed", request=str(request_id))
        _fail(lease, "error", f"The worker met an unexpected {type(error).__name__}. It is tried again.")
    return SubjectRequest.objects.get(pk=request_id)


def _carry_on(lease: jobs.Lease) -> None:
    rounds = 0
    while True:
        request = SubjectRequest.objects.select_related("tenant", "subject").get(pk=lease.id)
        scope = registry.Scope(request.tenant_id, request.subject_id)
        if request.state == State.FENCING:
            _fence(lease, request, scope)
        elif request.state == State.EXECUTING:
            _execute(lease, request, closure.extend(scope, closure.stored(request)))
        elif request.state == State.VERIFYING:
            closure.settle(lease=lease, request=request)
            if _verify(lease, request, closure.extend(scope, closure.stored(request))):
                rounds += 1
                if rounds > RESIDUE_ROUNDS:
                    raise Residue("Rows of this subject keep appearing after they were erased: something writes past the fence.")
        else:
            return


# -- fencing: stop the writers, then compare with what was shown


def _fence(lease: jobs.Lease, request: SubjectRequest, scope: registry.Scope) -> None:
    by = system(request.tenant_id)
    patience = timedelta(seconds=settings.LETHE.get("quiesce_seconds", 20))
    lease.renew(lasting=patience + jobs.LEASE)
    deadline = clock.now() + patience
    for category in registry.erase_order():
        category.quiesce(scope=scope, deadline=deadline)
    fences.open_fence(subject=request.subject, mode=Fence.Mode.ERASE, by=by, request=request)
    lease.renew()
    plan = previews.take_plan(scope, sparing=True, with_samples=False)
    drift = [] if plan.digest == request.digest else plans.difference(request, plan)
    is_accepted = bool(drift) and _may_accept(request, drift)
    # While the rows that tell of it are there.
    effects = _effects(scope)
    if is_accepted or not drift:
        # From here on there is no way back, so a restored backup has to learn of it.
        ledger.acknowledge("erase_started", request=request)
    with transaction.atomic():
        if is_accepted:
            accepted = _accept(request, plan, drift)
            accepted["effects"] = effects
            lease.renew(state=State.EXECUTING, progress_at=clock.ClockTime(), digest=plan.digest, preview=accepted)
            rows = sum(entry["added"] for entry in drift)
            _record("request.accepted_additions", request, by, rows=rows, digest=plan.digest)
            _record("request.executing", request, by)
        elif drift:
            lease.release(
                state=State.PREVIEWED, drift={"categories": drift}, token_digest="", progress_at=clock.ClockTime()
            )
            _record("request.drifted", request, by, categories=[entry["key"] for entry in drift])
        else:
            preview = {**(request.preview or {}), "effects": effects}
            lease.renew(state=State.EXECUTING, progress_at=clock.ClockTime(), preview=preview)
            _record("request.executing", request, by)


def _effects(scope: registry.Scope) -> list[dict[str, Any]]:
    """What the subject's rows caused outside: [{"tool", "count"}]."""
    counts: dict[str, int] = {}
    for category in registry.erase_order():
        for tool, count in category.effects(scope=scope).items():
            counts[tool] = counts.get(tool, 0) + count
    return [{"tool": tool, "count": counts[tool]} for tool in sorted(counts)]


def _may_accept(request: SubjectRequest, drift: list[dict[str, Any]]) -> bool:
    """Whether the tenant's rules take these rows along: only additions, only where rows were shown, and not too many.

    A second person agreed to one digest; what they have not seen is shown to them.
    """
    shown = {entry["key"] for entry in request.preview["categories"] if entry["rows"]}
    is_known = all(entry["key"] in shown and not entry["changed"] for entry in drift)
    limit = rules.of(request.tenant).accept_added_rows
    return is_known and not request.approver and sum(entry["added"] for entry in drift) <= limit


def _accept(request: SubjectRequest, plan: plans.Plan, drift: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the new plan in the old one's place. Returns the preview with what was added and what had gone meanwhile."""
    added = {entry["key"]: entry["added"] for entry in drift}
    shown = {entry["key"]: entry["rows"] for entry in request.preview["categories"]}
    accepted = {}
    for planned in plan.categories:
        key = planned.category.key
        more = added.get(key, 0)
        gone = shown.get(key, 0) + more - planned.counts.rows
        if more or gone:
            accepted[key] = {"added": more, "gone": gone}
    plans.store(request, plan)
    return {**request.preview, "accepted": accepted, "derived": plan.derived.as_json()}


# -- executing: chunk by chunk, each with its step


def _execute(lease: jobs.Lease, request: SubjectRequest, scope: registry.Scope) -> None:
    closure.hide(lease=lease, request=request)
    done = ErasureStep.objects.filter(
        request_id=OuterRef("request_id"), category=OuterRef("category"), chunk_no=OuterRef("number")
    )
    for category in registry.erase_order():
        pending = PlanChunk.objects.filter(request=request, category=category.key, is_kept=False).exclude(Exists(done))
        chunks = list(pending.order_by("number").values_list("id", flat=True))
        while chunks:
            chunks = chunks[_erase_batch(lease, request, scope, category, chunks) :]
    with transaction.atomic():
        lease.renew(state=State.VERIFYING, progress_at=clock.ClockTime())
        _record("request.verifying", request, system(request.tenant_id))


def _erase_batch(
    lease: jobs.Lease, request: SubjectRequest, scope: registry.Scope, category: registry.Category, chunks: list[int]
) -> int:
    """Erase as many of the chunks as fit into one short transaction; returns how many. Each batch looks at the holds again.

    What was erased before a chunk that drifted stays erased.
    """
    until = time.monotonic() + BATCH_SECONDS
    with transaction.atomic():
        # First, so that a worker which lost the job meets this and nobody can claim it before the commit.
        lease.renew(progress_at=clock.ClockTime(), attempts=0)
        holds.enter(tenant_id=request.tenant_id)
        scope = coverage.spare(scope, since=request.previewed_at)
        if category.is_last:
            scope = coverage.with_names(scope)
        with fences.executor(request_id=lease.id, lease_no=lease.number):
            steps, drift = _erase_chunks(lease, scope, category, chunks[:BATCH_CHUNKS], until)
            ErasureStep.objects.bulk_create(steps)
            # A row that something still refers to shows here, inside the batch.
            connection.check_constraints()
    if drift:
        raise drift
    return len(steps)


def _erase_chunks(
    lease: jobs.Lease, scope: registry.Scope, category: registry.Category, chunks: list[int], until: float
) -> tuple[list[ErasureStep], registry.Drift | None]:
    """One chunk after the other until it is time to stop, or one drifted, which is left as it was."""
    steps, planned = [], PlanChunk.objects.in_bulk(chunks)
    for chunk in chunks:
        try:
            with transaction.atomic():
                steps.append(_erase_chunk(lease, scope, category, planned[chunk]))
        except registry.Drift as drift:
            return steps, drift
        if time.monotonic() >= until:
            break
    return steps, None


def _erase_chunk(lease: jobs.Lease, scope: registry.Scope, category: registry.Category, planned: PlanChunk) -> ErasureStep:
    chunk = registry.Chunk(
        planned.number, planned.low, planned.high, planned.rows, planned.bytes, planned.sha256, bytes(planned.fingerprints)
    )
    erased = category.erase(scope=scope, chunk=chunk)
    return ErasureStep(
        request_id=lease.id,
        tenant_id=scope.tenant_id,
        category=category.key,
        chunk_no=chunk.number,
        rows=erased.rows,
        bytes=erased.size,
        already_absent=erased.already_absent,
        held=erased.held,
        lease_no=lease.number,
    )


# -- verifying: success is what a fresh look says


def _verify(lease: jobs.Lease, request: SubjectRequest, scope: registry.Scope) -> bool:
    """Look for what is left. Nothing: close the request. Something: plan it and go back. True when rows were found
    that nobody knew of; those of a hold that was released meanwhile were shown before.
    """
    scope = previews.with_holds(scope)
    left = [category for category in registry.erase_order() if category.verify(scope=scope)]
    if not left:
        ledger.acknowledge("erase_finished", request=request)
        is_partial = bool(coverage.held_of(scope))
        everything = registry.Scope(scope.tenant_id, scope.subject_id)
        _complete(lease, request, scope, previews.take_plan(everything, sparing=False, with_samples=False) if is_partial else None)
        return False
    preview = request.preview or {}
    late, freed = dict(preview.get("late", {})), dict(preview.get("freed", {}))
    with transaction.atomic():
        # What is planned here and what counts as held go together: no hold may move in between.
        holds.enter(tenant_id=request.tenant_id)
        scope = previews.with_holds(scope)
        for category in left:
            last = PlanChunk.objects.filter(request=request, category=category.key).aggregate(last=Max("number"))["last"]
            rows = plans.add(request, category.key, category.plan(scope=scope), start=0 if last is None else last + 1)
            known = min(rows, _freed(request, category, scope) - freed.get(category.key, 0))
            freed[category.key] = freed.get(category.key, 0) + known
            if rows > known:
                late[category.key] = late.get(category.key, 0) + rows - known
        # What is freed now no longer counts as spared while it is erased.
        lease.renew(state=State.EXECUTING, preview={**preview, "late": late, "freed": freed}, previewed_at=clock.ClockTime())
        _record(
            "request.executing", request, system(request.tenant_id), residue=[category.key for category in left]
        )
    return late != preview.get("late", {})


def _freed(request: SubjectRequest, category: registry.Category, scope: registry.Scope) -> int:
    """Rows that were held when they were shown or came to be held later, and are not any more."""
    shown = sum(
        entry["buckets"]["held"]
        for entry in (request.preview or {}).get("categories", [])
        if entry["key"] == category.key and not request.follows_id
    )
    caught = ErasureStep.objects.filter(request=request, category=category.key).aggregate(rows=Sum("held"))["rows"] or 0
    return shown + caught - category.held(scope=scope).rows


@transaction.atomic
def _complete(lease: jobs.Lease, request: SubjectRequest, scope: registry.Scope, rest: plans.Plan | None) -> None:
    """End the request: whole, or without the `rest` that a hold covers. Nothing when a hold moved since the last look."""
    by = system(request.tenant_id)
    lease.renew()
    holds.enter(tenant_id=request.tenant_id)
    scope = previews.with_holds(scope)
    held = coverage.held_of(scope)
    if bool(held) != (rest is not None) or any(category.verify(scope=scope) for category in registry.erase_order()):
        return
    now = clock.now()
    preview = {
        **(request.preview or {}),
        "held": {key: found.rows for key, found in held.items()},
        "exceptions": [
            {"category": key, "rows": ground["rows"], "reason": "hold", "basis": ground["reason"], "until": ground["until"]}
            for key, found in held.items()
            for ground in found.grounds
        ],
    }
    request.preview, request.logically_erased_at = preview, now
    touched = [entry["key"] for entry in preview.get("categories", []) if entry["rows"]]
    recipients.declare(request=request, categories=[*touched, *preview.get("late", {})])
    purge.ask(request=request)
    key = None if rest else shredding.pending(request)
    receipt = receipts.issue(request=request, **({"subject_key": key} if key else {}))
    state = State.COMPLETED_WITH_EXCEPTIONS if rest else State.COMPLETED
    lease.release(state=state, preview=preview, logically_erased_at=now, ended_at=now, drift=None)
    rows = sum(entry["erased"] + entry["anonymised"] for entry in receipt["categories"])
    if rest:
        previews.wipe([request])
        follow_up = previews.open_follow_up(request=request, plan=rest, held=held)
        _record("request.completed", request, by, rows=rows, held=sum(preview["held"].values()), follow_up=follow_up.id)
        return
    _close_subject(request, now)
    shredding.destroy_soon(SubjectRequest.objects.get(pk=request.pk))
    _record("request.completed", request, by, rows=rows)
    audit.record(
        "subject.erased", by=by, object_type="subject", object_ref=request.subject_id,
        object_label=request.subject.display_ref, request=request.id,
    )  # fmt: skip


def _close_subject(request: SubjectRequest, now: datetime) -> None:
    """Nothing is left: the id takes no data for ever, and whatever else was asked about it has no object."""
    Fence.objects.filter(request_id=request.id, lifted_at=None).update(mode=Fence.Mode.SUPPRESS)
    Subject.objects.filter(pk=request.subject_id).update(state=Subject.State.ERASED)
    ledger.suppress_of(request, erased_at=now)
    others = SubjectRequest.objects.filter(subject_id=request.subject_id).exclude(pk=request.pk)
    others.exclude(state__in=SubjectRequest.FINAL).update(
        state=State.CANCELLED, reason="subject_erased", ended_at=now, lease_until=None, drift=None
    )
    previews.wipe(SubjectRequest.objects.filter(subject_id=request.subject_id))


def _fail(lease: jobs.Lease, code: str, message: str) -> None:
    """Keep where it stopped and why. `failed_retryable` returns to that state."""
    request = SubjectRequest.objects.filter(pk=lease.id, lease_no=lease.number).first()
    if request is None or request.state not in (State.FENCING, State.EXECUTING, State.VERIFYING):
        return
    try:
        with transaction.atomic():
            lease.fail(code=code, message=message, state=State.FAILED_RETRYABLE, resume_state=request.state)
            _record("request.failed", request, system(request.tenant_id), code=code, state=request.state)
    except jobs.LeaseLost:
        log.info("lease_lost", request=str(lease.id))


def _record(action: str, request: SubjectRequest, by: Actor, **payload: Any) -> None:
    audit.record(
        action, by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=request.subject_id, **payload,
    )  # fmt: skip
