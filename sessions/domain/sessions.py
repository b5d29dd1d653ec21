"""The session manager: everything that happens to a session goes through here."""

import re
import unicodedata
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from agents.models import Agent, AgentVersion
from governance import sql
from governance.actors import Actor
from governance.domain import audit, expiry, fences
from governance.errors import Conflict, Invalid, NotFound, VersionConflict
from governance.ids import shown, uuid7
from governance.models import Subject
from governance.text import clean_json
from sessions.domain import aggregations, blobs, history, leases
from sessions.errors import InvalidSessionKey, SessionBusy, SessionConflict, SessionStateUnreadable
from sessions.models import (
    Approval,
    ApprovalRule,
    IdempotencyRecord,
    Item,
    ModelCall,
    Run,
    RunEvent,
    Session,
    Summary,
    WorkspaceFile,
)

KEY_LENGTH = 200
STATE_SCHEMA = 1
SOFTWARE = "0.1.0"
_TASK_BYTES = 256 * 1024
_OURS = re.compile("ses_[0-9a-f]{32}")


class SessionExists(Conflict):
    code, title = "session_exists", "There is such a session already"
    detail = "A session with this id exists already. Choose another id."


def checked_key(key: str) -> str:
    """`key` if it is a session id: 1 to 200 printable characters, not `ses_0198...`. Raises InvalidSessionKey."""
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH:
        raise InvalidSessionKey(f"A session id has 1 to {KEY_LENGTH} characters.")
    if any(unicodedata.category(character)[0] == "C" for character in key) or not key.strip():
        raise InvalidSessionKey("A session id has printable characters only.")
    if _OURS.fullmatch(key):
        # It would begin another conversation, while the caller means to go on with the one that has this id.
        raise InvalidSessionKey("This is how Lethe calls a session. Send the id you chose for it: answers have it as session_key.")
    return key


def find(*, tenant_id: UUID, agent: Agent, subject: Subject | None, key: str) -> Session | None:
    """The stored session of this identity, or none."""
    found = _FOUND.first([tenant_id, agent.id, key, subject.id]) if subject else _FOUND_WITHOUT_SUBJECT.first([tenant_id, agent.id, key])
    return found[0] if found else None


_FIND = "SELECT {session} FROM agent_sessions_session session WHERE tenant_id = %s AND agent_id = %s AND key = %s AND subject_id "
_FOUND = sql.Reader(_FIND + "= %s", session=Session)
_FOUND_WITHOUT_SUBJECT = sql.Reader(_FIND + "IS NULL", session=Session)


def asking(*, tenant_id: UUID, agent_name: str, subject: Subject | None, key: str) -> sql.Write:
    """What `find` reads, by the agent's name, for a batch with other reads; `found` makes the answer of its rows."""
    reader = _NAMED if subject else _NAMED_WITHOUT_SUBJECT
    return reader.asking([tenant_id, tenant_id, agent_name, key, *([subject.id] if subject else [])])


def found(rows: list[tuple]) -> tuple[Session | None, bool]:
    """The session, and whether a turn holds it."""
    return _NAMED.read(rows[0]) if rows else (None, False)


_FIND_NAMED = _FIND.replace("{session}", f"{{session}}, {leases.IS_LIVE}").replace(
    "agent_id = %s", "agent_id = (SELECT id FROM agents_agent WHERE tenant_id = %s AND name = %s)"
)
_NAMED = sql.Reader(_FIND_NAMED + "= %s", session=Session)
_NAMED_WITHOUT_SUBJECT = sql.Reader(_FIND_NAMED + "IS NULL", session=Session)


