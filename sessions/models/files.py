from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector, SearchVectorField
from django.db import models
from django.db.models.functions import Left, Now

from governance.ids import uuid7
from governance.sealing import SealedText

# Beyond this a text is not indexed for search: PostgreSQL's own limit of one entry is 1 MiB.
SEARCHED_CHARS = 262_144


class TextFile(models.Model):
    """A file of text. `sha256` of its bytes is its version: who writes says which one was read."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    path = models.CharField(max_length=402)
    content = SealedText(blank=True)
    # In bytes of UTF-8.
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    # Who wrote last: the run of an agent, or the name that the audit trail shows.
    run_id = models.UUIDField(null=True)
    written_by = models.CharField(max_length=200, blank=True)

    class Meta:
        abstract = True

    def __str__(self):
        return self.path


class AgentFile(TextFile):
    """A file that an agent keeps between sessions: for one subject, for all of them, or for all agents of the tenant.

    The scope is in the columns: without a subject it belongs to the agent, without an agent to the tenant.
    """

    agent = models.ForeignKey("agents.Agent", models.DO_NOTHING, null=True, related_name="+", db_index=False)
    # The text is in the store that the operator chose, under this row's id; `content` is empty.
    is_outside = models.BooleanField(default=False)
    search = models.GeneratedField(
        expression=SearchVector(Left("content", SEARCHED_CHARS), config="simple"),
        output_field=SearchVectorField(),
        db_persist=True,
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "agent", "subject_id", "path"], nulls_distinct=False, name="agent_file_once"
            ),
            models.CheckConstraint(
                condition=models.Q(agent__isnull=False) | models.Q(subject_id=None), name="agent_file_scope"
            ),
            models.CheckConstraint(condition=models.Q(is_outside=False) | models.Q(content=""), name="agent_file_in_one_place"),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "subject_id"], name="agent_file_of_subject"),
            models.Index(fields=["tenant_id", "updated_at", "id"], name="agent_file_by_change"),
            GinIndex(fields=["search"], name="agent_file_search"),
        ]

    @property
    def scope(self) -> str:
        """Whose it is: subject, agent or tenant."""
        return "subject" if self.subject_id else "agent" if self.agent_id else "tenant"


class WorkspaceFile(TextFile):
    """A file of one session, which the agent and the application work on. It goes with the session."""

    session = models.ForeignKey("agent_sessions.Session", models.DO_NOTHING, related_name="workspace", db_index=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "path"], name="workspace_file_once")]
        indexes = [models.Index(fields=["tenant_id", "subject_id"], name="workspace_file_of_subject")]


class WorkspaceUsage(models.Model):
    """What the workspace of a session counts in bytes, and without a session all those of the tenant.

    Kept by the database with every change of a file, whoever makes it; a writer locks both rows first, so that no two
    pass a limit together. The row of a session goes with its last file.
    """

    tenant_id = models.UUIDField()
    session_id = models.UUIDField(null=True)
    used = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "session_id"], nulls_distinct=False, name="workspace_usage_once"),
            models.CheckConstraint(condition=models.Q(used__gte=0), name="workspace_usage_not_negative"),
        ]

    def __str__(self):
        return f"{self.used} bytes"
