"""Prices of model calls, and what a tenant used by day."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import genai_prices
import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Provider
from governance.errors import Invalid
from governance.ids import uuid7
from sessions.domain import usage
from sessions.domain.usage import UNKNOWN, price, summary
from sessions.models import Run
from tests.factories import governance as people
from tests.factories import sessions as made

AT = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Tokens:
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    searches: int = 0


def openai(**values):
    return Provider(kind="openai", name="openai", **values)


def listed(**prices):
    return openai(model_list=[{"name": "m", **prices}])


# Prices


def test_price_by_the_operators_own_prices():
    priced = price(
        provider=listed(input_price="0.25", cached_input_price="0.025", output_price="2"), model="m",
        usage=Tokens(1_000_000, 400_000, 100_000), at=AT,
    )  # fmt: skip

    assert priced.cost == Decimal("0.15") + Decimal("0.01") + Decimal("0.2")
    assert priced.prices == {"source": "operator", "input": "0.25", "cached_input": "0.025", "output": "2"}


def test_price_without_a_price_for_cached_tokens_takes_that_of_input():
    priced = price(provider=listed(input_price="1", output_price="1"), model="m", usage=Tokens(1_000_000, 500_000, 0))

    assert (priced.cost, priced.prices["cached_input"]) == (1, "1")


def test_price_of_nothing_is_a_price_too():
    priced = price(provider=listed(input_price="0", output_price="0"), model="m", usage=Tokens(500, 0, 500))

    assert (priced.cost, priced.prices["source"]) == (0, "operator")


@pytest.mark.parametrize(
    "prices",
    [
        {}, {"input_price": "1"}, {"output_price": "1"}, {"input_price": "", "output_price": "1"},
        {"input_price": "dear", "output_price": "1"}, {"input_price": "-1", "output_price": "1"},
        {"input_price": "NaN", "output_price": "1"}, {"input_price": None, "output_price": None},
    ],
)  # fmt: skip
def test_half_a_price_is_none(prices):
    assert price(provider=listed(**prices), model="m", usage=Tokens(10, 0, 10)) == UNKNOWN


def test_price_by_the_list_names_its_version():
    priced = price(provider=openai(), model="gpt-5-mini", usage=Tokens(1_000, 200, 100), at=AT)

    assert priced.cost == Decimal("0.000405")
    assert priced.prices == {
        "source": f"genai-prices {genai_prices.__version__}", "input": "0.25", "cached_input": "0.025", "output": "2",
    }  # fmt: skip


def test_the_operators_price_comes_before_the_list():
    provider = openai(model_list=[{"name": "gpt-5-mini", "input_price": "1", "output_price": "1"}])

    assert price(provider=provider, model="gpt-5-mini", usage=Tokens(1_000_000, 0, 0), at=AT).cost == 1


@pytest.mark.parametrize(
    ("models", "answered", "cost"),
    [
        ([{"name": "house", "input_price": "1", "output_price": "1"}], "house-2026-11-01", "1"),
        ([{"name": "house", "input_price": "1", "output_price": "1"}, {"name": "dated", "input_price": "3", "output_price": "3"}], "dated", "3"),
        ([{"name": "house", "input_price": "1", "output_price": "1"}], "gpt-5-mini", "1"),
        ([], "gpt-5-mini", "0.25"),
    ],
    ids=["answers as a dated model", "the answering one has a price", "own before the list", "neither is the operator's"],
)
def test_model_that_answers_under_another_name_is_priced(models, answered, cost):
    priced = price(provider=openai(model_list=models), model=answered, asked="house", usage=Tokens(1_000_000, 0, 0), at=AT)

    assert priced.cost == Decimal(cost)


def test_list_price_of_the_name_that_was_asked_for_applies_to_an_unknown_answer():
    assert price(provider=openai(), model="unheard-of", asked="gpt-5-mini", usage=Tokens(1_000_000, 0, 0), at=AT).cost == Decimal("0.25")


def test_price_beyond_a_tier_holds_for_all_tokens():
    provider = Provider(kind="google", name="google")
    small = price(provider=provider, model="gemini-2.5-pro", usage=Tokens(200_000, 0, 0), at=AT)
    large = price(provider=provider, model="gemini-2.5-pro", usage=Tokens(200_001, 0, 0), at=AT)

    assert (small.cost, small.prices["input"]) == (Decimal("0.25"), "1.25")
    assert (large.cost, large.prices["input"]) == (Decimal("0.5000025"), "2.5")


@pytest.mark.parametrize(
    "provider",
    [
        openai(),
        Provider(kind="openai_compatible", name="own", base_url="http://127.0.0.1:8000/v1"),
        Provider(kind="openai_compatible", name="own"),
        Provider(kind="anthropic", name="anthropic"),
    ],
    ids=["openai", "own address", "no address", "anthropic"],
)
def test_unknown_model_has_no_price(provider):
    assert price(provider=provider, model="llama-of-the-house", usage=Tokens(10, 0, 10), at=AT) == UNKNOWN


def test_a_known_name_at_an_address_of_ones_own_has_no_list_price():
    provider = Provider(kind="openai_compatible", name="own", base_url="http://127.0.0.1:8000/v1")

    assert price(provider=provider, model="gpt-5-mini", usage=Tokens(10, 0, 10), at=AT) == UNKNOWN


def test_a_known_address_has_list_prices():
    provider = Provider(kind="openai_compatible", name="groq", base_url="https://api.groq.com/openai/v1")

    assert price(provider=provider, model="llama-3.3-70b-versatile", usage=Tokens(1_000_000, 0, 0), at=AT).cost > 0


def test_demo_costs_nothing():
    assert price(provider=Provider(kind="demo", name="demo"), model="demo", usage=Tokens(10, 0, 10)).cost == 0


def test_more_cached_than_input_tokens_is_no_accident():
    own = price(provider=listed(input_price="1", cached_input_price="0", output_price="0"), model="m", usage=Tokens(5, 9, 0))
    by_list = price(provider=openai(), model="gpt-5-mini", usage=Tokens(5, 9, 0), at=AT)

    assert own.cost == 0
    assert by_list.cost == Decimal("0.00000012")


counts = st.integers(0, 10**9)


@given(counts, counts, counts, st.decimals(0, 1000, places=4), st.decimals(0, 1000, places=4))
def test_caching_never_makes_a_call_dearer(paid, cached, out, input_price, output_price):
    provider = listed(input_price=str(input_price), cached_input_price=str(input_price / 2), output_price=str(output_price))

    with_cache = price(provider=provider, model="m", usage=Tokens(paid, cached, out)).cost
    without = price(provider=provider, model="m", usage=Tokens(paid, 0, out)).cost

    assert 0 <= with_cache <= without


@given(counts, counts)
def test_own_prices_and_list_prices_reckon_alike(paid, out):
    own = openai(
        model_list=[{"name": "gpt-5-mini", "input_price": "0.25", "cached_input_price": "0.025", "output_price": "2"}]
    )
    tokens = Tokens(paid, paid // 3, out)

    assert price(provider=own, model="gpt-5-mini", usage=tokens).cost == (
        price(provider=openai(), model="gpt-5-mini", usage=tokens, at=AT).cost
    )


# Summary


def ran(agent, days_ago=0, seconds=1.0, **values):
    """A run that took so long, and ended so many days before now; it began on the same day, also shortly after midnight."""
    now = timezone.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    ended = max(now, midnight + timedelta(seconds=seconds)) - timedelta(days=days_ago)
    started = ended - timedelta(seconds=seconds)
    run = made.run(agent, started_at=started, ended_at=ended, id=id_at(started), **values)
    Run.objects.filter(id=run.id).update(created_at=started)
    return run


def id_at(moment):
    """A UUIDv7 of that time."""
    fresh = uuid7()
    return type(fresh)(int=int(moment.timestamp() * 1000) << 80 | fresh.int & ((1 << 80) - 1))


@pytest.mark.django_db
def test_summary_adds_up_by_day(tenant, agent):
    ran(agent, 0, 1, input_tokens=100, cached_tokens=40, output_tokens=10, cost=Decimal("0.5"), model_calls=1)
    ran(agent, 0, 3, input_tokens=1, output_tokens=1, cost=Decimal("0.25"), model_calls=1)
    ran(agent, 0, 99, status=Run.Status.FAILED)
    ran(agent, 2, 5, input_tokens=7, cost=None, model_calls=2)

    found = summary(tenant_id=tenant.id, days=3)

    today = timezone.now().date()
    assert (found["from"], found["to"], found["timezone"]) == (
        (today - timedelta(days=2)).isoformat(), today.isoformat(), "UTC",
    )  # fmt: skip
    nothing = {
        "runs": 0, "errors": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "cost": "0", "unpriced_runs": 0,
        "latency_p50_ms": None, "latency_p95_ms": None,
    }  # fmt: skip
    assert found["days"] == [
        {"day": (today - timedelta(days=2)).isoformat(), **nothing, "runs": 1, "input_tokens": 7, "unpriced_runs": 1,
         "latency_p50_ms": 5000, "latency_p95_ms": 5000},
        {"day": (today - timedelta(days=1)).isoformat(), **nothing},
        {"day": today.isoformat(), "runs": 3, "errors": 1, "input_tokens": 101, "cached_tokens": 40, "output_tokens": 11,
         "cost": "0.75000000", "unpriced_runs": 0, "latency_p50_ms": 2000, "latency_p95_ms": 2900},
    ]  # fmt: skip
    assert found["totals"] == {
        "runs": 4, "errors": 1, "input_tokens": 108, "cached_tokens": 40, "output_tokens": 11, "cost": "0.75000000",
        "unpriced_runs": 1, "latency_p50_ms": 3000, "latency_p95_ms": 4800,
    }  # fmt: skip


@pytest.mark.django_db
def test_summary_leaves_out_other_tenants_agents_and_days(tenant, agent, stranger):
    mine = ran(agent)
    ran(made.agent(tenant))
    ran(made.agent(stranger))
    ran(agent, 8)

    assert summary(tenant_id=tenant.id, days=7)["totals"]["runs"] == 2
    assert summary(tenant_id=tenant.id, days=7, agent_id=mine.agent_id)["totals"]["runs"] == 1


@pytest.mark.django_db
def test_summary_counts_no_time_that_a_person_took(tenant, agent):
    ran(agent, 0, 1)
    made.approval(ran(agent, 0, 5_000), status="approved")

    found = summary(tenant_id=tenant.id, days=1)

    assert (found["totals"]["runs"], found["totals"]["latency_p95_ms"]) == (2, 1000)


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "Pacific/Kiritimati"])
def test_summary_counts_days_of_the_tenants_zone(zone):
    tenant = people.tenant(timezone=zone)
    agent = made.agent(tenant)
    local_midnight = timezone.now().astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    for moment in (local_midnight - timedelta(minutes=1), local_midnight):
        Run.objects.filter(id=made.run(agent, id=id_at(moment)).id).update(created_at=moment)

    found = summary(tenant_id=tenant.id, days=2)

    assert [(day["day"], day["runs"]) for day in found["days"]] == [
        ((local_midnight.date() - timedelta(days=1)).isoformat(), 1), (local_midnight.date().isoformat(), 1),
    ]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("days", [0, -1, 367, "7", None, True, 1.5])
def test_summary_refuses_a_number_of_days_that_is_none(tenant, days):
    with pytest.raises(Invalid) as caught:
        summary(tenant_id=tenant.id, days=days)

    assert list(caught.value.errors) == ["days"]


@pytest.mark.django_db
def test_summary_names_the_busiest_agents_and_models(tenant, agent, stranger):
    busy = made.agent(tenant)
    for number in range(2):
        run = ran(busy, input_tokens=10, output_tokens=5, cost=Decimal("0.5"), status=["completed", "failed"][number])
        made.model_call(run, 1, provider="openai", model="large", cost=Decimal("0.5"), cached_tokens=40)
        made.model_call(run, 2, provider="own", model="small", cost=None)
    ran(agent)
    made.model_call(ran(agent), 1, provider="own", model="small", cost=Decimal("0.1"))
    made.model_call(ran(made.agent(stranger)), 1, provider="theirs", model="theirs")
    ran(agent, 9)

    found = summary(tenant_id=tenant.id, days=7)

    assert found["agents"] == [
        {"agent": name, "runs": 2, "errors": errors, "input_tokens": tokens, "output_tokens": tokens // 2, "cost": cost}
        for name, errors, tokens, cost in sorted([(busy.name, 1, 20, "1.00000000"), (agent.name, 0, 0, "0")])
    ]
    assert found["models"] == [
        {"provider": "own", "model": "small", "calls": 3, "input_tokens": 300, "cached_tokens": 0, "output_tokens": 60,
         "cost": "0.10000000", "unpriced_calls": 2},
        {"provider": "openai", "model": "large", "calls": 2, "input_tokens": 200, "cached_tokens": 80, "output_tokens": 40,
         "cost": "1.00000000", "unpriced_calls": 0},
    ]  # fmt: skip
    assert [entry["agent"] for entry in summary(tenant_id=tenant.id, days=7, agent_id=busy.id)["agents"]] == [busy.name]
    assert sum(entry["calls"] for entry in summary(tenant_id=tenant.id, days=7, agent_id=agent.id)["models"]) == 1


@pytest.mark.django_db
def test_summary_costs_four_queries_however_much_there_is(tenant, agent, django_assert_num_queries):
    for _ in range(3):
        ran(agent)

    with django_assert_num_queries(4):
        assert len(summary(tenant_id=tenant.id, days=usage.LONGEST_DAYS)["days"]) == 366
