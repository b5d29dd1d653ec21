"""One answer of a model: errors, retries, fallbacks, timeouts, the breaker, usage, and what is sent."""

import asyncio
import json
import logging
import time
from uuid import uuid4

import pytest

from sessions.engine import errors
from sessions.engine.errors import ModelFailed
from sessions.engine.models import Limits, Retries
from sessions.engine.store import Entry, RunStopped
from tests.sessions.engine.memory_store import MemoryStore
from tests.sessions.engine.scenes import ALL, box, returning, source, take_turn
from tests.wire.protocols import Chat
from tests.wire.replies import (
    FAILING,
    GARBAGE,
    HTML,
    OVERLOADED,
    RATE_LIMITED,
    UNAUTHORIZED,
    Call,
    Hang,
    Reset,
    Say,
    Status,
    calling,
    said,
)
from tests.wire.server import serving

TOO_LONG = {
    "chat": Status(400, '{"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}'),
    "responses": Status(400, '{"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}'),
    "anthropic": Status(400, '{"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}}'),
    "gemini": Status(400, '{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).", "status": "INVALID_ARGUMENT"}}'),
}


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize(
    "replies, code, attempts",
    [
        ([UNAUTHORIZED], errors.PROVIDER_AUTH, 1),
        ([RATE_LIMITED] * 3, errors.PROVIDER_RATE_LIMITED, 3),
        ([OVERLOADED] * 3, errors.PROVIDER_OVERLOADED, 3),
        ([FAILING] * 3, errors.PROVIDER_OVERLOADED, 3),
        ([Reset()] * 3, errors.PROVIDER_UNREACHABLE, 3),
        ([HTML], errors.PROVIDER_BAD_RESPONSE, 1),
        ([GARBAGE], errors.PROVIDER_BAD_RESPONSE, 1),
        ([Status(404, '{"error": {"message": "no such model", "code": "model_not_found"}}')], errors.MODEL_NOT_FOUND, 1),
        ([Status(422, '{"error": {"message": "odd"}}')], errors.PROVIDER_REJECTED, 1),
    ],
)
async def test_errors_have_stable_codes_and_keep_the_providers_words_in_the_log(
    store, serve, caplog, protocol, replies, code, attempts
):
    fake, models = await serve(protocol, *replies)
    store.says("Hello")

    with caplog.at_level(logging.WARNING, "lethe.engine"), pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    error = failure.value
    assert error.code == code
    assert len(fake.bodies) == attempts
    assert error.reference in error.message
    assert error.reference in caplog.text
    assert error.as_dict() == {"class": error.kind, "code": code, "message": error.message}
    for secret in ("secret", "boom", "odd", "slow down", "Welcome"):
        assert secret not in error.message
    assert "sk-very-secret" not in caplog.text
    assert store.kinds() == ["message"]


@pytest.mark.parametrize("protocol", ALL)
async def test_context_too_long_is_told_apart(store, serve, protocol):
    fake, models = await serve(protocol, TOO_LONG[protocol])
    store.says("Hello")

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    assert (failure.value.code, failure.value.kind) == ("context_too_long", "context")
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("protocol", ALL)
async def test_a_retry_answers(store, serve, protocol):
    fake, models = await serve(protocol, RATE_LIMITED, FAILING, said("At last."))
    store.says("Hello")

    outcome = await take_turn(store, models)

    assert outcome.text == "At last."
    assert len(store.calls) == 1
    assert store.event_types() == ["context.assembled", "message.delta", "message.completed"]


async def test_a_retry_waits_as_long_as_the_provider_asks(store, serve):
    fake, models = await serve("chat", Status(429, "{}", {"retry-after": "1"}), said("Now."))
    store.says("Hello")

    await take_turn(store, models)

    assert 1.0 <= fake.asked_at[1] - fake.asked_at[0] < 2.5