def get_or_create(
    *, agent: Agent, key: str, subject: Subject | None, version: AgentVersion | None = None, state: dict | None = None, by: Actor
) -> tuple[Session, bool]:
    """The session of (agent, subject, key) and whether this call created it. Safe when many create it at once.

    One that a retention policy has ended is gone: its key begins a new one.
    """
    checked_key(key)
    existing = find(tenant_id=by.tenant_id, agent=agent, subject=subject, key=key)
    if existing is not None and not _gave_way(existing):
        return existing, False
    fresh = Session(
        tenant_id=by.tenant_id, agent=agent, subject=subject, key=key, pinned_version=version,
        state={"schema": STATE_SCHEMA, "software": SOFTWARE, **(state or {})},
    )  # fmt: skip
    Session.objects.bulk_create([fresh], ignore_conflicts=True)
    stored = find(tenant_id=by.tenant_id, agent=agent, subject=subject, key=key)
    if stored is None:
        raise NotFound
    return stored, stored.id == fresh.id


@fences.told()
@transaction.atomic
def _gave_way(session: Session) -> bool:
    """Let a session that is over, and waits for retention to delete it, give up its key. False when it is not over.

    Not deleted here: a policy may want it archived first, and a long one takes its time.
    """
    if not expiry.is_over(session):
        return False
    locked = leases.lock(session.id)
    if locked is None or locked.key != session.key:
        return True
    if not expiry.is_over(locked):
        return False
    Session.objects.filter(id=locked.id).update(key=f"{locked.key[: KEY_LENGTH - 33]}~{locked.id.hex}")
    return True


def save(*, session: Session, fields: list[str]) -> None:
    """Write `fields` of a session that was read at `session.version`; a lost race changes nothing.

    Raises SessionConflict. The owner (tenant, agent, subject, key) is set by the first write and never changes.
    """
    assert not {"tenant", "agent", "subject", "key"} & set(fields)
    values = {name: getattr(session, name) for name in fields}
    if not Session.objects.filter(id=session.id, version=session.version).update(version=session.version + 1, **values):
        raise SessionConflict
    session.version += 1


def readable_state(session: Session) -> dict:
    """The session's own state. Raises SessionStateUnreadable when newer software wrote it; history stays readable."""
    schema = session.state.get("schema", STATE_SCHEMA)
    if not isinstance(schema, int) or schema > STATE_SCHEMA:
        raise SessionStateUnreadable(
            schema=schema, software=str(session.state.get("software", "?")), current_schema=STATE_SCHEMA, current_software=SOFTWARE
        )
    return session.state


@transaction.atomic
def rename(*, session: Session, title: str, by: Actor) -> Session:
    """Give the session a title. Metadata leaves the history's version alone."""
    by.require("sessions.write")
    title = title.strip()
    if len(title) > 200:
        raise Invalid("A title has at most 200 characters.", errors={"title": ["At most 200 characters."]})
    session.title = title
    session.save(update_fields=["title"])
    _record("session.renamed", session, by)
    return session


@transaction.atomic
def label(*, session: Session, labels: list[str], by: Actor) -> Session:
    """Replace the session's labels: at most 20, 1 to 64 characters each."""
    by.require("sessions.write")
    labels = list(dict.fromkeys(entry.strip() for entry in labels))
    if len(labels) > 20 or any(not 1 <= len(entry) <= 64 for entry in labels):
        raise Invalid(
            "A session has at most 20 labels of 1 to 64 characters.", errors={"labels": ["At most 20, 1 to 64 characters each."]}
        )
    session.labels = labels
    session.save(update_fields=["labels"])
    _record("session.labelled", session, by, labels=len(labels))
    return session


@transaction.atomic
def close(*, session: Session, by: Actor) -> Session:
    """End the conversation. It can be read and reopened; turns are refused."""
    by.require("sessions.write")
    locked = _locked(session)
    if locked.status == Session.State.CLOSED:
        return locked
    refuse_busy(locked)
    Session.objects.filter(id=locked.id).update(status=Session.State.CLOSED, ended_at=Now())
    _record("session.closed", locked, by)
    aggregations.at_end([locked.id])
    locked.refresh_from_db(fields=["status", "ended_at"])
    return locked


