"""Quotas: limits of runs, tokens and cost per day or month, shared by all processes.

A run reserves before it starts and settles when it has ended; a crash in between is found by `release_stale`. How
counters are locked and changed is in `metering`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Sum, Window
from django.db.models.functions import Now

from agents.models import Agent
from governance.actors import Actor
from governance.domain import audit
from governance.errors import NotFound
from governance.ids import shown
from governance.models import ApiKey, Fence, Subject
from sessions.domain import metering
from sessions.errors import InvalidQuota, QuotaExists
from sessions.models import ModelCall, Quota, QuotaCounter, QuotaReservation, Run

# What a run holds of a token or cost quota while nobody knows yet what it will use. It keeps many runs from starting
# at once on the last bit of a quota; what was really used replaces it when the run ends.
HOLD_TOKENS = 4_000
HOLD_COST = Decimal("0.05")

# A reservation whose run is not stored by now belongs to a start that crashed.
STALE_SECONDS = 120
# How long counters of past periods are kept: a month's own, and two months to look back.
KEPT_DAYS = 92

_LARGEST = Decimal(10) ** 12
_NAMED = {Quota.Scope.AGENT: Agent, Quota.Scope.API_KEY: ApiKey, Quota.Scope.SUBJECT: Subject}


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the quotas leave for one run, its own reservation included; None where nothing limits it.

    Runs that are under way at the same time see the same rest, so together they can use more than it; the next
    reservation is then refused.
    """

    tokens: int | None = None
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a quota stands in its present period: the fullest of its counters, and how many there are."""

    quota: Quota
    ref: str
    used: Decimal
    reserved: Decimal
    counters: int
    ends_at: datetime


# Changes


@transaction.atomic
def create_quota(*, tenant_id: UUID, scope: str, scope_ref: str = "", measure: str, period: str, limit, by: Actor) -> Quota:
    """Set a limit. `scope_ref` names one agent, key or subject by its id; empty means each of them by itself.

    A quota that names one replaces the one for each. `limit` is a number of runs or tokens, or US dollars. Raises
    InvalidQuota with the field's path, QuotaExists.
    """
    by.require("quotas.write")
    _require_own(tenant_id, by)
    _choice("scope", scope, Quota.Scope)
    _choice("measure", measure, Quota.Measure)
    _choice("period", period, Quota.Period)
    ref = _named(tenant_id, scope, scope_ref)
    quota = Quota(
        tenant_id=tenant_id,
        scope=scope,
        scope_ref=ref,
        subject_id=UUID(ref) if ref and scope == Quota.Scope.SUBJECT else None,
        measure=measure,
        period=period,
        limit=_limit(limit, measure),
        created_by=by.label,
    )
    try:
        with transaction.atomic():
            quota.save(force_insert=True)
    except IntegrityError as error:
        if "quota_once" in str(error):
            raise QuotaExists from None
        raise
    quota.refresh_from_db()
    _record("quota.created", quota, by)
    _forget(tenant_id)
    return quota


@transaction.atomic
def update_quota(*, quota: Quota, limit, by: Actor) -> Quota:
    """Change the limit. What is used already stays counted."""
    by.require("quotas.write")
    locked = _locked(quota, by)
    locked.limit = _limit(limit, locked.measure)
    locked.save(update_fields=["limit"])
    _record("quota.updated", locked, by)
    _forget(locked.tenant_id)
    return locked


@transaction.atomic
def delete_quota(*, quota: Quota, by: Actor) -> None:
    """Remove the limit with its counters. Runs under way go on."""
    by.require("quotas.write")
    locked = _locked(quota, by)
    counters = list(
        QuotaCounter.objects.select_for_update().filter(quota=locked).order_by("id").values_list("id", flat=True)
    )
    QuotaReservation.objects.filter(counter__in=counters).delete()
    QuotaCounter.objects.filter(id__in=counters).delete()
    Quota.objects.filter(id=locked.id).delete()
    _record("quota.deleted", locked, by)
    _forget(locked.tenant_id)


# What runs do


def reserve(
    *,
    tenant_id: UUID,
    agent_id: UUID,
    actor: Actor,
    subject_id: UUID | None,
    run_id: UUID,
    tokens: int | None = None,
    cost: Decimal | None = None,
) -> Allowance:
    """Take a place for one run in every quota that applies to it, or in none of them.

    `tokens` and `cost` are the run's own limits: they lower what it holds until it is settled. Call it outside a
    transaction: the counters' locks last until commit. A tenant without quotas costs one query, or none when this
    process asked within 2 s (metering.CACHE_SECONDS). Raises QuotaExceeded, which names the limit whose period ends last.
    """
    known = metering.known(tenant_id)
    if not known.quotas:
        return Allowance()
    refs = _refs(tenant_id, agent_id, subject_id, actor.kind, actor.ref)
    quotas = metering.applicable(known.quotas, refs)
    if not quotas:
        return Allowance()
    now = known.now()
    holds = {
        Quota.Measure.RUNS: Decimal(1),
        Quota.Measure.TOKENS: Decimal(min(HOLD_TOKENS, tokens if tokens is not None else HOLD_TOKENS)),
        Quota.Measure.COST: min(HOLD_COST, cost if cost is not None else HOLD_COST),
    }
    with transaction.atomic():
        counters = metering.lock(quotas, refs, known.zone, now)
        metering.refuse_full(counters, known.zone, now)
        amounts = {counter.id: min(holds[counter.quota.measure], counter.left) for counter in counters}
        metering.hold(tenant_id=tenant_id, subject_id=subject_id, run_id=run_id, amounts=amounts)
    left = {measure: [counter.left for counter in counters if counter.quota.measure == measure] for measure in holds}
    return Allowance(
        tokens=int(min(left[Quota.Measure.TOKENS])) if left[Quota.Measure.TOKENS] else None,
        cost=min(left[Quota.Measure.COST], default=None),
    )


def _refs(tenant_id: UUID, agent_id: UUID, subject_id: UUID | None, actor_kind: str, actor_ref: str) -> dict[str, str | None]:
    """Who a run counts for, by the scope of the quota."""
    return {
        Quota.Scope.TENANT: tenant_id.hex,
        Quota.Scope.AGENT: agent_id.hex,
        Quota.Scope.API_KEY: UUID(actor_ref).hex if actor_kind == "api_key" else None,
        Quota.Scope.SUBJECT: subject_id.hex if subject_id else None,
    }


@transaction.atomic
def charge(*, run: Run, tokens: int = 0, cost: Decimal = Decimal(0)) -> None:
    """Count what was spent for an ended run after its end. With nothing spent: only whether there is room left.

    Raises QuotaExceeded when a quota of tokens or cost is used up and nothing is spent yet.
    """
    known = metering.known(run.tenant_id)
    if not known.quotas:
        return
    refs = _refs(run.tenant_id, run.agent_id, run.subject_id, run.actor_kind, run.actor_ref)
    used = {Quota.Measure.TOKENS: Decimal(tokens), Quota.Measure.COST: cost}
    quotas = [quota for quota in metering.applicable(known.quotas, refs) if quota.measure in used]
    if not quotas:
        return
    now = known.now()
    counters = metering.lock(quotas, refs, known.zone, now)
    if not tokens and not cost:
        metering.refuse_full(counters, known.zone, now)
        return
    for counter in counters:
        QuotaCounter.objects.filter(id=counter.id).update(used=F("used") + used[counter.quota.measure])


def settle(*, run: Run, cost: Decimal | None = None) -> None:
    """Replace what the run held by what it used. A second call finds nothing to do.

    `cost` is the known part of the run's cost in US dollars; left out, it is the run's own or read from the ledger.
    """
    if cost is None:
        cost = run.cost
    if cost is None:
        cost = ModelCall.objects.filter(run_id=run.id).aggregate(known=Sum("cost"))["known"] or Decimal(0)
    metering.book(
        run_id=run.id,
        used={
            Quota.Measure.RUNS: Decimal(1),
            Quota.Measure.TOKENS: Decimal(run.input_tokens + run.output_tokens),
            Quota.Measure.COST: cost,
        },
    )


def release(*, run_id: UUID) -> None:
    """Give back what a run held that was never started."""
    metering.book(run_id=run_id, used={})


def release_stale(*, subject_id: UUID | None = None, limit: int = 500) -> int:
    """Settle reservations of ended runs and release those of runs that were never stored; returns the number of runs.

    For the sweeper: a crash between a run's end and its settlement, or between reservation and start, leaves them.
    `subject_id` narrows it to one subject and waives the grace. What fenced subjects hold stays until the fence ends.
    """
    mine = Run.objects.filter(id=OuterRef("run_id"))
    fence = Fence.objects.filter(subject_id=OuterRef("subject_id"), lifted_at=None)
    stale = QuotaReservation.objects.filter(~Exists(mine) | Exists(mine.filter(status__in=Run.FINISHED)), ~Exists(fence))
    if subject_id is not None:
        stale = stale.filter(subject_id=subject_id)
    else:
        stale = stale.filter(created_at__lt=Now() - timedelta(seconds=STALE_SECONDS))
    run_ids = list(dict.fromkeys(stale.order_by("created_at", "id").values_list("run_id", flat=True)[:limit]))
    runs = Run.objects.in_bulk(run_ids)
    for run_id in run_ids:
        if run_id in runs:
            settle(run=runs[run_id])
        else:
            release(run_id=run_id)
    return len(run_ids)


def drop_past(*, limit: int = 1_000) -> int:
    """Delete counters whose period began more than KEPT_DAYS days ago and that no run holds; returns how many."""
    fence = Fence.objects.filter(subject_id=OuterRef("subject_id"), lifted_at=None)
    held = QuotaReservation.objects.filter(counter_id=OuterRef("id"))
    past = QuotaCounter.objects.filter(~Exists(held), ~Exists(fence), period_start__lt=Now() - timedelta(days=KEPT_DAYS))
    ids = list(past.order_by("id").values_list("id", flat=True)[:limit])
    return QuotaCounter.objects.filter(id__in=ids).delete()[0] if ids else 0


def standings(*, tenant_id: UUID) -> list[Standing]:
    """Every quota of the tenant with its fullest counter of the present period."""
    known = metering.read(tenant_id)
    now = known.now()
    starts = {quota.id: metering.period_of(quota.period, known.zone, now) for quota in known.quotas}
    present = Q()
    for quota_id, (start, _) in starts.items():
        present |= Q(quota_id=quota_id, period_start=start)
    fullest = {}
    if starts:
        load, number = F("used") + F("reserved"), Window(Count("id"), partition_by="quota_id")
        counters = QuotaCounter.objects.filter(present, tenant_id=tenant_id).annotate(load=load, number=number)
        fullest = {counter.quota_id: counter for counter in counters.order_by("quota_id", "-load", "id").distinct("quota_id")}
    return [_standing(quota, fullest.get(quota.id), starts[quota.id][1]) for quota in known.quotas]


def _standing(quota: Quota, fullest: QuotaCounter | None, ends_at: datetime) -> Standing:
    if fullest is None:
        return Standing(quota, quota.scope_ref, used=Decimal(0), reserved=Decimal(0), counters=0, ends_at=ends_at)
    return Standing(quota, fullest.ref, fullest.used, fullest.reserved, counters=fullest.number, ends_at=ends_at)


# Checking


def _choice(field: str, value, choices) -> None:
    if value not in choices.values:
        known = ", ".join(choices.values)
        raise InvalidQuota(f"The {field} is one of {known}.", errors={field: [f"One of {known}."]})


def _named(tenant_id: UUID, scope: str, text: str) -> str:
    """The id in `text` as hex, if the tenant has such an agent, key or subject. Empty stays empty."""
    if not text:
        return ""
    if scope == Quota.Scope.TENANT:
        raise InvalidQuota("A limit of the tenant names nothing else.", errors={"scope_ref": ["Leave it empty."]})
    try:
        ref = UUID(str(text).rpartition("_")[2])
    except ValueError:
        ref = None
    if ref is None or not _NAMED[scope].objects.filter(tenant_id=tenant_id, id=ref).exists():
        raise InvalidQuota(f"There is no {scope.replace('_', ' ')} with this id.", errors={"scope_ref": ["Unknown id."]})
    return ref.hex


def _limit(value, measure: str) -> Decimal:
    try:
        limit = Decimal(str(value))
    except InvalidOperation:
        limit = Decimal("NaN")
    if not limit.is_finite():
        raise InvalidQuota("The limit is a number.", errors={"limit": ["A number."]})
    if not 0 <= limit < _LARGEST:
        raise InvalidQuota("The limit is between 0 and 999,999,999,999.", errors={"limit": ["0 to 999,999,999,999."]})
    places = 6 if measure == Quota.Measure.COST else 0
    if limit != round(limit, places):
        wanted = "at most 6 decimal places" if places else "a whole number"
        raise InvalidQuota(f"A limit of {measure} has {wanted}.", errors={"limit": [wanted.capitalize() + "."]})
    return limit


def _forget(tenant_id: UUID) -> None:
    metering.forget(tenant_id)
    transaction.on_commit(partial(metering.forget, tenant_id))


def _require_own(tenant_id: UUID, by: Actor) -> None:
    if tenant_id != by.tenant_id:
        raise NotFound


def _locked(quota: Quota, by: Actor) -> Quota:
    found = Quota.objects.select_for_update().filter(id=quota.id, tenant_id=by.tenant_id).first()
    if found is None:
        raise NotFound
    return found


def _record(action: str, quota: Quota, by: Actor) -> None:
    audit.record(
        action,
        by=by,
        object_type="quota",
        object_ref=shown("quo", quota.id),
        scope=quota.scope,
        measure=quota.measure,
        period=quota.period,
        limit=f"{quota.limit.normalize():f}",
    )
