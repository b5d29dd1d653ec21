"""How long a category is kept: policies, what one would take, and the run that takes it.

Every time comes from the database's clock. A cut-off is computed once per run, stored and shown.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Min, QuerySet
from django.db.models.functions import TruncDate

from governance.actors import Actor
from governance.domain import audit, clock, jobs, keeping, registry, selection
from governance.domain.deadlines import fewest_days
from governance.domain.recent import OVER
from governance.domain.snapshots import snapshot
from governance.domain.tables import TableCategory
from governance.errors import Conflict, Forbidden, Invalid, NotFound, VersionConflict
from governance.models import RetentionPolicy, RetentionRun, Tenant

MAX_DAYS, MAX_MONTHS, MAX_KEPT = 36_500, 1_200, 10_000
# How far a preview looks ahead.
COMING = timedelta(days=14)
_EDITABLE = ("age_basis", "days", "months", "min_keep", "action", "enabled")


class NeedsApproval(Conflict):
    """`share`: of the category, 0 to 1."""

    code, title = "needs_approval", "A second person must agree first"

    def __init__(self, share: float):
        super().__init__(
            f"The first run of this policy would take {share:.0%} of its rows. Somebody with the role tenant admin, and not who"
            " set the policy, has to approve it first.",
            share=round(share, 4),
        )


class SelfApproval(Forbidden):
    code, title = "self_approval", "A second person is needed"
    detail = "You set this policy as it is, yourself or through a key of yours. Somebody else must agree to it."


def targets() -> list[TableCategory]:
    """Categories that a policy may name: those with a clock of their own, whose rows have one id."""
    return [
        category
        for category in registry.categories().values()
        if isinstance(category, TableCategory) and category.ages and category.model._meta.pk.column
    ]


@transaction.atomic
def create_policy(
    *, tenant_id: UUID, category: str, agent: str = "", age_basis: str, days: int | None = None, months: int | None = None,
    min_keep: int = 0, action: str = "delete", by: Actor,
) -> RetentionPolicy:  # fmt: skip
    """Keep a category for so many days, or months. For its first week (the tenant's `retention_dry_run_days`) it only counts.

    `agent` narrows it to one agent by name; the narrower policy wins. So many of each subject's newest rows as
    `min_keep` says stay in any case. Raises Invalid by field, also where the tenant keeps the category for longer,
    Conflict when an enabled policy has the same scope.
    """
    by.require("retention.edit")
    if tenant_id != by.tenant_id:
        raise NotFound
    policy = RetentionPolicy(
        tenant_id=tenant_id, category=category, agent=agent, age_basis=age_basis, days=days, months=months,
        min_keep=min_keep, action=action, author=by.ref, author_person=by.person,
    )  # fmt: skip
    _check(policy)
    policy.dry_run_until = _dry_run_end(policy)
    _save(policy, force_insert=True)
    policy.refresh_from_db()
    _record("retention_policy.created", policy, by)
    return policy


@transaction.atomic
def update_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor, **changes: Any) -> RetentionPolicy:
    """Change `age_basis`, `days` or `months`, `min_keep`, `action` or `enabled`. A policy that would now take more runs dry
    again first; what somebody agreed to was the policy as it was.

    Raises VersionConflict when somebody else saved meanwhile.
    """
    by.require("retention.edit")
    if unknown := set(changes) - set(_EDITABLE):
        raise Invalid(errors={name: ["This cannot be changed."] for name in unknown})
    policy = _locked(policy, expected_version, by)
    before = {name: getattr(policy, name) for name in _EDITABLE}
    for name, other in (("days", "months"), ("months", "days")):
        if changes.get(name) is not None:
            changes.setdefault(other, None)
    for name, value in changes.items():
        setattr(policy, name, value)
    changed = sorted(name for name in _EDITABLE if getattr(policy, name) != before[name])
    if not changed:
        return policy
    _check(policy)
    if _is_tighter(policy, before):
        policy.dry_run_until = _dry_run_end(policy)
    policy.author, policy.author_person = by.ref, by.person
    policy.approver = policy.approver_label = ""
    policy.approved_version = policy.approved_at = None
    policy.version += 1
    policy.updated_at = clock.now()
    _save(policy)
    _record("retention_policy.updated", policy, by, fields=changed)
    return policy


@transaction.atomic
def approve_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor) -> RetentionPolicy:
    """Agree to the policy as it is, so that its first run may take a large share of the category.

    Only a person, and not the one who set it. Raises SelfApproval, VersionConflict, MissingPermission for every key.
    """
    by.require("retention.approve")
    policy = _locked(policy, expected_version, by)
    if by.person in (policy.author, policy.author_person):
        raise SelfApproval
    if policy.is_approved:
        return policy
    policy.approver, policy.approver_label = by.ref, by.label
    policy.approved_version, policy.approved_at = policy.version, clock.now()
    _save(policy)
    _record("retention_policy.approved", policy, by)
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
    "excluded": rows by reason, "by_day": [{"day", "rows"}], "coming_by_day": the same of what is due within two weeks,
    "needs_approval", "oldest_overdue_seconds"}. Rows are those of the category itself; what goes along with them is not
    counted.
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
        by_day = _by_day(eligible, policy, category)
        coming = selection.eligible(policy, category, cutoff + COMING).filter(**{f"{category.ages[policy.age_basis]}__gte": cutoff})
        coming_by_day = _by_day(coming, policy, category)
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
        "coming_by_day": coming_by_day,
        "needs_approval": _needs_second_person(policy) and _is_large(policy, rows, everything),
        # How long the oldest of them has been past the cut-off.
        "oldest_overdue_seconds": int((cutoff - oldest).total_seconds()) if oldest else 0,
    }


def _by_day(rows: QuerySet, policy: RetentionPolicy, category: TableCategory) -> list[dict[str, Any]]:
    days = rows.annotate(day=TruncDate(category.ages[policy.age_basis], tzinfo=ZoneInfo(policy.tenant.timezone)))
    counted = days.order_by("day").values("day").annotate(rows=Count("*"))
    return [{"day": entry["day"].isoformat(), "rows": entry["rows"]} for entry in counted]


@transaction.atomic
def run_policy(*, policy: RetentionPolicy, expected_version: int, by: Actor) -> RetentionRun:
    """Start a run now, beside the daily one. Dry while the policy is. Raises VersionConflict, Conflict when it is off
    or running, NeedsApproval when it is the first and takes more than a second person must agree to.
    """
    by.require("retention.run")
    policy = _locked(policy, expected_version, by)
    if not policy.enabled:
        raise Conflict("This policy is switched off.")
    if RetentionRun.objects.filter(policy=policy).exclude(state__in=_ENDED).exists():
        raise Conflict("A run of this policy is under way.")
    now = clock.now()
    if not is_dry(policy, now):
        check_approval(policy, cutoff_of(policy))
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


def cutoff_of(policy: RetentionPolicy, at: datetime | None = None) -> datetime:
    """Rows whose clock shows an earlier time are past their time, `at` some time or now.

    A day is 24 hours. Months are those of the tenant's calendar, and the last day counts whole, as for a deadline: a
    row of 31 January that is kept for a month goes when February is over. What the tenant keeps for longer stays.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT cut.at FROM (SELECT coalesce(%s::timestamptz, clock_timestamp()) AS at) clock, {_CUTOFF} WHERE p.id = %s",
            [at, policy.pk],
        )
        return cursor.fetchone()[0]


