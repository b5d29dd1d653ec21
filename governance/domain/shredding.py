"""Crypto-shredding: a tenant's people have a key each, and an erasure destroys it when nothing of the person is left.

Deleting the rows stays what an erasure does. Destroying the key reaches what no deletion reaches: backups, WAL, replicas. It
may be called that only when every copy of the key has gone as well, and every backup from before the content was sealed; the
receipt names that date until it has come.
"""

import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from governance import sealing, subject_keys
from governance.actors import Actor, system
from governance.domain import audit, clock, receipts, rotation
from governance.errors import Invalid, LetheError, NotFound
from governance.models import HeldCopy, Subject, SubjectRequest, Tenant

# Twice the time for which a process may not know.
SETTLING = 2
log = structlog.get_logger("lethe.governance")
SETTING = sealing.SETTING


@transaction.atomic
def switch(*, tenant: Tenant, on: bool, by: Actor) -> None:
    """Have what is written from now on sealed under its subject's key, or not any more. What is there already follows with
    `rotation.rotate` (manage.py rotate_keys). Raises Invalid where no folder for keys is named, KeyStoreUnreachable.
    """
    by.require("governance.settings")
    if tenant.pk != by.tenant_id:
        raise NotFound
    if on:
        if not subject_keys.is_configured():
            raise Invalid("Name a folder for the keys first: LETHE_SUBJECT_KEY_DIR, outside the database and its backups.")
        subject_keys.prepare()
    current = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    tenant.settings = {**current.settings, SETTING: {"is_on": on, "since": clock.now().isoformat(), "complete_at": None}}
    tenant.save(update_fields=["settings"])
    sealing.PROTECTED.forget(tenant.pk)
    audit.record(
        "tenant.settings_changed", by=by, object_type="tenant", object_ref=tenant.pk, object_label=tenant.name, subject_keys=on
    )


def bring_in_line(*, told: Any = lambda name, count: None) -> dict[str, rotation.Count]:
    """Seal what is not sealed yet, and open what is where a tenant does not want it any more. May be interrupted and run again.

    Rows of people who are restricted or held are refused: nothing may be written there. Waits until every process knows
    what was switched a moment ago.
    """
    counts: dict[str, rotation.Count] = {}
    refused: set[UUID] = set()
    _wait()
    for name, content in rotation.contents().items():
        counts[name] = rotation.reseal(content, refused=refused)
        told(name, counts[name])
    for tenant in Tenant.objects.filter(**{f"settings__{SETTING}__is_on": True}):
        if tenant.settings[SETTING].get("complete_at") is None and tenant.pk not in refused and not _has_plain_copies(tenant.pk):
            _note(tenant.pk, clock.now())
    return counts


def note_plain(*, tenant_id: UUID) -> None:
    """Rows of nobody were given to somebody: they are not sealed before `bring_in_line` has been there."""
    _note(tenant_id, None)


def note_moved(*, tenant_id: UUID) -> None:
    """Rows went to another subject: backups from before have them under a key that stays."""
    _note(tenant_id, clock.now(), only_later=True)


@transaction.atomic
def _note(tenant_id: UUID, complete_at: datetime | None, *, only_later: bool = False) -> None:
    if not subject_keys.is_configured():
        return
    current = Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
    kept = current.settings.get(SETTING)
    if kept is None or only_later and kept.get("complete_at") is None:
        return
    kept = {**kept, "complete_at": complete_at.isoformat() if complete_at else None}
    Tenant.objects.filter(pk=tenant_id).update(settings={**current.settings, SETTING: kept})


def _wait() -> None:
    """A process may go by what it knew of a tenant before for so long, and end a write that it had begun."""
    switched = Tenant.objects.filter(**{f"settings__{SETTING}__has_key": "since"}).values_list(f"settings__{SETTING}__since", flat=True)
    newest = max(map(datetime.fromisoformat, switched), default=None)
    if newest is not None:
        age = (clock.now() - newest).total_seconds()
        time.sleep(max(0.0, min(SETTLING * sealing.PROTECTED.seconds - age, SETTLING * sealing.PROTECTED.seconds)))


def _has_plain_copies(tenant_id: UUID) -> bool:
    """Whether versions that a hold keeps are from before they were sealed."""
    for copy in HeldCopy.objects.filter(tenant_id=tenant_id, subject_id__isnull=False, category__in=rotation.contents()).iterator():
        fields = sealing.fields_of(rotation.contents()[copy.category].model)
        if any((value := copy.content.get(field.column)) and field.opened(value) == value for field in fields):
            return True
    return False