async def test_a_wait_beyond_the_longest_delay_is_not_waited_for(store, serve):
    fake, models = await serve("chat", Status(429, "{}", {"retry-after": "3600"}), said("Never."))
    store.says("Hello")
    started = time.monotonic()

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    assert failure.value.code == "provider_rate_limited"
    assert time.monotonic() - started < 2
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("reply", [RATE_LIMITED, OVERLOADED, FAILING, Reset(), HTML, GARBAGE], ids=str)
@pytest.mark.parametrize("protocol", ["chat", "anthropic"])
async def test_fallback_answers_instead(store, protocol, reply):
    async with serving((protocol, [reply] * 5), ("gemini", [said("From the second.")])) as (first, second):
        models = source((first.config("one"), "m1"), (second.config("two"), second.protocol.model))
        store.says("Hello")

        outcome = await take_turn(store, models)

    assert outcome.text == "From the second."
    ((_, event),) = store.told("model.fallback_used")
    assert (event["from"], event["to"]) == ("one/m1", "two/gemini-2.5-flash")
    assert event["reason"].startswith("provider_")
    assert [call.provider for call in store.calls] == ["two"]
    assert store.rows[-1].content["provider"] == "two"
    assert first.problems == second.problems == []


@pytest.mark.parametrize("reply", [UNAUTHORIZED, TOO_LONG["chat"], Status(400, '{"error": {"message": "odd"}}')], ids=str)
async def test_no_fallback_where_it_would_not_help(store, reply):
    async with serving(("chat", [reply]), ("gemini", [])) as (first, second):
        models = source((first.config("one"), "m1"), (second.config("two"), "m2"))
        store.says("Hello")

        with pytest.raises(ModelFailed):
            await take_turn(store, models)

    assert second.bodies == []
    assert store.told("model.fallback_used") == []


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize("end", ["reset", "error", "cut"])
async def test_no_fallback_after_the_first_word_and_the_text_is_kept(store, protocol, end):
    async with serving((protocol, [Say(["Half", " an answer"], end=end)]), ("gemini", [])) as (first, second):
        models = source((first.config("one"), first.protocol.model), (second.config("two"), second.protocol.model))
        store.says("Hello")

        with pytest.raises(ModelFailed) as failure:
            await take_turn(store, models)

        assert failure.value.code.startswith("provider_")
        assert second.bodies == []
        assert store.rows[-1].content["text"] == "Half an answer"
        assert store.rows[-1].content["cut"] is True
        assert store.calls[0].is_estimated
        assert store.told("message.completed")[0][1]["cut"] is True
        store.says("Go on")
        assert (await take_turn(store, models)).text == "Done."
        assert first.problems == []


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize("end", ["reset", "error", "cut"])
async def test_a_half_written_call_is_dropped_and_the_call_repeated(store, serve, protocol, end):
    half = Say(calls=[Call("look", '{"what": "kettle"}')], end=end)
    fake, models = await serve(protocol, half, calling(Call("look", '{"what": "kettle"}')), said("Blue."))
    store.says("What colour?")

    outcome = await take_turn(store, models, box(returning("look", "blue")))

    assert outcome.text == "Blue."
    assert store.kinds() == ["message", "tool_call", "tool_result", "message"]
    # What the lost attempt cost is in the ledger, too.
    assert [call.is_estimated for call in store.calls] == [True, False, False]
    assert fake.problems == []


async def test_a_text_cut_before_its_end_is_gone_on_with_after_a_restart(store, serve):
    fake, models = await serve("anthropic", Say(["Half"], end="reset"), said(" and half."))
    store.says("Hello")
    with pytest.raises(ModelFailed):
        await take_turn(store, models)

    outcome = await take_turn(store.restarted(), models)

    assert outcome.text == " and half."
    assert "cut off" in json.dumps(fake.bodies[1]["messages"][-1])
    assert fake.problems == []


async def test_a_compatible_server_that_never_sends_a_finish_reason_is_not_cut(store):
    class Without(Chat):
        def stream(self, say):
            for event in super().stream(say):
                yield event.replace('"finish_reason": "stop"', '"finish_reason": null')

    async with serving(("chat", [said("Whole.")])) as (fake,):
        fake.protocol = Without()
        models = source((fake.config(kind="openai_compatible"), "llama"))
        store.says("Hello")

        outcome = await take_turn(store, models)

    assert outcome.text == "Whole."
    assert "cut" not in store.rows[-1].content