@transaction.atomic
def reopen(*, session: Session, by: Actor) -> Session:
    by.require("sessions.write")
    locked = _locked(session)
    if locked.status == Session.State.OPEN:
        return locked
    Session.objects.filter(id=locked.id).update(status=Session.State.OPEN, ended_at=None)
    _record("session.reopened", locked, by)
    locked.refresh_from_db(fields=["status", "ended_at"])
    return locked


@transaction.atomic
def archive(*, session: Session, by: Actor, archived: bool = True) -> Session:
    """Hide the session from lists, or show it again."""
    by.require("sessions.write")
    Session.objects.filter(id=session.id).update(archived_at=Now() if archived else None)
    _record("session.archived" if archived else "session.restored", session, by)
    session.refresh_from_db(fields=["archived_at"])
    return session


@transaction.atomic
def fork(*, session: Session, at_seq: int | None = None, key: str, by: Actor) -> Session:
    """A new session of the same subject that shares the items up to `at_seq` by reference: nothing is copied.

    `at_seq` defaults to the newest item. Where it cuts a call from its result, the view repairs that for the model.
    """
    by.require("sessions.write")
    checked_key(key)
    parent = _locked(session)
    at_seq = parent.head_seq if at_seq is None else at_seq
    if not 1 <= at_seq <= parent.head_seq:
        raise Invalid(
            f"The session has items 1 to {parent.head_seq}; there is no item {at_seq}.", errors={"at_seq": ["No such item."]}
        )
    there = find(tenant_id=parent.tenant_id, agent=parent.agent, subject=parent.subject, key=key)
    if there is not None and not _gave_way(there):
        raise SessionExists
    shared = [[str(owner), first, min(last, at_seq)] for owner, first, last in history.segments(parent) if first <= at_seq]
    turn = _turn_at(parent, at_seq)
    child = Session.objects.create(
        tenant_id=parent.tenant_id, agent_id=parent.agent_id, subject_id=parent.subject_id, key=key,
        title=parent.title, labels=parent.labels, pinned_version_id=parent.pinned_version_id, shared=shared,
        forked_from=parent.id, forked_at_seq=at_seq, head_seq=at_seq, version=1, turns=turn,
        state=parent.state, task=parent.task, task_version=parent.task_version,
    )  # fmt: skip
    _record("session.forked", child, by, forked_from=shown("ses", parent.id), at_seq=at_seq)
    return child


@transaction.atomic
def patch_task(*, session: Session, patch: dict, expected: int | None = None, by: Actor | None = None) -> Session:
    """Apply a JSON merge patch (RFC 7396) to the data of the current task.

    `expected` is the counter that the caller read; a lost race raises VersionConflict with the present task.
    """
    if by is not None:
        by.require("sessions.write")
    locked = _locked(session)
    if expected is not None and expected != locked.task_version:
        raise VersionConflict(current={"task": locked.task, "version": locked.task_version})
    task = merge_patch(locked.task, clean_json(patch))
    if len(str(task)) > _TASK_BYTES:
        raise Invalid("The task's data is larger than 256 KiB.", errors={"task": ["At most 256 KiB."]})
    locked.task, locked.task_version = task, locked.task_version + 1
    locked.save(update_fields=["task", "task_version"])
    return locked


