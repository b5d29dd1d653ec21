from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class LedgerEntry(models.Model):
    """Something the ledger outside the database must know: waiting to be written, or acknowledged with its number.

    Made in the transaction of what it tells of, so neither can exist without the other.
    """

    class Kind(models.TextChoices):
        ERASE_STARTED = "erase_started"
        ERASE_FINISHED = "erase_finished"
        HOLD_PLACED = "hold_placed"
        HOLD_RELEASED = "hold_released"
        BREAK_GLASS = "break_glass"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=20, choices=Kind)
    # The request or the hold.
    ref = models.UUIDField()
    subject_id = models.UUIDField(null=True, blank=True)
    # Ids, dates, counts, keyed hashes of identifiers, and ciphertext.
    body = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())
    number = models.BigIntegerField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "ref"], name="ledger_says_it_once"),
            models.CheckConstraint(
                condition=models.Q(number=None, acknowledged_at=None)
                | models.Q(number__isnull=False, acknowledged_at__isnull=False),
                name="ledger_acknowledged_with_number",
            ),
        ]
        indexes = [models.Index(fields=["id"], condition=models.Q(number=None), name="ledger_waiting")]

    def __str__(self):
        return f"{self.kind} {self.ref}"


class LedgerState(models.Model):
    """How much of the ledger this database knows. One row; a restored backup brings an older one, and that shows."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    high_water = models.BigIntegerField(default=0)
    # SHA-256 of the last line that was written, in hex.
    tail = models.CharField(max_length=64, blank=True)
    # A replay is at work: what it erases is told to the ledger when it is over.
    is_replaying = models.BooleanField(default=False)
    # Somebody chose to serve although the ledger cannot be read: when, who and why.
    waived = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="ledger_state_once")]

    def __str__(self):
        return str(self.high_water)


class SuppressedIdentifier(models.Model):
    """A keyed hash of what named an erased person: older content about them is not taken in again."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=20)
    value_hmac = models.BinaryField(max_length=32)
    norm_version = models.PositiveSmallIntegerField(default=1)
    erased_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "kind", "value_hmac"], name="suppressed_once")
        ]

    def __str__(self):
        return f"{self.kind} {self.erased_at}"