async def test_first_event_timeout_falls_back(store):
    async with serving(("chat", [Hang()]), ("chat", [said("Quick.")])) as (first, second):
        models = source((first.config("one"), "m"), (second.config("two"), "m"), first_event_timeout=0.1)
        store.says("Hello")

        outcome = await take_turn(store, models)

    assert outcome.text == "Quick."
    assert store.told("model.fallback_used")[0][1]["reason"] == "provider_timeout"


async def test_silence_in_the_middle_of_an_answer_ends_it(store, serve):
    fake, models = await serve("chat", Say(["Half"], end="hang"), idle_timeout=0.1)
    store.says("Hello")

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    assert failure.value.code == "provider_timeout"
    assert store.rows[-1].content["text"] == "Half"
    while not fake.closed_at:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("protocol", ALL)
async def test_deadline_in_the_middle_of_an_answer_keeps_its_text(store, serve, protocol):
    fake, models = await serve(protocol, said("Hello."), Say(["Half", " of it"], end="hang"))
    store.says("Hello")
    await take_turn(store, models)
    store.says("Again")

    started = time.monotonic()
    outcome = await take_turn(store, models, seconds=0.3)

    assert (outcome.status, outcome.reason, outcome.text) == ("budget_exceeded", "max_seconds_per_run", "Half of it")
    assert time.monotonic() - started < 2
    while not fake.closed_at:
        await asyncio.sleep(0.005)


async def test_seconds_of_the_definition_are_a_deadline(store, serve):
    fake, models = await serve("chat", said("Hello."), Hang())
    store.says("Hello")
    await take_turn(store, models)
    store.started = time.monotonic()
    store.says("Again")

    outcome = await take_turn(store, models, limits={"max_seconds_per_run": 0.15})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_seconds_per_run")


async def test_breaker_is_asked_told_and_respected(store):
    told = []

    async def record(succeeded):
        told.append(succeeded)

    async with serving(("chat", [FAILING, FAILING, FAILING])) as (fake,):
        models = source((fake.config(record=record), "m"))
        store.says("Hello")
        with pytest.raises(ModelFailed):
            await take_turn(store, models)
        assert told == [False, False, False]

        told.clear()
        models = source((fake.config(record=record, failures=3), "m"))
        assert (await take_turn(store, models)).text == "Done."
        assert told == [True]

        told.clear()
        models = source((fake.config(record=record), "m"))
        store.says("Again")
        await take_turn(store, models)
        assert told == []


async def test_refused_key_does_not_trip_the_breaker(store):
    told = []

    async def record(succeeded):
        told.append(succeeded)

    async with serving(("chat", [UNAUTHORIZED])) as (fake,):
        store.says("Hello")
        with pytest.raises(ModelFailed):
            await take_turn(store, source((fake.config(record=record), "m")))

    assert told == []


async def test_open_breaker_is_passed_over(store):
    async def is_open():
        return True

    async with serving(("chat", []), ("chat", [])) as (first, second):
        store.says("Hello")
        both = source((first.config("one", is_open=is_open), "m"), (second.config("two"), "m"))
        assert (await take_turn(store, both)).text == "Done."
        assert store.told("model.fallback_used")[0][1] == {"from": "one/m", "to": "two/m", "reason": "provider_unreachable"}

        store.says("Again")
        with pytest.raises(ModelFailed) as failure:
            await take_turn(store, source((first.config("one", is_open=is_open), "m")))

    assert first.bodies == []
    assert failure.value.code == "provider_unreachable"


async def test_concurrency_of_a_provider_is_limited(store, serve):
    fake, _ = await serve("chat", *(Say(["x"], pause=0.02) for _ in range(6)))
    config = fake.config(id=uuid4(), max_concurrency=2)

    async def one(number):
        own = MemoryStore()
        own.says(f"Hello {number}")
        return await take_turn(own, source((config, "gpt-4o")))

    outcomes = await asyncio.gather(*(one(number) for number in range(6)))

    assert [outcome.text for outcome in outcomes] == ["x"] * 6
    assert fake.most_open == 2


