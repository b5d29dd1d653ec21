from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from governance.ids import uuid7


class SubjectRequest(models.Model):
    """One request about a subject: erase, export or rectify, from receipt to proof. The row is the job."""

    class Kind(models.TextChoices):
        ERASE = "erase"
        EXPORT = "export"
        RECTIFY = "rectify"

    class State(models.TextChoices):
        RECEIVED = "received"
        IDENTITY_PENDING = "identity_pending"
        PREVIEWED = "previewed"
        AWAITING_APPROVAL = "awaiting_approval"
        FENCING = "fencing"
        EXECUTING = "executing"
        VERIFYING = "verifying"
        FAILED_RETRYABLE = "failed_retryable"
        COMPLETED = "completed"
        COMPLETED_WITH_EXCEPTIONS = "completed_with_exceptions"
        CANCELLED = "cancelled"

    FINAL = (State.COMPLETED, State.COMPLETED_WITH_EXCEPTIONS, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="subject_requests")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, related_name="requests")
    # SR-2026-000123, counted per tenant and year.
    ref = models.CharField(max_length=20)
    kind = models.CharField(max_length=10, choices=Kind)
    state = models.CharField(max_length=26, choices=State, default=State.RECEIVED)
    # The state that failed_retryable returns to, and why it failed: a code and a sentence without personal data.
    resume_state = models.CharField(max_length=26, choices=State, blank=True)
    failure = models.JSONField(null=True, blank=True)
    profile = models.CharField(max_length=10, default="gdpr")
    reason = models.CharField(max_length=40, blank=True)
    received_at = models.DateTimeField(db_default=Now())
    # What binds now: an extension and the end of a pause move it.
    due_at = models.DateTimeField(null=True, blank=True)
    # A first answer, where the profile asks for one before the request itself is due.
    first_due_at = models.DateTimeField(null=True, blank=True)
    first_answered_at = models.DateTimeField(null=True, blank=True)
    extended_until = models.DateTimeField(null=True, blank=True)
    extension_reason = models.CharField(max_length=40, blank=True)
    # Where the notice to the person is on file.
    extension_notice = models.CharField(max_length=64, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_seconds = models.PositiveIntegerField(default=0)

    # The erasure that a hold kept from finishing: this one takes the rest when the last hold is released.
    follows = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="follow_ups")
    requester = models.CharField(max_length=64, blank=True)
    requester_label = models.CharField(max_length=200, blank=True)
    # Four eyes. Whoever acts through a key of their own is that person.
    requester_person = models.CharField(max_length=64, blank=True)
    approver = models.CharField(max_length=64, blank=True)
    approver_label = models.CharField(max_length=200, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    approval_expires_at = models.DateTimeField(null=True, blank=True)
    # Started by one person although the tenant's rules ask for two.
    break_glass = models.BooleanField(default=False)

    # The preview: epoch, buckets per category, samples' ids, and the digest over all chunks.
    epoch = models.PositiveIntegerField(default=0)
    digest = models.CharField(max_length=80, blank=True)
    registry_hash = models.CharField(max_length=80, blank=True)
    policy_version = models.PositiveIntegerField(default=1)
    preview = models.JSONField(null=True, blank=True)
    previewed_at = models.DateTimeField(null=True, blank=True)
    token_digest = models.CharField(max_length=64, blank=True)
    token_expires_at = models.DateTimeField(null=True, blank=True)
    drift = models.JSONField(null=True, blank=True)

    # The job: a lease renewed by every batch.
    lease_no = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    progress_at = models.DateTimeField(null=True, blank=True)
    logically_erased_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    # The latest version; `receipts` has them all.
    receipt = models.JSONField(null=True, blank=True)
    # What was put right: [{"category": "subject_identifiers", "what": "email", "rows": 1}], no values.
    corrections = models.JSONField(default=list)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "ref"], name="request_ref_once"),
            models.CheckConstraint(
                condition=Q(approver="") | ~(Q(approver=F("requester")) | Q(approver=F("requester_person"))),
                name="request_approver_is_another",
            ),
            models.CheckConstraint(
                condition=Q(extended_until=None, extension_reason="", extension_notice="")
                | (Q(extended_until__isnull=False) & ~Q(extension_reason="") & ~Q(extension_notice="")),
                name="request_extension_is_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "state", "due_at"], name="request_board"),
            models.Index(fields=["state", "lease_until"], name="request_sweep"),
            models.Index(fields=["tenant", "subject"], name="request_of_subject"),
        ]

    def __str__(self):
        return self.ref

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL


class RequestAlarm(models.Model):
    """Something about a request that somebody must look at. Each kind is raised once for a request."""

    class Kind(models.TextChoices):
        USED_50 = "used_50"
        USED_75 = "used_75"
        USED_90 = "used_90"
        OVERDUE = "overdue"
        FIRST_ANSWER_OVERDUE = "first_answer_overdue"
        BREAK_GLASS = "break_glass"

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="alarms")
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=24, choices=Kind)
    at = models.DateTimeField(db_default=Now())
    # Members who have said that they saw it, by id.
    seen_by = ArrayField(models.CharField(max_length=64), default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request", "kind"], name="request_alarm_once")]
        indexes = [models.Index(fields=["tenant_id", "kind"], name="request_alarm_of_tenant")]

    def __str__(self):
        return f"{self.kind} {self.request_id}"


class RequestRecipient(models.Model):
    """Somebody who received such data and must be told what became of it; declared by the categories."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="recipients")
    tenant_id = models.UUIDField()
    ref = models.CharField(max_length=100)
    told_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["ref"]
        constraints = [
            models.UniqueConstraint(fields=["request", "ref"], name="request_recipient_once"),
            models.CheckConstraint(
                condition=Q(acknowledged_at=None) | Q(told_at__isnull=False), name="request_recipient_told_first"
            ),
        ]

    def __str__(self):
        return self.ref


class PlanChunk(models.Model):
    """A range of rows of one category as a preview saw it: bounds, number and hash, no content."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="chunks")
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField()
    category = models.CharField(max_length=40)
    number = models.PositiveIntegerField()
    low = models.CharField(max_length=120)
    high = models.CharField(max_length=120)
    rows = models.PositiveIntegerField()
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64)
    # 16 bytes a row, in order: 8 of its key's hash, 8 of its version's. Tells added, changed and vanished rows apart.
    fingerprints = models.BinaryField(default=b"")
    # What a hold kept out of the plan: nothing of it is erased, but what is added to it must be seen.
    is_kept = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request", "category", "number"], name="plan_chunk_once")]

    def __str__(self):
        return f"{self.category} {self.number}"


class ErasureStep(models.Model):
    """What one batch of an erasure did, committed together with its deletes. Counts only."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("governance.SubjectRequest", models.CASCADE, related_name="steps")
    tenant_id = models.UUIDField()
    category = models.CharField(max_length=40)
    chunk_no = models.PositiveIntegerField()
    rows = models.PositiveIntegerField()
    bytes = models.BigIntegerField(default=0)
    already_absent = models.PositiveIntegerField(default=0)
    # Planned, and kept by a hold that came in between.
    held = models.PositiveIntegerField(default=0)
    lease_no = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "category", "chunk_no"], name="erasure_step_once")
        ]

    def __str__(self):
        return f"{self.category} {self.chunk_no}"


class Export(models.Model):
    """The archive that an export request made: one row, encrypted volumes in the data directory, an end date."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, related_name="+")
    request = models.OneToOneField("governance.SubjectRequest", models.CASCADE, related_name="export")
    # The volumes in order, [{"path", "size", "sha256"}, ...] as they lie on the disk; each is a ZIP of its own.
    parts = models.JSONField(default=list)
    # Bytes of all volumes.
    size = models.BigIntegerField(default=0)
    counts = models.JSONField(default=dict)
    # What is not inside: [{"category", "rows", "reason"}, ...].
    omissions = models.JSONField(default=list)
    # One-time addresses that were handed out: [{"digest", "part", "by", "used_at"}, ...]. They end with the archive.
    links = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    downloaded_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "subject"], name="export_of_subject")]

    def __str__(self):
        return str(self.request_id)
