"""Legal holds: place one, release it, let it expire.

The rows themselves are kept by the database (governance/triggers.py). Placing and releasing take the tenant's hold key
exclusively, writers of rows that a hold may cover take it shared: a hold falls before or after a batch, never inside.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet, Sum

from governance import queries
from governance.actors import Actor, system
from governance.domain import audit, clock, closure, coverage, fences, jobs, keeping, ledger, registry
from governance.domain.recent import OVER
from governance.domain.snapshots import snapshot
from governance.domain.tables import TableCategory
from governance.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from governance.models import (
    ApiKey,
    ArchivedPart,
    ErasureStep,
    Fence,
    HeldCopy,
    HeldRow,
    Hold,
    LedgerEntry,
    Subject,
    SubjectRequest,
    Tenant,
)

Result = TypeVar("Result")

REASONS = {
    "litigation": "A lawsuit",
    "investigation": "An investigation",
    "regulator": "A demand of an authority",
    "audit": "An audit",
    "claim": "A claim of ours or against us",
    "other": "Another reason, on file elsewhere",
}
QUERY_FIELDS = ("category", "agent", "subject_id", "after", "before", "ids")
MAX_IDS = 10_000
LOCK_TIMEOUT_MS, ATTEMPTS = 800, 8
# What the ledger is told of a hold.
TOLD_IDS = ("session_id", "agent_id")
TOLD_TEXTS = ("matter", "reason", "scope", "agent_name", "category", "root", "placed_by", "placed_by_label")
_MATTER = re.compile(r"[\w.:+\-/]{1,64}")


class HoldBusy(Unavailable):
    code, title = "hold_busy", "Somebody is deleting at the moment"
    detail = "Deletions of this tenant did not pause long enough. Nothing was changed; try again shortly."


class SelfRelease(Forbidden):
    code, title = "self_approval", "Somebody else must release this hold"
    detail = "You placed this hold, so another records manager has to release it."


@dataclass(frozen=True, slots=True)
class Target:
    """What a hold covers: one of a subject, a session, an agent (id and name), a category, or the rows of a query.

    A query is {"category", and any of "agent" (a name), "subject_id", "after", "before" (when made), "ids"}: the rows
    that meet it now are held, with all that belongs to them; later ones are not.
    """

    scope: str
    subject: Subject | None = None
    session_id: UUID | None = None
    agent_id: UUID | None = None
    agent_name: str = ""
    category: str = ""
    query: dict[str, Any] | None = None


def place(*, target: Target, matter: str, reason: str, until: datetime | None = None, by: Actor) -> Hold:
    """Keep what the target names, from now on and against every deletion.

    `covered_rows` and `already_absent` of the answer say what it covers and what was gone before. Raises Invalid by
    field, NotFound, HoldBusy when deletions leave no gap.
    """
    by.require("hold.place")
    _check(target, matter, reason, until, by)
    hold = _alone(by.tenant_id, lambda: _place(target, matter, reason, until, by))
    # Counted afterwards: nobody else has to wait for that.
    Hold.objects.filter(pk=hold.pk).update(covered_rows=sum(rows_by_category(hold=hold).values()))
    hold.refresh_from_db()
    return hold


def release(*, hold: Hold, by: Actor) -> tuple[Hold, list[SubjectRequest]]:
    """End the duty. Returns the hold and the erasures that waited for it and start now.

    Raises SelfRelease for whoever placed it, unless the tenant's `hold_release_alone` allows that; Conflict when it
    is released already.
    """
    by.require("hold.release")
    if hold.tenant_id != by.tenant_id:
        raise NotFound
    if is_own(hold, by) and not keeping.of(Tenant.objects.get(pk=hold.tenant_id)).hold_release_alone:
        raise SelfRelease
    return _alone(hold.tenant_id, lambda: _release(hold, "hold.released", by))


def expire() -> int:
    """Release the holds whose end has come; returns how many. For the sweeper."""
    due = list(Hold.objects.filter(released_at=None, until__lte=clock.ClockTime())[:100])
    for hold in due:
        _alone(hold.tenant_id, lambda hold=hold: _release(hold, "hold.expired", system(hold.tenant_id)))
    forget_copies()
    return len(due)


def enter(*, tenant_id: UUID) -> None:
    """Keep holds of the tenant as they are until the transaction ends: what is looked up now stays true."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(hold_key(%s))", [tenant_id])


