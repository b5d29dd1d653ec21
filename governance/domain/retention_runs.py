"""Carrying out a retention run: batches of row groups, oldest first, each committed by itself."""

import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models.functions import Coalesce

from governance.actors import system
from governance.domain import archiving, audit, clock, fences, groups, holds, jobs, registry, retention, selection
from governance.domain.tables import TableCategory
from governance.errors import Held, SubjectFenced, Unavailable
from governance.models import RetentionPolicy, RetentionRun

log = structlog.get_logger("lethe.governance")

State = RetentionRun.State
# A batch holds its locks for at most 0.5 s: its size aims at half of that, so that one which takes twice as long as
# those before it is still within.
FIRST_BATCH, LARGEST_BATCH = 10, 2000
AIM_SECONDS = 0.25
# Then the worker takes other jobs; the sweeper comes back to this one.
BUDGET_SECONDS = 300
ATTEMPTS = 5
# So many failed runs of one policy in a row are told as an error: what it should take piles up.
ALARM_AFTER = 2


class Stopped(Exception):
    """The run cannot go on and is not tried again."""

    def __init__(self, code: str, message: str):
        self.failure = {"code": code, "message": message}
        super().__init__(message)


@dataclass
class Tally:
    """What a run came to so far. `deleted` counts rows of the policy's category, `rows` all that went along."""

    deleted: int = 0
    rows: int = 0
    bytes: int = 0
    by_category: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def add(self, roots: int, done: dict[str, tuple[int, int]], locked: int) -> None:
        self.deleted += roots
        for key, (rows, size) in done.items():
            self.rows, self.bytes = self.rows + rows, self.bytes + size
            self.by_category[key] = self.by_category.get(key, 0) + rows
        if locked:
            self.skipped["locked"] = self.skipped.get("locked", 0) + locked

    def as_json(self) -> dict[str, Any]:
        return {
            "deleted": self.deleted,
            "rows": self.rows,
            "bytes": self.bytes,
            "by_category": self.by_category,
            "skipped": self.skipped,
        }


def work(*, run_id: UUID) -> RetentionRun | None:
    """Carry a run on to its end, to the end of its time budget, or to what stops it. None when somebody else has it."""
    lease = jobs.claim(
        RetentionRun, run_id, states=(State.QUEUED, State.RUNNING), state=State.RUNNING, failure=None,
        started_at=Coalesce("started_at", clock.ClockTime()),
    )  # fmt: skip
    if lease is None:
        return None
    try:
        _carry_on(lease)
    except jobs.LeaseLost:
        log.info("lease_lost", run=str(run_id))
    except Stopped as error:
        _end(lease, State.FAILED, failure=error.failure)
    except archiving.ArchiveMissing as error:
        _end(lease, State.FAILED, failure={"code": error.code, "message": error.detail})
    except Unavailable as error:
        _fail(lease, error.detail, code=error.code)
    except Exception as error:
        log.exception("retention_failed", run=str(run_id))
        _fail(lease, f"The worker met an unexpected {type(error).__name__}. It is tried again.")
    return RetentionRun.objects.get(pk=run_id)


def _carry_on(lease: jobs.Lease) -> None:
    run = RetentionRun.objects.get(pk=lease.id)
    category, policy = registry.get(_policy(run).category), _policy(run)
    if run.dry_run:
        return _count(lease, run, policy, category)
    if not run.cursor:
        _check_approval(run, policy)
    if policy.action == RetentionPolicy.Action.ARCHIVE_THEN_DELETE:
        archiving.tidy(run=run)
    started, size = time.monotonic(), FIRST_BATCH
    while True:
        began = time.monotonic()
        if not _batch(lease, category, size):
            break
        size = _next_size(size, time.monotonic() - began)
        if time.monotonic() - started > BUDGET_SECONDS:
            return lease.release()
    skipped = selection.excluded(policy, category, run.cutoff)
    run.refresh_from_db(fields=["counts"])
    counts = {**run.counts, "skipped": {**run.counts.get("skipped", {}), **_positive(skipped)}}
    return _end(lease, State.COMPLETED, counts={**Tally().as_json(), **counts})


def _check_approval(run: RetentionRun, policy: RetentionPolicy) -> None:
    """Before the first batch: a run of the schedule has nobody whom it could tell when it is made."""
    try:
        retention.check_approval(policy, run.cutoff)
    except retention.NeedsApproval as error:
        raise Stopped(error.code, error.detail) from None


def _next_size(size: int, took: float) -> int:
    """So many groups as would have taken AIM_SECONDS, at most twice as many as before."""
    fitting = int(size * AIM_SECONDS / took) if took > 0 else LARGEST_BATCH
    return max(1, min(fitting, size * 2, LARGEST_BATCH))


def _batch(lease: jobs.Lease, category: TableCategory, size: int) -> bool:
    """Take the next page of row groups. False when there is none. A page that meets a new fence or hold is looked at again."""
    for attempt in range(3):
        try:
            with transaction.atomic(), fences.told():
                lease.renew()
                return _take(RetentionRun.objects.get(pk=lease.id), category, size)
        except (SubjectFenced, Held):
            if attempt == 2:
                raise
    return True


