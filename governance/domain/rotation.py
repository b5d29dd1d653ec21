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

from django.db import DatabaseError, connection, models, transaction
from django.db.models import Q

from governance import crypto, sealing, subject_keys
from governance.domain import fences
from governance.models import AuditNote, SubjectIdentifier, SubjectRequest, Tenant

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
    if subject_keys.is_configured() and Tenant.objects.filter(settings__has_key=sealing.SETTING).exists():
        counts["keys of subjects"] = Count(rotated=subject_keys.rewrap())
        told("keys of subjects", counts["keys of subjects"])
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


# -- content under the keys of subjects (see governance/sealing.py)


@dataclass(frozen=True, slots=True)
class Content:
    """A table of a category with columns that can be sealed. `also` brings what lies outside the database in line, given the
    tenants that want it; it returns how many."""

    model: type[models.Model]
    also: Callable[[set[UUID]], int] | None = None


_contents: dict[str, Content] = {}


def register_content(category: str, model: type[models.Model], also: Callable[[set[UUID]], int] | None = None) -> None:
    """Say that a category's rows are sealed where a tenant wants it: from `AppConfig.ready()`."""
    _contents[category] = Content(model, also)


def contents() -> dict[str, Content]:
    return dict(_contents)


def reseal(content: Content, *, refused: set[UUID]) -> Count:
    """Seal the rows of tenants that want it, open those of others. Adds the tenants of refused rows to `refused`."""
    count = Count()
    wanting = set(Tenant.objects.filter(**{f"settings__{sealing.SETTING}__is_on": True}).values_list("pk", flat=True))
    rows = content.model._default_manager.filter(subject_id__isnull=False)
    wanted = Q(tenant_id__in=wanting)
    wrong = rows.filter(wanted & sealing.any_plain(content.model) | ~wanted & sealing.any_sealed(content.model))
    count.current = rows.count() - wrong.count()
    for row in _each(wrong):
        try:
            with transaction.atomic():
                count.rotated += _store_again(row)
        except DatabaseError as error:
            if fences.translate(error) is None:
                raise
            count.refused += 1
            refused.add(row.tenant_id)
    if content.also:
        count.rotated += content.also(wanting)
    return count


def reseal_subject(*, tenant_id: UUID, subject_id: UUID) -> int:
    """Bring a subject's sealed rows under its own key, in the caller's transaction: after a split they are under another's."""
    changed = 0
    for content in _contents.values() if subject_keys.is_configured() else ():
        rows = content.model._default_manager.filter(tenant_id=tenant_id, subject_id=subject_id)
        for row in _each(rows.filter(sealing.any_sealed(content.model))):
            changed += _store_again(row)
    return changed


def _store_again(row: Any) -> int:
    fresh = type(row)._default_manager.select_for_update(of=("self",)).filter(pk=row.pk).first()
    if fresh is None:
        return 0
    with connection.cursor() as cursor:
        # What was derived from a row does not follow when the row only becomes unreadable for others.
        cursor.execute("SELECT set_config('lethe.sealing', 'on', true)")
    values = {field.attname: field.sealed(getattr(fresh, field.attname), fresh) for field in sealing.fields_of(type(row))}
    changed = type(row)._default_manager.filter(pk=row.pk).update(**values)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lethe.sealing', '', true)")
    return changed