async def test_a_cancelled_wait_for_a_place_gives_it_back(store, serve):
    fake, _ = await serve("chat", Say(["x"], end="hang"))
    models = source((fake.config(id=uuid4(), max_concurrency=1), "gpt-4o"))
    store.says("Hello")
    first = asyncio.create_task(take_turn(store, models))
    while not fake.bodies:
        await asyncio.sleep(0.005)
    other = store.restarted()
    second = asyncio.create_task(take_turn(other, models))
    await asyncio.sleep(0.02)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)

    assert (await take_turn(other.restarted(), models)).text == "Done."


@pytest.mark.parametrize("protocol", ALL)
async def test_usage_is_normalised(store, serve, protocol):
    fake, models = await serve(protocol, said("Hello."))
    store.says("Hello")

    await take_turn(store, models)

    (call,) = store.calls
    assert (call.input_tokens, call.cached_tokens, call.output_tokens) == (100, 40, 20)
    assert call.reasoning_tokens == (0 if protocol == "anthropic" else 7)
    assert not call.is_estimated
    assert call.model.endswith("-2026")
    assert not call.asked.endswith("-2026")
    assert call.provider == "main"


@pytest.mark.parametrize("protocol", ["chat", "responses", "gemini"])
async def test_missing_usage_is_estimated(store, serve, protocol):
    fake, models = await serve(protocol, said("A few words of an answer.", usage=None))
    store.says("Hello there")

    await take_turn(store, models)

    (call,) = store.calls
    assert call.is_estimated
    assert call.input_tokens == sum(layer["tokens"] for layer in call.context)
    assert 5 <= call.output_tokens <= 10


@pytest.mark.parametrize("protocol", ALL)
async def test_reasoning_is_streamed_and_kept_only_if_asked_for(store, serve, protocol):
    fake, models = await serve(protocol, *(said("Yes.", thinking="Hmm, well.") for _ in range(2)))
    store.says("Hello")
    await take_turn(store, models)
    assert store.streamed("reasoning.delta") == "Hmm, well."
    assert store.kinds() == ["message", "message"]

    store.says("Again")
    await take_turn(store, models, model={"provider": "main", "model": "m", "keep_reasoning": True})

    assert store.kinds() == ["message", "message", "message", "reasoning", "message"]
    assert store.rows[3].content["text"] == "Hmm, well."
    # Reasoning of an earlier turn is not sent again.
    store.says("Once more")
    await take_turn(store, models)
    assert "Hmm" not in json.dumps(fake.bodies[-1])
    assert fake.problems == []


@pytest.mark.parametrize("protocol", ["anthropic", "responses", "gemini"])
@pytest.mark.parametrize("keep", [False, True])
async def test_reasoning_goes_back_to_its_author_inside_the_turn(store, serve, protocol, keep):
    fake, models = await serve(protocol, calling(Call("look"), thinking="Hmm, well."), said("Yes."))
    store.says("Hello")
    binding = {"provider": "main", "model": "m", "keep_reasoning": keep}

    await take_turn(store, models, box(returning("look")), model=binding)

    sent = json.dumps(fake.bodies[1])
    assert "Hmm, well." in sent
    mark = {"anthropic": "signed", "responses": "sealed", "gemini": "c2lnbmVk"}[protocol]
    assert mark in sent
    assert ("reasoning" in store.kinds()) is keep
    assert fake.problems == []


async def test_kept_reasoning_goes_back_after_an_approval_in_another_process(store, serve):
    fake, models = await serve("anthropic", calling(Call("look"), thinking="Hmm, well."), said("Yes."))
    store.says("Hello")
    tools = box(returning("look", asks=True))
    binding = {"provider": "main", "model": "m", "keep_reasoning": True}
    await take_turn(store, models, tools, model=binding)
    store.decide("call_1", approve=True)

    await take_turn(store.restarted(), models, tools, model=binding)

    block = fake.bodies[1]["messages"][1]["content"][0]
    assert block == {"type": "thinking", "thinking": "Hmm, well.", "signature": "signed"}


