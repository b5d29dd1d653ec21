from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class PurgeJob(models.Model):
    """One table from whose files erased bytes are to go. Erasures that come meanwhile are taken along. The row is the job."""

    class State(models.TextChoices):
        IDLE = "idle"
        QUEUED = "queued"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    table = models.CharField(max_length=63, unique=True)
    state = models.CharField(max_length=10, choices=State, default=State.IDLE)
    # When the oldest erasure that waits asked for it, and the last transaction that must be over first.
    requested_at = models.DateTimeField(null=True, blank=True)
    wanted_xid = models.BigIntegerField(default=0)
    done_xid = models.BigIntegerField(default=0)
    lease_no = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    failure = models.JSONField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    def __str__(self):
        return self.table


class RequestPurge(models.Model):
    """What is still to happen to the bytes that one request erased: in the files, in WAL, in backups."""

    request = models.OneToOneField("governance.SubjectRequest", models.CASCADE, primary_key=True, related_name="purge")
    tables = ArrayField(models.CharField(max_length=63))
    xid = models.BigIntegerField()
    requested_at = models.DateTimeField(db_default=Now())
    purged_at = models.DateTimeField(null=True, blank=True)
    # Where WAL ended when the bytes had left the files: what is older may still hold them.
    purge_lsn = models.CharField(max_length=20, blank=True)
    wal_passed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["requested_at"], condition=models.Q(wal_passed_at=None), name="purge_open")]

    def __str__(self):
        return f"purge of {self.request_id}"
