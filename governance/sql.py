"""Statements that are written out, for what every turn does.

Django's ORM builds its statement anew each time. For a row as wide as a run's that takes Python ten times as long as
PostgreSQL (see tests/bench/turns.py), so the way of a turn is plain SQL: models say what a row is, and are read and
written by statements that PostgreSQL keeps (see `prepared`). Everything that is not on that way uses the ORM.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import connection, models
from django.db.models.expressions import DatabaseDefault
from psycopg.types.json import Jsonb

from governance import prepared
from governance.sealing import Sealed


def execute(statement: str, values: Sequence[Any] = ()) -> int:
    """Run a statement; returns how many rows it changed."""
    with connection.cursor() as cursor:
        prepared.execute(cursor, [(statement, values)])
        return cursor.rowcount


def row(statement: str, values: Sequence[Any] = ()) -> tuple | None:
    """The first row, or None. JSON arrives as text."""
    return script(Write(statement, values))


def rows(statement: str, values: Sequence[Any] = ()) -> list[tuple]:
    """All rows. JSON arrives as text."""
    return batch(Write(statement, values))[0]


@dataclass(frozen=True, slots=True)
class Write:
    """A statement with its values, to be run alone or together with others; a write, or a read of a `batch`.

    Places are `%s`, or `%(name)s` when the values have names.
    """

    statement: str
    values: Sequence[Any] | Mapping[str, Any] = ()

    def run(self) -> int:
        return execute(self.statement, self.values)


def combined(*, then: Write, **writes: Write) -> Write:
    """Several writes and a read as one statement.

    They act at once and see nothing of each other; `then` sees what they return, by their names.
    """
    parts = ", ".join(f"{name} AS ({write.statement})" for name, write in writes.items())
    values = [value for write in writes.values() for value in write.values]
    return Write(f"WITH {parts} {then.statement}" if parts else then.statement, [*values, *then.values])


def together(*, then: Write, before: Write | None = None, **writes: Write) -> tuple | None:
    """Run several writes in one round trip, then read: the first row of `then`, as `combined` says.

    A statement `before` them, such as one that waits for a lock, is one of its own: they see what was committed meanwhile.
    """
    whole = combined(then=then, **writes)
    return script(before, whole) if before is not None else script(whole)


def script(*writes: Write) -> tuple | None:
    """Run statements in one round trip; returns the first row of the last one.

    Each sees what the ones before did, and what others have committed until then. Outside a transaction they are one.
    """
    with connection.cursor() as cursor:
        prepared.execute(cursor, [(write.statement, write.values) for write in writes])
        while cursor.nextset():
            pass
        return cursor.fetchone()


def batch(*reads: Write) -> list[list[tuple]]:
    """The rows of several reads in one round trip. JSON arrives as text."""
    with connection.cursor() as cursor:
        prepared.execute(cursor, [(read.statement, read.values) for read in reads])
        found = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
        return found


class Columns:
    """The columns of a model that a statement reads: all of them, `only` some, or all `without` some.

    Fields that are left out are read from the database when they are asked for, as with `QuerySet.defer`.
    """

    def __init__(self, model: type[models.Model], *, only: Iterable[str] = (), without: Iterable[str] = ()):
        only, without = set(only), set(without)
        fields = model._meta.concrete_fields
        chosen = [field for field in fields if (not only or field.attname in only) and field.attname not in without]
        assert chosen[0].primary_key, "a row is known by its first column"
        self.model = model
        self.names = [field.attname for field in chosen]
        self.columns = [field.column for field in chosen]
        self.json = [index for index, field in enumerate(chosen) if isinstance(field, models.JSONField)]
        self.sealed = [(index, field) for index, field in enumerate(chosen) if isinstance(field, Sealed)]

    def instance(self, values: list[Any]) -> models.Model | None:
        """The row as an instance; None for the empty side of an outer join."""
        if values[0] is None:
            return None
        for index in self.json:
            if values[index] is not None:
                values[index] = json.loads(values[index])
        for index, field in self.sealed:
            values[index] = field.opened(values[index])
        return self.model.from_db(connection.alias, self.names, values)


class Reader:
    """Reads model instances by one statement, in which `{name}` stands for the columns of the table alias `name`.

    `Reader("SELECT {run}, {session} FROM ... run LEFT JOIN ... session ON ...", run=Run, session=Session)`. What the
    statement selects after them comes along as it is. The given names are in the order of the statement.
    """

    def __init__(self, statement: str, **parts: type[models.Model] | Columns):
        self.parts = [part if isinstance(part, Columns) else Columns(part) for part in parts.values()]
        listed = {
            name: ", ".join(f'{name}."{column}"' for column in part.columns)
            for name, part in zip(parts, self.parts, strict=True)
        }
        self.statement = statement.format(**listed)

    def first(self, values: Sequence[Any]) -> tuple | None:
        """(instance, ..., further columns) of the first row, or None."""
        found = row(self.statement, values)
        return None if found is None else self.read(found)

    def all(self, values: Sequence[Any]) -> list[tuple]:
        return [self.read(found) for found in rows(self.statement, values)]

    def asking(self, values: Sequence[Any]) -> Write:
        """The statement as part of a `batch`, whose rows `read` then reads."""
        return Write(self.statement, values)

    def read(self, found: tuple) -> tuple:
        instances, start = [], 0
        for part in self.parts:
            end = start + len(part.names)
            instances.append(part.instance(list(found[start:end])))
            start = end
        return (*instances, *found[start:])


def insertion(instance: models.Model, *, source: str = "", **expressions: tuple[str, list[Any]]) -> Write:
    """Stores a new row. `expressions` are columns that the database computes: `ended_at=("now()", [])`.

    With `source`, the name of another part of the statement: a row for each of its rows, none if it has none.
    """
    meta = instance._meta
    given = {field.column: _stored(field, instance) for field in meta.concrete_fields if field.attname not in expressions}
    left_to_database = frozenset(name for name, value in given.items() if isinstance(value, DatabaseDefault))
    statement, json_columns = _insertion(
        type(instance), left_to_database, tuple((name, text) for name, (text, _) in expressions.items()), source
    )
    values = [
        Jsonb(value) if column in json_columns and value is not None else value
        for column, value in given.items()
        if column not in left_to_database
    ]
    return Write(statement, [*values, *(value for _, more in expressions.values() for value in more)])


def _stored(field: models.Field, instance: models.Model) -> Any:
    value = getattr(instance, field.attname)
    return field.sealed(value, instance) if isinstance(field, Sealed) else value


@lru_cache(maxsize=256)
def _insertion(
    model: type[models.Model], left_to_database: frozenset[str], expressions: tuple[tuple[str, str], ...], source: str
) -> tuple[str, frozenset[str]]:
    meta, computed = model._meta, dict(expressions)
    plain = [field.column for field in meta.concrete_fields if field.attname not in computed and field.column not in left_to_database]
    columns = [*plain, *(meta.get_field(name).column for name in computed)]
    values = [*("%s" for _ in plain), *computed.values()]
    statement = ('INSERT INTO "{}" ({}) SELECT {} FROM {}' if source else 'INSERT INTO "{}" ({}) VALUES ({})').format(
        meta.db_table, ", ".join(f'"{column}"' for column in columns), ", ".join(values), source
    )
    return statement, frozenset(field.column for field in meta.concrete_fields if isinstance(field, models.JSONField))


def texts_in_json(fields: Sequence[models.Field], alias: str = "t") -> str:
    """SQL for a JSON array of columns as text, `["...", "..."]`, byte for byte what json_build_array() makes of them.

    Put together by hand where nothing needs an escape: twice as fast, and a plan asks for it with every row. No column is null.
    """
    return "'[' || " + " || ', ' || ".join(_text_in_json(field, f"{alias}.{connection.ops.quote_name(field.column)}") for field in fields) + " || ']'"


def _text_in_json(field: models.Field, column: str) -> str:
    kind = field.target_field if isinstance(field, models.ForeignKey) else field
    is_plain = isinstance(kind, models.UUIDField | models.IntegerField)
    return f"'\"' || {column}::text || '\"'" if is_plain else f"to_json({column}::text)::text"