def is_own(hold: Hold, by: Actor) -> bool:
    """Whether `by` placed it, by themselves or through a key that they made."""
    if (hold.placed_by, by.kind) == (by.ref, "member"):
        return True
    key = ApiKey.objects.filter(tenant_id=hold.tenant_id, pk=hold.placed_by).first() if _is_uuid(hold.placed_by) else None
    return key is not None and key.created_by == by.label


def told(*, hold: Hold) -> str:
    """Whether the ledger has acknowledged the hold, or its release when it is released: "acknowledged" or "pending"."""
    kind = LedgerEntry.Kind.HOLD_RELEASED if hold.released_at else LedgerEntry.Kind.HOLD_PLACED
    is_there = LedgerEntry.objects.filter(kind=kind, ref=hold.id, number__isnull=False).exists()
    return "acknowledged" if is_there else "pending"


def rows_by_category(*, hold: Hold) -> dict[str, int]:
    """How many rows the hold covers at this moment, by category; only where there are any. Its own snapshot."""
    found = {}
    with snapshot(), connection.cursor() as cursor:
        for category in registry.categories().values():
            if (part := coverage.covered(category, hold)) is not None:
                where, values = part
                cursor.execute(
                    f"SELECT count(*) FROM {category.table} t WHERE t.{category.tenant_field} = %s AND {where}",
                    [hold.tenant_id, *values],
                )
                found[category.key] = cursor.fetchone()[0]
    return {key: rows for key, rows in found.items() if rows}


def waiting_for(*, hold: Hold) -> list[SubjectRequest]:
    """Erasures of the tenant that wait for holds, and that this one is among the reasons of."""
    return [request for request in _follow_ups(hold.tenant_id) if _covers(hold, request)]


def forget_copies(*, tenant_id: UUID | None = None) -> int:
    """Delete the copies that no hold covers any more; those of fenced subjects are left to the erasure."""
    fence = Fence.objects.filter(lifted_at=None).values("subject_id")
    copies = HeldCopy.objects.filter(Q(subject_id=None) | ~Q(subject_id__in=fence))
    if tenant_id is not None:
        copies = copies.filter(tenant_id=tenant_id)
    free = copies.extra(where=["hold_over(tenant_id, subject_id, root, roots, agent_id) IS NULL"])
    return HeldCopy.objects.filter(pk__in=list(free.values_list("pk", flat=True)[:5000])).delete()[0]


# -- placing


def _check(target: Target, matter: str, reason: str, until: datetime | None, by: Actor) -> None:
    errors: dict[str, list[str]] = {}
    if not isinstance(matter, str) or not _MATTER.fullmatch(matter):
        errors["matter"] = ["Give the reference of the file: up to 64 letters, digits and .:+-/_, without spaces."]
    if reason not in REASONS:
        errors["reason"] = [f"Choose one of {', '.join(REASONS)}."]
    if until is not None and until.tzinfo is None:
        errors["until"] = ["Give the time with its zone."]
    elif until is not None and until <= clock.now():
        errors["until"] = ["This time has passed."]
    errors |= _problems_of(target, by)
    if errors:
        raise Invalid("The hold cannot be placed like this.", errors=errors)


def _problems_of(target: Target, by: Actor) -> dict[str, list[str]]:
    match target.scope:
        case Hold.Scope.SUBJECT:
            if target.subject is None or target.subject.tenant_id != by.tenant_id:
                raise NotFound("There is no such subject.")
        case Hold.Scope.SESSION:
            sessions = registry.get("sessions")
            is_there = sessions.model._default_manager.filter(tenant_id=by.tenant_id, pk=target.session_id).exists()
            if not is_there and not ArchivedPart.objects.filter(tenant_id=by.tenant_id, roots__contains=[target.session_id]).exists():
                raise NotFound("There is no such session.")
        case Hold.Scope.AGENT:
            if target.agent_id is None:
                raise NotFound("There is no such agent.")
        case Hold.Scope.CATEGORY:
            known = [category.key for category in registry.categories().values() if category.on_hold != "exempt"]
            if target.category not in known:
                return {"scope.category": [f"Choose one of {', '.join(sorted(known))}."]}
        case Hold.Scope.QUERY:
            return _problems_of_query(target.query)
        case _:
            return {"scope.type": [f"Choose one of {', '.join(Hold.Scope.values)}."]}
    return {}


def queryable() -> list[TableCategory]:
    """Categories whose rows a query may name: those with one id."""
    return [
        category
        for category in registry.categories().values()
        if isinstance(category, TableCategory) and category.on_hold != "exempt" and category.model._meta.pk.column
    ]


