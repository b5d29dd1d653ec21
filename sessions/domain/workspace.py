"""The workspace: files of one session, private to it, within limits that hold to the byte."""

from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from governance import sql
from governance.actors import Actor
from governance.domain import audit, fences
from governance.ids import shown
from governance.text import clean
from sessions.errors import FileChanged, FileUnknown, WorkspaceFull
from sessions.files import paths, store
from sessions.files.rows import Writer
from sessions.models import Session, WorkspaceFile, WorkspaceUsage

# What a file counts beside its bytes: names cost something, too.
OVERHEAD = 1024
_CONTENT = WorkspaceFile._meta.get_field("content")
_LISTED = ("path", "size", "sha256", "created_at", "updated_at", "run_id", "written_by", "tenant_id", "session_id")


def files(*, session: Session, below: str = "") -> list[WorkspaceFile]:
    """The session's files without their texts, by path; with `below` those in that folder."""
    found = WorkspaceFile.objects.filter(tenant_id=session.tenant_id, session_id=session.id)
    if below.strip("/"):
        found = found.filter(path__startswith=paths.relative(below.strip("/")) + "/")
    return list(found.only(*_LISTED).order_by("path"))


def texts(*, session: Session, below: str = "") -> list[tuple[str, str]]:
    """Path and text of each file."""
    chosen = [row.path for row in files(session=session, below=below)]
    found = WorkspaceFile.objects.filter(tenant_id=session.tenant_id, session_id=session.id, path__in=chosen)
    return list(found.order_by("path").values_list("path", "content"))


def read(*, session: Session, path: str) -> WorkspaceFile:
    """Raises PathRefused and FileUnknown."""
    found = WorkspaceFile.objects.filter(tenant_id=session.tenant_id, session_id=session.id, path=paths.relative(path)).first()
    if found is None:
        raise FileUnknown
    return found


def used(*, session: Session) -> tuple[int, int]:
    """What the session's files count in bytes, and what they may."""
    counted = WorkspaceUsage.objects.filter(tenant_id=session.tenant_id, session_id=session.id).values_list("used", flat=True)
    return counted.first() or 0, settings.LETHE["workspace_session_bytes"]


@fences.told()
@transaction.atomic
def write(*, session: Session, path: str, text: str, expected: str | None = None, writer: Writer) -> WorkspaceFile:
    """Make the file or replace what is in it; with `expected` only if that is the version that is stored ("" for none).

    Raises PathRefused, FileTooLarge, FileChanged, WorkspaceFull, SubjectFenced.
    """
    path, text = paths.relative(path), clean(text)
    size = len(text.encode())
    store.check_size(size, settings.LETHE["workspace_file_bytes"])
    counted = _locked(session)
    row = _row(session, path)
    _check(row, expected)
    _check_room(counted, size - row.size if row else size + OVERHEAD)
    facts = {
        "content": text, "size": size, "sha256": store.version_of(text), "run_id": writer.run_id,
        "written_by": writer.name[:200],
    }  # fmt: skip
    if row is None:
        row = WorkspaceFile.objects.create(
            tenant_id=session.tenant_id, subject_id=session.subject_id, session_id=session.id, path=path, **facts
        )
    else:
        facts["content"] = _CONTENT.sealed(text, session)
        WorkspaceFile.objects.filter(id=row.id).update(updated_at=Now(), **facts)
    row.refresh_from_db()
    return row


@fences.told()
@transaction.atomic
def delete(*, session: Session, path: str, expected: str | None = None) -> None:
    """Raises FileUnknown, FileChanged, SubjectFenced, and Held under a legal hold."""
    path = paths.relative(path)
    _locked(session)
    row = _row(session, path)
    if row is None:
        raise FileUnknown
    _check(row, expected)
    row.delete()


def put(*, session: Session, path: str, text: str, expected: str | None, by: Actor) -> WorkspaceFile:
    """The application or a person puts a file into the workspace."""
    by.require("sessions.write")
    with transaction.atomic():
        row = write(session=session, path=path, text=text, expected=expected, writer=Writer(by.label))
        _record("session.file_written", session, by, file=row.id, size=row.size)
    return row


def remove(*, session: Session, path: str, expected: str | None = None, by: Actor) -> None:
    by.require("sessions.write")
    with transaction.atomic():
        file = read(session=session, path=path)
        delete(session=session, path=path, expected=expected)
        _record("session.file_deleted", session, by, file=file.id)


def _locked(session: Session) -> Sequence[tuple[str, int, int]]:
    """What is counted, with the rows locked: (whose, used, limit). The session's before the tenant's, as the database does."""
    limits = (
        ("session", session.id, settings.LETHE["workspace_session_bytes"]),
        ("tenant", None, settings.LETHE["workspace_tenant_bytes"]),
    )
    return [(whose, _lock(session.tenant_id, session_id), limit) for whose, session_id, limit in limits]


def _lock(tenant_id: UUID, session_id: UUID | None) -> int:
    return sql.row(
        """
        INSERT INTO agent_sessions_workspaceusage AS counted (tenant_id, session_id, used) VALUES (%s, %s, 0)
        ON CONFLICT (tenant_id, session_id) DO UPDATE SET used = counted.used RETURNING used
        """,
        [tenant_id, session_id],
    )[0]


def _row(session: Session, path: str) -> WorkspaceFile | None:
    # Whoever changes a file holds the lock of its session's count.
    return WorkspaceFile.objects.filter(session_id=session.id, path=path).defer("content").first()


def _check(row: WorkspaceFile | None, expected: str | None) -> None:
    current = row.sha256 if row else ""
    if expected is not None and expected != current:
        raise FileChanged(version=current or None)


def _check_room(counted: Sequence[tuple[str, int, int]], more: int) -> None:
    """A file may always become shorter, also where a limit was lowered."""
    for whose, taken, limit in counted:
        if more > 0 and taken + more > limit:
            raise WorkspaceFull(whose=whose, used=taken, limit=limit, more=more)


def _record(action: str, session: Session, by: Actor, **payload) -> None:
    # A path may name a person: the trail keeps the file's id.
    audit.record(action, by=by, object_type="session", object_ref=shown("ses", session.id), **payload)
