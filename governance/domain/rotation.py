"""A new encryption key: everything that was encrypted under an older one is encrypted again, row by row.

An upper floor registers what it keeps encrypted. Each row is committed by itself and rows under the present key are left
alone, so an interrupted rotation is simply run again. Until it is through, old keys stay configured: reading and
finding try them as well.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import DatabaseError, models, transaction

from governance import crypto
from governance.domain import fences
from governance.models import AuditNote, SubjectIdentifier, SubjectRequest

PAGE = 500


@dataclass(slots=True)
class Count:
    """`refused` rows belong to somebody who is restricted or held: nothing may be written there. Run again later."""

    rotated: int = 0
    current: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Sealed:
    """One encrypted value of a row: what it is bound to, how to read it, and the changes that put another in its place."""

    tenant_id: UUID
    context: str
    data: bytes
    changes: Callable[[bytes, bytes], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Store:
    """A table with encrypted values. `sealed` gives a row's value, or None when it has none. `changes` of it takes the new
    ciphertext and the plain bytes, for what else is made from them."""

    name: str
    rows: Callable[[], models.QuerySet]
    sealed: Callable[[Any], Sealed | None]


_stores: dict[str, Store] = {}


def register(store: Store) -> None:
    _stores[store.name] = store


def rotate(*, told: Callable[[str, Count], None] = lambda name, count: None) -> dict[str, Count]:
    """Bring every registered value under the present key. Raises Undecipherable for one that no configured key opens."""
    counts = {}
    for name, store in _stores.items():
        counts[name] = Count()
        for row in _each(store.rows()):
            _rotate(row, store, counts[name])
        told(name, counts[name])
    return counts


def _each(rows: models.QuerySet) -> Iterator[Any]:
    """Every row, in pages by key, so that no cursor stays open over the commits."""
    last = None
    while page := list((rows if last is None else rows.filter(pk__gt=last)).order_by("pk")[:PAGE]):
        yield from page
        last = page[-1].pk


def _rotate(row: Any, store: Store, count: Count) -> None:
    sealed = store.sealed(row)
    if sealed is None:
        return
    if crypto.is_current(sealed.data, tenant_id=sealed.tenant_id, context=sealed.context):
        count.current += 1
        return
    try:
        with transaction.atomic():
            count.rotated += _encrypt_again(row, store)
    except DatabaseError as error:
        if fences.translate(error) is None:
            raise
        count.refused += 1


def _encrypt_again(row: Any, store: Store) -> int:
    # Under a lock and read anew: somebody may be changing the same value.
    fresh = type(row)._default_manager.select_for_update(of=("self",)).filter(pk=row.pk).first()
    sealed = store.sealed(fresh) if fresh is not None else None
    if sealed is None:
        return 0
    plain = crypto.decrypt(sealed.data, tenant_id=sealed.tenant_id, context=sealed.context)
    data = crypto.encrypt(plain, tenant_id=sealed.tenant_id, context=sealed.context)
    return type(row)._default_manager.filter(pk=row.pk).update(**sealed.changes(data, plain))


# -- what this floor keeps


def _identifier(row: SubjectIdentifier) -> Sealed:
    def changes(data: bytes, plain: bytes) -> dict[str, Any]:
        mark = crypto.identifier_hmac(tenant_id=row.tenant_id, kind=row.kind, value=plain.decode())
        return {"value_enc": data, "value_hmac": mark}

    return Sealed(row.tenant_id, f"identifier|{row.subject_id}|{row.kind}", row.value_enc, changes)


def _samples(row: SubjectRequest) -> Sealed | None:
    text = (row.preview or {}).get("samples")
    if not text:
        return None

    def changes(data: bytes, _plain: bytes) -> dict[str, Any]:
        return {"preview": {**row.preview, "samples": base64.b64encode(data).decode()}}

    return Sealed(row.tenant_id, f"samples|{row.id}", base64.b64decode(text), changes)


def _note(row: AuditNote) -> Sealed:
    return Sealed(row.tenant_id, f"note|{row.subject_id}|{row.id}", row.text_enc, lambda data, _plain: {"text_enc": data})


register(Store("identifiers", SubjectIdentifier.objects.all, _identifier))
register(Store("previews", lambda: SubjectRequest.objects.filter(preview__has_key="samples"), _samples))
register(Store("notes", AuditNote.objects.all, _note))
