from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Run(models.Model):
    """One request to an agent. The row is the job: whoever executes it holds the session's lease."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        AWAITING_APPROVAL = "awaiting_approval"
        COMPLETED = "completed"
        FAILED = "failed"
        CANCELLED = "cancelled"
        INTERRUPTED = "interrupted"
        BUDGET_EXCEEDED = "budget_exceeded"

    FINISHED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED, Status.BUDGET_EXCEEDED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # Here and below: no index for a key that begins one of the indexes in Meta.
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+", db_index=False)
    subject_id = models.UUIDField(null=True)
    # The subject's epoch at the start: a fence raised meanwhile ends the run.
    epoch = models.PositiveIntegerField(default=0)
    agent = models.ForeignKey("agents.Agent", models.DO_NOTHING, related_name="+")
    # Null for a run of the draft, from the editor or the playground.
    version = models.ForeignKey("agents.AgentVersion", models.DO_NOTHING, null=True, related_name="+")
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, null=True, related_name="runs", db_index=False)
    parent_id = models.UUIDField(null=True)
    root_id = models.UUIDField(null=True)
    status = models.CharField(max_length=18, choices=Status, default=Status.QUEUED)
    # The seq of its message in the session: its items are from there on.
    first_seq = models.PositiveBigIntegerField(null=True)
    # What was asked, until it is stored as an item: {"message", "attachments", "parameters", "culture", "metadata"}.
    request = models.JSONField(default=dict)
    # The definition of a draft run; a published one is found through `version`.
    document = models.JSONField(null=True)
    started_by = models.CharField(max_length=200)
    actor_kind = models.CharField(max_length=10)
    actor_ref = models.CharField(max_length=64)
    labels = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    first_token_at = models.DateTimeField(null=True)
    # Renewed by whoever executes it; a sessionless run has no other lease.
    lease_expires_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_reason = models.CharField(max_length=20, blank=True)
    # Ids of calls of tools that write, destroy or reach outside, noted before they ran: never run a second time.
    effects = models.JSONField(default=list, blank=True)
    # Queued runs of a session start in this order, then by age: an answered approval and an interruption go first.
    priority = models.SmallIntegerField(default=0)

    model_name = models.CharField(max_length=200, blank=True)
    model_calls = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    # US dollars; null when no price is known for some model call.
    cost = models.DecimalField(max_digits=14, decimal_places=8, null=True)
    # {"class", "code", "message"}: never a provider's own text.
    error = models.JSONField(null=True)
    # The answer of a sessionless run; inside a session the answer is an item.
    output = models.JSONField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="run_newest"),
            models.Index(fields=["session", "-id"], name="run_of_session"),
            models.Index(fields=["tenant", "subject_id"], name="run_of_subject"),
            # Retention pages through the oldest.
            models.Index(
                fields=["tenant", "ended_at", "id"], condition=models.Q(ended_at__isnull=False), name="run_by_end"
            ),
            models.Index(
                fields=["status", "lease_expires_at"],
                condition=models.Q(status__in=["queued", "running", "awaiting_approval"]),
                name="run_unfinished",
            ),
            # What is ahead of a new turn, without walking the session's past runs.
            models.Index(
                fields=["session"],
                condition=models.Q(status__in=["queued", "running", "awaiting_approval"]),
                name="run_unfinished_of_session",
            ),
        ]

    def __str__(self):
        return f"{self.agent_id} {self.status}"

    @property
    def is_finished(self) -> bool:
        return self.status in self.FINISHED


class RunEvent(models.Model):
    """One event of a run, in order: what a stream shows live, resumed or afterwards.

    `message.delta` rows live until their message is complete. `message.completed` names the item that holds the
    text, so a finished conversation stores it once.
    """

    pk = models.CompositePrimaryKey("run_id", "seq")
    run = models.ForeignKey("agent_sessions.Run", models.DO_NOTHING, related_name="events", db_index=False)
    seq = models.PositiveBigIntegerField()
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    type = models.CharField(max_length=30)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(
                fields=["tenant_id", "subject_id"],
                condition=models.Q(subject_id__isnull=False),
                name="run_event_of_subject",
            ),
            # What is to be folded, without reading all that is kept.
            models.Index(
                fields=["at"],
                condition=models.Q(type__in=["message.delta", "reasoning.delta"]),
                name="run_event_deltas",
            ),
            models.Index(
                fields=["at"],
                condition=models.Q(type="context.assembled", data__has_key="layers"),
                name="run_event_reports",
            ),
        ]

    def __str__(self):
        return f"{self.seq} {self.type}"


class ModelCall(models.Model):
    """The ledger: one row for each call of a model that was paid for, with the prices applied."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    run = models.ForeignKey("agent_sessions.Run", models.DO_NOTHING, related_name="calls", db_index=False)
    agent_id = models.UUIDField()
    number = models.PositiveIntegerField()
    provider = models.CharField(max_length=64)
    model = models.CharField(max_length=200)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    is_estimated = models.BooleanField(default=False)
    cost = models.DecimalField(max_digits=14, decimal_places=8, null=True)
    # {"source": "operator" | "genai-prices 0.2.3", "input": "0.25", "output": "2.00"}: dollars a million tokens.
    prices = models.JSONField(null=True)
    # What the model saw: [{"layer", "tokens", "sources", "left_out"}].
    context = models.JSONField(default=list)
    duration_ms = models.PositiveIntegerField(default=0)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="model_call_once")]
        indexes = [
            models.Index(fields=["tenant_id", "at"], name="model_call_by_time"),
            models.Index(fields=["tenant_id", "subject_id"], name="model_call_of_subject"),
        ]

    def __str__(self):
        return f"{self.model} {self.number}"


class IdempotencyRecord(models.Model):
    """The same key and body give the same run for 24 hours. A reservation has a lease, so a crash frees it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    actor_ref = models.CharField(max_length=64)
    key = models.CharField(max_length=255)
    body_sha256 = models.CharField(max_length=64)
    run_id = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "actor_ref", "key"], name="idempotency_key_once")
        ]
        indexes = [
            models.Index(fields=["tenant_id", "subject_id"], name="idempotency_of_subject"),
            models.Index(fields=["created_at"], name="idempotency_by_age"),
        ]

    def __str__(self):
        return self.key
