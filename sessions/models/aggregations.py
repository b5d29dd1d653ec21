from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Aggregation(models.Model):
    """That an agent has written down what happened in a range of a session, into a file that it keeps.

    The text is in the file only. The row says what the file was made of, so that it follows its sources, and up to where
    the session is written down. A row with a failure says why nothing was.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    agent_id = models.UUIDField()
    # No foreign key: the row outlives the session until its file is gone as well.
    session_id = models.UUIDField()
    # Ids of the sessions that hold the items: its own, and those that a fork shares with.
    owners = ArrayField(models.UUIDField())
    kind = models.CharField(max_length=30)
    file_id = models.UUIDField(null=True)
    path = models.CharField(max_length=402)
    from_seq = models.PositiveBigIntegerField()
    to_seq = models.PositiveBigIntegerField()
    # The session's count of turns at the end of the range.
    turn = models.PositiveBigIntegerField()
    model = models.CharField(max_length=270, blank=True)
    # The run whose ledger has the cost.
    run_id = models.UUIDField(null=True)
    # An item of the range was changed or deleted: the database says so, and the file goes.
    is_stale = models.BooleanField(default=False)
    failure = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(failure="", file_id__isnull=False) | (~models.Q(failure="") & models.Q(file_id=None)),
                name="aggregation_has_file",
            ),
            models.CheckConstraint(condition=models.Q(to_seq__gte=models.F("from_seq")), name="aggregation_range_in_order"),
        ]
        indexes = [
            models.Index(fields=["session_id", "kind", "-created_at"], name="aggregation_newest"),
            models.Index(fields=["file_id"], condition=models.Q(file_id__isnull=False), name="aggregation_of_file"),
            models.Index(fields=["created_at"], condition=models.Q(is_stale=True), name="aggregation_stale"),
            models.Index(fields=["tenant_id", "subject_id"], name="aggregation_of_subject"),
            GinIndex(fields=["owners"], name="aggregation_owners"),
        ]

    def __str__(self):
        return f"{self.path} {self.from_seq}-{self.to_seq}"
