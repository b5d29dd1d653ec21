"""Observers in a turn: events, what the model is told, and the end of a run that goes nowhere."""

import json

import pytest

from sessions.context.observers import HOPELESS, REPEATED
from sessions.engine.errors import HALTED, ModelFailed
from tests.sessions.engine.scenes import box, returning, take_turn
from tests.wire.replies import Call, calling, said

LISTENS = [{"kind": "alert"}]


def repeated(times, *, name="look", then="Done."):
    """The same call that many times, each with an id of its own."""
    return [calling(Call(name, "{}", id=f"call_{number}")) for number in range(times)] + [said(then)]


def alerts(store):
    return [(data["code"], data.get("fatal")) for _, data in store.told("alert")]


async def test_suspected_loop_is_told_once_and_does_not_end_the_run_of_an_agent_that_does_not_listen(store, serve):
    fake, models = await serve("chat", *repeated(HOPELESS + 1))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("look", "nothing")))

    assert outcome.status == "completed"
    assert alerts(store) == [("loop_suspected", False), ("loop_suspected", True)]
    assert store.told("halt") == []
    assert "loop_suspected" not in json.dumps(fake.bodies)


async def test_agent_that_listens_reads_the_alert_and_can_still_stop(store, serve):
    fake, models = await serve("chat", *repeated(REPEATED))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("look", "nothing")), assembly=LISTENS)

    assert outcome.status == "completed"
    assert ["loop_suspected" in json.dumps(body) for body in fake.bodies] == [False] * REPEATED + [True]
    layers = {layer["layer"]: layer for layer in store.calls[-1].context}
    assert layers["alerts"]["text"].startswith("[loop_suspected] look was called 3 times")
    assert layers["alerts"]["sources"] == ["loop_suspected"]


async def test_fatal_alert_halts_the_run_and_keeps_what_was_done(store, serve):
    fake, models = await serve("chat", *repeated(HOPELESS + 5))
    store.says("Go")

    with pytest.raises(ModelFailed) as halted:
        await take_turn(store, models, box(returning("look", "nothing")), assembly=LISTENS)

    assert (halted.value.code, halted.value.as_dict()["class"]) == (HALTED, "halted")
    assert len(fake.bodies) == HOPELESS
    ((_, halt),) = store.told("halt")
    assert (halt["code"], halt["about"]) == ("loop_suspected", "look")
    assert halt["message"] in halted.value.message
    assert store.event_types()[-2:] == ["alert", "halt"]
    assert len(store.results()) == HOPELESS


async def test_halted_run_that_is_carried_on_is_halted_again(store, serve):
    fake, models = await serve("chat", *repeated(HOPELESS + 5))
    store.says("Go")
    with pytest.raises(ModelFailed):
        await take_turn(store, models, box(returning("look", "nothing")), assembly=LISTENS)

    with pytest.raises(ModelFailed) as halted:
        await take_turn(store.restarted(), models, box(returning("look", "nothing")), assembly=LISTENS)

    assert halted.value.code == HALTED
    assert len(fake.bodies) == HOPELESS


async def test_continued_run_does_not_tell_its_alerts_again(store, serve):
    fake, models = await serve("chat", *repeated(REPEATED, then="Once."))
    store.says("Go")
    await take_turn(store, models, box(returning("look", "nothing")))
    # The answer was lost with the process that asked for it.
    del store.rows[-1]
    told = len(store.told("alert"))
    fake, models = await serve("chat", said("Again."))

    outcome = await take_turn(store.restarted(), models, box(returning("look", "nothing")))

    assert (outcome.text, told, len(store.told("alert"))) == ("Again.", 1, 1)


async def test_next_turn_begins_without_the_alerts_of_the_last(store, serve):
    fake, models = await serve("chat", *repeated(REPEATED), said("Hello."))
    store.says("Go")
    await take_turn(store, models, box(returning("look", "nothing")), assembly=LISTENS)
    store.says("And now?")

    await take_turn(store, models, box(returning("look", "nothing")), assembly=LISTENS)

    assert "loop_suspected" not in json.dumps(fake.bodies[-1])


async def test_budget_is_told_before_it_is_spent(store, serve):
    calls = [calling(Call("look", json.dumps({"page": number}), id=f"call_{number}")) for number in range(6)]
    fake, models = await serve("chat", *calls, said("Done."))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("look")), assembly=LISTENS, limits={"max_tool_calls": 5})

    assert outcome.status == "budget_exceeded"
    ((_, alert),) = store.told("alert")
    assert (alert["code"], alert["about"], alert["fatal"]) == ("budget_near", "max_tool_calls", False)
    assert "Come to an end." in json.dumps(fake.bodies[4])


async def test_refusal_in_plan_mode_is_a_guard_hit(store, serve):
    fake, models = await serve("chat", calling(Call("wipe", "{}")), said("I will not."))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("wipe", effect="destructive"), mode="plan"), assembly=LISTENS)

    assert outcome.status == "completed"
    assert alerts(store) == [("guard_hit", False)]
    assert "was refused. Do not try to get round it." in json.dumps(fake.bodies[-1])


async def test_reductions_reach_the_provider(store, serve):
    fake, models = await serve("chat", said("One."), said("Two."), said("Three."))
    window = [{"kind": "sliding_window", "max_items": 3, "transparent": True}]
    for text in ("First question", "Second question", "Third question"):
        store.says(text)
        await take_turn(store, models, box(), assembly=window)

    sent = json.dumps(fake.bodies[-1])
    assert ("First question" in sent, "Second question" in sent) == (False, True)
    assert "[sliding_window] showing 3 of 5 entries" in sent