@pytest.mark.parametrize("protocol", ["chat", "responses", "gemini"])
async def test_reasoning_of_another_provider_is_dropped(store, protocol):
    async with serving(("anthropic", [calling(Call("look"), thinking="Hmm, well."), OVERLOADED, OVERLOADED]), (protocol, [])) as (first, second):
        models = source((first.config("one"), "claude-sonnet-5"), (second.config("two"), second.protocol.model))
        store.says("Hello")

        outcome = await take_turn(store, models, box(returning("look")))

    assert outcome.text == "Done."
    assert "Hmm" not in json.dumps(second.bodies)
    assert "look" in json.dumps(second.bodies)
    assert second.problems == []


async def test_a_model_with_a_thinking_budget_does_not_think_after_calls_without_reasoning(store, serve):
    fake, _ = await serve("anthropic")
    models = source((fake.config(), "claude-3-7-sonnet-proxy"))
    store.says("Hello")
    store.put(
        Entry("tool_call", "assistant", {"id": "call_1", "name": "look", "arguments": {}}),
        Entry("tool_result", "tool", {"id": "call_1", "name": "look", "text": "blue", "outcome": "success"}),
    )
    binding = {"provider": "main", "model": "m", "reasoning_effort": "low"}

    await take_turn(store, models, box(returning("look")), model=binding)
    store.says("Again")
    await take_turn(store, models, box(returning("look")), model=binding)

    assert "thinking" not in fake.bodies[0]
    assert fake.bodies[1]["thinking"] == {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.parametrize("protocol", ALL)
async def test_content_filter_without_text_fails(store, serve, protocol):
    fake, models = await serve(protocol, Say([], finish="content_filter"))
    store.says("Hello")

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    assert (failure.value.code, failure.value.kind) == ("content_filtered", "content")
    assert len(store.calls) == 1


@pytest.mark.parametrize("protocol", ALL)
async def test_an_answer_at_the_limit_of_the_output_is_kept_and_told(store, serve, protocol):
    fake, models = await serve(protocol, said("Half of it", finish="length"))
    store.says("Hello")

    outcome = await take_turn(store, models)

    assert (outcome.status, outcome.text) == ("completed", "Half of it")
    assert store.rows[-1].content["finish_reason"] == "length"
    assert store.told("alert")[0][1]["code"] == "output_limit"


@pytest.mark.parametrize("protocol", ALL)
async def test_what_cannot_fit_is_never_sent(store, serve, protocol):
    fake, _ = await serve(protocol)
    models = source((fake.config(limits={"m": Limits(2_000, 500)}), "m"))
    store.says("word " * 10)
    await take_turn(store, models)
    row = store.says("word " * 4_000)
    store.rewrite(row.seq, tokens=4_000)

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models)

    assert (failure.value.code, failure.value.kind) == ("context_too_long", "context")
    assert "has room for 1500" in failure.value.message
    assert len(fake.bodies) == 1
    assert store.kinds() == ["message"] * 3


async def test_counts_are_corrected_by_what_the_model_reports(store, serve):
    # 4,000 tokens of history by our count; the model says that a call had twice as many as we thought.
    fake, _ = await serve("chat", calling(Call("look"), usage=(8_400, 0, 20, 0)), said("Done."))
    models = source((fake.config(limits={"gpt-4o": Limits(6_000, 500)}), "gpt-4o"))
    for number in range(20):
        row = store.says(f"Question {number}")
        store.rewrite(row.seq, tokens=200)
        await store.add([_entry("message", "assistant", {"text": f"Answer {number}"})])
    store.says("Now?")

    await take_turn(store, models, box(returning("look")))

    first, second = (json.dumps(body) for body in fake.bodies)
    assert "Question 0" in first
    assert "Question 0" not in second
    assert "Question 19" in second
    assert fake.problems == []


def _entry(kind, role, content):
    return Entry(kind, role, content, tokens=10)


async def test_a_refusal_is_an_answer(store, serve):
    fake, models = await serve("chat", Say(refusal="I cannot help with that."))
    store.says("Hello")

    outcome = await take_turn(store, models)

    assert (outcome.status, outcome.text) == ("completed", "I cannot help with that.")
    assert store.rows[-1].content["finish_reason"] == "content_filter"