def _problems_of_query(query: dict[str, Any] | None) -> dict[str, list[str]]:
    query = query or {}
    errors = {f"scope.{name}": [f"Known are {', '.join(QUERY_FIELDS)}."] for name in set(query) - set(QUERY_FIELDS)}
    known = {category.key: category for category in queryable()}
    category = known.get(query.get("category"))
    if category is None:
        return {**errors, "scope.category": [f"Choose one of {', '.join(sorted(known))}."]}
    if len(query) < 2:
        errors["scope"] = ["A query without a condition is the whole category: use the scope category."]
    if query.get("agent") and not category.agent_field:
        errors["scope.agent"] = [f"{category.title} cannot be narrowed to one agent."]
    for name in ("after", "before"):
        if (time := query.get(name)) is not None and (not isinstance(time, datetime) or time.tzinfo is None):
            errors[f"scope.{name}"] = ["Give a time with its zone."]
        elif time is not None and "created" not in category.ages:
            errors[f"scope.{name}"] = [f"{category.title} have no time to ask for."]
    ids = query.get("ids", [])
    if not isinstance(ids, list) or len(ids) > MAX_IDS or not all(isinstance(entry, UUID) for entry in ids):
        errors["scope.ids"] = [f"Give at most {MAX_IDS} ids."]
    return errors


def _place(target: Target, matter: str, reason: str, until: datetime | None, by: Actor) -> Hold:
    root = coverage.root_of(registry.get(target.category)).key if target.category else ""
    hold = Hold.objects.create(
        tenant_id=by.tenant_id,
        matter=matter,
        reason=reason,
        scope=target.scope,
        subject=target.subject,
        session_id=target.session_id,
        agent_id=target.agent_id,
        agent_name=target.agent_name,
        category=target.category,
        root=root,
        query=_as_json(target.query) if target.query else None,
        until=until,
        placed_by=by.ref,
        placed_by_label=by.label,
    )
    OVER.forget(hold.tenant_id)
    if hold.scope == Hold.Scope.SESSION:
        _name_rows(hold, "sessions", [hold.session_id])
    elif hold.scope == Hold.Scope.QUERY:
        hold.already_absent = _materialise(hold, target.query)
    elif hold.scope == Hold.Scope.SUBJECT:
        erased = ErasureStep.objects.filter(tenant_id=by.tenant_id, request__subject_id=hold.subject_id)
        hold.already_absent = erased.aggregate(rows=Sum("rows"))["rows"] or 0
    hold.save(update_fields=["already_absent"])
    _record("hold.placed", hold, by)
    # The rows of a session or a query by name, so that after a restore the same ones are held again.
    rows = [[row.category, row.row_id.hex] for row in HeldRow.objects.filter(hold=hold).order_by("id")]
    ledger.append(
        LedgerEntry.Kind.HOLD_PLACED,
        tenant_id=hold.tenant_id,
        ref=hold.id,
        subject_id=hold.subject_id,
        **{name: getattr(hold, name) for name in TOLD_TEXTS},
        **{name: value.hex if (value := getattr(hold, name)) else None for name in TOLD_IDS},
        query=hold.query,
        until=until.isoformat() if until else None,
        rows=rows,
    )
    return hold


def _name_rows(hold: Hold, root: str, ids: list[UUID]) -> None:
    """Hold these groups, and those that keep part of their content: a fork's items are its parent's."""
    category = registry.get(root)
    ids = list(dict.fromkeys([*ids, *category.companions(tenant_id=hold.tenant_id, ids=ids)]))
    HeldRow.objects.bulk_create(
        (HeldRow(hold=hold, tenant_id=hold.tenant_id, category=root, row_id=row_id) for row_id in ids),
        batch_size=1000,
        ignore_conflicts=True,
    )


def _materialise(hold: Hold, query: dict[str, Any]) -> int:
    """Name the groups of the rows that meet the query now; returns how many of the given ids are not there."""
    category = registry.get(query["category"])
    rows = _matching(category, hold.tenant_id, query)
    sql, values = rows.order_by().values("pk").query.sql_with_params()
    head = coverage.head_of(category)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT {head} FROM {category.table} t"
            f" WHERE t.{connection.ops.quote_name(category.model._meta.pk.column)} IN ({sql})",
            values,
        )
        heads = [row[0] for row in cursor.fetchall()]
    _name_rows(hold, coverage.root_of(category).key, heads)
    return len(set(query.get("ids", []))) - rows.count() if query.get("ids") else 0


