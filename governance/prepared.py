"""Statements that PostgreSQL keeps: parsed and planned once a connection, then called by their names.

To parse and plan the statements of a turn takes PostgreSQL three times as long as to carry them out. They are kept with
PREPARE and called with EXECUTE in plain text, and not as the driver prepares them, because several statements in one text
are one round trip and, outside a transaction, one transaction.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg.adapt import Transformer

# More than the ways of a turn need; a caller whose texts have no end must not fill the server's memory.
_MOST = 250
# A statement with more values writes many rows, which no other call will: it is sent as it is.
_MOST_VALUES = 200
# Most values of a turn, which the driver writes the same way and takes four times as long for.
_PLAIN = {type(None): lambda _: "NULL", UUID: lambda value: f"'{value.hex}'::uuid", int: "({})".format}
# What a statement does first, so that whoever looks at a busy server reads more than a number.
_DOES = re.compile(r'(INSERT|UPDATE|DELETE|FROM)(?: INTO| FROM)? "?(\w+)')
_PLACE = re.compile(r"%\((\w+)\)s|%s|%%")
# The names of what a connection keeps, by text.
_kept: WeakKeyDictionary[psycopg.Connection, dict[str, str]] = WeakKeyDictionary()


def execute(cursor: CursorWrapper, calls: Sequence[tuple[str, Sequence[Any] | Mapping[str, Any]]]) -> None:
    """Carry out `calls`, each a statement and its values, in one round trip; the first use of a statement takes one more.

    Each call sees what the ones before did, and what others have committed until then. Outside a transaction they are one.
    """
    connection.ensure_connection()
    kept = _kept.setdefault(connection.connection, {})
    texts: list[str] = []
    with connection.wrap_database_errors:
        if len(kept) + len(calls) > _MOST:
            connection.connection.execute("DEALLOCATE ALL")
            kept.clear()
        for statement, given in calls:
            if len(given) > _MOST_VALUES:
                texts.append(_whole(statement, given))
                continue
            prepared, names = _numbered(statement)
            args = [given[name] for name in names] if isinstance(given, Mapping) else given
            assert len(args) == len(names), "as many values as places"
            if prepared not in kept:
                kept[prepared] = _keep(prepared, len(kept) + 1)
            texts.append(_call(kept[prepared], args))
    cursor.execute("; ".join(texts))


def _call(name: str, args: Sequence[Any]) -> str:
    return f"EXECUTE {name}({', '.join(_literals(args))})" if args else f"EXECUTE {name}"


def _whole(statement: str, values: Sequence[Any]) -> str:
    literals = iter(_literals(values))
    return _PLACE.sub(lambda place: "%" if place[0] == "%%" else next(literals), statement)


def _literals(args: Sequence[Any]) -> list[str]:
    quoted = Transformer.from_context(connection.connection).as_literal
    return [_PLAIN[type(value)](value) if type(value) in _PLAIN else quoted(value).decode() for value in args]


@lru_cache(maxsize=1000)
def _numbered(statement: str) -> tuple[str, list[str]]:
    """The statement with $1, $2 for its places, and whose they are: a place with a name is one, wherever it is."""
    names: dict[str, int] = {}

    def number(place: re.Match) -> str:
        if place[0] == "%%":
            return "%"
        return f"${names.setdefault(place[1] or str(len(names)), len(names) + 1)}"

    return _PLACE.sub(number, statement), list(names)


def _keep(prepared: str, number: int) -> str:
    """Has this thread's connection keep the statement; returns its name there."""
    does = _DOES.search(prepared)
    name = "_".join(["lethe", str(number), *(does.groups() if does else ())]).lower()[:63]
    # Past Django's cursors: what it takes depends on what this connection did before, and is not the caller's.
    connection.connection.execute(f"PREPARE {name} AS {prepared}")
    return name
