"""Fences: the rule in the database that refuses writes for a subject, and the words for it.

The writers' side is the trigger function `subject_guard()` (see governance/triggers.py): a shared advisory lock on
the subject, then the check. This is the other side. Opening a fence takes the same lock exclusively, so a writer has
either committed before and its row is seen, or comes after and is refused.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from governance.actors import Actor
from governance.domain import audit
from governance.errors import Conflict, Held, Invalid, NotFound, SubjectFenced, Unavailable
from governance.models import Fence, Subject, SubjectRequest

Result = TypeVar("Result")

LOCK_TIMEOUT_MS = 800
# Regulation (EU) 2016/679, Art. 18(1).
RESTRICTION_REASONS = {
    "accuracy_contested": "The person says it is wrong, and that is looked into",
    "unlawful": "It should not have been kept, and the person wants no erasure",
    "legal_claims": "We need it no more, and the person needs it for a claim",
    "objection": "The person objects, and that is looked into",
    "other": "Another reason, on file elsewhere",
}
ATTEMPTS = 8


class FenceBusy(Unavailable):
    code, title = "fence_busy", "Somebody is writing for this subject"
    detail = "Work for this subject did not pause long enough. Nothing was changed; it is tried again."


def check(*, subject: Subject) -> None:
    """Raise SubjectFenced when a fence is open: for a kind word early. The trigger is what holds."""
    if Fence.objects.filter(subject_id=subject.id, lifted_at=None).exists():
        raise SubjectFenced


def enter(*, subject_ids: Iterable[UUID], restricted: bool = False, request_id: UUID | None = None) -> None:
    """Take part as a writer for these subjects until the transaction ends: shared locks, in order, then the check.

    For writes that the trigger does not see, and for work over several subjects. Call it inside a transaction. With
    `restricted`, a restriction is no obstacle: what a person may ask for in spite of it. Nor is the fence of the
    request `request_id`, for what belongs to that request and is written before it is carried out.
    """
    ids = list(subject_ids)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock_shared(key)"
            " FROM (SELECT DISTINCT subject_key(id) AS key FROM unnest(%s::uuid[]) AS id ORDER BY 1) AS keys",
            [ids],
        )
    # A statement of its own: it must see what committed while the locks were waited for.
    found = Fence.objects.filter(subject_id__in=ids, lifted_at=None)
    if restricted:
        found = found.exclude(mode=Fence.Mode.RESTRICT)
    if request_id is not None:
        found = found.exclude(request_id=request_id)
    if found.exists():
        raise SubjectFenced


def open_fence(*, subject: Subject, mode: str, by: Actor, request: SubjectRequest | None = None) -> Fence:
    """Refuse writes for the subject from now on, and raise its epoch. A transaction that does only this.

    `erase` belongs to a request, whose worker stays able to write. Opening the fence that is already open for the
    same purpose returns it. Raises Conflict for another open fence, FenceBusy when writers leave no gap.
    """
    return alone([subject.id], lambda: _open(subject, mode, by, request))


def lift_fence(*, fence: Fence, by: Actor) -> Fence:
    """Allow writes again. Raises Conflict for a fence that stays for ever. Lifting it again changes nothing."""
    if fence.tenant_id != by.tenant_id:
        raise NotFound
    if fence.mode == Fence.Mode.SUPPRESS:
        raise Conflict("This subject was erased. Its id takes no data any more; a returning person gets a new one.")
    alone([fence.subject_id], lambda: _lift(fence, by))
    fence.refresh_from_db()
    return fence


def restrict(*, subject: Subject, reason: str = "other", by: Actor) -> Fence:
    """Stop every use of what is held on the subject, and keep it. `reason`: one of RESTRICTION_REASONS."""
    by.require("subject.restrict")
    if subject.tenant_id != by.tenant_id:
        raise NotFound
    if reason not in RESTRICTION_REASONS:
        raise Invalid(errors={"reason": [f"Choose one of {', '.join(RESTRICTION_REASONS)}."]})
    return alone([subject.id], lambda: _open(subject, Fence.Mode.RESTRICT, by, None, reason=reason))


def lift_restriction(*, subject: Subject, by: Actor) -> None:
    """End a restriction. Raises Conflict when there is none: a fence of an erasure ends with its request."""
    by.require("subject.restrict")
    fence = Fence.objects.filter(tenant_id=by.tenant_id, subject=subject, lifted_at=None).first()
    if fence is None or fence.mode != Fence.Mode.RESTRICT:
        raise Conflict("This subject is not restricted.")
    lift_fence(fence=fence, by=by)


@contextmanager
def executor(*, request_id: UUID, lease_no: int) -> Iterator[None]:
    """Inside: the one worker whose writes pass the fence of its request. Needs a transaction; ends with it."""
    with connection.cursor() as cursor:
        cursor.execute(_EXECUTOR, [str(request_id), str(lease_no)])
    try:
        yield
    finally:
        # After an error the transaction is lost and the settings with it.
        if not connection.needs_rollback and connection.connection.info.transaction_status != _IN_ERROR:
            with connection.cursor() as cursor:
                cursor.execute(_EXECUTOR, ["", ""])


def translate(error: BaseException) -> SubjectFenced | Held | None:
    """The refusal of the database's guards as an error of ours; None for any other error."""
    refusals = {"LE001": SubjectFenced, "LE002": Held}
    return refusals[state]() if (state := sqlstate(error)) in refusals else None


