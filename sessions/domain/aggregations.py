"""What agents write down about conversations: where, when it is due, and that it follows what it was made of."""

import logging
from collections.abc import Sequence
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import Max, Q, QuerySet

from agents.definition import Aggregate, Definition
from governance import sql
from governance.domain import expiry, fences, registry
from governance.errors import LetheError
from sessions import dispatch
from sessions.domain import events, leases, summaries
from sessions.files import stores
from sessions.files.rows import CATEGORY, RowFiles, Shelf, Writer
from sessions.models import AgentFile, Aggregation, Run, RunEvent, Session

logger = logging.getLogger("lethe.sessions")

WORKING, EPISODE = "working_memory", "conversation_summary"
WORKING_PATH, EPISODES = "/memory/working.md", "/memory/conversations/"


def path_of(kind: str, session: Session) -> str:
    """The file of a kind: one for all conversations, or one for each, named by when it began and by its id."""
    return WORKING_PATH if kind == WORKING else f"{EPISODES}{session.created_at:%Y-%m-%dT%H-%M-%SZ}_{session.id.hex}.md"


def shelf_of(*, tenant_id: UUID, agent_id: UUID, subject_id: UUID | None, definition: Definition) -> Shelf | None:
    """Where an agent's notes are: as its file memory, by default with the person they are about. None without one."""
    scope = definition.memory.scope if definition.memory is not None else "subject"
    return stores.shelf(tenant_id=tenant_id, agent_id=agent_id, subject_id=subject_id, scope=scope)


def files_of(session: Session, definition: Definition, run: Run | None = None) -> RowFiles | None:
    """The files of a session's agent for its subject, open for writing in the agent's name."""
    shelf = shelf_of(
        tenant_id=session.tenant_id, agent_id=session.agent_id, subject_id=session.subject_id, definition=definition
    )
    if shelf is None:
        return None
    writer = Writer(definition.name, run_id=run.id if run else None, subject_id=session.subject_id)
    return stores.open_files(shelf, writer)


def covered(session: Session, kind: str) -> Aggregation | None:
    """The newest row that says up to where a session is written down. None when its file is gone: then all is due."""
    usable = Aggregation.objects.filter(session_id=session.id, kind=kind, is_stale=False, failure="")
    found = usable.order_by("-created_at").first()
    return found if found is not None and AgentFile.objects.filter(id=found.file_id).exists() else None


def due(*, session: Session, definition: Definition, has_ended: bool) -> list[Aggregate]:
    """The aggregates whose trigger is reached, with something new to write down. A failure rests as summaries do."""
    found = []
    for aggregate in definition.aggregation:
        done = covered(session, aggregate.kind)
        items, turns = session.head_seq - (done.to_seq if done else 0), session.turns - (done.turn if done else 0)
        is_reached = (
            (aggregate.every_n_turns and turns >= aggregate.every_n_turns)
            or (aggregate.every_n_items and items >= aggregate.every_n_items)
            or (aggregate.on_end and has_ended)
        )
        if items > 0 and is_reached and _may_try(session, aggregate.kind):
            found.append(aggregate)
    return found


def _may_try(session: Session, kind: str) -> bool:
    return summaries.has_rested(Aggregation.objects.filter(session_id=session.id, kind=kind, is_stale=False))


@transaction.atomic
def keep(
    *, session: Session, run: Run, files: RowFiles, kind: str, after_seq: int, to_seq: int, items: int, turn: int, text: str,
    model: str, expected: str | None,
) -> Aggregation:  # fmt: skip
    """Write the file and note what it was made of: the `items` visible items after `after_seq` up to `to_seq`.

    Raises summaries.SourceChanged when they are not those any more, FileChanged when the file is not the one `expected`.
    """
    locked = leases.lock(session.id)
    if locked is None or summaries.visible_items(locked, after_seq, to_seq) != items:
        raise summaries.SourceChanged
    path = path_of(kind, session)
    files.write(path, text, expected)
    file_id = AgentFile.objects.values_list("id", flat=True).get(**files.shelf.lookup, path=path)
    earlier = Aggregation.objects.filter(session_id=session.id, kind=kind, failure="", file_id=file_id)
    first = 1 if after_seq == 0 or not earlier.exists() else earlier.order_by("from_seq").values_list("from_seq", flat=True)[0]
    # The file says again what it said before: one row covers it all.
    earlier.delete()
    return Aggregation.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, agent_id=session.agent_id, session_id=session.id,
        owners=summaries.owners_of(locked, to_seq), kind=kind, file_id=file_id, path=path, from_seq=first, to_seq=to_seq, turn=turn,
        model=model, run_id=run.id,
    )  # fmt: skip


def keep_failure(*, session: Session, run: Run, kind: str, reason: str) -> None:
    Aggregation.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, agent_id=session.agent_id, session_id=session.id,
        owners=[session.id], kind=kind, path=path_of(kind, session), from_seq=1, to_seq=max(1, session.head_seq),
        turn=session.turns, run_id=run.id, failure=reason[:40],
    )  # fmt: skip


@fences.told()
@transaction.atomic
def tell(*, run: Run, data: dict) -> None:
    """Add an event behind the end of a run, whose bill this was on. Raises SubjectFenced."""
    locked = Run.objects.select_for_update().get(id=run.id)
    seq = (RunEvent.objects.filter(run_id=run.id).aggregate(last=Max("seq"))["last"] or 0) + 1
    events.insertion(run=locked, first_seq=seq, events=[("aggregation.completed", data)]).run()


def at_end(session_ids: Sequence[UUID]) -> None:
    """Have written down, after commit, what is due at the end of these sessions, whose agents want that."""
    found = sql.rows(
        """
        SELECT session.id FROM agent_sessions_session session
        JOIN agents_agent agent ON agent.id = session.agent_id
        JOIN agents_agentversion version ON version.id = coalesce(session.pinned_version_id, agent.published_id)
        WHERE session.id = ANY(%s) AND version.document -> 'aggregation' @> '[{"on_end": true}]'
        """,
        [list(session_ids)],
    )
    for (session_id,) in found:
        dispatch.write_down(session_id)


def hidden_files(tenant_id: UUID) -> QuerySet:
    """Ids of files that were made of something which changed or is gone, or is about to go: they are not to be read any more."""
    over = expiry.over(Session.objects.filter(tenant_id=tenant_id), tenant_id=tenant_id).values("id")
    made = Aggregation.objects.filter(tenant_id=tenant_id, file_id__isnull=False)
    return made.filter(Q(is_stale=True) | Q(session_id__in=over)).values("file_id")


def follow(*, limit: int = 200) -> int:
    """Delete files whose sources changed; returns how many rows were settled. What they say is written anew at the next
    occasion, from what is still there. Files of fenced subjects are left to the erasure, held ones stay unread."""
    settled = 0
    # In any order: what is held must not keep the others.
    for row in Aggregation.objects.filter(is_stale=True).order_by("?")[:limit]:
        try:
            with fences.told(), transaction.atomic():
                if row.file_id is not None:
                    registry.get(CATEGORY).delete_where("t.id = %s", [row.file_id])
                    Aggregation.objects.filter(file_id=row.file_id).delete()
                Aggregation.objects.filter(id=row.id).delete()
            settled += 1
        except LetheError as error:
            logger.debug("file %s stays for now: %s", row.path, error.code)
        except DatabaseError:
            logger.exception("file %s could not follow its sources", row.path)
    return settled