def _take(run: RetentionRun, category: TableCategory, size: int) -> bool:
    policy = _policy(run)
    age = category.ages[policy.age_basis]
    # Until the commit no hold can be placed: what is free now stays free.
    holds.enter(tenant_id=run.tenant_id)
    rows = selection.eligible(policy, category, run.cutoff)
    page = list(
        rows.filter(selection.after_cursor(category, age, _cursor(run))).order_by(age, "pk").values_list(age, "pk")[:size]
    )
    if not page:
        return False
    ids = [key for _, key in page]
    # What holds for a row is looked at again under its lock; a row that somebody else has is left for the next run.
    free = list(rows.filter(pk__in=ids).select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True))
    act = groups.anonymise if policy.action == RetentionPolicy.Action.ANONYMISE else groups.delete
    if policy.action == RetentionPolicy.Action.ARCHIVE_THEN_DELETE:
        act = partial(_archive_and_delete, run)
    done = act(category=category.key, tenant_id=run.tenant_id, ids=free)
    connection.check_constraints()
    tally = Tally(**{**Tally().as_json(), **run.counts})
    tally.add(len(free), done, len(ids) - len(free))
    last_age, last_key = page[-1]
    RetentionRun.objects.filter(pk=run.pk).update(
        counts=tally.as_json(), cursor=f"{last_age.isoformat()}|{last_key}"
    )
    return True


def _archive_and_delete(run: RetentionRun, *, category: str, tenant_id: UUID, ids: list[UUID]) -> dict[str, tuple[int, int]]:
    """Only what the archive has acknowledged is gone when the batch commits."""
    groups.rehome(category=category, tenant_id=tenant_id, ids=ids)
    kept = archiving.keep(run=run, category=category, ids=ids)
    done = groups.delete(category=category, tenant_id=tenant_id, ids=ids)
    if kept != {key: rows for key, (rows, _size) in done.items() if rows}:
        raise archiving.ArchiveDiffers
    return done


def _count(lease: jobs.Lease, run: RetentionRun, policy: RetentionPolicy, category: TableCategory) -> None:
    """A dry run: the same rows, only counted."""
    rows, size = selection.measure(category, selection.eligible(policy, category, run.cutoff))
    skipped = _positive(selection.excluded(policy, category, run.cutoff))
    _end(lease, State.COMPLETED, counts={"would_delete": rows, "bytes": size, "deleted": 0, "skipped": skipped})


@transaction.atomic
def _end(lease: jobs.Lease, state: str, **changes: Any) -> None:
    lease.release(state=state, ended_at=clock.ClockTime(), **changes)
    run = RetentionRun.objects.get(pk=lease.id)
    action = "retention_run.completed" if state == State.COMPLETED else "retention_run.failed"
    if state == State.FAILED and (failures := failures_of(run)) >= ALARM_AFTER:
        log.error("retention_alarm", policy=str(run.policy_id), failures=failures, code=(run.failure or {}).get("code", ""))
    audit.record(
        action, by=system(run.tenant_id), object_type="retention_run", object_ref=run.id, policy=run.policy_id,
        dry_run=run.dry_run, rows=run.counts.get("rows", 0), code=(run.failure or {}).get("code", ""),
    )  # fmt: skip


def failures_of(run: RetentionRun) -> int:
    """How many runs of the policy have failed in a row, up to this one."""
    ended = RetentionRun.objects.filter(policy_id=run.policy_id, state__in=(State.COMPLETED, State.FAILED), id__lte=run.id)
    states = ended.order_by("-id").values_list("state", flat=True)[:100]
    return len(list(takewhile(lambda state: state == State.FAILED, states)))


def _fail(lease: jobs.Lease, message: str, *, code: str = "error") -> None:
    """Try again later, but not for ever: a run that cannot end is visible as failed."""
    run = RetentionRun.objects.get(pk=lease.id)
    try:
        if run.attempts >= ATTEMPTS:
            _end(lease, State.FAILED, failure={"code": code, "message": message})
        else:
            lease.fail(code=code, message=message, state=State.RUNNING)
    except jobs.LeaseLost:
        log.info("lease_lost", run=str(lease.id))


def _policy(run: RetentionRun) -> RetentionPolicy:
    policy = RetentionPolicy.objects.get(pk=run.policy_id)
    if policy.version != run.policy_version or not policy.enabled:
        raise Stopped("policy_changed", "The policy was changed while it ran. Its next run applies the new one.")
    return policy


def _cursor(run: RetentionRun) -> tuple[datetime, str] | None:
    if not run.cursor:
        return None
    at, _, key = run.cursor.partition("|")
    return datetime.fromisoformat(at), key


def _positive(counts: dict[str, int]) -> dict[str, int]:
    return {reason: rows for reason, rows in counts.items() if rows}
