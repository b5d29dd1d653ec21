from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Hold(models.Model):
    """A legal duty to keep rows. It beats every deletion until somebody releases it."""

    class Scope(models.TextChoices):
        SUBJECT = "subject"
        SESSION = "session"
        AGENT = "agent"
        CATEGORY = "category"
        QUERY = "query"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="holds")
    # The file that the duty comes from, such as M-17. A reference, never a name: it stands in grounds and in the trail.
    matter = models.CharField(max_length=64)
    reason = models.CharField(max_length=40)
    scope = models.CharField(max_length=10, choices=Scope)
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, null=True, blank=True, related_name="holds")
    session_id = models.UUIDField(null=True, blank=True)
    agent_id = models.UUIDField(null=True, blank=True)
    agent_name = models.CharField(max_length=64, blank=True)
    # What was named, and the head of its group: rows that belong together are held together.
    category = models.CharField(max_length=40, blank=True)
    root = models.CharField(max_length=40, blank=True)
    # The conditions of a query, as they were asked. The rows they met are in HeldRow.
    query = models.JSONField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    covered_rows = models.PositiveBigIntegerField(null=True, blank=True)
    already_absent = models.PositiveBigIntegerField(default=0)
    placed_by = models.CharField(max_length=64)
    placed_by_label = models.CharField(max_length=200)
    placed_at = models.DateTimeField(db_default=Now())
    released_by = models.CharField(max_length=64, blank=True)
    released_by_label = models.CharField(max_length=200, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope="subject", subject__isnull=False)
                | models.Q(scope="session", session_id__isnull=False)
                | models.Q(scope="agent", agent_id__isnull=False)
                | models.Q(scope="category", root__gt="")
                | models.Q(scope="query", query__isnull=False),
                name="hold_names_what_it_covers",
            ),
            models.CheckConstraint(
                condition=models.Q(released_at=None, released_by="") | models.Q(released_at__isnull=False, released_by__gt=""),
                name="hold_release_paired",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant"], condition=models.Q(released_at=None), name="hold_in_force"),
            models.Index(fields=["until"], condition=models.Q(released_at=None, until__isnull=False), name="hold_expiry"),
        ]

    def __str__(self):
        return self.matter


class HeldRow(models.Model):
    """The head of a row group that a hold covers by name: a session, a run without one, or a row by itself."""

    id = models.BigAutoField(primary_key=True)
    hold = models.ForeignKey("governance.Hold", models.CASCADE, related_name="rows")
    tenant_id = models.UUIDField()
    category = models.CharField(max_length=40)
    row_id = models.UUIDField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hold", "row_id"], name="held_row_once")]

    def __str__(self):
        return f"{self.category} {self.row_id}"


class HeldCopy(models.Model):
    """A row as it was before somebody changed it under a hold. Written by the database, see governance/triggers.py.

    It carries what decides whether a hold covers it, because the row itself may be gone by the time of a release.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    category = models.CharField(max_length=40)
    root = models.CharField(max_length=40)
    row_id = models.CharField(max_length=80)
    roots = ArrayField(models.UUIDField())
    agent_id = models.UUIDField(null=True)
    content = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "subject_id"], name="held_copy_of_subject")]

    def __str__(self):
        return f"{self.category} {self.row_id}"
