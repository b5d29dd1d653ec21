"""What the loop promises, on the wire rules of every provider."""

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from sessions.engine.errors import ModelFailed
from sessions.engine.store import Entry, ItemView
from tests.sessions.engine.scenes import ALL, box, returning, take_turn, tool
from tests.wire.replies import FAILING, Call, Say, calling, said

pytestmark = pytest.mark.parametrize("protocol", ALL)

WHERE = {"type": "object", "properties": {"path": {"type": "string", "minLength": 2}}, "required": ["path"]}


async def next_turn_is_valid(store, fake, models, tools=None):
    """The conversation can go on: the provider's rules hold for what is sent next."""
    store.says("And now?")
    fake.script.clear()
    before = len(fake.bodies)

    outcome = await take_turn(store, models, tools)

    assert (outcome.status, outcome.text) == ("completed", "Done.")
    assert fake.problems == []
    return json.dumps(fake.bodies[before])


async def test_steps_are_stored_as_they_happen(store, serve, protocol):
    fake, models = await serve(
        protocol, Say(["Let me", " look."], calls=[Call("look", '{"what": "kéttle"}')], finish="tool_calls"), said("It is blue.")
    )
    store.says("What colour?")

    outcome = await take_turn(store, models, box(returning("look", {"colour": "blue"})))

    assert (outcome.status, outcome.text) == ("completed", "It is blue.")
    assert store.kinds() == ["message", "message", "tool_call", "tool_result", "message"]
    assert store.rows[2].content["arguments"] == {"what": "kéttle"}
    assert [row.group for row in store.rows] == [1, 2, 2, 2, 5]
    assert store.event_types() == [
        "context.assembled", "message.delta", "message.completed", "tool.called", "tool.completed",
        "context.assembled", "message.delta", "message.completed",
    ]  # fmt: skip
    assert store.streamed() == "Let me look.It is blue."
    happened = [value.kind if kind == "item" else value[0] if kind == "event" else kind for kind, value in store.log]
    assert [name for name in happened if not name.endswith("delta")] == [
        "message", "context.assembled",
        "message", "tool_call", "call", "message.completed",
        "tool.called", "tool_result", "tool.completed",
        "context.assembled",
        "message", "call", "message.completed",
    ]  # fmt: skip
    assert fake.problems == []


async def test_failure_of_the_second_call_keeps_what_was_paid_for(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("look")), FAILING, FAILING, FAILING)
    store.says("What colour?")
    tools = box(returning("look", "blue"))

    with pytest.raises(ModelFailed) as failure:
        await take_turn(store, models, tools)

    assert failure.value.code == "provider_overloaded"
    assert store.kinds() == ["message", "tool_call", "tool_result"]
    assert len(store.calls) == 1
    assert "blue" in await next_turn_is_valid(store, fake, models, tools)


async def test_parallel_tools_run_together_and_are_stored_when_each_ends(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("slow", id="call_s"), Call("fast", id="call_f")), said("Both."))
    store.says("Do both")

    async def slow():
        # Ends only if its sibling runs beside it and is stored first.
        while "call_f" not in store.results():
            await asyncio.sleep(0.001)
        return "tortoise"

    outcome = await take_turn(store, models, box(tool("slow", slow, timeout=2), returning("fast", "hare")))

    assert outcome.text == "Both."
    results = [row.content["text"] for row in store.rows if row.kind == "tool_result"]
    assert results == ["hare", "tortoise"]
    assert all(store.results()[call]["outcome"] == "success" for call in ("call_s", "call_f"))
    assert fake.problems == []


async def test_cancel_in_a_tool_keeps_the_finished_sibling(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("endless", id="call_e"), Call("fast", id="call_f")))
    store.says("Do both")
    started = asyncio.Event()

    async def endless():
        started.set()
        await asyncio.sleep(60)

    tools = box(tool("endless", endless), returning("fast", "hare"))
    task = asyncio.create_task(take_turn(store, models, tools))
    await started.wait()
    while "call_f" not in store.results():
        await asyncio.sleep(0.005)
    at = time.monotonic()
    task.cancel("cancelled")

    with pytest.raises(asyncio.CancelledError):
        await task

    assert time.monotonic() - at < 0.5
    assert {call: result["text"] for call, result in store.results().items()} == {"call_f": "hare"}
    sent = await next_turn_is_valid(store, fake, models, tools)
    assert "hare" in sent
    assert "[interrupted]" in sent


