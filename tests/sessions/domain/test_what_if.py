"""The what-if preview: the same plan as a live run makes, of stored sessions and of pasted messages."""

import pytest

from agents.definition import Definition
from governance.errors import NotFound
from sessions.domain import what_if
from tests.factories import sessions as factory


@pytest.fixture
def session(agent, subject):
    made = factory.session(agent, subject)
    for number in range(10):
        factory.item(made, content={"text": f"Question {number}"}, tokens=100)
        if number == 0:
            call = factory.item(made, "tool_call", "assistant", {"id": "c1", "name": "look", "arguments": {}}, tokens=10)
            factory.item(made, "tool_result", "tool", {"id": "c1", "name": "look", "text": "x" * 5000}, tokens=1000, group=call.group)
        factory.item(made, "message", "assistant", {"text": "An answer"}, tokens=100)
    return made


def looked_at(session, **compaction):
    definition = {"name": "research", "model": {"provider": "demo", "model": "demo-1"}, "compaction": compaction}
    return what_if.of_session(session=session, definition=Definition.model_validate(definition))


def fates(preview):
    return [(part.fate, part.from_seq, part.to_seq, part.after) for part in preview.parts]


def test_without_compaction_everything_is_kept(session):
    preview = looked_at(session, strategy="none")

    assert fates(preview) == [("kept", 1, 22, 3010)]
    assert (preview.strategy, preview.before, preview.after, preview.fits) == ("none", 3010, 3010, True)
    assert preview.window == 32_768


def test_what_stands_behind_the_instructions_is_as_the_last_call_had_it(session):
    run = factory.run(session=session)
    said = [{"layer": "skills", "tokens": 70, "sources": ["claims v1"], "left_out": []}, {"layer": "tools", "tokens": 30}, {"layer": "message", "tokens": 9}]
    factory.model_call(run, 1, context=said)
    factory.model_call(run, 2, context=[{"layer": "judged", "tokens": 500, "sources": [], "left_out": []}])

    layers = {layer["layer"]: layer["tokens"] for layer in looked_at(session, strategy="none").layers}

    assert (layers["skills"], layers["tools"]) == (70, 30)
    assert "judged" not in layers


def test_long_tool_result_is_shortened(session):
    preview = looked_at(session, strategy="tool_result", trigger_tokens=2_500)

    assert fates(preview) == [("kept", 1, 2, 110), ("shortened", 3, 3, 48), ("kept", 4, 22, 1900)]
    assert preview.after == 2058


def test_oldest_turns_are_dropped(session):
    preview = looked_at(session, strategy="sliding_window", trigger_turns=4)

    assert fates(preview) == [("dropped", 1, 16, 0), ("kept", 17, 22, 600)]
    assert preview.share("dropped") == 2410


def test_summary_that_would_be_written_is_counted(session):
    preview = looked_at(session, strategy="summarization", trigger_turns=5)

    (summary,) = [layer for layer in preview.layers if layer["layer"] == "summary"]
    assert fates(preview) == [("summarised", 1, 18, 0), ("kept", 19, 22, 400)]
    assert (summary["sources"], preview.after) == (["1-18"], 400 + summary["tokens"])


def test_stored_summary_counts_where_the_settings_use_it(session):
    factory.summary(session, 12, tokens=77)

    used = looked_at(session, strategy="summarization", trigger_turns=50)
    unused = looked_at(session, strategy="sliding_window", trigger_turns=50)

    assert fates(used) == [("summarised", 1, 12, 0), ("kept", 13, 22, 1000)]
    assert used.after == 1077
    assert fates(unused) == [("kept", 1, 22, 3010)]


def test_what_does_not_fit_the_window_is_dropped(session):
    definition = {
        "name": "research", "model": {"provider": "demo", "model": "demo-1"}, "compaction": {"strategy": "none"},
        "harness": {"max_context_window_tokens": 2_000},
    }  # fmt: skip

    preview = what_if.of_session(session=session, definition=Definition.model_validate(definition))

    assert (preview.window, preview.limit) == (2_000, 1_000)
    assert fates(preview) == [("dropped", 1, 12, 0), ("kept", 13, 22, 1000)]


def test_pasted_messages_are_planned_alike(tenant, agent):
    definition = Definition.model_validate(
        {"name": "x", "model": {"provider": "demo", "model": "demo-1"}, "compaction": {"strategy": "sliding_window", "trigger_turns": 3}}
    )
    messages = [{"role": role, "text": "some words"} for _ in range(4) for role in ("user", "assistant")]

    preview = what_if.of_messages(messages=messages, tenant_id=tenant.id, definition=definition)

    assert [part[:3] for part in fates(preview)] == [("dropped", 1, 4), ("kept", 5, 8)]


def test_provider_of_another_tenant_is_not_found(stranger, agent):
    definition = Definition.model_validate({"name": "x", "model": {"provider": "demo", "model": "demo-1"}})

    with pytest.raises(NotFound):
        what_if.of_messages(messages=[{"role": "user", "text": "x"}], tenant_id=stranger.tenant_id, definition=definition)
