from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Lineage(models.Model):
    """One source of a derived row, where the two are in different apps or belong to different people.

    Rows are named by category and key (as previews show it), because governance knows no tables above it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    # Of the derived row; null where it is nobody's, as a playbook of the whole tenant.
    subject_id = models.UUIDField(null=True)
    child_category = models.CharField(max_length=40)
    child_id = models.CharField(max_length=120)
    parent_category = models.CharField(max_length=40)
    parent_id = models.CharField(max_length=120)
    parent_subject_id = models.UUIDField(null=True)
    # How it was derived ("extraction", "consolidation") and by which model.
    method = models.CharField(max_length=40)
    model = models.CharField(max_length=270, blank=True)
    at = models.DateTimeField(db_default=Now())
    # When the sweep last looked whether both ends are still there.
    checked_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "child_category", "child_id", "parent_category", "parent_id"], name="lineage_once"
            )
        ]
        indexes = [
            models.Index(fields=["tenant_id", "parent_subject_id"], name="lineage_of_source"),
            models.Index(fields=["tenant_id", "subject_id"], name="lineage_of_subject"),
            models.Index(fields=["tenant_id", "parent_category", "parent_id"], name="lineage_by_parent"),
            models.Index(fields=["checked_at"], name="lineage_by_check"),
        ]

    def __str__(self):
        return f"{self.child_category} {self.child_id} from {self.parent_category} {self.parent_id}"


class Regeneration(models.Model):
    """A row with other living sources that an erasure has hidden, until it is rebuilt from them or deleted."""

    class Outcome(models.TextChoices):
        REGENERATED = "regenerated"
        DELETED = "deleted"
        GONE = "gone"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="regenerations")
    category = models.CharField(max_length=40)
    row_id = models.CharField(max_length=120)
    # Sources come before what is derived from them.
    depth = models.PositiveSmallIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    outcome = models.CharField(max_length=11, choices=Outcome, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request", "category", "row_id"], name="regeneration_once")]

    def __str__(self):
        return f"{self.category} {self.row_id}"
