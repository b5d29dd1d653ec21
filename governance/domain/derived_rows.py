"""The rows of a table by their keys, set-based: what merges, closures, regenerations and sweeps do with them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connection, models

from governance.domain.category import Scope


class DerivedRows:
    """Part of TableCategory. Keys are the ordering columns joined by colons, as previews show them."""

    key: str
    table: str
    model: type[models.Model]
    order: tuple[str, ...]
    tenant_field: str
    subject_field: str
    hidden: str
    _merge: Callable[..., None] | None
    _family: Callable[..., list[UUID]] | None
    _regenerate: Callable[..., None] | None

    def move(self, *, source: Scope, target: Scope) -> int:
        """`merge` makes room first, where both subjects may have what only one can."""
        if self._merge:
            self._merge(source=source, target=target)
        quote = connection.ops.quote_name
        where = f"t.{quote(self.tenant_field)} = %s AND t.{quote(self.subject_field)} = %s"
        return self._move(where, [source.tenant_id, source.subject_id], target)

    def family(self, *, tenant_id: UUID, ids: list[UUID]) -> list[UUID]:
        return self._family(tenant_id=tenant_id, ids=ids) if self._family else ids

    def move_where(self, where: str, values: list[Any], target: Scope) -> int:
        """Give rows by a condition over alias `t` to a subject, and let the lineage of and from them follow."""
        row_key = " || ':' || ".join(f"t.{connection.ops.quote_name(column)}::text" for column in self.order)
        with connection.cursor() as cursor:
            for end, owner in (("parent", "parent_subject_id"), ("child", "subject_id")):
                cursor.execute(
                    f"UPDATE governance_lineage l SET {owner} = %s FROM {self.table} t"
                    f" WHERE l.tenant_id = %s AND l.{end}_category = %s AND l.{end}_id = {row_key} AND {where}",
                    [target.subject_id, target.tenant_id, self.key, *values],
                )
        return self._move(where, values, target)

    def _move(self, where: str, values: list[Any], target: Scope) -> int:
        column = connection.ops.quote_name(self.subject_field)
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {self.table} t SET {column} = %s WHERE {where}", [target.subject_id, *values])
            return cursor.rowcount

    def alive(
        self, *, tenant_id: UUID, ids: list[str], not_of: UUID | None = None, covered: tuple[str, list[Any]] = ("TRUE", [])
    ) -> set[str]:
        """`covered` is a further condition over alias `t`, and its values."""
        quote = connection.ops.quote_name
        row_key = " || ':' || ".join(f"t.{quote(column)}::text" for column in self.order)
        foreign = f" AND t.{quote(self.subject_field)} IS DISTINCT FROM %s" if not_of else ""
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {row_key} FROM {self.table} t WHERE {self._named()}{foreign} AND {covered[0]}",
                [tenant_id, ids, *([not_of] if not_of else []), *covered[1]],
            )
            return {found for (found,) in cursor.fetchall()}

    def hide(self, *, tenant_id: UUID, ids: list[str]) -> int:
        if not self.hidden:
            raise ValueError(f"{self.key}: say which column hides a row.")
        column = connection.ops.quote_name(self.hidden)
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {self.table} t SET {column} = now() WHERE t.{column} IS NULL AND {self._named()}", [tenant_id, ids])
            return cursor.rowcount

    def regenerate(self, *, tenant_id: UUID, row_id: str, sources: list[Any]) -> None:
        if not self._regenerate:
            raise ValueError(f"{self.key}: rows cannot be rebuilt.")
        self._regenerate(tenant_id=tenant_id, row_id=row_id, sources=sources)

    def delete_rows(self, *, tenant_id: UUID, ids: list[str]) -> int:
        return self.delete_where(self._named(), [tenant_id, ids])[0]

    def _named(self) -> str:
        """A condition for rows by tenant and keys."""
        quote = connection.ops.quote_name
        fields = {field.column: field for field in self.model._meta.concrete_fields}
        one = self.order[0]
        row_key, kind = f"t.{quote(one)}", f"::{fields[one].db_type(connection).split(' CHECK')[0]}[]"
        if len(self.order) > 1:
            row_key, kind = " || ':' || ".join(f"t.{quote(column)}::text" for column in self.order), "::text[]"
        return f"t.{quote(self.tenant_field)} = %s AND {row_key} = ANY(%s{kind})"
