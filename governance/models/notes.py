from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class AuditNote(models.Model):
    """Text that belongs to an audited act and may be about a person, so it can be erased; the trail cannot.

    The trail holds a commitment: a hash over the text and a salt that is encrypted together with it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, related_name="+")
    request_id = models.UUIDField(null=True, blank=True)
    kind = models.CharField(max_length=20)
    text_enc = models.BinaryField()
    written_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "subject"], name="note_of_subject"),
            models.Index(fields=["request_id"], name="note_of_request"),
        ]

    def __str__(self):
        return f"{self.kind} {self.id}"
