"""The harness's loop on the wire: rounds until nothing is open."""

import json

import pytest

from sessions.engine.toolbox import Identity, ToolBox
from tests.sessions.engine.memory_store import MemoryStore
from tests.sessions.engine.scenes import box, definition, returning, take_turn
from tests.wire.replies import Call, Say, Status

ANSWER = Say(text=["I think so."])


def loop(*criteria, **more):
    return {"initial_mode": "execute", "loop": {"criteria": list(criteria), **more}}


def rounds(store):
    return [row for row in store.rows if row.kind == "message" and row.role == "system"]


async def test_agent_goes_on_until_its_marker(serve, store):
    fake, models = await serve("chat", ANSWER, ANSWER, Say(text=["It is settled. [DONE]"]))
    store.says("Settle it.")

    outcome = await take_turn(store, models, harness=loop("completion_marker"))

    assert (outcome.status, outcome.text) == ("completed", "It is settled.")
    assert [data for _, data in store.told("loop.continued")] == [
        {"round": 2, "of": 10, "open": ["completion_marker"]},
        {"round": 3, "of": 10, "open": ["completion_marker"]},
    ]
    assert store.told("loop.ended") == [("loop.ended", {"rounds": 3, "open": []})]
    assert "end your answer with [DONE]" in fake.bodies[0]["messages"][0]["content"]
    assert "Round 2 of 10." in fake.bodies[1]["messages"][-1]["content"]
    assert fake.problems == []


async def test_rounds_are_used_up(serve, store):
    _, models = await serve("chat", *[ANSWER] * 5)
    store.says("Settle it.")

    outcome = await take_turn(store, models, harness=loop("completion_marker", max_iterations=3))

    assert (outcome.status, len(store.calls)) == ("completed", 3)
    assert store.told("loop.ended") == [("loop.ended", {"rounds": 3, "open": ["completion_marker"]})]


async def test_agent_goes_on_while_todos_remain(serve, store):
    done = Say(calls=[Call("todos_complete", json.dumps({"ids": [1]}))], finish="tool_calls")
    fake, models = await serve("chat", ANSWER, done, Say(text=["All done."]))
    settings = loop("todos_remaining")
    store.state["todos"] = [{"id": 1, "title": "Call", "done": False}, {"id": 2, "title": "Write", "done": True}]
    tools = ToolBox.from_definition(definition(harness=settings), store=store, identity=Identity(None, "helper"))
    store.says("Settle it.")

    outcome = await take_turn(store, models, tools, harness=settings)

    assert outcome.text == "All done."
    assert len(rounds(store)) == 1
    assert "These todos are open: 1." in str(fake.bodies[1]["messages"][-1])


async def test_judge_says_what_is_missing(serve, store):
    fake, models = await serve("chat", ANSWER, Say(text=["OPEN: the price"]), Say(text=["It costs 5."]), Say(text=["DONE"]))
    store.says("What does it cost?")

    outcome = await take_turn(store, models, harness=loop("judge"))

    assert outcome.text == "It costs 5."
    assert "the price" in fake.bodies[2]["messages"][-1]["content"]
    judged = fake.bodies[1]
    assert "tools" not in judged
    assert "What does it cost?" in judged["messages"][-1]["content"]
    assert [record.context[0]["layer"] for record in store.calls if len(record.context) == 1] == ["judged", "judged"]
    assert len(store.calls) == 4


@pytest.mark.parametrize("verdict", [Say(text=["Maybe."]), Status(401), Say(text=["OPEN:"])])
async def test_judge_that_cannot_decide_ends_the_loop(serve, store, verdict):
    _, models = await serve("chat", ANSWER, verdict)
    store.says("What does it cost?")

    outcome = await take_turn(store, models, harness=loop("judge"))

    assert (outcome.status, outcome.text) == ("completed", "I think so.")
    assert [data["code"] for _, data in store.told("alert")] == ["judge_failed"]


async def test_judge_is_not_asked_while_something_cheaper_is_open(serve, store):
    _, models = await serve("chat", ANSWER, Say(text=["Yes. [DONE]"]), Say(text=["DONE"]))
    store.says("Settle it.")

    await take_turn(store, models, harness=loop("judge", "completion_marker"))

    assert len(store.calls) == 3


async def test_fresh_round_sees_the_request_and_no_round_before(serve, store):
    working = Say(text=["Looking."], calls=[Call("look")], finish="tool_calls")
    fake, models = await serve("chat", working, ANSWER, Say(text=["Settled. [DONE]"]))
    store.says("Earlier question.")
    store.says("Settle it.")

    await take_turn(store, models, box(returning("look", "a long result")), harness=loop("completion_marker", fresh_context=True))

    sent = json.dumps(fake.bodies[2]["messages"])
    assert "Earlier question." in sent
    assert "Settle it." in sent
    assert "a long result" not in sent
    assert "Looking." not in sent
    assert "I think so." in sent
    assert len([row for row in store.rows if row.kind == "tool_result"]) == 1
    assert fake.problems == []


async def test_plan_waits_for_a_person_and_not_for_the_loop(serve, store):
    _, models = await serve("chat", ANSWER)
    store.says("Settle it.")

    await take_turn(store, models, box(mode="plan"), harness={**loop("completion_marker"), "initial_mode": "plan"})

    assert rounds(store) == []


async def test_limits_of_the_run_end_the_loop(serve, store):
    _, models = await serve("chat", *[ANSWER] * 9)
    store.says("Settle it.")

    outcome = await take_turn(store, models, harness=loop("completion_marker"), limits={"max_tokens_per_run": 200})

    assert (outcome.status, outcome.reason, len(store.calls)) == ("budget_exceeded", "max_tokens_per_run", 2)


async def test_continued_run_counts_the_rounds_it_had(serve, store):
    _, models = await serve("chat", ANSWER, ANSWER)
    store.says("Settle it.")
    await take_turn(store, models, harness=loop("completion_marker", max_iterations=2))
    again: MemoryStore = store.restarted()

    await take_turn(again, models, harness=loop("completion_marker", max_iterations=2))

    assert len(rounds(again)) == 1
    assert len(again.calls) == 2


async def test_agent_without_a_loop_answers_once(serve, store):
    _, models = await serve("chat", ANSWER)
    store.says("Settle it.")
    await take_turn(store, models, harness={"initial_mode": "execute"})

    assert store.told("loop.continued", "loop.ended") == []
