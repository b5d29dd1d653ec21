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

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="audit_newest"),
            models.Index(fields=["tenant_id", "action", "-id"], name="audit_by_action"),
            models.Index(fields=["tenant_id", "object_type", "object_ref"], name="audit_by_object"),
        ]

    def __str__(self):
        return f"{self.action} {self.object_label}"