def is_lock_timeout(error: BaseException) -> bool:
    """Whether the error is PostgreSQL's, that a lock was not to be had in time."""
    return sqlstate(error) == _LOCK_NOT_AVAILABLE


@contextmanager
def told() -> Iterator[None]:
    """Turn a guard's refusal inside into SubjectFenced or Held."""
    try:
        yield
    except DatabaseError as error:
        if (refusal := translate(error)) is not None:
            raise refusal from error
        raise


# Who writes changes, so whoever entered before is looked at again.
_EXECUTOR = (
    "SELECT set_config('lethe.request', %s, true), set_config('lethe.lease', %s, true), set_config('lethe.entered', '', true)"
)
_IN_ERROR = 3  # psycopg.pq.TransactionStatus.INERROR
_LOCK_NOT_AVAILABLE = "55P03"


def alone(subject_ids: Iterable[UUID], act: Callable[[], Result]) -> Result:
    """`act` in a transaction of its own, under the subjects' locks, taken in order, against every writer."""
    ids = list(subject_ids)
    for attempt in range(ATTEMPTS):
        try:
            with transaction.atomic(durable=True):
                with connection.cursor() as cursor:
                    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
                    cursor.execute(
                        "SELECT pg_advisory_xact_lock(key)"
                        " FROM (SELECT DISTINCT subject_key(id) AS key FROM unnest(%s::uuid[]) AS id ORDER BY 1) AS keys",
                        [ids],
                    )
                    cursor.execute("SELECT set_config('lock_timeout', '0', true)")
                return act()
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
            # A waiting exclusive lock makes every writer queue behind it, so it gives up soon and lets them through.
            time.sleep(0.05 * (attempt + 1))
    raise FenceBusy


def _open(subject: Subject, mode: str, by: Actor, request: SubjectRequest | None, **payload: str) -> Fence:
    current = Fence.objects.filter(subject_id=subject.id, lifted_at=None).first()
    request_id = request.id if request else None
    if current is not None:
        if (current.mode, current.request_id) == (mode, request_id):
            return current
        raise Conflict(f"This subject already has an open fence ({current.mode}). Lift it first.", mode=current.mode)
    fence = Fence.objects.create(tenant_id=subject.tenant_id, subject=subject, mode=mode, request_id=request_id)
    state = Subject.State.RESTRICTED if mode == Fence.Mode.RESTRICT else Subject.State.ERASING
    Subject.objects.filter(pk=subject.pk).update(epoch=F("epoch") + 1, state=state)
    subject.refresh_from_db(fields=["epoch", "state"])
    action = "subject.restricted" if mode == Fence.Mode.RESTRICT else "request.fenced"
    audit.record(
        action, by=by, object_type="subject", object_ref=subject.id, object_label=subject.display_ref,
        mode=mode, request=request_id, epoch=subject.epoch, **payload,
    )  # fmt: skip
    return fence


def _lift(fence: Fence, by: Actor) -> None:
    if not Fence.objects.filter(pk=fence.pk, lifted_at=None).update(lifted_at=Now()):
        return
    Subject.objects.filter(pk=fence.subject_id).update(epoch=F("epoch") + 1, state=Subject.State.ACTIVE)
    audit.record(
        "subject.restriction_lifted", by=by, object_type="subject", object_ref=fence.subject_id, mode=fence.mode
    )


def sqlstate(error: BaseException | None) -> str | None:
    """The SQLSTATE of a psycopg error, or of the one that Django wrapped."""
    while error is not None:
        if state := getattr(error, "sqlstate", None):
            return state
        error = error.__cause__
    return None
