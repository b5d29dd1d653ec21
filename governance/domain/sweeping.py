"""What happens by itself, every 15 s."""

from datetime import timedelta

from django.db.models import Q

from governance.domain import (
    anchors,
    clock,
    clocks,
    erasure,
    exports,
    holds,
    identities,
    jobs,
    ledger,
    lineage,
    previews,
    purge,
    requests,
    retention,
    shredding,
)
from governance.models import Fence, RetentionRun, SubjectRequest

# How long the fence of an erasure that met new data waits for the second look, and previews keep their rows' bounds.
DRIFT_WAIT = timedelta(hours=24)
PREVIEW_LIFE = timedelta(hours=24)
State = SubjectRequest.State


def sweep() -> dict[str, int]:
    """One round. Returns what it did, by kind. Safe to run in several processes at once."""
    retention.schedule_due()
    return {
        "requests": _take_up(SubjectRequest, "governance.work_request", erasure.WORKING),
        "retention": _take_up(
            RetentionRun, "governance.work_retention", (RetentionRun.State.QUEUED, RetentionRun.State.RUNNING)
        ),
        "fences": _lift_waiting_fences(),
        "approvals": requests.expire_approvals(),
        "holds": holds.expire(),
        "alarms": clocks.raise_alarms(),
        "previews": _forget_old_previews(),
        "archives": exports.expire(),
        "files": exports.tidy(),
        "derived": lineage.sweep(),
        "rehashed": identities.rehash(),
        "ledger": ledger.deliver_waiting(),
        "ledger_expired": _end_ledger(),
        "purges": _start_purging(),
        "subject_keys": shredding.sweep(),
        "checkpoints": anchors.checkpoint_due(),
    }


def _take_up(model, task: str, states: tuple[str, ...]) -> int:
    """Tell the workers about jobs that nobody holds: new ones, and those whose lease ran out."""
    free = model.objects.filter(Q(lease_until=None) | Q(lease_until__lte=clock.ClockTime()), state__in=states)
    ids = list(free.order_by("id").values_list("id", flat=True)[:200])
    for row_id in ids:
        jobs.enqueue(task, row_id)
    return len(ids)


def _end_ledger() -> int:
    """A ledger that cannot be reached is told elsewhere; what is old there goes when it is back."""
    try:
        return ledger.expire()
    except (ledger.LedgerUnreachable, ledger.LedgerDamaged):
        return 0


def _start_purging() -> int:
    if not purge.is_due():
        return 0
    jobs.enqueue("governance.purge")
    return 1


def _lift_waiting_fences() -> int:
    """Fences of requests that were called off, or that wait too long for somebody to look at what changed."""
    waiting = SubjectRequest.objects.filter(
        Q(state=State.CANCELLED)
        | Q(state=State.PREVIEWED, follows=None, drift__isnull=False, progress_at__lte=clock.after(-DRIFT_WAIT)),
        pk__in=Fence.objects.filter(mode=Fence.Mode.ERASE, lifted_at=None).values("request_id"),
    )
    count = 0
    for request in waiting[:100]:
        requests.lift_fence_of(request)
        count += 1
    return count


def _forget_old_previews() -> int:
    old = SubjectRequest.objects.filter(
        state=State.PREVIEWED, token_expires_at__lte=clock.after(-PREVIEW_LIFE)
    )
    stale = list(old[:100])
    previews.wipe(stale)
    return len(stale)
