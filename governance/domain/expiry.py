"""What a retention policy has ended is not read any more, also before a run gets to delete it.

`over` and `left` divide rows by the one predicate of retention (`selection.eligible`): a row is over when the next run of a
policy would take it, or take what it goes along with, as the events of a run go with its session. So what a hold covers, a
fence, a running turn, a waiting approval or the newest rows that a policy leaves are read on. A policy that is on trial, or
that a second person has to agree to first, ends nothing.

What is over is still there for exports, previews, erasures and holds, until it is deleted.

A process goes by what it has read of a tenant's policies and holds at most 15 s ago. Where there is no policy, queries
stay exactly as they are.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from governance.domain import registry, retention, selection
from governance.domain.recent import OVER
from governance.domain.tables import TableCategory
from governance.models import RetentionPolicy

Row = TypeVar("Row", bound=Model)

# Counting whether a second person must agree reads the whole category: not more often than this.
_AGREED_SECONDS = 300.0
_agreed: dict[tuple[UUID, int], tuple[float, bool]] = {}


@dataclass(frozen=True, slots=True)
class Ended:
    """What one policy has ended: `rows` are those that its run would take."""

    age: str
    cutoff: datetime
    rows: QuerySet


def left(rows: QuerySet[Row], *, tenant_id: UUID) -> QuerySet[Row]:
    """Rows of one tenant without those that are over. `rows` are of a registered category, and no union."""
    is_over = _is_over(rows.model, _known(tenant_id))
    return rows if is_over is None else rows.exclude(is_over)


def over(rows: QuerySet[Row], *, tenant_id: UUID) -> QuerySet[Row]:
    """Those of the rows that are over."""
    is_over = _is_over(rows.model, _known(tenant_id))
    return rows.none() if is_over is None else rows.filter(is_over)


def is_over(row: Model) -> bool:
    """Whether a row is over. A row that is too young for every policy is not asked about again."""
    ended = _known(row.tenant_id)
    if not ended:
        return False
    category = _category(type(row))
    own = any((at := getattr(row, one.age)) is not None and at < one.cutoff for one in ended.get(category.key, ()))
    above = any(parent.key in ended for parent, _ in _chain(category) if parent is not category)
    return (own or above) and over(type(row)._default_manager.filter(pk=row.pk), tenant_id=row.tenant_id).exists()


def _is_over(model: type[Model], ended: dict[str, list[Ended]]) -> Q | None:
    """A condition over rows of the model; None where no policy is about them."""
    found = Q()
    for category, path in _chain(_category(model)) if ended else ():
        for one in ended.get(category.key, ()):
            is_taken = Q(Exists(one.rows.filter(pk=OuterRef(path))))
            # By its own age first: else the database would look for all that is over before it reads one page.
            found |= Q(**{f"{one.age}__lt": one.cutoff}) & is_taken if path == "pk" else is_taken
    return found or None


def _chain(category: TableCategory) -> Iterator[tuple[TableCategory, str]]:
    """The category and those that its rows go along with, each with the lookup that leads from a row to it."""
    path, prefix, seen = "pk", "", set()
    while True:
        yield category, path
        seen.add(category.key)
        if not category.group_of or category.group_of[0] not in registry.categories() or category.group_of[0] in seen:
            return
        field = next(field for field in category.model._meta.concrete_fields if field.column == category.group_of[1])
        path, prefix = f"{prefix}{field.attname}", f"{prefix}{field.name}__"
        category = registry.get(category.group_of[0])


def _category(model: type[Model]) -> TableCategory:
    return next(found for found in registry.categories().values() if isinstance(found, TableCategory) and found.model is model)


def _known(tenant_id: UUID) -> dict[str, list[Ended]]:
    return OVER.get(tenant_id, lambda: _read(tenant_id))


def _read(tenant_id: UUID) -> dict[str, list[Ended]]:
    """What the tenant's policies have ended, by category. One query where there is none."""
    found: dict[str, list[Ended]] = {}
    targets = {category.key: category for category in retention.targets()}
    for policy, cutoff in retention.in_force(tenant_id):
        category = targets.get(policy.category)
        if category is not None and _is_agreed(policy, cutoff):
            rows = selection.eligible(policy, category, cutoff)
            found.setdefault(category.key, []).append(Ended(category.ages[policy.age_basis], cutoff, rows))
    return found


def _is_agreed(policy: RetentionPolicy, cutoff: datetime) -> bool:
    """Whether its next run may take what it finds: what nobody may delete yet is not hidden either."""
    if policy.is_approved:
        return True
    known = _agreed.get((policy.pk, policy.version))
    if known is None or time.monotonic() - known[0] > _AGREED_SECONDS:
        if len(_agreed) >= 10_000:
            _agreed.clear()
        known = _agreed[policy.pk, policy.version] = (time.monotonic(), _may_run(policy, cutoff))
    return known[1]


def _may_run(policy: RetentionPolicy, cutoff: datetime) -> bool:
    try:
        retention.check_approval(policy, cutoff)
    except retention.NeedsApproval:
        return False
    return True
