from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class RetentionPolicy(models.Model):
    """How long a category is kept, and what happens then."""

    class AgeBasis(models.TextChoices):
        CREATED = "created"
        LAST_ACTIVITY = "last_activity"
        ENDED = "ended"

    class Action(models.TextChoices):
        DELETE = "delete"
        ANONYMISE = "anonymise"
        ARCHIVE_THEN_DELETE = "archive_then_delete"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="retention_policies")
    category = models.CharField(max_length=40)
    # Empty for the whole tenant; an agent's name narrows it, and the most specific policy applies.
    agent = models.CharField(max_length=64, blank=True)
    age_basis = models.CharField(max_length=16, choices=AgeBasis, default=AgeBasis.ENDED)
    # One of them: days of 24 hours, or months as the tenant's calendar has them.
    days = models.PositiveIntegerField(null=True, blank=True)
    months = models.PositiveIntegerField(null=True, blank=True)
    # So many of each subject's newest rows stay, however old they are.
    min_keep = models.PositiveIntegerField(default=0)
    action = models.CharField(max_length=20, choices=Action, default=Action.DELETE)
    enabled = models.BooleanField(default=True)
    # Until then the policy counts and deletes nothing.
    dry_run_until = models.DateTimeField(null=True, blank=True)
    version = models.PositiveIntegerField(default=1)
    # Who set it as it is, and the member behind an API key that did; and who agreed to which version.
    author = models.CharField(max_length=64, blank=True)
    author_person = models.CharField(max_length=64, blank=True)
    approver = models.CharField(max_length=64, blank=True)
    approver_label = models.CharField(max_length=200, blank=True)
    approved_version = models.PositiveIntegerField(null=True, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    # A removed policy stays for the sake of its runs' history; nothing shows or applies it.
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["category", "agent"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "category", "agent"], condition=models.Q(enabled=True), name="retention_one_enabled"
            ),
            models.CheckConstraint(
                condition=models.Q(days__gte=1, months=None) | models.Q(months__gte=1, days=None),
                name="retention_at_least_a_day",
            ),
            models.CheckConstraint(
                condition=models.Q(approver="") | ~(models.Q(approver=models.F("author")) | models.Q(approver=models.F("author_person"))),
                name="retention_approver_is_another",
            ),
            models.CheckConstraint(
                condition=models.Q(deleted_at=None) | models.Q(enabled=False), name="retention_deleted_is_off"
            ),
        ]

    def __str__(self):
        return f"{self.category}: {self.length}"

    @property
    def length(self) -> str:
        """How long, in words: 30 days, 6 months, 2 years."""
        number, unit = (self.days, "day") if self.months is None else (self.months, "month")
        if unit == "month" and number % 12 == 0:
            number, unit = number // 12, "year"
        return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"

    @property
    def is_approved(self) -> bool:
        """Whether a second person has agreed to it as it is now."""
        return self.approved_version == self.version


class RetentionRun(models.Model):
    """One execution of a policy. The schedule cannot fire twice: policy and slot are unique."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        COMPLETED = "completed"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    policy = models.ForeignKey("governance.RetentionPolicy", models.CASCADE, related_name="runs")
    scheduled_for = models.DateTimeField()
    policy_version = models.PositiveIntegerField()
    dry_run = models.BooleanField(default=False)
    cutoff = models.DateTimeField()
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    cursor = models.CharField(max_length=120, blank=True)
    # rows deleted, bytes, and what was left by reason: {"deleted": 3, "rows": 40, "bytes": 120, "by_category": {...}, "skipped": {"active_run": 1}}
    counts = models.JSONField(default=dict)
    failure = models.JSONField(null=True, blank=True)
    lease_no = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    started_by = models.CharField(max_length=200, default="schedule")

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["policy", "scheduled_for"], name="retention_fires_once")]
        indexes = [models.Index(fields=["state", "lease_until"], name="retention_sweep")]

    def __str__(self):
        return f"{self.policy_id} {self.scheduled_for:%Y-%m-%d}"


class ArchivedPart(models.Model):
    """Rows of one person that retention took out of the database into a file of the archive.

    The file is encrypted under a key of its own, which is only here: without this row nobody can read it, wherever
    there are copies of it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    # The category of the policy; members of its groups are in the file as well.
    category = models.CharField(max_length=40)
    # The category that heads their groups, the ids that a hold may name these rows by, and their agents: a hold reaches them
    # here as well. Null in files from before that was noted: then every hold of a session or an agent keeps them.
    root = models.CharField(max_length=40, blank=True)
    roots = ArrayField(models.UUIDField(), null=True)
    agents = ArrayField(models.UUIDField(), null=True)
    run_id = models.UUIDField()
    # Inside the archive's folder.
    path = models.CharField(max_length=200)
    # Rows by category: {"sessions": 1, "items": 40}.
    counts = models.JSONField(default=dict)
    # Bytes and SHA-256 of the file as it lies there, and SHA-256 of the lines in it.
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    content_sha256 = models.CharField(max_length=64)
    key_enc = models.BinaryField()
    archived_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["path"], name="archived_part_once")]
        indexes = [
            models.Index(fields=["tenant_id", "subject_id"], name="archived_of_subject"),
            models.Index(fields=["tenant_id", "archived_at", "id"], name="archived_by_age"),
        ]

    def __str__(self):
        return self.path
