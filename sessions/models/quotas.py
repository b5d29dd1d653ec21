from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Quota(models.Model):
    """A limit of runs, tokens or cost per day or month, for a tenant or one agent, key or subject of it."""

    class Scope(models.TextChoices):
        TENANT = "tenant"
        AGENT = "agent"
        API_KEY = "api_key"
        # One limit that holds for each subject (or key) by itself, unless `scope_ref` names one.
        SUBJECT = "subject"

    class Measure(models.TextChoices):
        RUNS = "runs"
        TOKENS = "tokens"
        COST = "cost"

    class Period(models.TextChoices):
        DAY = "day"
        MONTH = "month"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="quotas")
    scope = models.CharField(max_length=8, choices=Scope)
    # The id of the agent, key or subject, as hex; empty: every one of them by itself.
    scope_ref = models.CharField(max_length=64, blank=True)
    # The same subject again: such a limit is about a person and goes with them.
    subject_id = models.UUIDField(null=True)
    measure = models.CharField(max_length=8, choices=Measure)
    period = models.CharField(max_length=6, choices=Period)
    limit = models.DecimalField(max_digits=18, decimal_places=6)
    created_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "scope", "scope_ref", "measure", "period"], name="quota_once"
            ),
            models.CheckConstraint(condition=models.Q(limit__gte=0), name="quota_not_negative"),
            models.CheckConstraint(
                condition=(models.Q(scope="subject", subject_id__isnull=False) & ~models.Q(scope_ref=""))
                | (models.Q(subject_id=None) & (~models.Q(scope="subject") | models.Q(scope_ref=""))),
                name="quota_subject_paired",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "subject_id"], condition=models.Q(subject_id__isnull=False), name="quota_of_subject"
            )
        ]

    def __str__(self):
        return f"{self.limit} {self.measure} a {self.period}"


class QuotaCounter(models.Model):
    """What was used and what is reserved of a quota in one period of the tenant's zone."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    quota = models.ForeignKey("agent_sessions.Quota", models.DO_NOTHING, related_name="counters")
    ref = models.CharField(max_length=64)
    # First day of the period.
    period_start = models.DateField()
    used = models.DecimalField(max_digits=18, decimal_places=6, default=0)
    reserved = models.DecimalField(max_digits=18, decimal_places=6, default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["quota", "ref", "period_start"], name="quota_counter_once"),
            models.CheckConstraint(condition=models.Q(used__gte=0, reserved__gte=0), name="quota_counter_not_negative"),
        ]
        indexes = [
            models.Index(
                fields=["tenant_id", "subject_id"],
                condition=models.Q(subject_id__isnull=False),
                name="quota_counter_of_subject",
            ),
            models.Index(fields=["period_start"], name="quota_counter_by_age"),
        ]

    def __str__(self):
        return f"{self.ref} {self.period_start}"


class QuotaReservation(models.Model):
    """What one run holds of one counter until it ends. A crash leaves the row, and the sweeper finds it."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    counter = models.ForeignKey("agent_sessions.QuotaCounter", models.DO_NOTHING, related_name="reservations")
    # No foreign key: quotas are reserved before the run is stored.
    run_id = models.UUIDField()
    amount = models.DecimalField(max_digits=18, decimal_places=6)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run_id", "counter"], name="quota_reserved_once"),
            models.CheckConstraint(condition=models.Q(amount__gte=0), name="quota_reservation_not_negative"),
        ]
        indexes = [
            models.Index(fields=["created_at"], name="quota_reservation_by_age"),
            models.Index(
                fields=["tenant_id", "subject_id"],
                condition=models.Q(subject_id__isnull=False),
                name="quota_reserved_of_subject",
            ),
        ]

    def __str__(self):
        return f"{self.amount} for {self.run_id}"