def in_force(tenant_id: UUID) -> list[tuple[RetentionPolicy, datetime]]:
    """The tenant's policies that are on and past their trial, each with its cut-off now."""
    policies = RetentionPolicy.objects.raw(
        f"SELECT p.*, cut.at AS cutoff FROM (SELECT clock_timestamp() AS at) clock, {_CUTOFF}"
        " WHERE p.tenant_id = %s AND p.enabled AND (p.dry_run_until IS NULL OR p.dry_run_until <= clock.at) ORDER BY p.id",
        [tenant_id],
    )
    return [(policy, policy.cutoff) for policy in policies]


def check_approval(policy: RetentionPolicy, cutoff: datetime) -> None:
    """Raise NeedsApproval where the policy's first real run would take more than the tenant lets one person decide."""
    if not _needs_second_person(policy):
        return
    category = registry.get(policy.category)
    rows, everything = selection.eligible(policy, category, cutoff).count(), selection.in_scope(policy, category).count()
    if _is_large(policy, rows, everything):
        raise NeedsApproval(rows / everything)


def _needs_second_person(policy: RetentionPolicy) -> bool:
    """A policy that nobody else agreed to, and that has taken nothing yet as it is."""
    real = RetentionRun.objects.filter(policy=policy, policy_version=policy.version, dry_run=False)
    return not policy.is_approved and not real.filter(state=RetentionRun.State.COMPLETED).exists()


def _is_large(policy: RetentionPolicy, rows: int, everything: int) -> bool:
    return rows * 100 > keeping.of(policy.tenant).retention_second_person_percent * everything


def is_dry(policy: RetentionPolicy, now: datetime) -> bool:
    return policy.dry_run_until is not None and policy.dry_run_until > now


_ENDED = (RetentionRun.State.COMPLETED, RetentionRun.State.FAILED)

