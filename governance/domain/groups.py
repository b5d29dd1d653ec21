"""Row groups: the rows that go together, as a session with its items, runs and their events.

Retention and ordinary deletes use this; both take whole groups, leaf first, set-based.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import connection

from governance.domain import registry
from governance.domain.category import Scope
from governance.domain.tables import TableCategory


def members_of(root: str) -> list[TableCategory]:
    """The categories that go along with rows of `root`, directly or through another, in the order of erasure."""
    return [category for category in registry.erase_order() if category.key != root and root in _ancestors(category)]


def delete(*, category: str, tenant_id: UUID, ids: list[UUID]) -> dict[str, tuple[int, int]]:
    """Delete rows of a category by primary key, with all that goes along. Rows and bytes by category.

    In the caller's transaction, which holds the rows' locks if somebody else could write below them. The guard
    refuses rows of fenced subjects: see `fences.told`.
    """
    return _apply(category, tenant_id, ids, anonymise=False)


def rehome(*, category: str, tenant_id: UUID, ids: list[UUID]) -> None:
    """Move what rows that stay share with these out of them. `delete` does it first; doing it twice is harmless."""
    registry.get(category).rehome(tenant_id=tenant_id, ids=ids)


def anonymise(*, category: str, tenant_id: UUID, ids: list[UUID]) -> dict[str, tuple[int, int]]:
    """Clear what names a person, and keep the totals. Members of the group that cannot be anonymised are deleted."""
    return _apply(category, tenant_id, ids, anonymise=True)


def rows(*, category: str, tenant_id: UUID, ids: list[UUID], subject_id: UUID | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """One person's rows, or nobody's, of what `delete` would take: (category, row), every column, leaf first."""
    for member, where, values in _conditions(category, tenant_id, ids):
        owner = f"t.{_quote(member.subject_field)} IS NOT DISTINCT FROM %s"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT to_jsonb(t) FROM {member.table} t WHERE {where} AND {owner}", [*values, subject_id])
            for (row,) in cursor:
                yield member.key, member.whole(row if isinstance(row, dict) else json.loads(row))


def owners(*, category: str, tenant_id: UUID, ids: list[UUID]) -> list[UUID | None]:
    """Whose rows `delete` would take; None for nobody's."""
    found: set[UUID | None] = set()
    for member, where, values in _conditions(category, tenant_id, ids):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT DISTINCT t.{_quote(member.subject_field)} FROM {member.table} t WHERE {where}", values)
            found |= {owner for (owner,) in cursor.fetchall()}
    return sorted(found, key=str)


def move(*, category: str, tenant_id: UUID, ids: list[UUID], target: Scope) -> dict[str, int]:
    """Give rows of a category, with all that goes along, to another subject. Rows by category."""
    conditions = _conditions(category, tenant_id, ids)
    return {member.key: member.move_where(where, values, target) for member, where, values in conditions}


def assign(*, category: str, tenant_id: UUID, ids: list[UUID], target: Scope) -> dict[str, int]:
    """Give rows of nobody, with all of nobody's that goes along, to a subject. Rows by category."""
    return {
        member.key: member.move_where(f"{where} AND t.{_quote(member.subject_field)} IS NULL", values, target)
        for member, where, values in _conditions(category, tenant_id, ids)
    }


def _apply(key: str, tenant_id: UUID, ids: list[UUID], *, anonymise: bool) -> dict[str, tuple[int, int]]:
    root = registry.get(key)
    done = {}
    if anonymise and root.anonymise is None:
        raise ValueError(f"{key} cannot be anonymised.")
    if not anonymise:
        rehome(category=key, tenant_id=tenant_id, ids=ids)
    for category, where, values in _conditions(key, tenant_id, ids):
        act = category.anonymise_where if anonymise and category.anonymise is not None else category.delete_where
        done[category.key] = act(where, values)
    return done


def _conditions(key: str, tenant_id: UUID, ids: list[UUID]) -> Iterator[tuple[TableCategory, str, list[Any]]]:
    """Each category of the group with a condition over alias `t` for its rows, and its values. Leaf first."""
    root = registry.get(key)
    for category in [*members_of(key), root]:
        where, values = _belonging(category, root, ids)
        yield category, f"t.{_quote(category.tenant_field)} = %s AND {where}", [tenant_id, *values]


def _ancestors(category: registry.Category) -> list[str]:
    found = []
    while category.group_of and category.group_of[0] not in found:
        found.append(category.group_of[0])
        if category.group_of[0] not in registry.categories():
            break
        category = registry.get(category.group_of[0])
    return found


def _belonging(category: TableCategory, root: TableCategory, ids: list[UUID]) -> tuple[str, list[Any]]:
    """A condition over alias `t`: the rows of `category` that hang from the root rows `ids`."""
    if category is root:
        return f"t.{_primary(root)} = ANY(%s)", [ids]
    parent_key, column = category.group_of
    parent = registry.get(parent_key)
    if parent is root:
        return f"t.{_quote(column)} = ANY(%s)", [ids]
    where, values = _belonging(parent, root, ids)
    inner = f"SELECT t.{_primary(parent)} FROM {parent.table} t WHERE {where}"
    return f"t.{_quote(column)} IN ({inner})", values


def _primary(category: TableCategory) -> str:
    return _quote(category.model._meta.pk.column)


def _quote(name: str) -> str:
    return connection.ops.quote_name(name)