@pytest.mark.parametrize("protocol", ALL)
async def test_an_empty_answer_ends_the_turn(store, serve, protocol):
    fake, models = await serve(protocol, Say([]))
    store.says("Hello")

    outcome = await take_turn(store, models)

    assert (outcome.status, outcome.text) == ("completed", "")
    store.says("Again")
    assert (await take_turn(store, models)).text == "Done."
    assert fake.problems == []


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_arguments_that_are_no_json_are_told_to_the_model(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("look", '{"what": ')), said("Sorry."))
    store.says("Hello")

    outcome = await take_turn(store, models, box(returning("look")))

    assert outcome.text == "Sorry."
    assert store.results()["call_1"]["text"].startswith("Invalid arguments: not a JSON object.")
    assert store.rows[1].content["arguments_text"] == '{"what": '
    assert fake.problems == []


@pytest.mark.parametrize("arguments", ['{"n": NaN}', '{"n": 1e999}', "[1]", '"text"', "7", '{"a": ' * 3000])
async def test_arguments_that_cannot_be_stored_are_kept_as_text(store, serve, arguments):
    fake, models = await serve("chat", calling(Call("look", arguments)), said("Sorry."))
    store.says("Hello")

    await take_turn(store, models, box(returning("look")))

    json.dumps(store.rows[1].content, allow_nan=False)
    assert store.results()["call_1"]["outcome"] == "failed"
    assert fake.problems == []


async def test_nul_and_lone_surrogates_never_reach_the_store(store, serve):
    fake, models = await serve(
        "chat", Say(["a\x00b"], calls=[Call("look", '{"what": "x\\u0000y\\ud800z"}')], finish="tool_calls"), said("ok\x00")
    )
    store.says("Hello")

    await take_turn(store, models, box(returning("look", "r\x00s\ud800")))

    everything = json.dumps([row.content for row in store.rows] + store.events, ensure_ascii=False)
    everything.encode()
    assert "\\u0000" not in everything
    assert store.rows[2].content["arguments"] == {"what": "x\ufffdy\ufffdz"}
    assert store.results()["call_1"]["text"] == "r\ufffds\ufffd"
    assert store.streamed() == "a\ufffdbok\ufffd"


async def test_repeated_call_ids_are_made_distinct(store, serve):
    fake, models = await serve("chat", *(calling(Call("look", id="call_0"), Call("look", id="call_0")) for _ in range(2)), said("Done."))
    store.says("Hello")

    await take_turn(store, models, box(returning("look")))

    ids = [row.content["id"] for row in store.rows if row.kind == "tool_call"]
    assert ids == ["call_0", "call_0_2", "call_0_3", "call_0_4"]
    assert list(store.results()) == ids
    assert fake.problems == []


@pytest.mark.parametrize(
    "binding, protocol, expected",
    [
        ({"temperature": 0.2, "top_p": 0.5, "max_output_tokens": 99}, "chat", {"temperature": 0.2, "top_p": 0.5, "max_completion_tokens": 99}),
        ({"temperature": 0.2, "reasoning_effort": "low"}, "responses", {"temperature": None, "reasoning": {"effort": "low", "summary": None}}),
        ({"settings": {"seed": 7, "openai_text_verbosity": "low", "unknown": 1}}, "chat", {"seed": 7, "verbosity": "low", "unknown": None}),
        ({"settings": {"stop_sequences": ["END"]}}, "anthropic", {"stop_sequences": ["END"], "max_tokens": 8000}),
    ],
)
async def test_settings_reach_the_provider(store, serve, binding, protocol, expected):
    fake, models = await serve(protocol)
    store.says("Hello")

    await take_turn(store, models, model={"provider": "main", "model": "m", **binding})

    body = fake.bodies[0]
    for name, value in expected.items():
        found = body.get(name)
        if isinstance(value, dict):
            found = {key: found.get(key) for key in value}
        assert found == value, name