# A day that begins at a midnight which the clocks pass twice begins the first time: nothing goes early.
_CUTOFF = """
governance_retentionpolicy p
JOIN governance_tenant t ON t.id = p.tenant_id
CROSS JOIN LATERAL (SELECT date_trunc('day', clock.at AT TIME ZONE t.timezone) AS day) today
CROSS JOIN LATERAL (
    SELECT CASE WHEN extract(day FROM today.day) = 1 THEN today.day - p.months * interval '1 month'
                ELSE today.day - interval '1 day' - p.months * interval '1 month' + interval '1 day' END AS day
) kept
CROSS JOIN LATERAL (
    SELECT least(
        coalesce(clock.at - p.days * interval '24 hours', kept.day AT TIME ZONE t.timezone),
        (kept.day - interval '1 hour') AT TIME ZONE t.timezone + interval '1 hour',
        clock.at - coalesce((t.settings -> 'retention_minimum_days' ->> p.category)::int, 0) * interval '24 hours'
    ) AS at
) cut
"""
_SCHEDULE = f"""
INSERT INTO governance_retentionrun
    (id, tenant_id, policy_id, scheduled_for, policy_version, dry_run, cutoff, state, cursor, counts, lease_no, attempts,
     started_by)
SELECT uuidv7(), p.tenant_id, p.id, slot.at, p.version, coalesce(p.dry_run_until > now(), false),
       cut.at, 'queued', '', '{{}}', 0, 0, 'schedule'
FROM (SELECT now() AS at) clock, {_CUTOFF}
CROSS JOIN LATERAL (SELECT today.day AT TIME ZONE t.timezone AS at) slot
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
    errors |= _wrong_length(policy) or (_too_short(policy, category) if category else {})
    if not _is_number(policy.min_keep, 0, MAX_KEPT):
        errors["min_keep"] = [f"Choose 0 to {MAX_KEPT:,} rows."]
    if not isinstance(policy.enabled, bool):
        errors["enabled"] = ["Choose true or false."]
    if errors:
        raise Invalid("The policy cannot be kept like this.", errors=errors)


def _wrong_length(policy: RetentionPolicy) -> dict[str, list[str]]:
    if policy.months is None:
        return {} if _is_number(policy.days, 1, MAX_DAYS) else {"days": [f"Choose 1 to {MAX_DAYS} days."]}
    if policy.days is not None:
        return {"months": ["Give days or months, not both."]}
    return {} if _is_number(policy.months, 1, MAX_MONTHS) else {"months": [f"Choose 1 to {MAX_MONTHS} months."]}


def _too_short(policy: RetentionPolicy, category: TableCategory) -> dict[str, list[str]]:
    """A category that has to be kept for longer than the policy would keep it."""
    least = keeping.of(Tenant.objects.get(pk=policy.tenant_id)).retention_minimum_days.get(category.key, 0)
    length = policy.days if policy.months is None else fewest_days(policy.months)
    if length >= least:
        return {}
    sentence = f"{category.title} must be kept for at least {least:,} days, says the tenant; {policy.length} would be shorter."
    return {"days" if policy.months is None else "months": [sentence]}


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_tighter(policy: RetentionPolicy, before: dict[str, Any]) -> bool:
    """Whether the policy may now take rows that it did not take before. Days for months, or the reverse, may."""
    if (policy.months is None) != (before["months"] is None):
        return True
    is_shorter = policy.days < before["days"] if policy.months is None else policy.months < before["months"]
    return (
        is_shorter
        or policy.min_keep < before["min_keep"]
        or policy.age_basis != before["age_basis"]
        or (policy.enabled and not before["enabled"])
        or (policy.action != before["action"] and before["action"] == RetentionPolicy.Action.ANONYMISE)
    )


def _dry_run_end(policy: RetentionPolicy) -> datetime | None:
    days = keeping.of(Tenant.objects.get(pk=policy.tenant_id)).retention_dry_run_days
    return clock.now() + timedelta(days=days) if days else None


def _save(policy: RetentionPolicy, *, force_insert: bool = False) -> None:
    try:
        with transaction.atomic():
            policy.save(force_insert=force_insert)
    except IntegrityError:
        raise Conflict("An enabled policy has the same category and agent already. Change that one.") from None
    OVER.forget(policy.tenant_id)


def _record(action: str, policy: RetentionPolicy, by: Actor, **payload: Any) -> None:
    audit.record(
        action, by=by, object_type="retention_policy", object_ref=policy.id, object_label=policy.category,
        version=policy.version, days=policy.days, months=policy.months, min_keep=policy.min_keep, policy_action=policy.action,
        **payload,
    )  # fmt: skip

