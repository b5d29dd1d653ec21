"""One turn at a time: who may write a session, until when, and who is next.

The lease is a pair of columns of the session, compared by the clock of the database. Whoever holds it is the only
writer of the session's history. Every function here works inside the caller's transaction.
"""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from sessions.models import Run, Session

FRONT = 10


def until():
    """When a lease that is taken or renewed now runs out: an expression for the database."""
    return Now() + timedelta(seconds=settings.LETHE["lease_seconds"])


def lock(session_id: UUID) -> Session | None:
    """The session with its row locked; whoever comes second waits for the first to commit."""
    return Session.objects.select_for_update().filter(id=session_id).first()


def is_live(session: Session) -> bool:
    """Whether a turn holds the session, by the database's clock. An expired lease holds nothing."""
    if session.lease_run_id is None:
        return False
    return Session.objects.filter(id=session.id, lease_run_id=session.lease_run_id, lease_expires_at__gt=Now()).exists()


def take(*, session: Session, run: Run) -> None:
    """Give the locked, free session to `run`, and write its counters."""
    Session.objects.filter(id=session.id).update(
        lease_run_id=run.id, lease_expires_at=until(), last_active_at=Now(), head_seq=session.head_seq, turns=session.turns,
        version=session.version,
    )  # fmt: skip
    session.lease_run_id = run.id


def renew(*, run_id: UUID, session_id: UUID | None) -> bool:
    """The heartbeat of whoever executes the run. False: the lease is lost, stop."""
    if not Run.objects.filter(id=run_id, status=Run.Status.RUNNING).update(lease_expires_at=until()):
        return False
    if session_id is None:
        return True
    return bool(Session.objects.filter(id=session_id, lease_run_id=run_id).update(lease_expires_at=until()))


def release(*, session_id: UUID, run_id: UUID) -> None:
    Session.objects.filter(id=session_id, lease_run_id=run_id).update(
        lease_run_id=None, lease_expires_at=None, last_active_at=Now()
    )


def unfinished(session_id: UUID) -> list[Run]:
    """The session's runs that are not over: running first, then as they will start. Slim rows."""
    found = Run.objects.filter(
        session_id=session_id, status__in=[Run.Status.RUNNING, Run.Status.QUEUED, Run.Status.AWAITING_APPROVAL]
    )
    order = {Run.Status.RUNNING: 0, Run.Status.QUEUED: 1, Run.Status.AWAITING_APPROVAL: 2}
    rows = list(found.only("id", "status", "priority", "tenant_id", "subject_id").order_by("-priority", "id"))
    return sorted(rows, key=lambda run: order[run.status])


def has_queued(session_id: UUID) -> bool:
    return Run.objects.filter(session_id=session_id, status=Run.Status.QUEUED).exists()


def next_queued(session_id: UUID) -> Run | None:
    """The queued run whose turn it is."""
    return (
        Run.objects.select_related("agent", "version", "session")
        .filter(session_id=session_id, status=Run.Status.QUEUED)
        .order_by("-priority", "id")
        .first()
    )


