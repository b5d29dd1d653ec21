"""How long a category is kept: policies, what one would take, and the run that takes it.

Every time comes from the database's clock. A cut-off is computed once per run, stored and shown.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Min
from django.db.models.functions import TruncDate

from governance.actors import Actor
from governance.domain import audit, clock, jobs, registry, selection
from governance.domain.snapshots import snapshot
from governance.domain.tables import TableCategory
from governance.errors import Conflict, Invalid, NotFound, VersionConflict
from governance.models import RetentionPolicy, RetentionRun, Tenant

MAX_DAYS = 36_500
DRY_RUN_DAYS = 7
_EDITABLE = ("age_basis", "days", "action", "enabled")


def targets() -> list[TableCategory]:
    """Categories that a policy may name: those with a clock of their own, whose rows have one id."""
    return [
        category
        for category in registry.categories().values()
        if isinstance(category, TableCategory) and category.ages and category.model._meta.pk.column
    ]


@transaction.atomic
def create_policy(
    *, tenant_id: UUID, category: str, agent: str = "", age_basis: str, days: int, action: str = "delete", by: Actor
) -> RetentionPolicy:
    """Keep a category for so many days. For its first week (the tenant's `retention_dry_run_days`) it only counts.

    `agent` narrows it to one agent by name; the narrower policy wins. Raises Invalid by field, Conflict when an
    enabled policy has the same scope.
    """
    by.require("retention.edit")
    if tenant_id != by.tenant_id:
        raise NotFound
    policy = RetentionPolicy(
        tenant_id=tenant_id, category=category, agent=agent, age_basis=age_basis, days=days, action=action
    )
    _check(policy)
    policy.dry_run_until = _dry_run_end(tenant_id)
    _save(policy, force_insert=True)
    policy.refresh_from_db()
    _record("retention_policy.created", policy, by)
    return policy


@transaction.atomic
def update_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor, **changes: Any) -> RetentionPolicy:
    """Change `age_basis`, `days`, `action` or `enabled`. A policy that would now take more runs dry again first.

    Raises VersionConflict when somebody else saved meanwhile.
    """
    by.require("retention.edit")
    if unknown := set(changes) - set(_EDITABLE):
        raise Invalid(errors={name: ["This cannot be changed."] for name in unknown})
    policy = _locked(policy, expected_version, by)
    before = {name: getattr(policy, name) for name in _EDITABLE}
    for name, value in changes.items():
        setattr(policy, name, value)
    changed = sorted(name for name in _EDITABLE if getattr(policy, name) != before[name])
    if not changed:
        return policy
    _check(policy)
    if _is_tighter(policy, before):
        policy.dry_run_until = _dry_run_end(policy.tenant_id)
    policy.version += 1
    policy.updated_at = clock.now()
    _save(policy)
    _record("retention_policy.updated", policy, by, fields=changed)
    return policy


@transaction.atomic
def delete_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor) -> None:
    """End a policy; a run under way stops before its next batch, and the history of its runs stays.

    Raises VersionConflict.
    """
    by.require("retention.edit")
    policy = _locked(policy, expected_version, by)
    policy.enabled, policy.deleted_at, policy.version = False, clock.now(), policy.version + 1
    _save(policy)
    _record("retention_policy.deleted", policy, by)


def preview_policy(*, policy: RetentionPolicy, by: Actor) -> dict[str, Any]:
    """What a run would take now: {"policy_version", "cutoff", "eligible": {"rows", "bytes"}, "share_of_table",
    "excluded": rows by reason, "by_day": [{"day", "rows"}], "needs_approval", "oldest_overdue_seconds"}. Rows are those of the category itself;
    what goes along with them is not counted.
    """
    by.require("retention.read")
    policy = (
        RetentionPolicy.objects.select_related("tenant")
        .filter(pk=policy.pk, tenant_id=by.tenant_id, deleted_at=None)
        .first()
    )
    if policy is None:
        raise NotFound
    category = registry.get(policy.category)
    with snapshot():
        cutoff = cutoff_of(policy)
        eligible = selection.eligible(policy, category, cutoff)
        rows, size = selection.measure(category, eligible)
        days = eligible.annotate(day=TruncDate(category.ages[policy.age_basis], tzinfo=ZoneInfo(policy.tenant.timezone)))
        by_day = [
            {"day": entry["day"].isoformat(), "rows": entry["rows"]}
            for entry in days.order_by("day").values("day").annotate(rows=Count("*"))
        ]
        excluded = selection.excluded(policy, category, cutoff)
        oldest = eligible.aggregate(at=Min(category.ages[policy.age_basis]))["at"]
        everything = selection.in_scope(policy, category).count()
    with transaction.atomic():
        _record("retention_policy.previewed", policy, by, rows=rows)
    return {
        "policy_version": policy.version,
        "cutoff": cutoff.isoformat().replace("+00:00", "Z"),
        "eligible": {"rows": rows, "bytes": size},
        "share_of_table": round(rows / everything, 4) if everything else 0,
        "excluded": excluded,
        "by_day": by_day,
        # No rule asks for a second person yet.
        "needs_approval": False,
        # How long the oldest of them has been past the cut-off.
        "oldest_overdue_seconds": int((cutoff - oldest).total_seconds()) if oldest else 0,
    }


@transaction.atomic
def run_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor) -> RetentionRun:
    """Start a run now, beside the daily one. Dry while the policy is. Raises VersionConflict, Conflict when it is off
    or running.
    """
    by.require("retention.run")
    policy = _locked(policy, expected_version, by)
    if not policy.enabled:
        raise Conflict("This policy is switched off.")
    if RetentionRun.objects.filter(policy=policy).exclude(state__in=_ENDED).exists():
        raise Conflict("A run of this policy is under way.")
    now = clock.now()
    run = RetentionRun.objects.create(
        tenant_id=policy.tenant_id,
        policy=policy,
        scheduled_for=now,
        policy_version=policy.version,
        dry_run=is_dry(policy, now),
        cutoff=cutoff_of(policy),
        started_by=by.label,
    )
    audit.record(
        "retention_run.started", by=by, object_type="retention_run", object_ref=run.id, policy=policy.id,
        category=policy.category, cutoff=run.cutoff, dry_run=run.dry_run,
    )  # fmt: skip
    jobs.enqueue("governance.work_retention", run.id)
    return run


def schedule_due() -> int:
    """Insert today's run of every enabled policy, in the tenant's zone, unless it is there. Returns how many are new.

    One statement with ON CONFLICT DO NOTHING on (policy, slot): four schedulers at once make one run. A policy's
    first slot is the midnight after it was made.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SCHEDULE)
        return cursor.rowcount


