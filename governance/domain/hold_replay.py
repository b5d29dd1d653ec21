"""How a restored database gets its holds back: see `holds.place` for what the ledger is told."""

from datetime import datetime
from typing import Any
from uuid import UUID

from governance.domain import clock, holds, replay
from governance.models import HeldRow, Hold, LedgerEntry, Tenant

Kind = LedgerEntry.Kind


@replay.handles(Kind.HOLD_PLACED)
def place_again(entry: dict[str, Any]) -> str:
    tenant = Tenant.objects.filter(id=UUID(hex=entry["tenant"])).first()
    if tenant is None:
        return "the tenant is not in this database"
    subject = UUID(hex=entry["subject"]) if entry.get("subject") else None
    hold, is_new = Hold.objects.get_or_create(
        id=UUID(hex=entry["ref"]),
        defaults={
            "tenant": tenant,
            "subject_id": subject,
            "query": entry["query"],
            "until": datetime.fromisoformat(entry["until"]) if entry["until"] else None,
            "placed_at": datetime.fromisoformat(entry["at"]),
            **{name: entry[name] for name in holds.TOLD_TEXTS},
            **{name: UUID(hex=entry[name]) if entry[name] else None for name in holds.TOLD_IDS},
        },
    )
    rows = [HeldRow(hold=hold, tenant_id=tenant.id, category=key, row_id=UUID(hex=row_id)) for key, row_id in entry["rows"]]
    HeldRow.objects.bulk_create(rows, batch_size=1000, ignore_conflicts=True)
    return "placed again" if is_new else "was there"


@replay.handles(Kind.HOLD_RELEASED)
def release_again(entry: dict[str, Any]) -> str:
    hold = Hold.objects.filter(id=UUID(hex=entry["ref"]), released_at=None).first()
    if hold is None:
        return "was released"
    Hold.objects.filter(pk=hold.pk).update(
        released_at=clock.ClockTime(), released_by=entry["released_by"], released_by_label=entry["released_by_label"]
    )
    holds.resume_waiting(tenant_id=hold.tenant_id)
    return "released again"