async def test_cancel_in_a_stream_keeps_the_text_and_closes_upstream(store, serve, protocol):
    fake, models = await serve(protocol, Say(["Once", " upon", " a", " time"], end="hang", pause=0.02))
    store.says("Tell me")
    task = asyncio.create_task(take_turn(store, models))
    while "upon" not in store.streamed():
        await asyncio.sleep(0.005)
    at = time.monotonic()
    task.cancel("cancelled")

    with pytest.raises(asyncio.CancelledError):
        await task
    while not fake.closed_at:
        await asyncio.sleep(0.005)

    assert fake.closed_at[0] - at < 0.5
    message = store.rows[-1]
    assert message.content["text"] == store.streamed()
    assert message.content["text"].startswith("Once upon")
    assert message.content["cut"] is True
    assert store.calls[0].is_estimated
    assert store.calls[0].output_tokens > 0
    assert "Once upon" in await next_turn_is_valid(store, fake, models)


async def test_cancel_before_the_first_word_closes_upstream(store, serve, protocol):
    fake, models = await serve(protocol, Say(end="hang"))
    store.says("Tell me")
    task = asyncio.create_task(take_turn(store, models))
    while not fake.bodies:
        await asyncio.sleep(0.005)
    task.cancel("cancelled")

    with pytest.raises(asyncio.CancelledError):
        await task
    while not fake.closed_at:
        await asyncio.sleep(0.005)

    assert store.kinds() == ["message"]
    await next_turn_is_valid(store, fake, models)


async def test_killed_before_the_results_the_next_turn_is_valid(store, serve, protocol):
    fake, models = await serve(protocol)
    store.says("Do both")
    store.put(
        Entry("message", "assistant", {"text": "I will."}),
        Entry("tool_call", "assistant", {"id": "call_1", "name": "look", "arguments": {}}, joins=True),
        Entry("tool_call", "assistant", {"id": "call_2", "name": "look", "arguments": {}}, joins=True),
        Entry("tool_result", "tool", {"id": "call_2", "name": "look", "text": "blue", "outcome": "success"}),
    )

    sent = await next_turn_is_valid(store.restarted(), fake, models)

    assert "[interrupted]" in sent
    assert "blue" in sent


async def test_killed_before_the_results_the_run_goes_on_where_it_was(store, serve, protocol):
    fake, models = await serve(protocol, said("It is blue."))
    store.says("Do both")
    store.put(
        Entry("tool_call", "assistant", {"id": "call_1", "name": "look", "arguments": {}}),
        Entry("tool_call", "assistant", {"id": "call_2", "name": "send", "arguments": {}}, joins=True),
    )
    store.effects.add("call_2")
    store = store.restarted()
    sent = []
    tools = box(returning("look", "blue"), tool("send", lambda: sent.append(1), effect="write"))

    outcome = await take_turn(store, models, tools)

    assert outcome.text == "It is blue."
    assert store.results()["call_1"]["text"] == "blue"
    assert store.results()["call_2"]["outcome"] == "interrupted"
    assert sent == []
    assert fake.problems == []


async def test_approval_with_edited_arguments_in_another_process(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("remove", '{"path": "everything"}')), said("Removed."))
    store.says("Clean up")
    removed = []

    async def remove(path):
        removed.append(path)
        return f"removed {path}"

    tools = box(tool("remove", remove, schema=WHERE, effect="destructive", asks=True))
    first = await take_turn(store, models, tools)
    assert (first.status, removed) == ("awaiting_approval", [])
    assert [(call.name, call.arguments, call.effect) for call in store.asked] == [("remove", {"path": "everything"}, "destructive")]

    store.decide("call_1", approve=True, arguments={"path": "only-this"})
    other = store.restarted()
    outcome = await take_turn(other, models, tools)

    assert (outcome.status, outcome.text, removed) == ("completed", "Removed.", ["only-this"])
    assert other.results()["call_1"]["text"] == "removed only-this"
    assert other.told("tool.called")[0][1]["arguments"] == {"path": "only-this"}
    assert other.effects == {"call_1"}
    assert fake.problems == []


async def test_edited_arguments_that_break_the_schema_are_refused(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("remove", '{"path": "everything"}')), said("I could not."))
    store.says("Clean up")
    tools = box(returning("remove", schema=WHERE, effect="destructive", asks=True))
    await take_turn(store, models, tools)
    store.decide("call_1", approve=True, arguments={"path": 7})

    await take_turn(store, models, tools)

    result = store.results()["call_1"]
    assert result["outcome"] == "failed"
    assert "edited" in result["text"]
    assert "path" in result["text"]
    assert store.effects == set()
    assert fake.problems == []


