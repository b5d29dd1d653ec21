"""Whole tables as text, to show that something stayed identical or is nowhere to be found."""

from functools import lru_cache

from django.apps import apps
from django.db import connection

TABLES = [
    model._meta.db_table
    for model in apps.get_models(include_auto_created=True)
    if model._meta.app_label in ("governance", "agents", "agent_sessions")
]


def rows_of(column: str, value, *, exclude: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Every row whose `column` is `value`, by table, as JSON text."""
    found = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            if table not in exclude and column in _columns(table):
                cursor.execute(f"SELECT to_jsonb(t)::text FROM {table} t WHERE {column} = %s ORDER BY 1", [value])
                found[table] = [row for (row,) in cursor.fetchall()]
    return found


def tables_with(text: str) -> list[str]:
    """Tables with the text in any column, bytes included."""
    found = []
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(
                f"SELECT count(*) FROM {table} t WHERE to_jsonb(t)::text LIKE %s OR to_jsonb(t)::text LIKE %s",
                [f"%{text}%", f"%{text.encode().hex()}%"],
            )
            if cursor.fetchone()[0]:
                found.append(table)
    return found


@lru_cache
def _columns(table: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", [table])
        return frozenset(name for (name,) in cursor.fetchall())
