"""What must survive a restore: erasures and holds, told to a ledger outside the database.

A restored backup knows neither that somebody was erased nor that something is held. The ledger does, and the two are
compared at every start (`position`). Telling it is an outbox: `append` in the transaction of the change, `deliver` when it
has committed. An erasure waits until its entry is acknowledged (`acknowledge`).
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, Min, Q, Sum

from governance import crypto
from governance.domain import clock, protection, registry
from governance.domain import ledger_files as files
from governance.domain.ledger_files import LedgerDamaged, LedgerUnreachable, Tail
from governance.errors import Unavailable
from governance.identifiers import normalise
from governance.models import (
    LedgerEntry,
    LedgerState,
    PlanChunk,
    SubjectIdentifier,
    SubjectRequest,
    SuppressedIdentifier,
)

__all__ = ["LedgerDamaged", "LedgerUnreachable"]

log = structlog.get_logger("lethe.governance")
Kind = LedgerEntry.Kind
GRACE_DAYS = 30


class Quarantined(Unavailable):
    code, title = "quarantined", "Lethe is in quarantine"
    detail = "The database and the ledger of erasures disagree, so nothing is served. An administrator has to run governance_replay."

    def __init__(self, detail: str | None = None, **extra: Any):
        super().__init__(detail, retry_after=60, **extra)


@dataclass(frozen=True, slots=True)
class Position:
    """The database's number and the ledger's (None when it cannot be read), and what that means: agrees, ahead (the
    ledger knows more: the database was restored), behind, differs, unreachable or damaged."""

    local: int
    external: int | None
    verdict: str

    @property
    def agrees(self) -> bool:
        return self.verdict == "agrees"


# -- telling


@transaction.atomic
def append(kind: str, *, tenant_id: UUID, ref: UUID, subject_id: UUID | None = None, **facts: Any) -> LedgerEntry:
    """Have the ledger told, once per kind and `ref` (a request's or a hold's id), when the transaction has committed.

    `facts` are JSON: ids as hex, counts, codes, dates as text. What describes a person goes through `sealed`.
    """
    entry, is_new = LedgerEntry.objects.get_or_create(
        kind=Kind(kind), ref=ref, defaults={"tenant_id": tenant_id, "subject_id": subject_id, "body": facts}
    )
    if is_new:
        transaction.on_commit(_try_to_deliver)
    return entry


def sealed(details: dict[str, Any], *, tenant_id: UUID, ref: UUID) -> str:
    """Details under the tenant's key, as text for an entry."""
    data = json.dumps(details).encode()
    return base64.b64encode(protection.encrypt(data, tenant_id=tenant_id, context=f"ledger|{ref}")).decode()


def unsealed(text: str, *, tenant_id: UUID, ref: UUID) -> dict[str, Any]:
    """What `sealed` made. Raises Undecipherable."""
    return json.loads(protection.decrypt(base64.b64decode(text), tenant_id=tenant_id, context=f"ledger|{ref}"))


def acknowledge(kind: str, *, request: SubjectRequest) -> None:
    """Tell the ledger about an erasure and come back when it is on disk. Raises LedgerUnreachable, Quarantined.

    During a replay it is only noted: the ledger itself caused this erasure, and hears of it when the replay is over.
    """
    facts = _erasure_facts(request) if kind == Kind.ERASE_STARTED else {}
    entry = append(kind, tenant_id=request.tenant_id, ref=request.id, subject_id=request.subject_id, **facts)
    if entry.number is None and not LedgerState.objects.filter(is_replaying=True).exists():
        deliver()


def deliver() -> int:
    """Write what waits, in order, and note the numbers. Returns how many.

    Raises LedgerUnreachable, and Quarantined when the ledger does not end where this database last saw it.
    """
    with transaction.atomic():
        state = _locked()
        waiting = list(LedgerEntry.objects.filter(number=None).order_by("id")[:500])
        if not waiting:
            return 0
        with files.opened() as tail:
            _adopt(state, tail, waiting)
            if (state.high_water, state.tail or files.NOTHING) != (tail.number, tail.hash):
                raise Quarantined
            missing = [entry for entry in waiting if entry.number is None]
            tail = files.write(tail, [_body(entry) for entry in missing])
        for place, entry in enumerate(missing):
            entry.number = state.high_water + 1 + place
        _note(waiting)
        state.high_water, state.tail = tail.number, tail.hash
        state.save(update_fields=["high_water", "tail"])
        return len(waiting)


def deliver_waiting() -> int:
    """For the sweeper: what could not be written before."""
    if not LedgerEntry.objects.filter(number=None).exists() or LedgerState.objects.filter(is_replaying=True).exists():
        return 0
    try:
        return deliver()
    except Unavailable as error:
        log.error("ledger_waits", code=error.code, entries=LedgerEntry.objects.filter(number=None).count())
        return 0


def position() -> Position:
    """Where database and ledger stand to each other. Entries that a crash left without their number are adopted."""
    state = known_state()
    try:
        tail = files.tail()
    except LedgerUnreachable:
        return Position(state.high_water, None, "unreachable")
    except LedgerDamaged:
        return Position(state.high_water, None, "damaged")
    if tail.number > state.high_water and state.pk and LedgerEntry.objects.filter(number=None).exists():
        with transaction.atomic():
            state = _locked()
            waiting = list(LedgerEntry.objects.filter(number=None).order_by("id"))
            _adopt(state, tail, waiting)
            _note([entry for entry in waiting if entry.number is not None])
            state.save(update_fields=["high_water", "tail"])
    if tail.number < state.high_water:
        return Position(state.high_water, tail.number, "behind")
    if tail.number > state.high_water:
        return Position(state.high_water, tail.number, _ahead(state))
    return Position(state.high_water, tail.number, "agrees" if tail.hash == (state.tail or files.NOTHING) else "differs")


