"""Files that agents keep, as categories of personal data."""

from collections.abc import Iterator
from datetime import date
from typing import Any
from uuid import UUID

from django.db import connection

from governance.domain.registry import BlobPrefix, File, NoLimit, Processing, Scope, TableCategory
from governance.domain.rotation import register_content
from governance.sealing import TEXT
from governance.waivers import waive
from sessions import merging, restoring
from sessions.errors import StoreUnavailable
from sessions.files import stores
from sessions.files.rows import CATEGORY, place_of
from sessions.models import AgentFile, Aggregation, WorkspaceFile


class TextFiles(TableCategory):
    """An export has the rows without their texts, and the texts as files beside them."""

    def files(self, *, scope: Scope) -> Iterator[File]:
        with connection.chunked_cursor() as cursor:
            # One text at a time in memory.
            cursor.cursor.itersize = 1
            cursor.execute(
                f"SELECT t.id FROM {self.table} t WHERE {self._of_subject(scope)} ORDER BY t.id", self._subject(scope)
            )
            for (row_id,) in cursor:
                row = self.model._default_manager.get(id=row_id)
                yield File(row.sha256, row.path, self.text_of(row).encode())

    def text_of(self, row: Any) -> str:
        return row.content


class AgentFiles(TextFiles):
    """Bytes may be in a store outside: they go in the transaction that deletes their rows, or neither does."""

    def text_of(self, row: AgentFile) -> str:
        if not row.is_outside:
            return row.content
        place = stores.outside()
        text = place.read(place_of(row)) if place else None
        if text is None:
            raise StoreUnavailable("in the store that was chosen for files")
        return text

    def whole(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "content": self.text_of(AgentFile.objects.get(id=row["id"]))} if row["is_outside"] else row

    def _delete(self, where: str, values: list[Any]) -> tuple[int, int, bytes]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT t.id, t.tenant_id FROM {self.table} t WHERE t.is_outside AND {where}", values)
            outside = [place_of(AgentFile(id=row_id, tenant_id=tenant_id)) for row_id, tenant_id in cursor.fetchall()]
        # The rows first: what a hold or a fence refuses is refused before a byte is gone.
        deleted = super()._delete(where, values)
        place = stores.outside()
        if outside and place is None:
            raise StoreUnavailable("in a store that is not configured any more")
        for path in outside:
            place.delete(path)
        return deleted


_ABOUT = Processing(
    purposes=("work on a task over several messages and conversations",),
    legal_basis="contract",
    recipients=("the provider of the agent's model", "the provider of the model that writes summaries"),
)

FILES = (
    TextFiles(
        key="session_workspace",
        title="Files of sessions",
        model=WorkspaceFile,
        writers=("sessions.domain.workspace.write",),
        order=("id",),
        row_version="t.sha256",
        size_expression="t.size",
        group_of=("sessions", "session_id"),
        erase_after=("summaries", CATEGORY),
        sample_title=str,
        export_fields=("id", "session_id", "path", "size", "sha256", "created_at", "updated_at", "run_id", "written_by"),
        file=("sha256", "path", "content"),
        restore=restoring.workspace_file,
        about=_ABOUT,
        on_hold="copy",
    ),
    AgentFiles(
        key=CATEGORY,
        title="Files that agents keep",
        model=AgentFile,
        merge=merging.agent_files,
        writers=("sessions.files.rows.RowFiles",),
        order=("id",),
        row_version="t.sha256",
        size_expression="t.size",
        ages={"last_activity": "updated_at", "created": "created_at"},
        agent_field="agent__name",
        erase_after=("summaries",),
        sample_title=str,
        export_fields=(
            "id", ("agent", "(SELECT agent.name FROM agents_agent agent WHERE agent.id = t.agent_id)"), "path", "size", "sha256", "created_at", "updated_at", "run_id", "written_by",
        ),
        file=("sha256", "path", "content"),
        restore=restoring.agent_file,
        about=_ABOUT,
        on_hold="copy",
        also=(BlobPrefix("files"),),
        limit=NoLimit("A file matters as long as the agent works for the person: set a policy.", date(2026, 11, 30)),
    ),
    TableCategory(
        key="aggregations",
        title="Which conversations were written down, and where",
        model=Aggregation,
        writers=("sessions.domain.aggregations.keep", "sessions.domain.aggregations.keep_failure"),
        order=("id",),
        # Going stale takes nothing away and adds nothing: it calls for no second look.
        sample_title=str,
        export_fields=(
            "id", ("agent", "(SELECT agent.name FROM agents_agent agent WHERE agent.id = t.agent_id)"), "session_id", "owners", "kind",
            "file_id", "path", "from_seq", "to_seq", "turn", "model", "is_stale", "failure", "created_at",
        ),
        restore=restoring.of_agent,
        about=Processing(purposes=("have what was written down follow what it was made of",), legal_basis="contract"),
        on_hold="exempt",
        limit=NoLimit("A row goes with the file that it speaks of, or with the conversation.", date(2026, 11, 30)),
    ),
)  # fmt: skip



def _reseal_outside(wanting: set[UUID]) -> int:
    """Bring texts in a store outside in line: sealed under their subject's key for these tenants, and for no others."""
    place, changed, content = stores.outside(), 0, AgentFile._meta.get_field("content")
    rows = AgentFile.objects.filter(is_outside=True, subject_id__isnull=False).order_by("id").only("tenant_id", "subject_id")
    for row in rows.iterator(chunk_size=200) if place else ():
        stored = place.read(place_of(row))
        if stored is not None and stored.startswith(TEXT) != (row.tenant_id in wanting):
            place.write(place_of(row), content.sealed(content.opened(stored), row))
            changed += 1
    return changed


register_content("session_workspace", WorkspaceFile)
register_content(CATEGORY, AgentFile, _reseal_outside)
waive(
    "agent_sessions_workspaceusage",
    reason="Sums of bytes by session and tenant; the row of a session goes with its last file.",
    owner="sessions",
    review_by=date(2028, 12, 31),
)
