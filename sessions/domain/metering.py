"""Counters of quotas: reading a tenant's limits, locking the rows that count, holding and booking on them.

Used by `quotas`, which says when. Rows are locked in one order everywhere (quota, its counters, their reservations), so
concurrent runs can neither pass a limit together nor deadlock.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models.functions import Now

from governance.ids import shown
from sessions.errors import QuotaExceeded
from sessions.models import Quota, QuotaCounter

# How long a process may go by what it read of a tenant's quotas: a changed limit takes effect everywhere within it.
# The counters themselves are never cached.
CACHE_SECONDS = 2.0
_CACHE_TENANTS = 10_000

SMALLEST = Decimal("0.000001")
_FOR = {
    Quota.Scope.TENANT: "this tenant",
    Quota.Scope.AGENT: "this agent",
    Quota.Scope.API_KEY: "this API key",
    Quota.Scope.SUBJECT: "this subject",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A tenant's quotas as this process read them, with the database's clock at that moment."""

    quotas: tuple[Quota, ...]
    zone: ZoneInfo
    clock: datetime
    read_at: float

    def now(self) -> datetime:
        """The database's time, carried on by this process's monotonic clock for at most CACHE_SECONDS."""
        return self.clock + timedelta(seconds=time.monotonic() - self.read_at)


@dataclass(frozen=True, slots=True)
class Counted:
    """A locked counter with its quota's limit as it is stored now."""

    id: int
    quota: Quota
    limit: Decimal
    used: Decimal
    reserved: Decimal

    @property
    def left(self) -> Decimal:
        """What nobody has used or holds."""
        return max(self.limit - self.used - self.reserved, Decimal(0))


_cache: dict[UUID, Known] = {}


# Reading


def known(tenant_id: UUID) -> Known:
    """The tenant's quotas, read at most CACHE_SECONDS ago."""
    found = _cache.get(tenant_id)
    if found is None or time.monotonic() - found.read_at > CACHE_SECONDS:
        if len(_cache) >= _CACHE_TENANTS:
            _cache.clear()
        found = _cache[tenant_id] = read(tenant_id)
    return found


def read(tenant_id: UUID) -> Known:
    """The tenant's quotas, its zone and the database's clock, in one query."""
    started = time.monotonic()
    quotas = tuple(
        Quota.objects.filter(tenant_id=tenant_id).select_related("tenant").annotate(clock=Now()).order_by("id")
    )
    return Known(
        quotas=quotas,
        zone=ZoneInfo(quotas[0].tenant.timezone if quotas else "UTC"),
        clock=quotas[0].clock if quotas else datetime.now(UTC),
        read_at=started,
    )


def applicable(quotas: Iterable[Quota], refs: dict[str, str | None]) -> list[Quota]:
    """The quotas that a run counts against: one for each scope, measure and period, the one that names it first."""
    chosen: dict[tuple, Quota] = {}
    for quota in sorted(quotas, key=lambda quota: quota.scope_ref != ""):
        ref = refs[quota.scope]
        if ref is not None and quota.scope_ref in ("", ref):
            chosen[quota.scope, quota.measure, quota.period] = quota
    return list(chosen.values())


def period_of(period: str, zone: ZoneInfo, at: datetime) -> tuple[date, datetime]:
    """The first day of the period that holds `at` in `zone`, and the moment at which the next one begins."""
    first = at.astimezone(zone).date()
    if period == Quota.Period.MONTH:
        first = first.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    else:
        following = first + timedelta(days=1)
    # Midnight of the wall clock: where a day has 23 or 25 hours, so has its quota.
    return first, datetime(following.year, following.month, following.day, tzinfo=zone)


def forget(tenant_id: UUID | None = None) -> None:
    """Drop what this process knows of a tenant's quotas, or of all of them."""
    if tenant_id is None:
        _cache.clear()
    else:
        _cache.pop(tenant_id, None)


# Counting


