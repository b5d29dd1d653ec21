"""Signed copies of the ends of audit chains, outside the database.

Whoever can write to the database can make a shorter or another chain that fits together. What they cannot do is make
the line that was written here before, so keep the folder where the database's administrator cannot write.

One file per tenant, one JSON line per checkpoint: schema, tenant, seq, hash, rows, at, signature.
"""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import F, Q

from governance import signing
from governance.domain import clock
from governance.models import AuditBoundary, AuditHead

log = structlog.get_logger("lethe.governance")

SCHEMA = "lethe.checkpoint/1"
EVERY = timedelta(hours=1)


def due() -> list[UUID]:
    """Tenants whose chain has grown since a checkpoint that is an hour old, or that have none."""
    grown = AuditHead.objects.filter(seq__gt=F("anchored_seq"))
    return list(
        grown.filter(Q(anchored_at=None) | Q(anchored_at__lte=clock.after(-EVERY))).values_list("tenant_id", flat=True)[:500]
    )


def checkpoint_due() -> int:
    """Write every checkpoint that is due. A folder that cannot be written is logged, and tried again by the next round."""
    count = 0
    for tenant_id in due():
        try:
            count += checkpoint(tenant_id=tenant_id) is not None
        except OSError as error:
            log.error("checkpoint_failed", tenant=tenant_id.hex, reason=type(error).__name__)
            break
    return count


def checkpoint(*, tenant_id: UUID) -> dict[str, Any] | None:
    """Write down where the tenant's chain ends now, safely on disk. None for a chain without events."""
    head = AuditHead.objects.filter(tenant_id=tenant_id, seq__gt=0).first()
    if head is None:
        return None
    line = signing.signed(
        {
            "schema": SCHEMA,
            "tenant": tenant_id.hex,
            "seq": head.seq,
            "hash": bytes(head.hash).hex(),
            "rows": head.seq - _pruned(tenant_id),
            "at": clock.now().isoformat().replace("+00:00", "Z"),
        }
    )
    append(file_of(tenant_id), [line])
    AuditHead.objects.filter(tenant_id=tenant_id, anchored_seq__lt=head.seq).update(
        anchored_seq=head.seq, anchored_at=clock.ClockTime()
    )
    return line


def read(*, tenant_id: UUID) -> list[dict[str, Any]]:
    """The tenant's checkpoints whose signature holds, in the order they were written. Empty without any."""
    found = []
    try:
        text = file_of(tenant_id).read_bytes()
    except OSError:
        return found
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("tenant") == tenant_id.hex and signing.is_signed(entry):
            found.append(entry)
    return found


def file_of(tenant_id: UUID) -> Path:
    return Path(settings.ANCHOR_DIR) / f"{tenant_id.hex}.jsonl"


def append(path: Path, lines: list[dict[str, Any]]) -> None:
    """Add JSON lines to a file and wait until the disk has them."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = b"".join(json.dumps(line, separators=(",", ":"), sort_keys=True).encode() + b"\n" for line in lines)
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _pruned(tenant_id: UUID) -> int:
    newest = AuditBoundary.objects.filter(tenant_id=tenant_id).order_by("-through_seq").first()
    return newest.through_seq if newest else 0
