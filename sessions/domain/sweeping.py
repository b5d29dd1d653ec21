"""What was left lying: runs whose executor died, and queued runs that nobody started."""

import logging
from contextlib import contextmanager
from uuid import UUID

from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from governance.domain import fences
from governance.errors import LetheError, SubjectFenced
from sessions.domain import endings, executions, leases
from sessions.models import Run

logger = logging.getLogger("lethe.runs")


def sweep() -> dict[str, int]:
    """End runs whose executor died, and start queued ones that nobody started. Safe from many processes at once.

    Runs of fenced subjects are left to the erasure; one that fails does not keep the others.
    """
    counts = {"interrupted": 0, "started": 0}
    for run_id, session_id in _expired():
        with _one_of_many(run_id):
            counts["interrupted"] += _interrupt_expired_run(run_id, session_id)
    for run_id in _forgotten():
        with _one_of_many(run_id):
            counts["started"] += executions.claim(run_id=run_id)
    return counts


@contextmanager
def _one_of_many(run_id: UUID):
    try:
        with fences.told():
            yield
    except SubjectFenced:
        logger.info("run %s is left to the erasure of its subject", run_id.hex)
    except (LetheError, DatabaseError):
        logger.exception("run %s could not be swept", run_id.hex)


@transaction.atomic
def _interrupt_expired_run(run_id: UUID, session_id: UUID | None) -> bool:
    session = leases.lock(session_id) if session_id else None
    run = (
        Run.objects.select_for_update(skip_locked=True)
        .filter(id=run_id, status=Run.Status.RUNNING, lease_expires_at__lt=Now())
        .first()
    )
    if run is None:
        return False
    endings.interrupt(run=run, session=session)
    return True


def _expired() -> list[tuple[UUID, UUID | None]]:
    return list(
        Run.objects.filter(status=Run.Status.RUNNING, lease_expires_at__lt=Now()).values_list("id", "session_id")[:200]
    )


def _forgotten() -> list[UUID]:
    """Queued runs whose session is free, some seconds old: their message to a worker was lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT run.id FROM agent_sessions_run run LEFT JOIN agent_sessions_session session ON session.id = run.session_id
            WHERE run.status = 'queued' AND run.created_at < now() - interval '3 seconds'
              AND (session.id IS NULL OR session.lease_run_id IS NULL OR session.lease_expires_at < now())
            ORDER BY {leases.IN_TURN} LIMIT 50
            """
        )
        return [row[0] for row in cursor.fetchall()]
