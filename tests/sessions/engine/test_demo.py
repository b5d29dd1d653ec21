"""The demo model: it says what it is, calls tools, and answers from what the session keeps."""

import json
import time
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.engine import demo, demo_text
from sessions.engine.loop import run_turn
from sessions.engine.models import Limits, ProviderConfig
from sessions.engine.toolbox import Identity, ToolBox
from tests.sessions.engine.memory_store import MemoryStore
from tests.sessions.engine.scenes import box, definition, returning, source, take_turn

PROVIDER = ProviderConfig(None, "demo", "demo", limits={"demo-1-fast": Limits(32_768, 4096)})
TOOLS = ["current_time", "calculate", "count_text"]


@pytest.fixture
def talk(store):
    """`await talk("...")` is the demo's answer, without its signature; the session goes on."""
    document = definition(tools=TOOLS, harness={"initial_mode": "execute"})
    tools = ToolBox.from_definition(document, store=store, identity=Identity(uuid4(), "helper"))

    async def say(message, **content):
        store.says(message, **content)
        store.calls.clear()
        outcome = await run_turn(
            definition=document, instructions="Help.", store=store, models=source((PROVIDER, "demo-1-fast")), tools=tools
        )
        assert outcome.status == "completed"
        assert outcome.text.endswith(demo.SIGNATURE)
        return outcome.text.removesuffix(demo.SIGNATURE).strip()

    return say


def called(store):
    return [(row.content["name"], row.content["arguments"]) for row in store.rows if row.kind == "tool_call" and row.turn == store.turn]


@pytest.mark.parametrize(
    "message, tool, arguments",
    [
        ("What is 12 * 7?", "calculate", {"expression": "12 * 7"}),
        ("please compute (19.90 * 3 + 4.5) / 2", "calculate", {"expression": "(19.90 * 3 + 4.5) / 2"}),
        ("How much is 2**10", "calculate", {"expression": "2**10"}),
        ("What time is it?", "current_time", {}),
        ("what is the date in Europe/Berlin?", "current_time", {"zone": "Europe/Berlin"}),
        ("What time is it in Tokyo?", "current_time", {"zone": "Asia/Tokyo"}),
        ('Count the words in "one two three"', "count_text", {"text": "one two three"}),
        ("How many words are in this text: one two three four", "count_text", {"text": "one two three four"}),
        ("Add a todo: call the courier", "todos_add", {"titles": ["call the courier"]}),
        ("add todos: call; write\n- read", "todos_add", {"titles": ["call", "write", "read"]}),
        ("Add a task to call Ana", "todos_add", {"titles": ["call Ana"]}),
        ("Show my todos", "todos_list", {}),
        ("What mode are you in? Which mode is it?", "mode_get", {}),
        ("Switch to plan mode", "mode_set", {"mode": "plan"}),
    ],
)
async def test_demo_calls_the_tool_that_a_message_asks_for(store, talk, message, tool, arguments):
    await talk(message)

    assert called(store) == [(tool, arguments)]
    assert store.results()[[row.content["id"] for row in store.rows if row.kind == "tool_call"][0]]["outcome"] == "success"


@pytest.mark.parametrize(
    "message",
    ["Hello", "My order from 2026-11-30 is late", "I have 3 kettles and 2 cups", "Call 0800-123-456", "The list of items is long"],
)
async def test_demo_calls_nothing_without_being_asked(store, talk, message):
    await talk(message)

    assert called(store) == []


async def test_demo_calls_several_tools_at_once_and_reports_their_results(store, talk):
    answer = await talk("What is 6 * 7, and what time is it in Vienna?")

    assert [name for name, _ in called(store)] == ["current_time", "calculate"]
    assert "The result is 42." in answer
    assert "(Europe/Vienna)" in answer


async def test_demo_keeps_todos_over_turns(store, talk):
    await talk("add todos: call; write")

    assert await talk("Complete todo 1") == "Your todos:\n[x] 1 call\n[ ] 2 write"
    assert await talk("Remove todos 1 and 2") == "No todos."


async def test_demo_calls_other_tools_by_name_with_arguments_that_fit(store):
    schema = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "maxLength": 20},
            "copies": {"type": "integer"},
            "kind": {"enum": ["letter", "mail"]},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}, "minItems": 1},
            "optional": {"type": "string"},
        },
        "required": ["to", "copies", "kind", "parts"],
        "$defs": {"Part": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}},
    }
    tools = box(returning("send_mail", "sent", schema=schema))
    store.says('Use send mail for "Ana", 2 copies as mail')

    outcome = await take_turn(store, source((PROVIDER, "demo-1-fast")), tools)

    assert called(store) == [("send_mail", {"to": "Ana", "copies": 2, "kind": "mail", "parts": [{"n": 2.0}]})]
    assert outcome.text.startswith("send_mail returned: sent")


