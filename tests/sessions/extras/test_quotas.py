"""What a run meets of the limits, and what it leaves on their counters."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db.models import F
from django.db.models.functions import Now

from governance.actors import Actor
from governance.domain import clock
from governance.ids import shown, uuid7
from sessions.domain import metering, quotas
from sessions.domain.quotas import Allowance, reserve
from sessions.errors import QuotaExceeded
from sessions.models import Quota, QuotaCounter, QuotaReservation, Run
from tests.factories import governance as people
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db


def key_of(tenant, ref: UUID | None = None) -> Actor:
    return Actor(tenant_id=tenant.id, kind="api_key", ref=(ref or uuid7()).hex, label="key")


def counts(quota=None):
    rows = QuotaCounter.objects.filter(quota=quota) if quota else QuotaCounter.objects.all()
    return sorted((row.used, row.reserved) for row in rows)


# Reserving


def test_reserve_allows_up_to_the_limit_and_then_says_which(limit, start, tenant):
    quota = limit(number=2)
    start()
    start()

    with pytest.raises(QuotaExceeded) as caught:
        start()

    error = caught.value
    assert error.which == {
        "id": shown("quo", quota.id), "scope": "tenant", "measure": "runs", "period": "day", "limit": "2",
        "resets_at": error.which["resets_at"],
    }  # fmt: skip
    assert 1 <= error.retry_after <= 24 * 3600
    assert str(error).startswith("The limit of 2 runs a day for this tenant is used up. It starts anew on ")
    assert counts(quota) == [(0, 2)]


def test_reserve_with_a_limit_of_nothing_allows_nothing(limit, start):
    for number, measure in enumerate(["runs", "tokens", "cost"]):
        quota = limit(measure, 0, period=["day", "month"][number % 2])
        with pytest.raises(QuotaExceeded):
            start()
        quota.delete()
        metering.forget()


def test_reserve_takes_all_quotas_or_none(limit, start):
    roomy, full = limit(number=5), limit(number=1, scope="agent")
    start()

    with pytest.raises(QuotaExceeded) as caught:
        start()

    assert caught.value.which["scope"] == "agent"
    assert (counts(roomy), counts(full), QuotaReservation.objects.count()) == ([(0, 1)], [(0, 1)], 2)


def test_reserve_names_the_limit_that_lasts_longest(limit, start, monkeypatch):
    monkeypatch.setattr(metering.Known, "now", lambda known: datetime(2026, 5, 20, tzinfo=UTC))
    limit(number=0, period="day")
    limit(number=0, period="month")

    with pytest.raises(QuotaExceeded) as caught:
        start()

    assert caught.value.which["resets_at"] == "2026-06-01T00:00:00+00:00"
    assert caught.value.retry_after == 12 * 24 * 3600


def test_reserve_counts_each_subject_and_key_by_itself(limit, start, tenant):
    limit(number=1, scope="subject")
    limit(number=1, scope="api_key")
    ada, ben = people.subject(tenant), people.subject(tenant)
    key = key_of(tenant)
    start(subject=ada)
    start(actor=key)

    start(subject=ben)
    start(actor=key_of(tenant))
    with pytest.raises(QuotaExceeded):
        start(subject=ada)
    with pytest.raises(QuotaExceeded):
        start(actor=key)


def test_reserve_for_nobody_meets_no_limit_of_subjects(limit, start):
    limit(number=0, scope="subject")
    limit(number=0, scope="api_key")

    start()

    assert counts() == []


def test_quota_that_names_somebody_replaces_the_one_for_each(limit, start, tenant):
    limit(number=1, scope="subject")
    ada, ben = people.subject(tenant), people.subject(tenant)
    limit(number=3, scope="subject", scope_ref=ada.id.hex)

    for _ in range(3):
        start(subject=ada)
    start(subject=ben)
    for person in (ada, ben):
        with pytest.raises(QuotaExceeded):
            start(subject=person)


def test_counters_of_a_subject_carry_the_subject(limit, start, subject, tenant):
    limit(number=5, scope="subject")
    limit(number=5)

    start(subject=subject)

    assert sorted(QuotaCounter.objects.values_list("quota__scope", "subject_id")) == [
        ("subject", subject.id), ("tenant", None),
    ]  # fmt: skip
    assert set(QuotaReservation.objects.values_list("subject_id", flat=True)) == {subject.id}


def test_reserve_leaves_other_tenants_alone(limit, start, stranger):
    limit(number=1)
    start()
    theirs = people.actor(stranger, "operator")

    allowance = reserve(
        tenant_id=stranger.id, agent_id=made.agent(stranger).id, actor=theirs, subject_id=None, run_id=uuid7()
    )

    assert allowance == Allowance()
    assert list(QuotaCounter.objects.values_list("tenant_id", flat=True)) == [Quota.objects.get().tenant_id]


def test_reserve_holds_an_estimate_of_tokens_and_cost(limit, start):
    tokens, cost = limit("tokens", 10_000), limit("cost", "1", period="month")

    start()
    start(tokens=500, cost=Decimal("0.01"))

    assert counts(tokens) == [(0, quotas.HOLD_TOKENS + 500)]
    assert counts(cost) == [(0, quotas.HOLD_COST + Decimal("0.01"))]


def test_reserve_holds_no_more_than_is_left(limit, start):
    quota = limit("tokens", 5_000)
    start()

    start()

    assert counts(quota) == [(0, 5_000)]
    with pytest.raises(QuotaExceeded):
        start()


def test_reserve_says_how_much_a_run_may_use(tenant, agent, lethe, limit):
    limit("tokens", 10_000)
    limit("tokens", 6_000, period="month")
    limit("cost", "0.5")

    allowance = reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=None, run_id=uuid7())

    assert allowance == Allowance(tokens=6_000, cost=Decimal("0.5"))


def test_reserve_without_quotas_costs_one_query_and_then_none(tenant, agent, lethe, django_assert_num_queries):
    def once():
        reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=None, run_id=uuid7())

    with django_assert_num_queries(1):
        once()
    with django_assert_num_queries(0):
        once()


def test_reserve_sees_a_new_quota_of_another_process_within_two_seconds(limit, start, tenant, monkeypatch):
    start()
    known = metering._cache[tenant.id]
    limit(number=0)
    metering._cache[tenant.id] = known
    start()

    monkeypatch.setattr(metering.time, "monotonic", lambda: known.read_at + metering.CACHE_SECONDS + 0.01)

    with pytest.raises(QuotaExceeded):
        start()


def test_reserve_goes_by_the_stored_limit_not_by_the_remembered_one(limit, start, tenant):
    quota = limit(number=1)
    start()
    with pytest.raises(QuotaExceeded):
        start()

    Quota.objects.filter(id=quota.id).update(limit=2)

    start()


def test_reserve_for_a_quota_that_was_just_deleted_elsewhere(limit, start, tenant):
    limit(number=5)
    metering.known(tenant.id)
    Quota.objects.all().delete()

    start()

    assert counts() == []


# Settling


def test_settle_replaces_the_hold_by_what_was_used(limit, start, agent):
    runs, tokens, cost = limit(number=9), limit("tokens", 10_000), limit("cost", 1)
    run = made.run(agent, id=start(), input_tokens=700, output_tokens=50, cost=Decimal("0.0123"))

    quotas.settle(run=run)
    quotas.settle(run=run)

    assert [counts(quota) for quota in (runs, tokens, cost)] == [[(1, 0)], [(750, 0)], [(Decimal("0.0123"), 0)]]
    assert QuotaReservation.objects.count() == 0


def test_settle_counts_the_known_part_of_an_unknown_cost(limit, start, agent):
    quota = limit("cost", 1)
    run = made.run(agent, id=start(), cost=None)
    made.model_call(run, 1, cost=Decimal("0.2"))
    made.model_call(run, 2, cost=None)

    quotas.settle(run=run)

    assert counts(quota) == [(Decimal("0.2"), 0)]


def test_settle_of_a_run_that_used_more_than_was_left_refuses_the_next(limit, start, agent):
    quota = limit("tokens", 1_000)
    run = made.run(agent, id=start(), input_tokens=4_000)

    quotas.settle(run=run)

    assert counts(quota) == [(4_000, 0)]
    with pytest.raises(QuotaExceeded):
        start()


def test_settle_without_quotas_costs_one_query(agent, django_assert_num_queries):
    run = made.run(agent, cost=Decimal(0))

    with django_assert_num_queries(3):  # the savepoint, the look, its release
        quotas.settle(run=run)


def test_release_gives_everything_back(limit, start):
    quota = limit(number=1)

    quotas.release(run_id=start())

    assert counts(quota) == [(0, 0)]
    start()


def test_release_stale_settles_ended_runs_and_frees_lost_ones(limit, start, agent):
    quota = limit("tokens", 100_000)
    made.run(agent, id=start(tokens=10), input_tokens=700, output_tokens=0)
    made.run(agent, id=start(tokens=20), status=Run.Status.RUNNING)
    made.run(agent, id=start(tokens=40), status=Run.Status.AWAITING_APPROVAL)
    start(tokens=80)
    QuotaReservation.objects.update(created_at=Now() - timedelta(seconds=quotas.STALE_SECONDS + 1))
    start(tokens=160)

    released = quotas.release_stale()

    assert released == 2
    assert counts(quota) == [(700, 20 + 40 + 160)]


def test_release_stale_is_bounded_and_comes_to_an_end(limit, start):
    limit("tokens", 100_000)
    for _ in range(5):
        start(tokens=1)
    QuotaReservation.objects.update(created_at=F("created_at") - timedelta(hours=1))

    assert [quotas.release_stale(limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_release_stale_of_one_subject_waits_for_nothing(limit, start, agent, tenant, subject):
    quota = limit("tokens", 100_000)
    neighbour = people.subject(tenant)
    made.run(agent, id=start(subject=subject, tokens=10), subject=subject, input_tokens=3)
    made.run(agent, id=start(subject=neighbour, tokens=20), subject=neighbour, input_tokens=3)

    quotas.release_stale(subject_id=subject.id)

    assert counts(quota) == [(3, 20)]


# Old counters


def test_drop_past_ends_old_counters(tenant, lethe):
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=9, by=lethe)
    today = clock.now().date()
    rows = [
        QuotaCounter.objects.create(tenant_id=tenant.id, quota=quota, ref="r", period_start=today - timedelta(days=days), used=1)
        for days in (0, quotas.KEPT_DAYS - 1, quotas.KEPT_DAYS + 1, quotas.KEPT_DAYS + 2)
    ]
    QuotaReservation.objects.create(tenant_id=tenant.id, counter=rows[3], run_id=quota.id, amount=1)

    assert quotas.drop_past() == 1

    assert set(QuotaCounter.objects.all()) == {rows[0], rows[1], rows[3]}


# Standings


def test_standings_show_the_fullest_counter_of_the_period(limit, start, tenant):
    busy = limit(number=9, scope="subject")
    idle = limit("cost", 4)
    ada, ben = people.subject(tenant), people.subject(tenant)
    for person in (ada, ben, ada):
        start(subject=person)
    QuotaCounter.objects.create(
        tenant_id=tenant.id, quota=busy, ref=ben.id.hex, period_start="2020-01-01", used=9, subject_id=ben.id
    )

    standings = {standing.quota.id: standing for standing in quotas.standings(tenant_id=tenant.id)}

    assert (standings[busy.id].ref, standings[busy.id].reserved, standings[busy.id].counters) == (ada.id.hex, 2, 2)
    assert (standings[idle.id].used, standings[idle.id].counters) == (0, 1)


def test_standings_cost_the_same_for_one_and_many(limit, start, tenant, django_assert_num_queries):
    limit(number=9)
    with django_assert_num_queries(2):
        quotas.standings(tenant_id=tenant.id)
    limit(number=9, scope="agent")
    limit(number=9, scope="subject")
    start()

    with django_assert_num_queries(2):
        quotas.standings(tenant_id=tenant.id)


def test_standings_of_a_tenant_without_quotas(tenant, stranger, limit):
    limit()

    assert quotas.standings(tenant_id=stranger.id) == []
