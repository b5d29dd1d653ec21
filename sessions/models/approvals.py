from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Approval(models.Model):
    """A tool call that waits for a person. The decision is stored before it acts."""

    class Status(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        REJECTED = "rejected"
        EXPIRED = "expired"
        # The run was cancelled or the conversation went on without it.
        WITHDRAWN = "withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    run = models.ForeignKey("agent_sessions.Run", models.DO_NOTHING, related_name="approvals")
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, null=True, related_name="approvals")
    agent_id = models.UUIDField()
    call_id = models.CharField(max_length=200)
    tool = models.CharField(max_length=200)
    # Where the tool comes from ("code:lethe", "mcp:crm"): a rule for one origin does not fit another.
    origin = models.CharField(max_length=200)
    arguments = models.JSONField()
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    # What ran instead of `arguments`, when a person edited them.
    edited_arguments = models.JSONField(null=True)
    reason = models.TextField(blank=True)
    decided_by = models.CharField(max_length=200, blank=True)
    decided_ref = models.CharField(max_length=64, blank=True)
    decided_at = models.DateTimeField(null=True)
    rule_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["run", "call_id"], name="approval_once_per_call")]
        indexes = [
            models.Index(fields=["tenant_id", "status", "-id"], name="approval_inbox"),
            models.Index(fields=["tenant_id", "subject_id"], name="approval_of_subject"),
            models.Index(fields=["expires_at"], condition=models.Q(status="pending"), name="approval_expiry"),
        ]

    def __str__(self):
        return f"{self.tool} {self.status}"


class ApprovalRule(models.Model):
    """A standing answer: this tool of this origin, for one session or one agent, until it expires or is revoked."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    # Set on rules of one session: they go with it.
    subject_id = models.UUIDField(null=True)
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, null=True, related_name="approval_rules")
    agent = models.ForeignKey("agents.Agent", models.CASCADE, related_name="+")
    tool = models.CharField(max_length=200)
    origin = models.CharField(max_length=200)
    # Null: any arguments. Otherwise {"path": {"equals": value}} or {"path": {"prefix": "drafts/"}}, all must hold.
    condition = models.JSONField(null=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant_id", "agent", "tool"], name="approval_rule_lookup"),
            models.Index(fields=["tenant_id", "subject_id"], name="approval_rule_of_subject"),
        ]

    def __str__(self):
        return f"{self.tool} always"
