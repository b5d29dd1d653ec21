"""Celery tasks: each takes an id and makes one call. The rows are the truth, so doing one twice is harmless."""

from uuid import UUID

from celery import shared_task

from governance.domain import erasure, exports, purge, retention_runs, sweeping
from governance.models import SubjectRequest


@shared_task(name="governance.sweep")
def sweep():
    """Every 15 s: take up what lies still, start what is due, end what has expired."""
    sweeping.sweep()


@shared_task(name="governance.purge")
def work_purge():
    purge.work()


@shared_task(name="governance.work_request")
def work_request(id: str):
    request_id = UUID(id)
    kind = SubjectRequest.objects.filter(pk=request_id).values_list("kind", flat=True).first()
    if kind == SubjectRequest.Kind.ERASE:
        erasure.work(request_id=request_id)
    elif kind == SubjectRequest.Kind.EXPORT:
        exports.work(request_id=request_id)


@shared_task(name="governance.work_retention")
def work_retention(id: str):
    retention_runs.work(run_id=UUID(id))
