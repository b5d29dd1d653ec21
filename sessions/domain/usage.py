"""What model calls cost, and what a tenant used, by day.

Prices are the operator's own (in the provider's list of models) or the list prices of genai-prices; every ledger line
keeps the prices that were applied, so a later change of prices changes no past cost.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, Protocol
from uuid import UUID

import genai_prices
from django.db import connection
from django.utils import timezone

from agents.models import Provider
from agents.queries import PRICED_AS, model_entry, search_price
from governance.errors import Invalid
from governance.models import Tenant

LONGEST_DAYS = 366
_MILLION = Decimal(1_000_000)
# As the ledger stores it.
_PLACES = Decimal("0.00000001")
_LIST = f"genai-prices {genai_prices.__version__}"


class Usage(Protocol):
    """What one model call used. `cached_tokens` are part of `input_tokens`; `searches` are those of the provider's own web
    search that it bills."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    searches: int


@dataclass(frozen=True, slots=True)
class Priced:
    """US dollars, and the prices for a million tokens that were applied: {"source", "input", "cached_input", "output"},
    with "searches", their price for 1,000 as "web_search" and its "web_search_source" where there were any.

    Both are None where nobody knows a price: an unknown cost is not zero.
    """

    cost: Decimal | None
    prices: dict[str, str] | None


UNKNOWN = Priced(cost=None, prices=None)


def price(*, provider: Provider, model: str, usage: Usage, asked: str = "", at: datetime | None = None) -> Priced:
    """What a call cost by the prices at the time `at` (now, by default). No network.

    Providers answer a name such as `gpt-5` as a dated model, gateways as whatever is behind them: where nobody has a
    price for the `model` that answered, the one for the name it was `asked` for by applies.
    """
    if provider.kind == Provider.Kind.DEMO:
        return Priced(cost=Decimal(0), prices={"source": "demo", "input": "0", "cached_input": "0", "output": "0"})
    names = dict.fromkeys(name for name in (model, asked) if name)
    own = (_by_operator(model_entry(provider, name) or {}, usage) for name in names)
    listed = (_by_list(provider, name, usage, at) for name in names)
    priced = next((found for found in chain(own, listed) if found is not None), UNKNOWN)
    return _with_searches(priced, provider, model, usage.searches) if usage.searches else priced


def _with_searches(priced: Priced, provider: Provider, model: str, searches: int) -> Priced:
    """Searches are paid for one by one. Where their price is not known, the cost of the call is not."""
    prices = {**(priced.prices or {}), "searches": str(searches)}
    if (found := search_price(provider, model)) is None:
        return Priced(cost=None, prices=prices)
    each, source = found
    prices |= {"web_search": f"{each:f}", "web_search_source": source}
    cost = None if priced.cost is None else (priced.cost + each * searches / 1000).quantize(_PLACES)
    return Priced(cost=cost, prices=prices)


def _by_operator(entry: dict, usage: Usage) -> Priced | None:
    """By the operator's own prices; they count when there is one for input and one for output."""
    paid, out = _number(entry.get("input_price")), _number(entry.get("output_price"))
    if paid is None or out is None:
        return None
    cached_paid = _number(entry.get("cached_input_price"))
    cached_paid = paid if cached_paid is None else cached_paid
    cached = min(usage.cached_tokens, usage.input_tokens)
    cost = ((usage.input_tokens - cached) * paid + cached * cached_paid + usage.output_tokens * out) / _MILLION
    return Priced(
        cost=cost.quantize(_PLACES),
        prices={"source": "operator", "input": f"{paid:f}", "cached_input": f"{cached_paid:f}", "output": f"{out:f}"},
    )


def _by_list(provider: Provider, model: str, usage: Usage, at: datetime | None) -> Priced | None:
    """By list prices, tiers included. An address of one's own has list prices only where it is a known provider's."""
    if (priced_as := PRICED_AS.get(provider.kind)) is not None:
        where = {"provider_id": priced_as}
    elif provider.base_url:
        where = {"provider_api_url": provider.base_url}
    else:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens, cache_read_tokens=cached, output_tokens=usage.output_tokens
    )
    try:
        found = genai_prices.calc_price(tokens, model, genai_request_timestamp=at or timezone.now(), **where)
    except LookupError:
        return None
    applied = {
        "input": _listed(found.model_price.input_mtok, usage.input_tokens),
        "cached_input": _listed(found.model_price.cache_read_mtok, usage.input_tokens),
        "output": _listed(found.model_price.output_mtok, usage.input_tokens),
    }
    return Priced(
        cost=found.total_price.quantize(_PLACES),
        prices={"source": _LIST, **{name: f"{value:f}" for name, value in applied.items() if value is not None}},
    )


def _listed(value: Any, input_tokens: int) -> Decimal | None:
    """The price that applies: beyond a tier's threshold its price holds for all tokens."""
    if value is None or isinstance(value, Decimal):
        return value
    applied = value.base
    for tier in value.tiers:
        if input_tokens > tier.start:
            applied = tier.price
    return applied


def _number(value: Any) -> Decimal | None:
    if value in (None, ""):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None


