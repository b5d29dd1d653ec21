from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7
from governance.sealing import SealedBytes, SealedJSON


class Session(models.Model):
    """One continuous conversation of one subject with one agent.

    History is in Item rows; this row holds what moves: the lease, the counters, and a small state.
    """

    class State(models.TextChoices):
        OPEN = "open"
        CLOSED = "closed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # Here and below: no index for a key that begins one of the indexes in Meta.
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey("agents.Agent", models.DO_NOTHING, related_name="+")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, null=True, blank=True, related_name="+")
    # Chosen by the caller: 1 to 200 printable characters. Another subject's same key is another session.
    key = models.CharField(max_length=200)
    title = models.CharField(max_length=200, blank=True)
    labels = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    status = models.CharField(max_length=8, choices=State, default=State.OPEN)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    last_active_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    # Raised by every write of history; each write expects the version it read. Metadata leaves it alone.
    version = models.PositiveBigIntegerField(default=0)
    head_seq = models.PositiveBigIntegerField(default=0)
    turns = models.PositiveBigIntegerField(default=0)

    # The one running turn, by the clock of the database.
    lease_run_id = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    # The version that a session with version_policy = pin keeps.
    pinned_version = models.ForeignKey("agents.AgentVersion", models.SET_NULL, null=True, blank=True, related_name="+")

    # A fork shares its parent's items by reference: [[session id, first seq, last seq], ...], oldest first, own
    # items excluded. Flat, so loading costs the same however deep the family is.
    shared = models.JSONField(default=list, blank=True)
    forked_from = models.UUIDField(null=True, blank=True)
    forked_at_seq = models.PositiveBigIntegerField(null=True, blank=True)

    # {"schema": 1, "software": "0.1.0", "mode": "plan", "todos": [...], "instructions": ...}: read by us only.
    state = models.JSONField(default=dict, blank=True)
    # The application's own structured data of the current task, with its own counter.
    task = models.JSONField(default=dict, blank=True)
    task_version = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "agent", "subject", "key"], nulls_distinct=False, name="session_key_once"
            ),
            models.CheckConstraint(
                condition=models.Q(lease_run_id=None, lease_expires_at=None)
                | models.Q(lease_run_id__isnull=False, lease_expires_at__isnull=False),
                name="session_lease_paired",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-last_active_at", "-id"], name="session_newest"),
            models.Index(fields=["tenant", "agent", "-last_active_at"], name="session_of_agent"),
            models.Index(fields=["tenant", "subject"], name="session_of_subject"),
            # Retention pages through what ended longest ago; by last activity it reads `session_newest` from its other
            # end. None by creation: every turn would write an entry of it anew.
            models.Index(
                fields=["tenant", "ended_at", "id"], condition=models.Q(ended_at__isnull=False), name="session_by_end"
            ),
            models.Index(
                fields=["lease_expires_at"], condition=models.Q(lease_run_id__isnull=False), name="session_leased"
            ),
            models.Index(
                fields=["forked_from"], condition=models.Q(forked_from__isnull=False), name="session_forks"
            ),
        ]

    def __str__(self):
        return self.title or self.key


class Item(models.Model):
    """One entry of a session's history. Append-only: compaction and repair change the view, never the row."""

    class Kind(models.TextChoices):
        MESSAGE = "message"
        TOOL_CALL = "tool_call"
        TOOL_RESULT = "tool_result"
        APPROVAL_REQUEST = "approval_request"
        APPROVAL_RESPONSE = "approval_response"
        REASONING = "reasoning"
        NOTE = "note"

    pk = models.CompositePrimaryKey("session_id", "seq")
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, related_name="items", db_index=False)
    # Gapless per session, from 1, assigned under the lease.
    seq = models.PositiveBigIntegerField()
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=18, choices=Kind)
    role = models.CharField(max_length=10)
    turn = models.PositiveBigIntegerField()
    # Entries that stand or fall together (a call, its result, its reasoning) share the seq of their first one.
    group = models.PositiveBigIntegerField()
    tokens = models.PositiveIntegerField(default=0)
    content = SealedJSON(kept=("id", "call_id", "approval_id", "name", "outcome", "duration_ms", "attachments"))
    # Hidden by a rollback: no view shows it, erasure and export still see it.
    is_hidden = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "subject_id"], name="item_of_subject")]

    def __str__(self):
        return f"{self.kind} {self.seq}"


class Blob(models.Model):
    """Bytes of an attachment, stored once per subject and hash; items refer to it by the hash."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, null=True, related_name="+")
    sha256 = models.CharField(max_length=64)
    media_type = models.CharField(max_length=100)
    name = models.CharField(max_length=200, blank=True)
    size = models.PositiveIntegerField()
    data = SealedBytes()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "subject_id", "session", "sha256"], nulls_distinct=False, name="blob_once"
            )
        ]

    def __str__(self):
        return self.sha256[:12]