def _matching(category: TableCategory, tenant_id: UUID, query: dict[str, Any]) -> QuerySet:
    rows = category.model._default_manager.filter(**{category.tenant_field: tenant_id})
    if query.get("agent"):
        rows = rows.filter(**{category.agent_field: query["agent"]})
    if query.get("subject_id"):
        rows = rows.filter(**{category.subject_field: query["subject_id"]})
    if query.get("after"):
        rows = rows.filter(**{f"{category.ages['created']}__gte": query["after"]})
    if query.get("before"):
        rows = rows.filter(**{f"{category.ages['created']}__lt": query["before"]})
    return rows.filter(pk__in=query["ids"]) if query.get("ids") else rows


# -- releasing


def _release(hold: Hold, action: str, by: Actor) -> tuple[Hold, list[SubjectRequest]]:
    ended = Hold.objects.filter(pk=hold.pk, released_at=None)
    if not ended.update(released_at=clock.ClockTime(), released_by=by.ref, released_by_label=by.label):
        raise Conflict("This hold was released before.")
    OVER.forget(hold.tenant_id)
    forget_copies(tenant_id=hold.tenant_id)
    hold.refresh_from_db()
    started = resume_waiting(tenant_id=hold.tenant_id)
    _record(action, hold, by, requests=[request.id for request in started])
    ledger.append(
        LedgerEntry.Kind.HOLD_RELEASED,
        tenant_id=hold.tenant_id,
        ref=hold.id,
        subject_id=hold.subject_id,
        released_by=hold.released_by,
        released_by_label=hold.released_by_label,
    )
    return hold, started


def resume_waiting(*, tenant_id: UUID) -> list[SubjectRequest]:
    """Carry on the erasures that waited for holds of which none is left. In the transaction of the release."""
    return [request for request in _follow_ups(tenant_id) if _resume(request)]


def _resume(request: SubjectRequest) -> bool:
    """Carry a follow-up on when nothing of its subject is held any more: it was shown and approved before."""
    if coverage.held_of(coverage.spare(_waiting_scope(request))):
        return False
    # Where more was shown since than anybody confirmed, somebody has to confirm it.
    waiting = SubjectRequest.objects.filter(pk=request.pk, state=SubjectRequest.State.PREVIEWED).exclude(reason="")
    if not waiting.update(
        state=SubjectRequest.State.FENCING, attempts=0, lease_until=None, failure=None, previewed_at=clock.ClockTime()
    ):
        return False
    audit.record(
        "request.resumed", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
        object_label=request.ref, subject=request.subject_id,
    )  # fmt: skip
    jobs.enqueue("governance.work_request", request.id)
    request.refresh_from_db()
    return True


def _follow_ups(tenant_id: UUID) -> QuerySet[SubjectRequest]:
    waiting = queries.requests_of(tenant_id, state=SubjectRequest.State.PREVIEWED)
    return waiting.filter(follows__isnull=False).order_by("id")


def _covers(hold: Hold, request: SubjectRequest) -> bool:
    return bool(coverage.held_of(coverage.spare(_waiting_scope(request), only=hold)))


def _waiting_scope(request: SubjectRequest) -> registry.Scope:
    """What the request waits for: the subject's rows, and others' that were derived from them."""
    known = closure.stored(request)
    scope = registry.Scope(request.tenant_id, request.subject_id)
    return closure.extend(scope, closure.Closure(known.also, {}, known.rebuilt))


def _alone(tenant_id: UUID, act: Callable[[], Result]) -> Result:
    """`act` in a transaction of its own, under the tenant's hold key against everybody who deletes or changes rows."""
    for attempt in range(ATTEMPTS):
        try:
            with transaction.atomic(durable=True):
                with connection.cursor() as cursor:
                    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
                    cursor.execute("SELECT pg_advisory_xact_lock(hold_key(%s))", [tenant_id])
                    cursor.execute("SELECT set_config('lock_timeout', '0', true)")
                return act()
        except OperationalError as error:
            if not fences.is_lock_timeout(error):
                raise
            # A waiting exclusive lock makes every deletion queue behind it, so it gives up soon and lets them through.
            time.sleep(0.05 * (attempt + 1))
    raise HoldBusy


def _record(action: str, hold: Hold, by: Actor, **payload: Any) -> None:
    audit.record(
        action, by=by, object_type="hold", object_ref=hold.id, object_label=hold.matter,
        scope=hold.scope, reason=hold.reason, subject=hold.subject_id, **payload,
    )  # fmt: skip


def _as_json(query: dict[str, Any]) -> dict[str, Any]:
    def plain(value):
        if isinstance(value, datetime):
            return value.isoformat().replace("+00:00", "Z")
        return [entry.hex for entry in value] if isinstance(value, list) else value.hex if isinstance(value, UUID) else value

    return {name: plain(value) for name, value in query.items()}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