async def test_demo_takes_arguments_from_json_in_the_message(store):
    store.says('call send_mail with {"to": "Ana"}')

    await take_turn(store, source((PROVIDER, "demo-1-fast")), box(returning("send_mail", "sent")))

    assert called(store) == [("send_mail", {"to": "Ana"})]


async def test_demo_waits_for_approval_and_reports_a_rejection(store):
    models, tools = source((PROVIDER, "demo-1-fast")), box(returning("send_mail", asks=True))
    store.says("send_mail to Ana")
    assert (await take_turn(store, models, tools)).status == "awaiting_approval"
    store.decide(store.asked[0].call_id, approve=False, reason="not today")

    outcome = await take_turn(store, models, tools)

    assert outcome.text.startswith("send_mail was not carried out: Rejected by a person: not today")


REQUEST = "My name is Ana. I ordered a kettle three weeks ago. Where is it? Should I wait or ask for a refund?"


async def test_demo_answers_from_what_the_session_keeps(store, talk):
    await talk(REQUEST)

    summary = await talk("Summarize the customer request.")
    assert summary.startswith("Summary of your earlier messages:")
    assert "I ordered a kettle three weeks ago." in summary
    questions = await talk("List the unresolved questions.")
    assert "“Where is it?”" in questions
    assert "“Should I wait or ask for a refund?”" in questions
    assert (await talk("What is my name?")).startswith("Your name is Ana")
    assert REQUEST[:40] in await talk("What did I write?")
    assert "before it you wrote “What did I write?”" in await talk("Thanks")


async def test_demo_finds_open_points_without_question_marks(store, talk):
    await talk("The kettle is broken. I like tea.")

    answer = await talk("list the open issues")

    assert "“The kettle is broken.”" in answer
    assert "I like tea" not in answer


async def test_demo_without_memory_says_so(store, talk):
    assert "nothing to summarise yet" in await talk("Summarize the customer request.")
    fresh = MemoryStore()
    fresh.says("List the unresolved questions")
    outcome = await take_turn(fresh, source((PROVIDER, "demo-1-fast")))
    assert "no earlier messages" in outcome.text


async def test_demo_summarises_the_text_that_a_message_brings(store, talk):
    answer = await talk("Summarize: The kettle is late. The kettle is blue. Nobody answers about the kettle. Weather is nice. Bye.")

    assert answer.startswith("Summary of your message:")
    assert answer.count("- ") == 3
    assert "Weather" not in answer


async def test_demo_reads_attached_text(store, talk):
    store.blobs["a" * 64] = b"The kettle is late. Nobody knows why."

    answer = await talk("Summarize the attachment", attachments=[{"sha256": "a" * 64, "media_type": "text/plain", "name": "n.txt", "size": 9}])

    assert "The kettle is late." in answer


async def test_demo_is_deterministic_and_streams_in_small_pieces(store):
    texts = []
    for _ in range(2):
        own = MemoryStore()
        own.says(REQUEST)
        texts.append((await take_turn(own, source((PROVIDER, "demo-1-fast")))).text)
        pieces = [data["text"] for _, data in own.told("message.delta")]
        assert len(pieces) > 10
        assert max(map(len, pieces)) < 60
        assert own.calls[0].is_estimated
        assert own.calls[0].input_tokens > 0

    assert texts[0] == texts[1]


async def test_demo_answers_in_the_form_that_is_asked_for(store):
    shape = {"type": "object", "properties": {"answer": {"type": "string"}, "n": {"type": "integer"}}, "required": ["answer", "n"]}
    store.says("Hello")
    exact = await take_turn(store, source((PROVIDER, "demo-1-fast")), response_format={"kind": "json_schema", "json_schema": shape})
    store.says("Hello")
    loose = await take_turn(store, source((PROVIDER, "demo-1-fast")), response_format={"kind": "json"})

    assert set(exact.output) == {"answer", "n"}
    assert set(loose.output) == {"answer"}


async def test_demo_work_is_bounded(store):
    long = "a (1+" * 40_000 + " Summarize count words " + '"' * 50_000
    store.says("Summarize: " + long)
    started = time.process_time()

    provider = ProviderConfig(None, "demo", "demo")
    await take_turn(store, source((provider, "demo-1-fast")), box(*(returning(name) for name in ("calculate", "count_text", "todos_add"))))

    assert time.process_time() - started < 3


@given(st.text(max_size=400), st.lists(st.text(max_size=100), max_size=3))
def test_demo_has_an_answer_to_anything(message, earlier):
    assert demo_text.reply(message, earlier)
    for rule in demo._RULES.values():
        arguments = rule(message)
        assert arguments is None or json.dumps(arguments) is not None
