"""Celery tasks of sessions. Each carries an id at most; the rows are the truth."""

from uuid import UUID

from celery import shared_task

from sessions.domain import aggregations, approvals, events, executions, idempotency, quotas, sweeping, upkeep
from sessions.engine import runner
from sessions.files import stores


@shared_task(name="sessions.execute_run")
def execute_run(run_id: str) -> None:
    """Claim a queued run and stay with it until it ends, so that a worker is as busy as it looks."""
    if executions.claim(run_id=UUID(run_id)):
        runner.runner().wait(UUID(run_id))


@shared_task(name="sessions.sweep_runs")
def sweep_runs() -> None:
    """Every few seconds: end what died, start what was forgotten, answer what expired, fold what is over."""
    sweeping.sweep()
    approvals.expire_due()
    events.fold()
    quotas.release_stale()
    quotas.drop_past()
    idempotency.expire()
    upkeep.close_idle_sessions()
    aggregations.follow()


@shared_task(name="sessions.sweep_files")
def sweep_files() -> None:
    """Every hour: bytes of files that no row names any more."""
    stores.sweep_orphans()