# -- erasure


def pending(request: SubjectRequest) -> dict[str, Any] | None:
    """What the first receipt says of the key, where there is one. Raises KeyStoreUnreachable."""
    if not subject_keys.is_configured():
        return None
    tenant = Tenant.objects.get(pk=request.tenant_id)
    has_key = SETTING in tenant.settings and any(
        subject_keys.exists(tenant_id=tenant.pk, subject_id=subject_id) for subject_id in _persons(request)
    )
    return {"state": "pending", "destroyed_at": None, "crypto_erase_from": None, "categories": _categories()} if has_key else None


def destroy_soon(request: SubjectRequest) -> None:
    """When the transaction that ends the request has committed. What fails is tried again by the sweeper."""
    if (request.receipt or {}).get("subject_key"):
        transaction.on_commit(partial(_try, request.pk))


def sweep() -> int:
    """Destroy the keys that wait for it, and say `crypto_erase` where its day has come. Returns how many receipts changed."""
    if not subject_keys.is_configured():
        return 0
    waiting = SubjectRequest.objects.filter(receipt__subject_key__state__in=["pending", "destroyed"]).order_by("id")
    return sum(_try(request_id) for request_id in list(waiting.values_list("pk", flat=True)[:200]))


def _try(request_id: UUID) -> bool:
    request = SubjectRequest.objects.get(pk=request_id)
    try:
        return _destroy(request) if request.receipt["subject_key"]["state"] == "pending" else _declare(request)
    except LetheError as error:
        log.warning("subject_key_waits", request=str(request_id), code=error.code)
        return False


def _destroy(request: SubjectRequest) -> bool:
    """The keys first, each once and for all; then the account of it. Killed in between, it begins again and finds them gone."""
    for subject_id in _persons(request):
        subject_keys.destroy(tenant_id=request.tenant_id, subject_id=subject_id)
    now = clock.now()
    with transaction.atomic():
        current = SubjectRequest.objects.select_for_update(of=("self",)).get(pk=request.pk)
        if current.receipt["subject_key"]["state"] != "pending":
            return False
        begins = _begins(Tenant.objects.get(pk=request.tenant_id), now)
        facts = {"state": "destroyed", "destroyed_at": _text(now), "crypto_erase_from": _text(begins) if begins else None}
        receipts.addendum(request=request, subject_key=facts)
        audit.record(
            "subject.key_destroyed", by=system(request.tenant_id), object_type="subject", object_ref=request.subject_id,
            request=request.id,
        )  # fmt: skip
    return True


def _declare(request: SubjectRequest) -> bool:
    """From the day on which no copy of the key is left, the method is `crypto_erase` where rows were erased."""
    begins = request.receipt["subject_key"]["crypto_erase_from"]
    if begins is None or clock.now() < datetime.fromisoformat(begins):
        return False
    sealed = set(request.receipt["subject_key"]["categories"])
    erased = [entry["key"] for entry in request.receipt["categories"] if entry["key"] in sealed and entry["erased"]]
    receipts.addendum(request=request, subject_key={"state": "expired"}, methods=dict.fromkeys(erased, "crypto_erase"))
    return True


def _begins(tenant: Tenant, destroyed_at: datetime) -> datetime | None:
    """When no backup has the key, nor the content from before it was sealed. None while nobody has said how long they are
    kept, and where something never was sealed."""
    keys, backups = settings.LETHE["key_backup_days"], settings.LETHE["backup_days"]
    complete_at = tenant.settings[SETTING].get("complete_at")
    if keys is None or backups is None or complete_at is None:
        return None
    return max(destroyed_at + timedelta(days=keys), datetime.fromisoformat(complete_at) + timedelta(days=backups))


def _persons(request: SubjectRequest) -> list[UUID]:
    """The subject, and those that were merged into it: what they had is under their keys."""
    found, fresh = [], [request.subject_id]
    while fresh:
        found += fresh
        fresh = list(Subject.objects.filter(tenant_id=request.tenant_id, merged_into__in=fresh).values_list("pk", flat=True))
    return found


def _categories() -> list[str]:
    return sorted(rotation.contents())


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
