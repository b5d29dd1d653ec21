"""Idempotency keys: the same key and body give the same run for 24 hours.

A reservation is made before the work and bound to the run in the run's own transaction. It has a lease, so a crash
in between frees the key.
"""

from datetime import timedelta

from django.db import connection, transaction
from django.db.models.functions import Now

from governance.actors import Actor
from governance.errors import Invalid
from governance.ids import uuid7
from governance.models import Subject
from sessions.domain import leases
from sessions.errors import IdempotencyBusy, IdempotencyMismatch
from sessions.models import IdempotencyRecord, Run

KEPT = timedelta(hours=24)
_NOT_HELD = "hold_over(tenant_id, subject_id, 'idempotency_records', ARRAY[id], NULL) IS NULL"


def reserve(*, key: str, body_digest: str, by: Actor, subject: Subject | None) -> tuple[IdempotencyRecord, Run | None]:
    """Reserve `key` for this caller, or return the run that it already names.

    Raises IdempotencyMismatch for another body and IdempotencyBusy while the first request is still taken in.
    """
    if not 1 <= len(key) <= 255 or not key.isprintable():
        raise Invalid("An Idempotency-Key has 1 to 255 printable characters.")
    fresh = IdempotencyRecord(
        id=uuid7(), tenant_id=by.tenant_id, subject_id=subject.id if subject else None, actor_ref=by.ref, key=key,
        body_sha256=body_digest, lease_expires_at=leases.until(),
    )  # fmt: skip
    # Under a hold an old key goes on to name its run.
    old = IdempotencyRecord.objects.filter(tenant_id=by.tenant_id, actor_ref=by.ref, key=key, created_at__lt=Now() - KEPT)
    old.extra(where=[_NOT_HELD]).delete()
    IdempotencyRecord.objects.bulk_create([fresh], ignore_conflicts=True)
    stored = IdempotencyRecord.objects.get(tenant_id=by.tenant_id, actor_ref=by.ref, key=key)
    if stored.id == fresh.id:
        return stored, None
    if stored.body_sha256 != body_digest or stored.subject_id != fresh.subject_id:
        raise IdempotencyMismatch
    if stored.run_id is not None:
        run = Run.objects.select_related("agent", "version", "session").filter(id=stored.run_id).first()
        if run is not None:
            return stored, run
    if not IdempotencyRecord.objects.filter(id=stored.id, lease_expires_at__lt=Now()).update(lease_expires_at=leases.until()):
        raise IdempotencyBusy
    return stored, None


def bind(record: IdempotencyRecord, *, run: Run) -> None:
    """Name the run that the key stands for, in the run's transaction."""
    IdempotencyRecord.objects.filter(id=record.id).update(run_id=run.id, lease_expires_at=None)


def free(record: IdempotencyRecord) -> None:
    """Give the key back: the request was refused, so the same key may try again."""
    with transaction.atomic():
        IdempotencyRecord.objects.filter(id=record.id, run_id=None).delete()


def expire(limit: int = 1000) -> int:
    """Delete keys older than a day, in one bounded batch."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM agent_sessions_idempotencyrecord WHERE id IN (
              SELECT record.id FROM agent_sessions_idempotencyrecord record
              WHERE record.created_at < now() - %s AND NOT EXISTS (
                SELECT 1 FROM governance_fence fence WHERE fence.subject_id = record.subject_id AND fence.lifted_at IS NULL)
                AND hold_over(record.tenant_id, record.subject_id, 'idempotency_records', ARRAY[record.id], NULL) IS NULL
              LIMIT %s)
            """,
            [KEPT, limit],
        )
        return cursor.rowcount