def cutoff_of(policy: RetentionPolicy) -> datetime:
    """Rows whose clock shows an earlier time are past their days. A day is 24 hours."""
    return clock.now() - timedelta(days=policy.days)


def is_dry(policy: RetentionPolicy, now: datetime) -> bool:
    return policy.dry_run_until is not None and policy.dry_run_until > now


_ENDED = (RetentionRun.State.COMPLETED, RetentionRun.State.FAILED)

_SCHEDULE = """
INSERT INTO governance_retentionrun
    (id, tenant_id, policy_id, scheduled_for, policy_version, dry_run, cutoff, state, cursor, counts, lease_no, attempts,
     started_by)
SELECT uuidv7(), p.tenant_id, p.id, slot.at, p.version, coalesce(p.dry_run_until > now(), false),
       now() - p.days * interval '24 hours', 'queued', '', '{}', 0, 0, 'schedule'
FROM governance_retentionpolicy p
JOIN governance_tenant t ON t.id = p.tenant_id
CROSS JOIN LATERAL (SELECT date_trunc('day', now() AT TIME ZONE t.timezone) AT TIME ZONE t.timezone AS at) slot
WHERE p.enabled AND p.created_at < slot.at
ON CONFLICT (policy_id, scheduled_for) DO NOTHING
"""


def _locked(policy: RetentionPolicy, expected_version: int, by: Actor) -> RetentionPolicy:
    current = (
        RetentionPolicy.objects.select_for_update()
        .filter(pk=policy.pk, tenant_id=by.tenant_id, deleted_at=None)
        .first()
    )
    if current is None:
        raise NotFound
    if current.version != expected_version:
        raise VersionConflict(current=as_json(current))
    return current


def as_json(policy: RetentionPolicy) -> dict[str, Any]:
    """The editable part of a policy, for a conflict's answer."""
    return {
        "version": policy.version,
        "category": policy.category,
        "agent": policy.agent,
        **{name: getattr(policy, name) for name in _EDITABLE},
    }


def _check(policy: RetentionPolicy) -> None:
    errors: dict[str, list[str]] = {}
    known = {category.key: category for category in targets()}
    category = known.get(policy.category)
    if category is None:
        errors["category"] = [f"Choose one of {', '.join(sorted(known))}."]
    else:
        if policy.age_basis not in category.ages:
            errors["age_basis"] = [f"{category.title} can be aged by {', '.join(category.ages)}."]
        if policy.agent and not category.agent_field:
            errors["agent"] = [f"{category.title} cannot be narrowed to one agent."]
        if policy.action == "anonymise" and category.anonymise is None:
            errors["action"] = [f"{category.title} cannot be anonymised, only deleted."]
    if policy.action not in RetentionPolicy.Action.values:
        errors["action"] = [f"Choose one of {', '.join(RetentionPolicy.Action.values)}."]
    if isinstance(policy.days, bool) or not isinstance(policy.days, int) or not 1 <= policy.days <= MAX_DAYS:
        errors["days"] = [f"Choose 1 to {MAX_DAYS} days."]
    if not isinstance(policy.enabled, bool):
        errors["enabled"] = ["Choose true or false."]
    if errors:
        raise Invalid("The policy cannot be kept like this.", errors=errors)


def _is_tighter(policy: RetentionPolicy, before: dict[str, Any]) -> bool:
    """Whether the policy may now take rows that it did not take before."""
    return (
        policy.days < before["days"]
        or policy.age_basis != before["age_basis"]
        or (policy.enabled and not before["enabled"])
        or (policy.action != before["action"] and before["action"] == RetentionPolicy.Action.ANONYMISE)
    )


def _dry_run_end(tenant_id: UUID) -> datetime | None:
    days = Tenant.objects.get(pk=tenant_id).settings.get("retention_dry_run_days", DRY_RUN_DAYS)
    return clock.now() + timedelta(days=days) if days else None


def _save(policy: RetentionPolicy, *, force_insert: bool = False) -> None:
    try:
        with transaction.atomic():
            policy.save(force_insert=force_insert)
    except IntegrityError:
        raise Conflict("An enabled policy has the same category and agent already. Change that one.") from None


def _record(action: str, policy: RetentionPolicy, by: Actor, **payload: Any) -> None:
    audit.record(
        action, by=by, object_type="retention_policy", object_ref=policy.id, object_label=policy.category,
        version=policy.version, days=policy.days, policy_action=policy.action, **payload,
    )  # fmt: skip