def summary(*, tenant_id: UUID, days: int = 30, agent_id: UUID | None = None) -> dict[str, Any]:
    """What was used on each of the last `days` days, today included, in the tenant's zone; oldest first.

    {"from", "to", "timezone", "totals": {...}, "days": [{"day", "runs", "errors", "input_tokens", "cached_tokens",
    "output_tokens", "cost", "unpriced_runs", "latency_p50_ms", "latency_p95_ms"}], "agents": [{"agent", "runs", "errors",
    "input_tokens", "output_tokens", "cost"}], "models": [{"provider", "model", "calls", "input_tokens", "cached_tokens",
    "output_tokens", "cost", "unpriced_calls"}]}, the busiest 20 of each. `cost` is a decimal as text, the sum of what is
    known; "unpriced" counts what used models without a known price. Latency is that of completed runs, from their
    start to their end, those left out that waited for a person. Raises Invalid for a number of days that is not 1 to 366.
    """
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= LONGEST_DAYS:
        raise Invalid(f"`days` is between 1 and {LONGEST_DAYS}.", errors={"days": [f"1 to {LONGEST_DAYS}."]})
    zone = Tenant.objects.values_list("timezone", flat=True).get(id=tenant_id)
    values = {"tenant": tenant_id, "agent": agent_id, "days": days, "zone": zone}
    *found, totals = _rows(_BY_DAY, values, alias="run")
    today = totals.pop("today")
    del totals["day"]
    by_day = {entry["day"]: {name: value for name, value in entry.items() if name != "today"} for entry in found}
    shown = [(today - timedelta(days=ago)).isoformat() for ago in range(days - 1, -1, -1)]
    return {
        "from": shown[0],
        "to": shown[-1],
        "timezone": zone,
        "totals": totals,
        "days": [{"day": day, **_NOTHING, **by_day.get(day, {})} for day in shown],
        "agents": _rows(_BY_AGENT, values, alias="run"),
        "models": _rows(_BY_MODEL, values, alias="call"),
    }


_NOTHING = {
    "runs": 0, "errors": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "cost": "0", "unpriced_runs": 0,
    "latency_p50_ms": None, "latency_p95_ms": None,
}  # fmt: skip


def _rows(sql: str, values: dict[str, Any], *, alias: str) -> list[dict[str, Any]]:
    narrowed = f"AND {alias}.agent_id = %(agent)s" if values["agent"] else ""
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("/* agent */", narrowed), values)
        names = [column.name for column in cursor.description]
        return [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    """As JSON has it: decimals are texts."""
    return f"{value:f}" if isinstance(value, Decimal) else value


# The first moment of the first day.
_SINCE = """
((date_trunc('day', now() AT TIME ZONE %(zone)s) - make_interval(days => %(days)s - 1)) AT TIME ZONE %(zone)s)
"""
# Ids are ordered by time (UUIDv7), so a tenant's newest runs are one range of an index. The day of grace covers clocks
# that disagree; `created_at` decides.
_RECENT = f"""
run.tenant_id = %(tenant)s /* agent */ AND run.created_at >= {_SINCE}
AND run.id >= (lpad(to_hex((extract(epoch FROM {_SINCE} - interval '1 day') * 1000)::bigint), 12, '0')
               || repeat('0', 20))::uuid
"""
# The last row, without a day, sums up.
_BY_DAY = f"""
WITH recent AS (
  SELECT (run.created_at AT TIME ZONE %(zone)s)::date::text AS day, run.status, run.input_tokens, run.cached_tokens,
         run.output_tokens, run.cost, run.cost IS NULL AND run.model_calls > 0 AS is_unpriced,
         CASE WHEN run.status = 'completed' AND NOT EXISTS (
           SELECT FROM agent_sessions_approval approval WHERE approval.run_id = run.id)
         THEN extract(epoch FROM run.ended_at - run.started_at) * 1000 END AS latency
  FROM agent_sessions_run run WHERE {_RECENT}
)
SELECT day, count(*) AS runs, count(*) FILTER (WHERE status = 'failed') AS errors,
       coalesce(sum(input_tokens), 0)::bigint AS input_tokens, coalesce(sum(cached_tokens), 0)::bigint AS cached_tokens,
       coalesce(sum(output_tokens), 0)::bigint AS output_tokens, coalesce(sum(cost), 0) AS cost,
       count(*) FILTER (WHERE is_unpriced) AS unpriced_runs,
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY latency))::bigint AS latency_p50_ms,
       round(percentile_cont(0.95) WITHIN GROUP (ORDER BY latency))::bigint AS latency_p95_ms,
       (now() AT TIME ZONE %(zone)s)::date AS today
FROM recent
GROUP BY GROUPING SETS ((day), ())
ORDER BY day NULLS LAST
"""
_BY_AGENT = f"""
SELECT agent.name AS agent, count(*) AS runs, count(*) FILTER (WHERE run.status = 'failed') AS errors,
       sum(run.input_tokens)::bigint AS input_tokens, sum(run.output_tokens)::bigint AS output_tokens,
       coalesce(sum(run.cost), 0) AS cost
FROM agent_sessions_run run JOIN agents_agent agent ON agent.id = run.agent_id
WHERE {_RECENT}
GROUP BY agent.name ORDER BY runs DESC, agent.name LIMIT 20
"""
_BY_MODEL = f"""
SELECT call.provider, call.model, count(*) AS calls, sum(call.input_tokens)::bigint AS input_tokens,
       sum(call.cached_tokens)::bigint AS cached_tokens, sum(call.output_tokens)::bigint AS output_tokens,
       coalesce(sum(call.cost), 0) AS cost, count(*) FILTER (WHERE call.cost IS NULL) AS unpriced_calls
FROM agent_sessions_modelcall call
WHERE call.tenant_id = %(tenant)s /* agent */ AND call.at >= {_SINCE}
GROUP BY call.provider, call.model ORDER BY calls DESC, call.provider, call.model LIMIT 20
"""
