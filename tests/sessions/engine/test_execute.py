"""Tools: which run, which wait, and the session's own."""

import asyncio
import json
import time
from uuid import uuid4

import pytest

from agents import tools as registry
from agents.tools import ToolFailed
from sessions.engine.store import RunStopped
from sessions.engine.toolbox import EFFECTS, Identity, ToolBox, ToolSpec, asks
from tests.sessions.engine.memory_store import MemoryStore
from tests.sessions.engine.scenes import ANY, box, definition, returning, take_turn, tool
from tests.wire.replies import Call, Say, calling, said


async def one_call(store, serve, spec, arguments="{}", **options):
    """One turn in which the model calls `spec` once. Returns the result."""
    fake, models = await serve("chat", calling(Call(spec.name, arguments)), said("Done."))
    store.says("Go")
    outcome = await take_turn(store, models, box(spec), **options)
    return outcome, store.results().get("call_1")


async def test_a_standing_answer_runs_the_call_without_asking(store, serve):
    store.rules = lambda call: "rul_1" if (call.name, call.origin) == ("send", "mcp:mail") else None

    outcome, result = await one_call(store, serve, returning("send", "sent", effect="external", asks=True, origin="mcp:mail"))

    assert (outcome.status, result["text"]) == ("completed", "sent")
    assert store.asked == []


async def test_without_a_session_a_call_that_asks_is_refused(serve):
    store = MemoryStore(session=False)

    outcome, result = await one_call(store, serve, returning("send", effect="external", asks=True))

    assert outcome.status == "completed"
    assert result["outcome"] == "denied"
    assert "nobody to ask" in result["text"]


async def test_nothing_is_asked_for_a_call_with_bad_arguments(store, serve):
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}

    outcome, result = await one_call(store, serve, returning("send", schema=schema, asks=True), '{"to": 7}')

    assert outcome.status == "completed"
    assert result["text"] == "Invalid arguments: to: 7 is not of type 'string'"
    assert store.asked == []


async def test_siblings_run_while_a_call_waits_for_a_person(store, serve):
    fake, models = await serve("chat", calling(Call("send", id="a"), Call("look", id="b")))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("send", asks=True), returning("look", "blue")))

    assert outcome.status == "awaiting_approval"
    assert {call: result["text"] for call, result in store.results().items()} == {"b": "blue"}
    assert [call.call_id for call in store.asked] == ["a"]


@pytest.mark.parametrize("effect", ["write", "destructive", "external"])
async def test_an_effect_is_noted_before_the_tool_runs(store, serve, effect):
    seen = []

    async def run():
        seen.append(set(store.effects))
        return "ok"

    await one_call(store, serve, tool("act", run, effect=effect))

    assert seen == [{"call_1"}]


async def test_a_reading_tool_notes_no_effect(store, serve):
    await one_call(store, serve, returning("look"))

    assert store.effects == set()


async def test_tool_calls_are_limited(store, serve):
    ran = []

    async def look(n):
        ran.append(n)
        return str(n)

    calls = [Call("look", json.dumps({"n": n}), id=f"call_{n}") for n in range(5)]
    fake, models = await serve("chat", calling(*calls), said("Never."))
    store.says("Go")

    outcome = await take_turn(store, models, box(tool("look", look)), limits={"max_tool_calls": 3})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_tool_calls")
    assert sorted(ran) == [0, 1, 2]
    assert [store.results()[f"call_{n}"]["outcome"] for n in range(5)] == ["success"] * 3 + ["interrupted"] * 2
    assert len(fake.bodies) == 1


async def test_cost_budget_stops_the_run(serve):
    from decimal import Decimal

    store = MemoryStore(price=Decimal("0.02"))
    fake, models = await serve("chat", *(calling(Call("look", id=f"call_{n}")) for n in range(9)))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("look")), limits={"max_cost_per_run": 0.05})

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_cost_per_run")
    assert len(store.calls) == 3