async def test_reasoning_and_sampling_for_anthropic_keep_its_rules(store, serve):
    fake, _ = await serve("anthropic")
    models = source((fake.config(limits={"claude-3-7-sonnet-proxy": Limits(100_000, 3000)}), "claude-3-7-sonnet-proxy"))
    store.says("Hello")

    await take_turn(store, models, model={"provider": "main", "model": "m", "temperature": 0.2, "reasoning_effort": "high"})

    body = fake.bodies[0]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1500}
    assert body["max_tokens"] == 3000
    assert "temperature" not in body


async def test_a_compatible_server_gets_what_all_of_them_take(store, serve):
    fake, _ = await serve("chat")
    models = source((fake.config(kind="openai_compatible", key=None), "llama"))
    store.says("Hello")

    await take_turn(store, models, model={"provider": "main", "model": "m", "max_output_tokens": 50, "settings": {"top_k": 5}})

    body = fake.bodies[0]
    assert (body["max_tokens"], body["top_k"]) == (50, 5)
    assert "max_completion_tokens" not in body
    assert "store" not in body
    assert fake.headers[0]["authorization"] == "Bearer none"


async def test_keys_and_addresses_of_the_environment_are_never_used(store, serve, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "the-operators-own-key")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/elsewhere")
    for protocol in ALL:
        fake, _ = await serve(protocol)
        store.says("Hello")
        await take_turn(store, source((fake.config(key=None), fake.protocol.model)))
        assert "the-operators-own-key" not in json.dumps(fake.headers)
        assert len(fake.bodies) == 1


SHAPE = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"], "additionalProperties": False}


@pytest.mark.parametrize("protocol", ALL)
async def test_answers_of_an_exact_shape(store, serve, protocol):
    fake, models = await serve(protocol, said('{"colour": "blue"}'))
    store.says("Which?")

    outcome = await take_turn(store, models, response_format={"kind": "json_schema", "json_schema": SHAPE})

    assert outcome.output == {"colour": "blue"}
    assert "colour" in json.dumps(fake.bodies[0])
    assert store.told("alert") == []


@pytest.mark.parametrize("protocol", ALL)
async def test_answers_as_json(store, serve, protocol):
    fake, models = await serve(protocol, said('```json\n{"a": 1}\n```'), said("no json"))
    store.says("Which?")
    first = await take_turn(store, models, response_format={"kind": "json"})
    store.says("Which?")

    second = await take_turn(store, models, response_format={"kind": "json"})

    assert first.output == {"a": 1}
    assert (second.status, second.output, second.text) == ("completed", None, "no json")
    assert store.told("alert")[0][1]["code"] == "answer_is_not_json"
    assert "JSON value" in json.dumps(fake.bodies[0])


PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000")


@pytest.mark.parametrize("protocol", ALL)
async def test_attachments_are_shown_as_the_provider_takes_them(store, serve, protocol):
    fake, models = await serve(protocol)
    store.blobs = {"a" * 64: PIXEL, "b" * 64: b"name,price\nkettle,20\n"}
    store.says(
        "See these",
        attachments=[
            {"sha256": "a" * 64, "media_type": "image/png", "name": "kettle.png", "size": 29},
            {"sha256": "b" * 64, "media_type": "text/csv", "name": "prices.csv", "size": 21},
            {"sha256": "c" * 64, "media_type": "text/csv", "name": "gone.csv", "size": 21},
            {"sha256": "b" * 64, "media_type": "application/zip", "name": "all.zip", "size": 21},
        ],
    )

    await take_turn(store, models)

    sent = json.dumps(fake.bodies[0])
    assert "iVBORw0KGgo" in sent
    assert "kettle,20" in sent
    assert "no longer there" in sent
    assert "application/zip" in sent
    assert fake.problems == []


async def test_retries_stop_when_the_run_is_stopped(store, serve):
    fake, models = await serve("chat", FAILING, FAILING, FAILING, retries=Retries(3, 0.05, 1))
    store.says("Hello")
    task = asyncio.create_task(take_turn(store, models))
    while not fake.bodies:
        await asyncio.sleep(0.002)
    store.stopped = "cancelled"

    with pytest.raises(RunStopped) as stop:
        await task

    assert stop.value.reason == "cancelled"
    assert len(fake.bodies) == 1
