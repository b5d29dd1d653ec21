"""Which store an agent's files are in: its scope decides the shelf, the operator's setting where the bytes are."""

import time
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from uuid import UUID

from django.conf import settings

from governance.models import Tenant
from sessions.errors import FileChanged
from sessions.files.disk import DiskFiles
from sessions.files.redis_files import RedisFiles
from sessions.files.rows import RowFiles, RowStore, Shelf, Writer
from sessions.files.store import Files, KnowledgeStore
from sessions.models import AgentFile

LIMIT = "agent_file_bytes"
FOLDERS = {"/artifacts/": "What was made", "/log/": "What happened, one line each", "/memory/": "What is to be remembered"}
SKILL = """# These files

They outlive a conversation. Read what concerns the task before you answer, and write down what will be needed again.

/artifacts/  what was made: texts, plans, results
/log/        what happened, one line each, newest last
/memory/     what is to be remembered; /memory/working.md is what is being worked on now
"""
SEED = {"/SKILL.md": SKILL, **{f"{folder}README.md": f"{about}.\n" for folder, about in FOLDERS.items()}}


def shelf(*, tenant_id: UUID, agent_id: UUID, subject_id: UUID | None, scope: str) -> Shelf | None:
    """The shelf of a definition's scope (subject, agent or tenant); None for a subject's files without a subject."""
    if scope == "tenant":
        return Shelf(tenant_id)
    if scope == "agent":
        return Shelf(tenant_id, agent_id)
    return Shelf(tenant_id, agent_id, subject_id) if subject_id else None


def open_files(shelf: Shelf, writer: Writer) -> RowFiles:
    """Blocking: for pages, the API and tasks."""
    return RowFiles(shelf, writer=writer, limit=settings.LETHE[LIMIT], outside=outside())


def open_store(shelf: Shelf, writer: Writer) -> KnowledgeStore:
    """For coroutines: tools, policies, aggregates."""
    return RowStore(open_files(shelf, writer))


def outside() -> Files | None:
    """The place that the operator chose beside the database, if any."""
    return _outside(settings.LETHE["file_store"], settings.LETHE[LIMIT])


@lru_cache(maxsize=8)
def _outside(chosen: str, limit: int) -> Files | None:
    kind, _, place = chosen.partition(":")
    # The limit is for the text; under a subject's key it takes twice its bytes.
    limit = 2 * limit + 1024
    if kind == "postgresql":
        return None
    if kind == "disk":
        return DiskFiles(Path(place or settings.DATA_DIR / "files").expanduser(), limit=limit)
    if kind in ("redis", "rediss", "unix"):
        return RedisFiles(chosen, limit=limit)
    raise ValueError(f"LETHE_FILE_STORE is postgresql, disk, disk:/a/folder or the address of a Redis, not {kind!r}.")


async def bootstrap(store: KnowledgeStore) -> None:
    """Give an empty store its first files: /SKILL.md, which tells an agent the rest, and a note in each folder.

    What is there already stays as it is, so it may be called at any time.
    """
    for path, text in SEED.items():
        with suppress(FileChanged):
            await store.write(path, text, expected="")


def seed(files: RowFiles) -> None:
    """The same for a shelf with nothing on it, before its first file. What somebody deleted later stays deleted."""
    if files.is_empty():
        for path, text in SEED.items():
            with suppress(FileChanged):
                files.write(path, text, "")


def sweep_orphans(*, grace: timedelta = timedelta(days=1)) -> int:
    """Delete bytes outside that no row names: what is left where a process died between its store and the database.

    Only of tenants of this installation, and nothing younger than `grace`: its row may still be on the way. Returns how many.
    """
    place = outside()
    if place is None:
        return 0
    before = int((time.time() - grace.total_seconds()) * 1000)
    tenants = {tenant_id.hex for tenant_id in Tenant.objects.values_list("id", flat=True)}
    old = {}
    for path in place.revisions("/"):
        _, tenant, name = path.split("/")
        # A row's id begins with the milliseconds of its making (UUIDv7).
        if tenant in tenants and int(name[:12], 16) < before:
            old[UUID(name)] = path
    known = set(AgentFile.objects.filter(id__in=list(old), is_outside=True).values_list("id", flat=True))
    for row_id in old.keys() - known:
        place.delete(old[row_id])
    return len(old.keys() - known)
