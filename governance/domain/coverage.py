"""Which rows a hold covers, as SQL: one set of conditions for previews, erasures, retention and the answer of a hold.

The database's own guard (governance/triggers.py) decides by the same facts, row by row; a test holds the two together.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL

from governance.domain import registry
from governance.domain.category import Category, Scope, Spare
from governance.domain.tables import TableCategory
from governance.models import Hold

Sql = tuple[str, list[Any]]


def in_force(tenant_id: UUID) -> list[Hold]:
    """The tenant's holds that nobody released yet, oldest first."""
    return list(Hold.objects.filter(tenant_id=tenant_id, released_at=None).order_by("id"))


def scope_of(*, tenant_id: UUID, subject_id: UUID) -> Scope:
    """The subject's rows without those that a hold covers now: what an erasure may take.

    While anything is held, what names the subject stays as well, or nobody could find the rest.
    """
    holds = [hold for hold in in_force(tenant_id) if hold.subject_id in (None, subject_id)]
    spared = {category.key: spares for category in registry.categories().values() if (spares := _spares(category, holds))}
    scope = Scope(tenant_id, subject_id, spared)
    last = [category for category in registry.categories().values() if category.is_last]
    if spared and any(registry.get(key).held(scope=scope).rows for key in spared if not registry.get(key).is_last):
        matters = tuple(dict.fromkeys(spare.matter for spares in spared.values() for spare in spares))
        for category in last:
            scope.spared.setdefault(category.key, (Spare(", ".join(matters), "TRUE", ()),))
    return scope


def held_rows(scope: Scope) -> dict[str, int]:
    """How many of the subject's rows the scope spares, by category; only where there are any."""
    found = {key: registry.get(key).held(scope=scope).rows for key in scope.spared}
    return {key: rows for key, rows in found.items() if rows}


def covered(category: Category, hold: Hold, alias: str = "t") -> Sql | None:
    """A condition over `alias` for the rows that the hold covers, and its values. None when there can be none."""
    if category.on_hold == "exempt" or not isinstance(category, TableCategory):
        return None
    if category.covered_by is not None:
        return category.covered_by(hold, alias)
    match hold.scope:
        case Hold.Scope.SUBJECT:
            return f"{alias}.{_quote(category.subject_field)} = %s", [hold.subject_id]
        case Hold.Scope.CATEGORY:
            return ("TRUE", []) if root_of(category).key == hold.root else None
        case Hold.Scope.AGENT:
            agent = _agent(category, alias)
            return (f"{agent} = %s", [hold.agent_id]) if agent else None
        case _:
            rows = "(SELECT row_id FROM governance_heldrow WHERE hold_id = %s)"
            heads = _heads(category, alias)
            return "(" + " OR ".join(f"{head} IN {rows}" for head in heads) + ")", [hold.id] * len(heads)


def not_held(category: TableCategory, tenant_id: UUID) -> Q:
    """A condition on a queryset of the category's model: rows that no hold covers now."""
    parts = [
        found for hold in in_force(tenant_id) if (found := covered(category, hold, category.table)) is not None
    ]
    if not parts:
        return Q()
    sql = " OR ".join(f"({part})" for part, _ in parts)
    return Q(RawSQL(f"({sql}) IS NOT TRUE", [value for _, values in parts for value in values], output_field=BooleanField()))


def root_of(category: Category) -> Category:
    """The category that heads the group: sessions for everything of a conversation."""
    seen = {category.key}
    while category.group_of and category.group_of[0] in registry.categories() and category.group_of[0] not in seen:
        category = registry.get(category.group_of[0])
        seen.add(category.key)
    return category


def head_of(category: TableCategory, alias: str = "t") -> str:
    """SQL for the id that names a row's whole group: its session, or itself where it belongs to none."""
    return f"coalesce({', '.join(reversed(_heads(category, alias)))})"


def _spares(category: Category, holds: Iterable[Hold]) -> tuple[Spare, ...]:
    found = ((hold, covered(category, hold)) for hold in holds)
    return tuple(Spare(hold.matter, part[0], tuple(part[1])) for hold, part in found if part is not None)


def _heads(category: TableCategory, alias: str) -> list[str]:
    """SQL for the ids that a hold may name a row by: its own where that is one column, then its parents', outermost last."""
    primary = category.model._meta.pk.column
    found = [f"{alias}.{_quote(primary)}"] if primary else []
    if not category.group_of:
        return found
    reference, depth = f"{alias}.{_quote(category.group_of[1])}", 0
    parent = registry.get(category.group_of[0])
    while True:
        found.append(reference)
        if not parent.group_of:
            return found
        name, depth = f"above_{depth}", depth + 1
        reference = (
            f"(SELECT {name}.{_quote(parent.group_of[1])} FROM {parent.table} {name}"
            f" WHERE {name}.{_quote(parent.model._meta.pk.column)} = {reference})"
        )
        parent = registry.get(parent.group_of[0])


def _agent(category: TableCategory, alias: str, depth: int = 0) -> str | None:
    """SQL for the id of the agent that a row belongs to: its own column, or its parent's."""
    if any(field.column == "agent_id" for field in category.model._meta.concrete_fields):
        return f"{alias}.agent_id"
    if not category.group_of:
        return None
    parent, name = registry.get(category.group_of[0]), f"owner_{depth}"
    agent = _agent(parent, name, depth + 1)
    if agent is None:
        return None
    return (
        f"(SELECT {agent} FROM {parent.table} {name}"
        f" WHERE {name}.{_quote(parent.model._meta.pk.column)} = {alias}.{_quote(category.group_of[1])})"
    )


def _quote(name: str) -> str:
    return connection.ops.quote_name(name)