async def test_rejection_with_a_reason_that_the_model_reads(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("remove")), said("Understood."))
    store.says("Clean up")
    tools = box(returning("remove", effect="destructive", asks=True))
    await take_turn(store, models, tools)
    store.decide("call_1", approve=False, reason="The audit needs these files")

    outcome = await take_turn(store, models, tools)

    assert outcome.text == "Understood."
    assert store.results()["call_1"]["outcome"] == "denied"
    assert "The audit needs these files" in json.dumps(fake.bodies[-1])
    assert fake.problems == []


async def test_one_of_two_pending_calls_is_decided(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("remove", id="call_a"), Call("remove", id="call_b")), said("Both settled."))
    store.says("Clean up")
    tools = box(returning("remove", "gone", effect="destructive", asks=True))
    await take_turn(store, models, tools)
    store.decide("call_a", approve=True)

    waiting = await take_turn(store, models, tools)

    assert waiting.status == "awaiting_approval"
    assert list(store.results()) == ["call_a"]
    assert [call.call_id for call in store.asked] == ["call_a", "call_b"]
    assert len(fake.bodies) == 1

    store.decide("call_b", approve=False)
    outcome = await take_turn(store, models, tools)
    assert outcome.text == "Both settled."
    assert fake.problems == []


async def test_new_message_while_an_approval_is_open(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("remove")))
    store.says("Clean up")
    tools = box(returning("remove", effect="destructive", asks=True))
    await take_turn(store, models, tools)

    sent = await next_turn_is_valid(store, fake, models, tools)

    assert "[waiting]" in sent
    assert store.results() == {}


async def test_plan_mode_refuses_what_changes_something(store, serve, protocol):
    fake, models = await serve(
        protocol, calling(Call("write", id="call_w"), Call("read", id="call_r")), said("I have a plan.")
    )
    store.says("Go")
    tools = box(returning("write", effect="write", asks=True), returning("read", "content"), mode="plan")

    outcome = await take_turn(store, models, tools)

    assert outcome.text == "I have a plan."
    assert store.results()["call_w"]["outcome"] == "denied"
    assert "plan" in store.results()["call_w"]["text"]
    assert store.results()["call_r"]["text"] == "content"
    assert store.asked == []
    assert store.effects == set()
    assert fake.problems == []


async def test_every_bad_end_of_a_tool_is_told_to_the_model(store, serve, protocol):
    async def raising():
        raise KeyError("the password is swordfish")

    async def picky():
        raise ValueError("the password is swordfish")

    tools = box(
        tool("raising", raising),
        tool("picky", picky),
        returning("badly_called", schema=WHERE),
        returning("slow", after=5, timeout=0.05),
        returning("huge", "x" * 1000, cap=100),
        returning("silent", ""),
    )
    names = ["raising", "picky", "badly_called", "slow", "huge", "unknown", "silent"]
    fake, models = await serve(protocol, calling(*(Call(name, id=f"call_{name}") for name in names)), said("Well."))
    store.says("Try all")

    outcome = await take_turn(store, models, tools)

    results = {call.removeprefix("call_"): result for call, result in store.results().items()}
    assert outcome.text == "Well."
    assert results["raising"]["text"] == "KeyError: the tool failed."
    assert results["picky"]["text"] == "ValueError: the tool failed."
    assert results["badly_called"]["text"].startswith("Invalid arguments:")
    assert results["slow"]["text"] == "Timed out after 0.05 s."
    assert results["unknown"]["text"].startswith("Unknown tool 'unknown'. Available: raising")
    assert results["huge"]["text"] == "x" * 100 + "\n[truncated: the result has 1000 characters, 100 are shown]"
    assert results["huge"]["truncated"] == {"characters": 1000}
    assert store.told("tool.output_truncated") == [("tool.output_truncated", {"call_id": "call_huge", "characters": 1000, "kept": 100})]
    assert [results[name]["outcome"] for name in names] == ["failed"] * 4 + ["success", "failed", "success"]
    assert "swordfish" not in json.dumps(fake.bodies)
    assert fake.problems == []


async def test_endless_calls_stop_at_the_limit_of_iterations(store, serve, protocol):
    fake, models = await serve(protocol, *(calling(Call("unknown", id="call_1")) for _ in range(50)))
    store.says("Go")

    outcome = await take_turn(store, models, harness={"maximum_iterations_per_request": 6})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "maximum_iterations_per_request")
    assert len(fake.bodies) == 6
    assert len({row.content["id"] for row in store.rows if row.kind == "tool_call"}) == 6
    await next_turn_is_valid(_with_fresh_budget(store), fake, models)


