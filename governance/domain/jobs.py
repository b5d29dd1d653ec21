"""Rows that are jobs: claimed by a lease, renewed by every batch, picked up again when the lease runs out.

A Celery message only says "look at this row". A lost or doubled message changes nothing.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog
from celery import current_app
from django.db import connections, models, transaction
from django.db.models import Case, F, Q, Value, When
from kombu.exceptions import OperationalError

from governance.domain.clock import ClockTime, after

log = structlog.get_logger("lethe.governance")

LEASE = timedelta(seconds=30)
LONGEST_WAIT = timedelta(hours=1)


class LeaseLost(Exception):
    """Somebody else has the job, or it was ended. Whoever sees this stops without writing anything."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one row. Every write compares `number`, so a worker that was given up on cannot write."""

    model: type[models.Model]
    id: UUID
    number: int

    def renew(self, *, lasting: timedelta = LEASE, **changes) -> None:
        """Keep the job and change its row. The row stays locked until the transaction ends. Raises LeaseLost."""
        held = self.model.objects.filter(pk=self.id, lease_no=self.number, lease_until__isnull=False)
        if not held.update(lease_until=after(lasting), **changes):
            raise LeaseLost

    def release(self, **changes) -> None:
        """End the job's work: nobody holds the row afterwards. Raises LeaseLost."""
        held = self.model.objects.filter(pk=self.id, lease_no=self.number, lease_until__isnull=False)
        if not held.update(lease_until=None, **changes):
            raise LeaseLost

    def fail(self, *, code: str, message: str, state: str, **changes) -> None:
        """Give up for now; the sweeper comes back, later each time. `lease_until` is the earliest next attempt."""
        row = self.model.objects.filter(pk=self.id, lease_no=self.number).first()
        if row is None:
            return
        wait = min(LEASE * 2 ** min(row.attempts - 1, 10), LONGEST_WAIT)
        self.renew(lasting=wait, state=state, failure={"code": code, "message": message}, **changes)
        level = log.error if row.attempts >= 3 else log.warning
        level("job_failed", job=self.model.__name__, id=str(self.id), code=code, attempts=row.attempts)


def claim(model: type[models.Model], id: UUID, *, states: tuple[str, ...], resume: str = "", **changes) -> Lease | None:
    """Take the job if nobody holds it: one conditional UPDATE, of which exactly one worker sees a row.

    `resume` names the column with the state that a failed job returns to.
    """
    free = model.objects.filter(Q(lease_until=None) | Q(lease_until__lte=ClockTime()), pk=id, state__in=states)
    if resume:
        changes["state"] = Case(When(state="failed_retryable", then=F(resume)), default=F("state"))
        changes[resume] = Value("")
    with transaction.atomic():
        if not free.update(lease_no=F("lease_no") + 1, lease_until=after(LEASE), attempts=F("attempts") + 1, **changes):
            return None
        # Our own update holds the row, so nobody else can have raised the number meanwhile.
        return Lease(model, id, model.objects.values_list("lease_no", flat=True).get(pk=id))


@contextmanager
def heartbeat(lease: Lease) -> Iterator[None]:
    """Keep the lease while one long snapshot is read. A transaction that only reads cannot renew it itself."""
    done = threading.Event()

    def beat():
        try:
            while not done.wait(LEASE.total_seconds() / 3):
                lease.renew()
        except LeaseLost:
            pass
        finally:
            connections.close_all()

    thread = threading.Thread(target=beat, name="lease-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def enqueue(task: str, id: UUID | None = None) -> None:
    """Tell a worker about the row, or just to look, once it is committed. Without a broker the sweeper finds it."""

    def send():
        try:
            current_app.send_task(task, args=[str(id)] if id else [])
        except (OperationalError, OSError):
            log.warning("enqueue_failed", task=task, id=str(id))

    transaction.on_commit(send)
