from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class AuditEvent(models.Model):
    """Who did what to what. Written by `governance.domain.audit.record` in the transaction of the change itself.

    No foreign keys: the trail outlives its objects. No free text and no identifiers of subjects.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    at = models.DateTimeField(db_default=Now())
    actor_kind = models.CharField(max_length=10)
    actor_ref = models.CharField(max_length=64)
    actor_label = models.CharField(max_length=200)
    action = models.CharField(max_length=64)
    object_type = models.CharField(max_length=64, blank=True)
    object_ref = models.CharField(max_length=64, blank=True)
    object_label = models.CharField(max_length=200, blank=True)
    # Ids, counts and codes, by an allow-list per action.
    payload = models.JSONField(default=dict)
    # Given by the database when the event's transaction commits: see governance/chain.py.
    seq = models.BigIntegerField(null=True, editable=False)
    prev_hash = models.BinaryField(max_length=32, null=True, editable=False)
    hash = models.BinaryField(max_length=32, null=True, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "seq"], name="audit_seq_once"),
            models.UniqueConstraint(fields=["tenant_id", "prev_hash"], name="audit_no_fork"),
            models.CheckConstraint(
                condition=models.Q(seq=None, prev_hash=None, hash=None)
                | models.Q(seq__isnull=False, prev_hash__isnull=False, hash__isnull=False),
                name="audit_place_is_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="audit_newest"),
            models.Index(fields=["tenant_id", "action", "-id"], name="audit_by_action"),
            models.Index(fields=["tenant_id", "object_type", "object_ref"], name="audit_by_object"),
        ]

    def __str__(self):
        return f"{self.action} {self.object_label}"


class AuditHead(models.Model):
    """The end of one tenant's chain, and how much of it has a signed copy outside the database."""

    tenant_id = models.UUIDField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    hash = models.BinaryField(max_length=32)
    anchored_seq = models.BigIntegerField(default=0)
    anchored_at = models.DateTimeField(null=True, blank=True)

    def __str__(self):
        return f"{self.tenant_id} {self.seq}"


class AuditBoundary(models.Model):
    """Where a tenant's chain begins after its first part was exported and removed. Signed; the newest one counts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    through_seq = models.BigIntegerField()
    # The hash of the last event that was removed.
    hash = models.BinaryField(max_length=32)
    rows = models.BigIntegerField()
    export_sha256 = models.CharField(max_length=64)
    signature = models.JSONField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "through_seq"], name="audit_boundary_once")]

    def __str__(self):
        return f"{self.tenant_id} {self.through_seq}"
