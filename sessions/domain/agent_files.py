"""Files that agents keep, as people and applications see and change them. Agents do so through their tools."""

from django.db import transaction

from agents.models import Agent
from governance.actors import Actor
from governance.domain import audit
from governance.errors import NotFound
from governance.models import Subject
from sessions.errors import FileUnknown
from sessions.files import looking, paths, stores
from sessions.files.looking import Line
from sessions.files.rows import RowFiles, Shelf, Writer
from sessions.models import AgentFile


def shelf_of(file: AgentFile) -> Shelf:
    return Shelf(file.tenant_id, file.agent_id, file.subject_id)


def text_of(file: AgentFile) -> str:
    """The file's text, wherever it is. Raises StoreUnavailable."""
    return _files(shelf_of(file)).text_of(file)


def put(*, agent: Agent, scope: str, subject: Subject | None, path: str, text: str, expected: str | None, by: Actor) -> AgentFile:
    """Make a file on an agent's shelf or replace it. `scope` is subject, agent or tenant.

    Raises PathRefused, FileChanged, FileTooLarge, StoreUnavailable, SubjectFenced, and NotFound for a subject's file without one.
    """
    by.require("memory.write")
    shelf = stores.shelf(tenant_id=by.tenant_id, agent_id=agent.id, subject_id=subject.id if subject else None, scope=scope)
    if shelf is None or agent.tenant_id != by.tenant_id:
        raise NotFound
    return _write(shelf, paths.absolute(path), text, expected, by)


def change(*, file: AgentFile, text: str, expected: str | None, by: Actor) -> AgentFile:
    """Replace the text; with `expected` only if that is the version that is stored. Raises what `put` raises."""
    by.require("memory.write")
    _own(file, by)
    return _write(shelf_of(file), file.path, text, expected, by)


def remove(*, file: AgentFile, expected: str | None = None, by: Actor) -> None:
    """Raises FileChanged, SubjectFenced, StoreUnavailable, and Held under a legal hold."""
    by.require("memory.write")
    _own(file, by)
    with transaction.atomic():
        if not _files(shelf_of(file), by).delete(file.path, expected):
            raise FileUnknown
        audit.record("file.deleted", by=by, object_type="file", object_ref=file.id)


def search(*, agent: Agent, scope: str, subject: Subject | None, query: str, folder: str = "", limit: int = 10) -> list[Line]:
    """Lines of the shelf's files that fit the words best, best first."""
    shelf = stores.shelf(tenant_id=agent.tenant_id, agent_id=agent.id, subject_id=subject.id if subject else None, scope=scope)
    if shelf is None:
        raise NotFound
    return looking.search(_files(shelf), query, folder=paths.folder(folder), limit=limit)


def _write(shelf: Shelf, path: str, text: str, expected: str | None, by: Actor) -> AgentFile:
    with transaction.atomic():
        _files(shelf, by).write(path, text, expected)
        file = AgentFile.objects.defer("content", "search").get(**shelf.lookup, path=path)
        # A path may name a person: the trail keeps the file's id.
        audit.record("file.written", by=by, object_type="file", object_ref=file.id, size=file.size)
    return file


def _files(shelf: Shelf, by: Actor | None = None) -> RowFiles:
    return stores.open_files(shelf, Writer(by.label, subject_id=by.subject_id) if by else Writer(""))


def _own(file: AgentFile, by: Actor) -> None:
    if file.tenant_id != by.tenant_id:
        raise FileUnknown
