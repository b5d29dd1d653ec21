from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7
from governance.sealing import SealedText


class Summary(models.Model):
    """A text that stands for the items `from_seq` to `to_seq` of a session: what compaction keeps for later turns.

    A row without a text is one that cannot be used: an item that it covers has changed (the database marks it so and
    takes the text away), or writing it has failed.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, related_name="summaries")
    # Ids of the sessions that hold the items: its own, and those that a fork shares with.
    owners = ArrayField(models.UUIDField())
    from_seq = models.PositiveBigIntegerField()
    to_seq = models.PositiveBigIntegerField()
    text = SealedText(blank=True)
    tokens = models.PositiveIntegerField(default=0)
    # Of all the items that it stands for, those of earlier summaries included.
    source_tokens = models.PositiveBigIntegerField(default=0)
    # "provider/model" that wrote it, and the digest of the settings that it was written by.
    model = models.CharField(max_length=270, blank=True)
    settings_digest = models.CharField(max_length=64)
    # The summary that this one carries on.
    parent_id = models.UUIDField(null=True)
    # The run whose ledger has the cost.
    run_id = models.UUIDField(null=True)
    is_stale = models.BooleanField(default=False)
    # Why there is no text: a code such as provider_overloaded or longer_than_its_source.
    failure = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(is_stale=False, failure="") & ~models.Q(text="")
                | (models.Q(is_stale=True) | ~models.Q(failure="")) & models.Q(text=""),
                name="summary_usable_has_text",
            ),
            models.CheckConstraint(condition=models.Q(to_seq__gte=models.F("from_seq")), name="summary_range_in_order"),
        ]
        indexes = [
            models.Index(fields=["session", "-to_seq"], condition=models.Q(is_stale=False, failure=""), name="summary_usable"),
            models.Index(fields=["session", "-created_at"], name="summary_newest"),
            models.Index(fields=["tenant_id", "subject_id"], name="summary_of_subject"),
            GinIndex(fields=["owners"], name="summary_owners"),
        ]

    def __str__(self):
        return f"{self.from_seq}-{self.to_seq}"