async def test_text_of_a_spent_budget_is_what_there_is(store, serve):
    fake, models = await serve("chat", Say(["I will", " look."], calls=[Call("look")], finish="tool_calls"))
    store.says("Go")

    outcome = await take_turn(store, models, box(returning("look")), limits={"max_tokens_per_run": 50})

    assert (outcome.status, outcome.text) == ("budget_exceeded", "I will look.")


async def test_a_tool_is_stopped_by_the_deadline_of_the_run(store, serve):
    started = time.monotonic()

    outcome, result = await one_call(store, serve, returning("slow", after=30), seconds=0.3)

    assert (outcome.status, outcome.reason) == ("budget_exceeded", "max_seconds_per_run")
    assert result["outcome"] == "interrupted"
    assert time.monotonic() - started < 3


async def test_a_tool_that_says_what_went_wrong_is_quoted(store, serve):
    async def run():
        raise ToolFailed("There is no such customer.")

    _, result = await one_call(store, serve, tool("find", run))

    assert (result["outcome"], result["text"]) == ("failed", "There is no such customer.")


async def test_a_tool_that_cancels_itself_does_not_cancel_the_run(store, serve):
    async def run():
        raise asyncio.CancelledError

    outcome, result = await one_call(store, serve, tool("odd", run))

    assert outcome.status == "completed"
    assert (result["outcome"], result["text"]) == ("failed", "odd gave up.")


async def test_a_timeout_inside_a_tool_is_not_its_time_limit(store, serve):
    async def run():
        raise TimeoutError("inner secret")

    _, result = await one_call(store, serve, tool("odd", run))

    assert result["text"] == "TimeoutError: the tool failed."


@pytest.mark.parametrize("value, text", [({"a": "é"}, '{"a": "é"}'), (None, "null"), (["x"], '["x"]'), (uuid4, None), (3, "3")])
async def test_values_of_tools_become_text(store, serve, value, text):
    _, result = await one_call(store, serve, returning("look", value))

    assert result["outcome"] == "success"
    if text is not None:
        assert result["text"] == text


async def test_a_value_that_contains_itself_is_a_failure(store, serve):
    endless = []
    endless.append(endless)

    _, result = await one_call(store, serve, returning("look", endless))

    assert result["outcome"] == "failed"


async def test_a_lost_lease_stops_siblings_and_the_run(store, serve):
    ended = []

    async def slow():
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("slow")

    async def quick():
        store.lost = True
        return "ok"

    fake, models = await serve("chat", calling(Call("slow", id="a"), Call("quick", id="b")))
    store.says("Go")

    with pytest.raises(RunStopped) as stop:
        await take_turn(store, models, box(tool("slow", slow), tool("quick", quick)))

    assert stop.value.reason == "lease_lost"
    assert ended == ["slow"]
    assert store.results() == {}


async def test_a_stopped_run_calls_nobody(store, serve):
    fake, models = await serve("chat")
    store.says("Go")
    store.stopped = "cancelled"

    with pytest.raises(RunStopped):
        await take_turn(store, models)

    assert fake.bodies == []


async def test_an_answered_turn_is_not_asked_again(store, serve):
    fake, models = await serve("chat", said("Once."))
    store.says("Go")
    await take_turn(store, models)

    outcome = await take_turn(store.restarted(), models)

    assert (outcome.status, outcome.text) == ("completed", "Once.")
    assert len(fake.bodies) == 1


async def test_missing_tools_are_reported_once(store, serve):
    fake, models = await serve("chat", calling(Call("gone")), said("Well."))
    store.says("Go")

    await take_turn(store, models, box(returning("look"), missing=["gone"]))

    ((_, alert),) = store.told("alert")
    assert alert == {"code": "tool_missing", "message": "Not available any more: gone."}


def test_a_schema_from_outside_cannot_make_us_fetch_an_address():
    spec = ToolSpec("odd", "", {"$ref": "http://127.0.0.1:9/schema.json"}, run=None)

    with pytest.raises(registry.BadArguments, match="cannot be applied"):
        spec.arguments({})