def merge_patch(target: dict, patch: dict) -> dict:
    """RFC 7396: members of `patch` replace those of `target`, null removes them, objects are merged in depth."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            below = result.get(name)
            result[name] = merge_patch(below if isinstance(below, dict) else {}, value)
        else:
            result[name] = value
    return result


@transaction.atomic
def delete(*, session: Session, by: Actor) -> bool:
    """Delete the session with everything that belongs to it; items that forks share go to the oldest of them.

    Returns whether something was deleted. Raises SessionBusy while a turn runs, Held under a legal hold.
    """
    by.require("sessions.delete")
    locked = leases.lock(session.id)
    if locked is None:
        return False
    refuse_busy(locked)
    with fences.told():
        rehome(session=locked)
        counts = _delete_rows(locked)
    _record("session.deleted", locked, by, **counts)
    return True


def _delete_rows(session: Session) -> dict[str, int]:
    """Leaf first, one statement a table; returns rows by table."""
    runs = Run.objects.filter(session_id=session.id)
    run_ids = list(runs.values_list("id", flat=True))
    IdempotencyRecord.objects.filter(tenant_id=session.tenant_id, run_id__in=run_ids).delete()
    RunEvent.objects.filter(run_id__in=run_ids).delete()
    ModelCall.objects.filter(run_id__in=run_ids).delete()
    Approval.objects.filter(run_id__in=run_ids).delete()
    ApprovalRule.objects.filter(session_id=session.id).delete()
    runs.delete()
    blobs.delete_of(session=session)
    WorkspaceFile.objects.filter(session_id=session.id).delete()
    Summary.objects.filter(session_id=session.id).delete()
    items, _ = Item.objects.filter(session_id=session.id).delete()
    Session.objects.filter(id=session.id).delete()
    return {"items": items, "runs": len(run_ids)}


def rehome(*, session: Session) -> int:
    """Move the items that forks share out of `session`, each range to the oldest fork that needs it.

    Returns the number of items moved. Called before the session's rows go, by deletion and by retention.
    """
    forks = [
        fork
        for fork in Session.objects.select_for_update()
        .filter(tenant_id=session.tenant_id, agent_id=session.agent_id, subject_id=session.subject_id)
        .exclude(id=session.id)
        .exclude(shared=[])
        .order_by("created_at", "id")
        if any(owner == str(session.id) for owner, _, _ in fork.shared)
    ]
    moved: list[tuple[int, int, UUID]] = []
    total = 0
    for fork_of in forks:
        for first, last in _uncovered([(a, b) for owner, a, b in fork_of.shared if owner == str(session.id)], moved):
            total += Item.objects.filter(session_id=session.id, seq__gte=first, seq__lte=last).update(session_id=fork_of.id)
            moved.append((first, last, fork_of.id))
    for fork_of in forks:
        if any(home == fork_of.id for _, _, home in moved):
            blobs.follow(source_id=session.id, target=fork_of)
        fork_of.shared = [piece for part in fork_of.shared for piece in _redirected(part, session.id, moved)]
        fork_of.save(update_fields=["shared"])
    return total


def _uncovered(ranges: list[tuple[int, int]], moved: list[tuple[int, int, UUID]]) -> list[tuple[int, int]]:
    """The parts of `ranges` that no entry of `moved` covers yet."""
    for start, end, _ in moved:
        ranges = [
            part
            for first, last in ranges
            for part in ((first, min(last, start - 1)), (max(first, end + 1), last))
            if part[0] <= part[1]
        ]
    return sorted(set(ranges))


def _redirected(part: list, gone: UUID, moved: list[tuple[int, int, UUID]]) -> list[list]:
    owner, first, last = part
    if owner != str(gone):
        return [part]
    return [[str(home), max(first, start), min(last, end)] for start, end, home in sorted(moved) if start <= last and end >= first]


def _turn_at(session: Session, seq: int) -> int:
    for owner, first, last in history.segments(session):
        if first <= seq <= last:
            return Item.objects.filter(session_id=owner, seq=seq).values_list("turn", flat=True).first() or 0
    return 0


def _locked(session: Session) -> Session:
    locked = leases.lock(session.id)
    if locked is None:
        raise NotFound
    return locked


def refuse_busy(session: Session) -> None:
    """Raises SessionBusy while a turn holds the locked session."""
    if leases.is_live(session):
        raise SessionBusy(run_id=shown("run", session.lease_run_id))


def _record(action: str, session: Session, by: Actor, **payload) -> None:
    # The session's key is the caller's text and may name a person: the trail keeps the id only.
    audit.record(action, by=by, object_type="session", object_ref=shown("ses", session.id), **payload)


def new_key() -> str:
    """A key for a session that the console opens."""
    return f"console-{uuid7().hex[-12:]}"
