"""Keyset pages: {"results", "next_cursor", "previous_cursor"}. A page costs the same wherever it is in the list.

A cursor holds the sort values of the row it starts from and the direction, signed: nobody can make one up, and a
cursor of another list is refused. Short lists that are at hand whole are cut by place instead.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from uuid import UUID

from django.core import signing
from django.db.models import Model, Q, QuerySet

from governance.errors import Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200


class BadCursor(Invalid):
    code, title = "bad_cursor", "Not a cursor of this list"

    def __init__(self):
        super().__init__(
            "Send `next_cursor` or `previous_cursor` of an earlier page of this list as it was.",
            errors={"cursor": ["Not a cursor of this list."]},
        )


@dataclass(frozen=True, slots=True)
class Page:
    results: list
    next_cursor: str | None = None
    previous_cursor: str | None = None


def paginate(queryset: QuerySet, *, order: tuple[str, ...], cursor: str | None, limit: int) -> Page:
    """One page of `queryset` in `order`, whose last field is unique. One query."""
    name = queryset.model._meta.label_lower + "".join(order)
    backwards, values = _read(cursor, name, len(order)) if cursor else (False, None)
    queryset = queryset.order_by(*(_reversed(order) if backwards else order))
    if values is not None:
        try:
            queryset = queryset.filter(_beyond(_reversed(order) if backwards else order, values))
        except (ValueError, TypeError):
            raise BadCursor from None
    rows = list(queryset[: limit + 1])
    has_more = len(rows) > limit
    rows = rows[:limit]
    if backwards:
        rows.reverse()
    if not rows:
        return Page([])
    has_next = backwards or has_more
    has_previous = has_more if backwards else values is not None
    return Page(
        results=rows,
        next_cursor=_write(name, False, rows[-1], order) if has_next else None,
        previous_cursor=_write(name, True, rows[0], order) if has_previous else None,
    )


def of_list(rows: list, *, name: str, cursor: str | None, limit: int) -> Page:
    """One page of a list that is short and at hand whole. `name` says which list it is."""
    start = unseal(name, cursor) if cursor else 0
    end = start + limit
    return Page(
        results=rows[start:end],
        next_cursor=seal(name, end) if end < len(rows) else None,
        previous_cursor=seal(name, max(start - limit, 0)) if start else None,
    )


def seal(name: str, value) -> str:
    return signing.dumps(value, salt=f"cursor {name}")


def unseal(name: str, text: str):
    try:
        return signing.loads(text, salt=f"cursor {name}")
    except (signing.BadSignature, ValueError):
        raise BadCursor from None


def _read(text: str, name: str, length: int):
    value = unseal(name, text)
    return bool(value[0]), value[1:]


def _write(name: str, backwards: bool, row: Model, order: tuple[str, ...]) -> str:
    return seal(name, [int(backwards), *(_plain(_value(row, field.lstrip("-"))) for field in order)])


def _value(row: Model, path: str):
    return reduce(getattr, path.split("__"), row)


def _plain(value):
    if isinstance(value, UUID):
        return value.hex
    return value.isoformat() if isinstance(value, datetime) else value


def _reversed(order):
    return tuple(field[1:] if field.startswith("-") else f"-{field}" for field in order)


def _beyond(order, values) -> Q:
    """Rows after the one with `values`: (a, b) > (x, y) written so that an index on a can be used."""
    condition = Q()
    for field, value in reversed(list(zip(order, values, strict=True))):
        name, operator = field.lstrip("-"), "lt" if field.startswith("-") else "gt"
        strictly = Q(**{f"{name}__{operator}": value})
        condition = Q(**{f"{name}__{operator}e": value}) & (strictly | condition) if condition else strictly
    return condition
