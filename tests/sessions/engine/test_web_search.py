"""The provider's own web search, on each protocol's wire."""

from decimal import Decimal
from types import SimpleNamespace

import pytest

from agents.models import Provider
from sessions.domain import usage
from tests.sessions.engine.scenes import box, returning, take_turn
from tests.wire.replies import Call, Say

SEARCHING = {"enable_web_search": True, "initial_mode": "execute"}
# How each protocol names what is offered.
OFFERED = {
    "responses": lambda body: [tool for tool in body["tools"] if tool["type"] == "web_search"],
    "anthropic": lambda body: [tool for tool in body["tools"] if str(tool.get("type", "")).startswith("web_search_")],
    "gemini": lambda body: [tool for tool in body["tools"] if "googleSearch" in tool],
}


def found(text="Found.", **more):
    return Say(text=[text], searches=["lethe river", "greek mythology"], **more)


@pytest.mark.parametrize("protocol", OFFERED)
async def test_search_is_offered_counted_and_told(serve, store, protocol):
    fake, models = await serve(protocol, found())
    store.says("Where is the Lethe?")

    outcome = await take_turn(store, models, harness=SEARCHING)

    assert outcome.text == "Found."
    assert len(OFFERED[protocol](fake.bodies[0])) == 1
    # Gemini 2.5 bills once for a grounded prompt, whatever it looked for.
    assert store.calls[0].searches == (1 if protocol == "gemini" else 2)
    told = [data["name"] for kind, data in store.told("tool.called") if data.get("hosted")]
    assert len(told) >= 1
    assert set(told) == {"web_search"}
    assert fake.problems == []


@pytest.mark.parametrize("protocol", ["responses", "anthropic"])
async def test_query_is_in_the_event(serve, store, protocol):
    _, models = await serve(protocol, found())
    store.says("Where is the Lethe?")
    await take_turn(store, models, harness=SEARCHING)

    queries = [data["arguments"].get("query") for _, data in store.told("tool.called")]
    assert queries == ["lethe river", "greek mythology"]


@pytest.mark.parametrize("protocol", OFFERED)
@pytest.mark.parametrize("harness", [None, {}, {"enable_web_search": True, "disable_web_search": True}])
async def test_search_is_not_offered_unasked(serve, store, protocol, harness):
    fake, models = await serve(protocol, Say(text=["Hello."]))
    store.says("Hello.")
    await take_turn(store, models, box(returning("look")), harness=harness)

    assert OFFERED[protocol](fake.bodies[0]) == []


@pytest.mark.parametrize("protocol", ["chat"])
async def test_model_without_search_answers_without(serve, store, protocol):
    fake, models = await serve(protocol, Say(text=["Hello."]))
    store.says("Hello.")
    outcome = await take_turn(store, models, harness=SEARCHING)

    assert outcome.status == "completed"
    assert "tools" not in fake.bodies[0]


@pytest.mark.parametrize("protocol", ["responses", "anthropic"])
async def test_search_and_tool_in_one_answer_go_back_as_they_were(serve, store, protocol):
    fake, models = await serve(protocol, found("One moment.", calls=[Call("look")], finish="tool_calls"), Say(text=["Done."]))
    store.says("Where is the Lethe?")

    outcome = await take_turn(store, models, box(returning("look", "seen")), harness=SEARCHING)

    assert outcome.text == "Done."
    sent = str(fake.bodies[1])
    assert ("ws_0" if protocol == "responses" else "srvtoolu_0") in sent
    assert fake.problems == []


async def test_paused_turn_is_gone_on_with(serve, store):
    fake, models = await serve("anthropic", found("", paused=True), found("Found at last."))
    store.says("Where is the Lethe?")

    outcome = await take_turn(store, models, harness=SEARCHING)

    assert (outcome.status, outcome.text) == ("completed", "Found at last.")
    assert [call.searches for call in store.calls] == [2, 2]
    last = fake.bodies[1]["messages"][-1]
    assert last["role"] == "assistant"
    assert last["content"][0]["type"] == "server_tool_use"


def call(**values):
    return SimpleNamespace(**{"input_tokens": 1_000_000, "cached_tokens": 0, "output_tokens": 0, "searches": 2, **values})


def test_searches_are_paid_for_by_the_operators_price():
    provider = Provider(kind="openai", pricing={"web_search": "25"}, model_list=[{"name": "m", "input_price": "1", "output_price": "2"}])

    priced = usage.price(provider=provider, model="m", usage=call())

    assert priced.cost == Decimal("1.05")
    assert priced.prices == {
        "source": "operator", "input": "1", "cached_input": "1", "output": "2", "searches": "2", "web_search": "25",
        "web_search_source": "operator",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "model", "cost"), [("openai", "gpt-5", "0.02"), ("anthropic", "claude-sonnet-4-5", "0.02"), ("google", "gemini-3-pro-preview", "0.028")])
def test_searches_are_paid_for_by_list_prices(kind, model, cost):
    provider = Provider(kind=kind, pricing={}, model_list=[])

    with_searches = usage.price(provider=provider, model=model, usage=call())
    without = usage.price(provider=provider, model=model, usage=call(searches=0))

    assert with_searches.cost - without.cost == Decimal(cost)
    assert "searches" not in without.prices


def test_search_without_a_known_price_makes_the_cost_unknown():
    provider = Provider(kind="openai_compatible", pricing={}, model_list=[{"name": "m", "input_price": "1", "output_price": "2"}])

    assert usage.price(provider=provider, model="m", usage=call()).cost is None