@pytest.mark.parametrize(
    "setting, harness, effect, expected",
    [
        (None, None, "read", False),
        (None, None, "write", False),
        (None, None, "destructive", True),
        (None, None, "external", True),
        ("never", None, "destructive", False),
        ("always", None, "read", True),
        (None, {"disable_tool_auto_approval": True}, "read", True),
        ("never", {"disable_tool_auto_approval": True}, "read", False),
    ],
)
def test_who_is_asked(setting, harness, effect, expected):
    document = {"harness": harness, "tool_settings": {"look": {"approval": setting}} if setting else {}}

    assert asks(definition(**document), "look", effect) is expected


@pytest.fixture
def registered():
    @registry.register_tool(effect="destructive", name="engine_probe", origin="code:tests")
    async def probe(context, *, number: int, note: str = "none"):
        """Probe."""
        await context.session.set("seen", number)
        seen = await context.session.get("seen")
        return {"mode": context.mode, "agent": context.agent_name, "seen": seen, "note": note}

    yield
    registry.unregister_tool("engine_probe")


async def test_registered_tools_run_with_their_context_and_settings(store, serve, registered):
    document = definition(
        tools=["engine_probe", "engine_gone"],
        tool_settings={"engine_probe": {"approval": "never", "timeout_s": 5, "max_output_chars": 400}},
        harness={"initial_mode": "execute"},
    )
    tools = ToolBox.from_definition(document, store=store, identity=Identity(uuid4(), "helper"))
    spec = tools.specs["engine_probe"]
    assert (spec.effect, spec.origin, spec.asks, spec.timeout, spec.cap) == ("destructive", "code:tests", False, 5, 400)
    assert tools.missing == ("engine_gone",)
    fake, models = await serve("chat", calling(Call("engine_probe", '{"number": "7"}', id="a"), Call("engine_probe", '{"number": 7}', id="b")), said("Done."))
    store.says("Go")

    await take_turn(store, models, tools)

    assert json.loads(store.results()["b"]["text"]) == {"mode": "execute", "agent": "helper", "seen": 7, "note": "none"}
    assert store.task == {"seen": 7}


OWN = ["todos_add", "todos_complete", "todos_remove", "todos_list", "mode_get", "mode_set", "state_get", "state_set"]


@pytest.mark.parametrize(
    "changes, session, names, mode",
    [
        ({}, True, [], None),
        ({"harness": {}}, True, OWN, "plan"),
        ({"harness": {}}, False, OWN[:6], "plan"),
        ({"harness": {"disable_todo_provider": True, "initial_mode": "execute"}}, True, OWN[4:], "execute"),
        ({"harness": {"disable_agent_mode_provider": True}}, True, OWN[:4] + OWN[6:], None),
        ({"memory": {"enable_todo": True}}, True, OWN[:4], None),
    ],
)
def test_tools_of_the_session_follow_the_definition(changes, session, names, mode):
    store = MemoryStore(session=session)

    tools = ToolBox.from_definition(definition(**changes), store=store, identity=Identity(uuid4(), "helper"))

    assert list(tools.specs) == names
    assert tools.mode({}) == mode
    assert tools.mode({"mode": "execute"}) == (None if mode is None else "execute")


@pytest.fixture
def own(store):
    tools = ToolBox.from_definition(definition(harness={}), store=store, identity=Identity(uuid4(), "helper"))
    store.says("Go")
    store.state["mode"] = "plan"

    async def call(name, **arguments):
        spec = tools.specs[name]
        return await spec.run(spec.arguments(arguments))

    return call


async def test_todos_are_kept_in_the_state_of_the_session(store, own):
    assert await own("todos_list") == "No todos."
    assert await own("todos_add", titles=["call\x00", " write "]) == "[ ] 1 call\ufffd\n[ ] 2 write"
    assert await own("todos_complete", ids=[2]) == "[ ] 1 call\ufffd\n[x] 2 write"
    assert await own("todos_remove", ids=[1]) == "[x] 2 write"
    assert await own("todos_add", titles=["read"]) == "[x] 2 write\n[ ] 3 read"
    assert store.saved_state["todos"] == [{"id": 2, "title": "write", "done": True}, {"id": 3, "title": "read", "done": False}]
    with pytest.raises(ToolFailed, match="There is no todo 9. Known: 2, 3."):
        await own("todos_complete", ids=[2, 9])
    for _ in range(3):
        await own("todos_add", titles=["x"] * 50)
    with pytest.raises(ToolFailed, match="at most 200"):
        await own("todos_add", titles=["x"] * 50)
    with pytest.raises(registry.BadArguments):
        await own("todos_add", titles=[])


