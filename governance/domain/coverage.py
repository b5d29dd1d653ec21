"""Which rows a hold covers, as SQL: one set of conditions for previews, erasures, retention and the answer of a hold.

The database's own guard (governance/triggers.py) decides by the same facts, row by row; a test holds the two together.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Expression, F, Q

from governance.domain import registry
from governance.domain.category import Category, Held, Scope, Spare
from governance.domain.tables import TableCategory
from governance.models import Hold

Sql = tuple[str, list[Any]]


def in_force(tenant_id: UUID) -> list[Hold]:
    """The tenant's holds that nobody released yet, oldest first."""
    return list(Hold.objects.filter(tenant_id=tenant_id, released_at=None).order_by("id"))


def spare(scope: Scope, *, since: datetime | None = None, only: Hold | None = None) -> Scope:
    """The scope without the rows that a hold covers: what an erasure may take.

    With `since`, holds that were released later than that still count: a plan of that time did not know their rows.
    With `only`, no other hold counts.
    """
    force = Q(released_at=None) | Q(released_at__gt=since) if since else Q(released_at=None)
    holds = Hold.objects.filter(force, tenant_id=scope.tenant_id).order_by("id")
    if not scope.also:
        # Other subjects' rows are only in it where they were derived from this one's.
        holds = holds.filter(Q(subject_id=None) | Q(subject_id=scope.subject_id))
    holds = list(holds.filter(pk=only.pk) if only else holds)
    spared = {key: spares for key, category in registry.categories().items() if (spares := _spares(category, holds))}
    return replace(scope, spared=spared)


def with_names(scope: Scope) -> Scope:
    """The scope, sparing what names the subject while anything else is held: nobody could find the rest without it."""
    kept = [
        spare for key, spares in scope.spared.items() if not registry.get(key).is_last and _held(scope, key).rows for spare in spares
    ]
    if not kept:
        return scope
    names = {
        key: (replace(kept[0], sql="TRUE", values=()),)
        for key, category in registry.categories().items()
        if category.is_last and category.on_hold != "exempt"
    }
    return replace(scope, spared={**scope.spared, **names})


def held_among(tenant_id: UUID, key: str, ids: Iterable[str]) -> set[str]:
    """Those of a category's rows, by key, that a hold covers now."""
    category = registry.get(key)
    spares, ids = _spares(category, in_force(tenant_id)), sorted(ids)
    if not spares or not ids:
        return set()
    any_of_them = "(" + " OR ".join(f"({spare.sql}) IS TRUE" for spare in spares) + ")"
    return category.alive(tenant_id=tenant_id, ids=ids, covered=(any_of_them, [value for spare in spares for value in spare.values]))


def held_of(scope: Scope) -> dict[str, Held]:
    """What the scope spares, by category; only where there is something."""
    found = {key: _held(scope, key) for key in scope.spared}
    return {key: held for key, held in found.items() if held.rows}


def _held(scope: Scope, key: str) -> Held:
    return registry.get(key).held(scope=scope)


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
    holds = [hold for hold in in_force(tenant_id) if covered(category, hold) is not None]
    return Q(_NotHeld(category, holds)) if holds else Q()


class _NotHeld(Expression):
    """`covered` for a row of a queryset, by whatever name the query has for its table: inside another query it is not its own."""

    def __init__(self, category: TableCategory, holds: list[Hold]):
        super().__init__(output_field=BooleanField())
        self._category, self._holds, self._row = category, holds, F("pk")

    def get_source_expressions(self) -> list[Any]:
        return [self._row]

    def set_source_expressions(self, expressions: list[Any]) -> None:
        (self._row,) = expressions

    def as_sql(self, compiler: Any, connection: Any) -> Sql:
        parts = [covered(self._category, hold, compiler.quote_name_unless_alias(self._row.alias)) for hold in self._holds]
        any_of_them = " OR ".join(f"({sql})" for sql, _ in parts)
        return f"({any_of_them}) IS NOT TRUE", [value for _, values in parts for value in values]


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
    return tuple(_spare(hold, part) for hold, part in found if part is not None)


def _spare(hold: Hold, part: Sql) -> Spare:
    until = hold.until.isoformat().replace("+00:00", "Z") if hold.until else None
    return Spare(hold.matter, hold.reason, until, part[0], tuple(part[1]))


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