async def test_token_budget_stops_with_all_that_was_paid_for(store, serve, protocol):
    fake, models = await serve(protocol, *(calling(Call("look", id=f"call_{n}")) for n in range(9)))
    store.says("Go")
    tools = box(returning("look"))

    outcome = await take_turn(store, models, tools, limits={"max_tokens_per_run": 300})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_tokens_per_run")
    assert len(store.calls) == 3
    assert store.kinds().count("tool_call") == 3
    assert store.kinds().count("tool_result") == 2
    await next_turn_is_valid(_with_fresh_budget(store), fake, models, tools)


async def test_usage_of_an_earlier_attempt_counts(store, serve, protocol):
    fake, models = await serve(protocol, calling(Call("look")), FAILING, FAILING, FAILING, said("Late."))
    store.says("Go")
    tools = box(returning("look"))
    with pytest.raises(ModelFailed):
        await take_turn(store, models, tools)

    outcome = await take_turn(store.restarted(), models, tools, limits={"max_tokens_per_run": 120})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_tokens_per_run")


async def test_layers_are_sent_in_order_and_the_store_is_untouched(store, serve, protocol):
    fake, models = await serve(protocol, said("One."), said("Two."))
    store.state["todos"] = [{"id": 1, "title": "water the plants", "done": False}]
    tools = box(returning("look"), mode="plan", todos=True)
    store.says("First question")
    await take_turn(store, models, tools)
    before = list(store.rows)
    store.says("Second question")

    await take_turn(store, models, tools)

    assert store.rows[: len(before)] == before
    assert not any("water the plants" in json.dumps(row.content) for row in store.rows)
    sent = json.dumps(fake.bodies[1])
    order = [sent.index(part) for part in ("First question", "One.", "water the plants", "Second question")]
    assert order == sorted(order)
    assert sent.count("water the plants") == 1
    report = store.calls[1].context
    assert [layer["layer"] for layer in report] == ["instructions", "tools", "history", "working_memory", "message"]
    assert [layer["sources"] for layer in report if layer["layer"] in ("history", "message")] == [["1-2"], ["3"]]
    assert fake.problems == []


async def test_four_identical_turns_keep_eight_items(store, serve, protocol):
    fake, models = await serve(protocol)
    for _ in range(4):
        store.says("Hello")
        await take_turn(store, models)

    assert store.kinds() == ["message"] * 8
    assert len(fake.bodies) == 4


async def test_a_long_history_costs_only_its_view(store, serve, protocol):
    fake, models = await serve(protocol)
    store.says("warm up")
    await take_turn(store, models)
    read = set()
    for number in range(5_000):
        store.turn += 1
        store.rows += [
            _item(store, len(store.rows) + 1, "user", _Read(text=f"Question {number}", read=read)),
            _item(store, len(store.rows) + 2, "assistant", _Read(text=f"Answer {number}", read=read)),
        ]
    store.says("The last question")

    with called() as calls:
        await take_turn(store, models, harness={"max_context_window_tokens": 1_000, "disable_agent_mode_provider": True, "max_output_tokens": 100})

    sent = json.dumps(fake.bodies[-1])
    assert "Answer 4999" in sent
    assert "Answer 100 " not in sent
    assert len(sent) < 20_000
    assert 0 < len(read) < 200
    # A few for each of the 10,000, to see how many fit, and those of any turn.
    assert 10_000 < calls.total() < 200_000
    (history,) = [layer for layer in store.calls[-1].context if layer["layer"] == "history"]
    assert history["left_out"][0]["reason"] == "does not fit the model's context window"


@contextmanager
def called():
    """How many functions are called in this thread meanwhile, Python's and the interpreter's own: work without a clock."""
    calls = Counter()
    sys.setprofile(lambda frame, event, what: calls.update((event,)) if event.endswith("call") else None)
    try:
        yield calls
    finally:
        sys.setprofile(None)


class _Read(dict):
    """The content of an item that notes when somebody reads it."""

    def __init__(self, *, text, read):
        super().__init__(text=text)
        self._noted = read

    def __getitem__(self, name):
        self._noted.add(id(self))
        return super().__getitem__(name)

    def get(self, name, default=None):
        self._noted.add(id(self))
        return super().get(name, default)


def _item(store, seq, role, content):
    return ItemView(seq, "message", role, store.turn, seq, 12, content)


def _with_fresh_budget(store):
    store.calls.clear()
    return store