async def test_the_mode_is_switched_told_and_noted(store, own):
    assert await own("mode_get") == "plan"
    assert await own("mode_set", mode="execute") == "The mode is now execute."
    assert await own("mode_set", mode="execute") == "The mode is already execute."
    assert store.saved_state["mode"] == "execute"
    assert store.told("mode.changed") == [("mode.changed", {"mode": "execute"})]
    assert store.rows[-1].content == {"code": "mode_changed", "text": "The mode changed to execute."}


async def test_the_task_is_read_and_patched(store, own):
    assert await own("state_get") == {}
    assert await own("state_set", patch={"cart": ["kettle"], "note": "x"}) == {"cart": ["kettle"], "note": "x"}
    assert await own("state_set", patch={"note": None}) == {"cart": ["kettle"]}
    assert await own("state_get", key="cart") == ["kettle"]


async def test_a_plan_becomes_work_within_one_turn(store, serve):
    done = []
    fake, models = await serve(
        "anthropic", calling(Call("send", id="a")), calling(Call("mode_set", '{"mode": "execute"}', id="b")),
        calling(Call("send", id="c")), said("Sent."),
    )  # fmt: skip
    own = ToolBox.from_definition(definition(harness={}), store=store, identity=Identity(uuid4(), "helper"))
    spec = tool("send", lambda: _noting(done), effect="write", schema=ANY)
    store.says("Send it")

    outcome = await take_turn(store, models, ToolBox({**own.specs, "send": spec}, (), "plan", True), harness={})

    assert outcome.text == "Sent."
    assert done == [1]
    assert [store.results()[call]["outcome"] for call in "abc"] == ["denied", "success", "success"]
    assert fake.problems == []
    # What a turn begins with stays where it was: the prefix of its calls does not change.
    first, last = (json.dumps(fake.bodies[n]["messages"][0]) for n in (0, 3))
    assert first.replace(', "cache_control"', "") == last.replace(', "cache_control"', "")


@pytest.mark.parametrize("asks_first", [True, False])
@pytest.mark.parametrize("effect", sorted(EFFECTS))
async def test_nothing_that_changes_something_runs_in_plan_mode_however_it_is_asked_for(store, serve, effect, asks_first):
    """Neither an approval, nor a standing answer, nor arguments, nor a switch of the mode in the same breath opens it."""
    ran = []
    fake, models = await serve(
        "chat",
        calling(Call("wipe", id="a"), Call("wipe", '{"force": true, "mode": "execute"}', id="b"), Call("Wipe", id="c")),
        calling(Call("mode_set", '{"mode": "execute"}', id="d"), Call("wipe", id="e")),
        said("I could not."),
    )
    own = ToolBox.from_definition(definition(harness={}), store=store, identity=Identity(uuid4(), "helper"))
    spec = tool("wipe", lambda **arguments: _noting(ran), effect=effect, asks=asks_first)
    store.rules = lambda call: "rul_1"
    store.given = {"a": {"approve": True}, "b": {"approve": True, "arguments": {"force": True}}, "e": {"approve": True}}
    store.says("Wipe it. I say that the mode is execute.")

    outcome = await take_turn(store, models, ToolBox({**own.specs, "wipe": spec}, (), "plan", True), harness={})

    assert (outcome.text, ran, store.asked, store.effects) == ("I could not.", [], [], set())
    assert [store.results()[call]["outcome"] for call in "abcde"] == ["denied", "denied", "failed", "success", "denied"]


async def _noting(done):
    done.append(1)
    return "ok"
