"""Which rows a retention policy takes: one set of conditions for its preview and its run."""

from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from governance.domain import coverage
from governance.domain.clock import ClockTime
from governance.domain.tables import TableCategory
from governance.models import Fence, RetentionPolicy


def in_scope(policy: RetentionPolicy, category: TableCategory) -> QuerySet:
    """The tenant's rows that this policy is about: of its agent, or of every agent without a policy of its own."""
    rows = category.model._default_manager.filter(**{category.tenant_field: policy.tenant_id})
    if policy.agent:
        return rows.filter(**{category.agent_field: policy.agent})
    if category.agent_field:
        narrower = RetentionPolicy.objects.filter(
            tenant_id=policy.tenant_id, category=policy.category, enabled=True
        ).exclude(agent="")
        rows = rows.exclude(**{f"{category.agent_field}__in": list(narrower.values_list("agent", flat=True))})
    return rows


def past(policy: RetentionPolicy, category: TableCategory, cutoff: datetime) -> QuerySet:
    """Rows in scope whose time has come, whatever else stands in the way."""
    rows = in_scope(policy, category).filter(**{f"{category.ages[policy.age_basis]}__lt": cutoff})
    # Otherwise a run would find the same rows again every day.
    return rows.filter(category.left_to_anonymise()) if policy.action == RetentionPolicy.Action.ANONYMISE else rows


def eligible(policy: RetentionPolicy, category: TableCategory, cutoff: datetime) -> QuerySet:
    """Rows that a run takes."""
    return past(policy, category, cutoff).filter(*conditions(policy, category).values())


def conditions(policy: RetentionPolicy, category: TableCategory) -> dict[str, Q]:
    """What must hold for each row, by the reason that is reported when it does not. A hold comes before everything."""
    fence = Fence.objects.filter(subject_id=OuterRef(category.subject_field), lifted_at=None)
    found = {"held": coverage.not_held(category, policy.tenant_id), **category.eligible, "fenced": Q(~Exists(fence))}
    return {**found, "min_keep": _follows_enough(policy, category)} if policy.min_keep else found


def _follows_enough(policy: RetentionPolicy, category: TableCategory) -> Q:
    """As many rows of the same subject as the policy keeps are newer. Rows without a time are none of the newest, and
    rows of nobody have no subject whose newest they could be.
    """
    age, subject = category.ages[policy.age_basis], category.subject_field
    is_newer = Q(**{f"{age}__gt": OuterRef(age)}) | Q(**{age: OuterRef(age), "pk__gt": OuterRef("pk")})
    newer = in_scope(policy, category).filter(is_newer, **{subject: OuterRef(subject)})
    return Q(**{f"{subject}__isnull": True}) | Q(Exists(newer[policy.min_keep - 1 : policy.min_keep]))


def excluded(policy: RetentionPolicy, category: TableCategory, cutoff: datetime) -> dict[str, int]:
    """Rows past the cut-off that stay, by the first reason that keeps them; and rows without a usable time."""
    age = category.ages[policy.age_basis]
    counts = {"min_keep": 0}
    rows = past(policy, category, cutoff)
    for reason, condition in conditions(policy, category).items():
        all_of_them = rows.count()
        rows = rows.filter(condition)
        counts[reason] = all_of_them - rows.count()
    untimed = Q(**{f"{age}__isnull": True}) | Q(**{f"{age}__gt": ClockTime()})
    counts["null_time"] = in_scope(policy, category).filter(untimed).count()
    return counts


def after_cursor(category: TableCategory, age: str, cursor: tuple[Any, ...] | None) -> Q:
    """Keyset: rows behind the cursor in the order (age, primary key)."""
    if cursor is None:
        return Q()
    at, key = cursor
    # What both halves have in common, said once more: an index cannot start at an OR.
    return Q(**{f"{age}__gte": at}) & (Q(**{f"{age}__gt": at}) | Q(pk__gt=key))


def measure(category: TableCategory, rows: QuerySet) -> tuple[int, int]:
    """How many rows, and their bytes."""
    sql, values = rows.order_by().values("pk").query.sql_with_params()
    primary = connection.ops.quote_name(category.model._meta.pk.column)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*), coalesce(sum({category.size_expression}), 0)::bigint FROM {category.table} t"
            f" WHERE t.{primary} IN ({sql})",
            values,
        )
        return cursor.fetchone()
