"""The rows of a table by their keys: what closures, regenerations and sweeps do with derived rows, set-based."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connection, models


class DerivedRows:
    """Part of TableCategory. Keys are the ordering columns joined by colons, as previews show them."""

    key: str
    table: str
    model: type[models.Model]
    order: tuple[str, ...]
    tenant_field: str
    hidden: str
    _regenerate: Callable[..., None] | None

    def alive(self, *, tenant_id: UUID, ids: list[str]) -> set[str]:
        row_key = " || ':' || ".join(f"t.{connection.ops.quote_name(column)}::text" for column in self.order)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {row_key} FROM {self.table} t WHERE {self._named()}", [tenant_id, ids])
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