def known_state() -> LedgerState:
    """What this database knows of the ledger: nothing, before its first entry and in one older than the ledger."""
    if LedgerState._meta.db_table not in connection.introspection.table_names():
        return LedgerState(pk=None)
    return LedgerState.objects.filter(pk=1).first() or LedgerState()


# -- suppression


def suppress(*, tenant_id: UUID, identifiers: Iterable[dict[str, Any]], erased_at: datetime) -> None:
    """Remember the keyed hashes of what named an erased person: [{"kind", "hmac" (hex), "norm_version"}]."""
    SuppressedIdentifier.objects.bulk_create(
        [
            SuppressedIdentifier(
                tenant_id=tenant_id, kind=entry["kind"], value_hmac=bytes.fromhex(entry["hmac"]),
                norm_version=entry["norm_version"], erased_at=erased_at,
            )
            for entry in identifiers
        ],
        update_conflicts=True, unique_fields=["tenant_id", "kind", "value_hmac"], update_fields=["norm_version", "erased_at"],
    )  # fmt: skip


def suppress_of(request: SubjectRequest, *, erased_at: datetime) -> None:
    """The identifiers that the request's first entry names."""
    started = LedgerEntry.objects.filter(kind=Kind.ERASE_STARTED, ref=request.id).first()
    if started is not None:
        suppress(tenant_id=request.tenant_id, identifiers=started.body["identifiers"], erased_at=erased_at)


def is_suppressed(*, tenant_id: UUID, identifiers: Iterable[tuple[str, str]], content_at: datetime) -> bool:
    """Whether content of that time is about somebody who was erased since. (kind, value) pairs, as they come.

    The person may come back: newer content about the same identifiers is welcome. Raises Invalid for what cannot be an
    identifier.
    """
    named = Q(pk__in=[])
    for kind, value in identifiers:
        marks = crypto.identifier_hmacs(tenant_id=tenant_id, kind=kind, value=normalise(kind, value))
        named |= Q(kind=kind, value_hmac__in=marks)
    return SuppressedIdentifier.objects.filter(named, tenant_id=tenant_id, erased_at__gte=content_at).exists()


def expire() -> int:
    """Drop what no backup can bring back any more: 30 days after the last backup from before it has expired. Returns how many
    entries went from the files. Without LETHE_BACKUP_DAYS nobody knows how long backups last, and all of it stays.
    """
    days = settings.LETHE.get("backup_days")
    if days is None:
        return 0
    before = clock.now() - timedelta(days=days + GRACE_DAYS)
    SuppressedIdentifier.objects.filter(erased_at__lt=before).delete()
    erasures = LedgerEntry.objects.filter(kind__in=(Kind.ERASE_STARTED, Kind.ERASE_FINISHED))
    erasures.filter(created_at__lt=before, number__isnull=False).delete()
    if not files.has_older(than=before):
        return 0
    with files.opened():
        return files.drop(before=before)


# -- inside


def _erasure_facts(request: SubjectRequest) -> dict[str, Any]:
    bounds = (
        PlanChunk.objects.filter(request=request, is_kept=False)
        .values("category")
        .annotate(rows=Sum("rows"), low=Min("low"), high=Max("high"), chunks=Max("number"))
        .order_by("category")
    )
    identifiers = SubjectIdentifier.objects.filter(tenant_id=request.tenant_id, subject_id=request.subject_id)
    return {
        "identifiers": [
            {"kind": entry.kind, "hmac": bytes(entry.value_hmac).hex(), "norm_version": entry.norm_version}
            for entry in identifiers.order_by("id")
        ],
        "sealed": sealed({"chunks": list(bounds)}, tenant_id=request.tenant_id, ref=request.id),
        "registry": registry.fingerprint(),
    }


def _body(entry: LedgerEntry) -> dict[str, Any]:
    return {
        **entry.body,
        "id": entry.id.hex,
        "kind": entry.kind,
        "at": entry.created_at.isoformat().replace("+00:00", "Z"),
        "tenant": entry.tenant_id.hex,
        "subject": entry.subject_id.hex if entry.subject_id else None,
        "ref": entry.ref.hex,
        "software": settings.VERSION,
    }


def _locked() -> LedgerState:
    LedgerState.objects.get_or_create(pk=1)
    return LedgerState.objects.select_for_update().get(pk=1)


def _ahead(state: LedgerState) -> str:
    """Whether the ledger goes on from where this database left it, or is another one."""
    try:
        first, _digest = next(files.entries(after=state.high_water))
    except LedgerDamaged:
        return "damaged"
    return "ahead" if first["prev"] == (state.tail or files.NOTHING) or first["kind"] == Kind.BREAK_GLASS else "differs"


def _adopt(state: LedgerState, tail: Tail, waiting: list[LedgerEntry]) -> None:
    """Entries that reached the disk while their numbers did not reach the database: they were ours to write."""
    if tail.number <= state.high_water:
        return
    by_id = {entry.id.hex: entry for entry in waiting}
    beyond = list(files.entries(after=state.high_water))
    if beyond[0][0]["prev"] != (state.tail or files.NOTHING) or not all(entry["id"] in by_id for entry, _ in beyond):
        return
    for entry, _digest in beyond:
        by_id[entry["id"]].number = entry["no"]
    state.high_water, state.tail = beyond[-1][0]["no"], beyond[-1][1]


def _note(entries: list[LedgerEntry]) -> None:
    now = clock.now()
    for entry in entries:
        entry.acknowledged_at = now
    LedgerEntry.objects.bulk_update(entries, ["number", "acknowledged_at"])


def _try_to_deliver() -> None:
    deliver_waiting()
