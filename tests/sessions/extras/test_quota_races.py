"""Many runs at once: nobody passes a limit, nothing is counted twice, nothing deadlocks."""

import random
from decimal import Decimal

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from governance.ids import uuid7
from sessions.domain import metering, quotas
from sessions.errors import QuotaExceeded
from sessions.models import Quota, QuotaCounter, QuotaReservation, Run
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.sessions.extras.parallel import in_parallel

THREADS = 20


def limits(tenant, *rows):
    lethe = people.lethe(tenant)
    return [
        quotas.create_quota(tenant_id=tenant.id, scope=scope, measure=measure, period=period, limit=limit, by=lethe)
        for scope, measure, period, limit in rows
    ]


def books_balance():
    """Every counter holds exactly what its reservations say."""
    for counter in QuotaCounter.objects.all():
        held = QuotaReservation.objects.filter(counter=counter).aggregate(sum=Sum("amount"))["sum"] or 0
        if counter.reserved != held:
            return False
    return True


@pytest.mark.django_db(transaction=True)
def test_twenty_runs_at_once_pass_no_limit_together(tenant, agent, lethe, subject):
    day, month, person = limits(
        tenant, ("tenant", "runs", "day", 7), ("tenant", "runs", "month", 30), ("subject", "runs", "day", 12)
    )

    def start(index):
        return quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=subject.id, run_id=uuid7())

    results = in_parallel(THREADS, start)

    refused = [result for result in results if isinstance(result, QuotaExceeded)]
    assert [result for result in results if isinstance(result, Exception) and not isinstance(result, QuotaExceeded)] == []
    assert len(refused) == THREADS - 7
    assert {error.which["period"] for error in refused} == {"day"}
    assert set(QuotaCounter.objects.values_list("quota_id", "used", "reserved")) == {
        (day.id, 0, 7), (month.id, 0, 7), (person.id, 0, 7),
    }  # fmt: skip
    assert books_balance()


@pytest.mark.django_db(transaction=True)
def test_starting_ending_and_sweeping_at_once_keeps_the_books(tenant, agent, lethe):
    """Many subjects, several quotas, random order: deadlocks and lost updates would show."""
    limits(
        tenant, ("tenant", "runs", "day", 10_000), ("agent", "tokens", "day", 10**9), ("subject", "cost", "month", 10**6),
        ("subject", "runs", "day", 10_000),
    )  # fmt: skip
    people_of = [people.subject(tenant) for _ in range(3)]

    def work(index):
        choose = random.Random(index)
        for _ in range(6):
            person, run_id = choose.choice(people_of), uuid7()
            quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=person.id, run_id=run_id)
            if choose.random() < 0.3:
                quotas.release(run_id=run_id)
                continue
            run = Run.objects.create(
                id=run_id, tenant_id=tenant.id, agent=agent, subject_id=person.id, status="completed", input_tokens=10,
                output_tokens=1, cost=Decimal("0.5"), started_by="key", actor_kind="system", actor_ref="system",
            )  # fmt: skip
            quotas.settle(run=run)
            quotas.settle(run=run)
            quotas.release_stale()

    assert in_parallel(THREADS, work) == [None] * THREADS

    finished = Run.objects.count()
    assert QuotaReservation.objects.count() == 0
    used = dict(QuotaCounter.objects.values_list("quota__measure").annotate(sum=Sum("used")))
    assert used == {"runs": 2 * finished, "tokens": 11 * finished, "cost": Decimal("0.5") * finished}
    assert not QuotaCounter.objects.exclude(reserved=0).exists()


@pytest.mark.django_db(transaction=True)
def test_settling_the_same_run_many_times_at_once_counts_it_once(tenant, agent, lethe):
    limits(tenant, ("tenant", "tokens", "day", 1_000))
    run_id = uuid7()
    quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=None, run_id=run_id)
    run = made.run(agent, id=run_id, input_tokens=40, output_tokens=2, cost=Decimal(0))

    assert in_parallel(8, lambda index: quotas.settle(run=run)) == [None] * 8

    assert list(QuotaCounter.objects.values_list("used", "reserved")) == [(42, 0)]


@pytest.mark.django_db(transaction=True)
def test_deleting_a_quota_while_runs_start_leaves_nothing_behind(tenant, agent, lethe):
    first, second = limits(tenant, ("tenant", "runs", "day", 1_000), ("agent", "runs", "day", 1_000))

    def work(index):
        if index == 0:
            return quotas.delete_quota(quota=first, by=lethe)
        for _ in range(5):
            quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=None, run_id=uuid7())
        return None

    assert in_parallel(10, work) == [None] * 10

    assert list(Quota.objects.all()) == [second]
    assert list(QuotaCounter.objects.values_list("quota_id", "reserved")) == [(second.id, 45)]
    assert books_balance()


steps = st.lists(
    st.tuples(st.sampled_from(["start", "end", "give back"]), st.integers(0, 2), st.integers(0, 60), st.integers(0, 9)), max_size=25
)


@pytest.mark.django_db
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, runs=st.integers(0, 6), tokens=st.integers(0, 120))
def test_no_sequence_of_runs_passes_a_limit(tenant, agent, lethe, steps, runs, tokens):
    """Runs that use at most what they held never take a counter over its limit, in any order."""
    subjects = [uuid7() for _ in range(3)]
    with transaction.atomic():
        Quota.objects.all().delete()
        limits(tenant, ("tenant", "runs", "day", runs), ("subject", "tokens", "day", tokens))
        going = []
        for step, person, wanted, used in steps:
            if step == "start":
                run_id = uuid7()
                try:
                    quotas.reserve(
                        tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=subjects[person], run_id=run_id, tokens=wanted
                    )
                    going.append(run_id)
                except QuotaExceeded as error:
                    assert error.retry_after >= 1  # noqa: PT017 -- one of many steps
            elif going:
                run_id = going.pop(used % len(going))
                held = QuotaReservation.objects.filter(run_id=run_id, counter__quota__measure="tokens").first()
                if step == "end":
                    quotas.settle(run=Run(id=run_id, input_tokens=int(held.amount), output_tokens=0, cost=Decimal(0)))
                else:
                    quotas.release(run_id=run_id)
            for counter in QuotaCounter.objects.select_related("quota"):
                assert counter.used + counter.reserved <= counter.quota.limit
            assert books_balance()
        transaction.set_rollback(True)
    metering.forget()
