from django.db import models
from django.db.models.functions import Now


class Receipt(models.Model):
    """One signed version of a request's receipt, as it was issued. Later versions add what came to be known."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="receipts")
    tenant_id = models.UUIDField()
    version = models.PositiveIntegerField()
    document = models.JSONField()
    issued_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["version"]
        constraints = [models.UniqueConstraint(fields=["request", "version"], name="receipt_version_once")]

    def __str__(self):
        return f"{self.request_id} version {self.version}"