def lock(quotas: list[Quota], refs: dict[str, str | None], zone: ZoneInfo, now: datetime) -> list[Counted]:
    """The counters of the present periods, made or locked one by one in the order of their quotas.

    One statement does both: a counter that was made while others are waited for would be held out of order. A quota
    that was deleted meanwhile gets none, and so limits nothing any more.
    """
    rows = [
        (
            quota.id,
            refs[quota.scope],
            UUID(refs[quota.scope]) if quota.scope == Quota.Scope.SUBJECT else None,
            period_of(quota.period, zone, now)[0],
        )
        for quota in quotas
    ]
    by_id = {quota.id: quota for quota in quotas}
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH locked AS (
              INSERT INTO agent_sessions_quotacounter AS counter
                (tenant_id, subject_id, quota_id, ref, period_start, used, reserved)
              SELECT quota.tenant_id, fresh.subject_id, quota.id, fresh.ref, fresh.period_start, 0, 0
              FROM unnest(%s::uuid[], %s::text[], %s::uuid[], %s::date[]) AS fresh (quota_id, ref, subject_id, period_start)
              JOIN agent_sessions_quota quota ON quota.id = fresh.quota_id
              ORDER BY quota.id
              FOR KEY SHARE OF quota
              ON CONFLICT (quota_id, ref, period_start) DO UPDATE SET reserved = counter.reserved
              RETURNING id, quota_id, used, reserved)
            SELECT locked.id, locked.quota_id, quota."limit", locked.used, locked.reserved
            FROM locked JOIN agent_sessions_quota quota ON quota.id = locked.quota_id
            """,
            [list(column) for column in zip(*rows, strict=True)],
        )
        return [
            Counted(id=counter_id, quota=by_id[quota_id], limit=limit, used=used, reserved=reserved)
            for counter_id, quota_id, limit, used, reserved in cursor.fetchall()
        ]


def refuse_full(counters: list[Counted], zone: ZoneInfo, now: datetime) -> None:
    """Raise QuotaExceeded if some counter has no room for one more run: of several, for the longest to wait for."""
    full = [
        (period_of(counter.quota.period, zone, now)[1], counter)
        for counter in counters
        if counter.left < (1 if counter.quota.measure == Quota.Measure.RUNS else SMALLEST)
    ]
    if not full:
        return
    ends_at, counter = max(full, key=lambda entry: entry[0])
    quota = counter.quota
    raise QuotaExceeded(
        f"The limit of {_amount(quota.measure, counter.limit)} a {quota.period} for {_FOR[quota.scope]} is used up."
        f" It starts anew on {ends_at:%Y-%m-%d at %H:%M} ({zone.key}).",
        quota={
            "id": shown("quo", quota.id),
            "scope": quota.scope,
            "measure": quota.measure,
            "period": quota.period,
            "limit": f"{counter.limit.normalize():f}",
            "resets_at": ends_at.isoformat(),
        },
        retry_after=max(1, math.ceil((ends_at - now).total_seconds())),
    )


def _amount(measure: str, limit: Decimal) -> str:
    return f"{limit:,.2f} US dollars" if measure == Quota.Measure.COST else f"{limit:,.0f} {measure}"


def hold(*, tenant_id: UUID, subject_id: UUID | None, run_id: UUID, amounts: dict[int, Decimal]) -> None:
    """Raise the locked counters and note who holds what, in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH held AS (
              INSERT INTO agent_sessions_quotareservation (tenant_id, subject_id, counter_id, run_id, amount)
              SELECT %s, %s, hold.counter_id, %s, hold.amount
              FROM unnest(%s::bigint[], %s::numeric[]) AS hold (counter_id, amount)
              RETURNING counter_id, amount)
            UPDATE agent_sessions_quotacounter counter SET reserved = counter.reserved + held.amount
            FROM held WHERE counter.id = held.counter_id
            """,
            [tenant_id, subject_id, run_id, list(amounts), list(amounts.values())],
        )


@transaction.atomic
def book(*, run_id: UUID, used: dict[str, Decimal]) -> None:
    """Take the run's reservations off its counters and add what it used, by measure."""
    counters = list(
        QuotaCounter.objects.select_for_update(of=("self",), no_key=True)
        .select_related("quota")
        .filter(reservations__run_id=run_id)
        .order_by("quota_id", "id")
    )
    if not counters:
        return
    with connection.cursor() as cursor:
        # What is still there decides: whoever waited for the locks finds nothing left to book.
        cursor.execute(
            "DELETE FROM agent_sessions_quotareservation WHERE run_id = %s RETURNING counter_id, amount", [run_id]
        )
        held = dict(cursor.fetchall())
    for counter in counters:
        if counter.id in held:
            QuotaCounter.objects.filter(id=counter.id).update(
                used=counter.used + used.get(counter.quota.measure, Decimal(0)),
                reserved=max(counter.reserved - held[counter.id], Decimal(0)),
            )
