"""One turn at a time: who may write a session, until when, and who is next.

The lease is a pair of columns of the session, compared by the clock of the database. Whoever holds it is the only
writer of the session's history. Every function here works inside the caller's transaction.
"""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from governance import sql
from sessions.models import Run, Session

FRONT = 10
# As the condition of the index run_unfinished_of_session has it.
_IS_UNFINISHED = "status IN ('queued', 'running', 'awaiting_approval')"
# As queued runs of a session start: those that push ahead, then as they came. They are numbered before they wait for the
# session's row and stored while they hold it, so it is the moment of storing that says who came first.
_IN_TURN = ("-priority", "created_at", "id")
IN_TURN = "run.priority DESC, run.created_at, run.id"
# Whether a turn holds the session, by the clock of the database. Not true is also NULL.
IS_LIVE = "lease_expires_at > statement_timestamp()"
# A lease that is taken or renewed now, by the clock of the database; `until` is the same for the ORM.
UNTIL = "statement_timestamp() + make_interval(secs => %s)"


def until():
    """When a lease that is taken or renewed now runs out: an expression for the database."""
    return Now() + timedelta(seconds=settings.LETHE["lease_seconds"])


def lock(session_id: UUID) -> Session | None:
    """The session with its row locked; whoever comes second waits for the first to commit."""
    found = _LOCKED.first([session_id])
    return found[0] if found else None


_LOCKED = sql.Reader("SELECT {session} FROM agent_sessions_session session WHERE id = %s FOR UPDATE", session=Session)


def is_live(session: Session) -> bool:
    """Whether a turn holds the session, by the database's clock. An expired lease holds nothing."""
    if session.lease_run_id is None:
        return False
    live = f"SELECT FROM agent_sessions_session WHERE id = %s AND lease_run_id = %s AND {IS_LIVE}"
    return sql.row(live, [session.id, session.lease_run_id]) is not None


def holder(session_id: UUID) -> UUID | None:
    """The run whose turn holds the session now."""
    found = sql.row(f"SELECT lease_run_id FROM agent_sessions_session WHERE id = %s AND {IS_LIVE}", [session_id])
    return found[0] if found else None


def taking(*, session: Session, run: Run) -> sql.Write:
    """Gives the locked, free session to `run`, and writes its counters."""
    session.lease_run_id = run.id
    return sql.Write(
        f"UPDATE agent_sessions_session SET lease_run_id = %s, lease_expires_at = {UNTIL}, last_active_at = statement_timestamp(),"
        " head_seq = %s, turns = %s, version = %s WHERE id = %s",
        [run.id, settings.LETHE["lease_seconds"], session.head_seq, session.turns, session.version, session.id],
    )


def taking_free(*, session: Session, run: Run) -> sql.Write:
    """Gives an open session without other runs to `run` and counts its message, as `taken` with the new counters and the state
    that the runs before it left."""
    return sql.Write(
        f"UPDATE agent_sessions_session SET lease_run_id = %s, lease_expires_at = {UNTIL}, last_active_at = statement_timestamp(),"
        " head_seq = head_seq + 1, turns = turns + 1, version = version + 1"
        f" WHERE id = %s AND status = 'open' AND lease_run_id IS NULL AND NOT EXISTS ("
        f"SELECT FROM agent_sessions_run WHERE session_id = %s AND {_IS_UNFINISHED}) RETURNING head_seq, turns, version, state",
        [run.id, settings.LETHE["lease_seconds"], session.id, session.id],
    )


def renew(*, run_id: UUID, session_id: UUID | None) -> bool:
    """The heartbeat of whoever executes the run. False: the lease is lost, stop."""
    if not Run.objects.filter(id=run_id, status=Run.Status.RUNNING).update(lease_expires_at=until()):
        return False
    if session_id is None:
        return True
    return bool(Session.objects.filter(id=session_id, lease_run_id=run_id).update(lease_expires_at=until()))


# The columns of a session that is given back, as an UPDATE sets them.
RELEASED = "lease_run_id = NULL, lease_expires_at = NULL, last_active_at = statement_timestamp()"


def release(*, session_id: UUID, run_id: UUID) -> None:
    """Give the session back, if the run holds it."""
    sql.execute(f"UPDATE agent_sessions_session SET {RELEASED} WHERE id = %s AND lease_run_id = %s", [session_id, run_id])


def unfinished(session_id: UUID) -> list[Run]:
    """The session's runs that are not over: running first, then as they will start. Slim rows."""
    order = {Run.Status.RUNNING: 0, Run.Status.QUEUED: 1, Run.Status.AWAITING_APPROVAL: 2}
    return sorted((run for (run,) in _UNFINISHED.all([session_id])), key=lambda run: order[run.status])


_UNFINISHED = sql.Reader(
    "SELECT {run} FROM agent_sessions_run run WHERE session_id = %s AND " + _IS_UNFINISHED + f" ORDER BY {IN_TURN}",
    run=sql.Columns(Run, only=["id", "status", "priority", "tenant_id", "subject_id"]),
)


def has_queued(session_id: UUID) -> bool:
    return sql.row("SELECT FROM agent_sessions_run WHERE session_id = %s AND status = 'queued' LIMIT 1", [session_id]) is not None


def next_queued(session_id: UUID) -> Run | None:
    """The queued run whose turn it is."""
    return (
        Run.objects.select_related("agent", "version", "session")
        .filter(session_id=session_id, status=Run.Status.QUEUED)
        .order_by(*_IN_TURN)
        .first()
    )


