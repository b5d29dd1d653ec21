"""How a history becomes blocks, and a model's text becomes HTML."""

import pytest

from console import turns
from console.templatetags.transcript import prose
from governance.ids import uuid7
from sessions.models import Approval, Item, Run, Summary

RUN = uuid7()


def item(seq, kind="message", role="user", turn=1, run_id=RUN, **content):
    return Item(seq=seq, kind=kind, role=role, turn=turn, group=seq, run_id=run_id, content=content or {"text": f"text {seq}"})


def run(status="completed", run_id=RUN):
    return Run(id=run_id, status=status, request={})


def drawn(items, **given):
    return [(block.kind, [part.kind for part in block.parts], block.fork_at) for block in turns.blocks(items, **{"runs": {RUN: run()}, **given})]


def test_call_and_result_are_one_card():
    items = [
        item(1),
        item(2, "tool_call", "assistant", id="a", name="find", arguments={"q": "x"}),
        item(3, "tool_call", "assistant", id="b", name="look", arguments={}),
        item(4, "tool_result", "tool", id="b", name="look", text="seen", outcome="failed", duration_ms=4),
        item(5, "tool_result", "tool", id="a", name="find", text="found", outcome="success", duration_ms=3),
        item(6, role="assistant"),
    ]

    _, answer = turns.blocks(items, runs={RUN: run()})

    assert [(part.name, part.text, part.outcome) for part in answer.parts[:2]] == [("find", "found", "success"), ("look", "seen", "failed")]
    assert answer.parts[0].anchor != answer.parts[1].anchor


def test_result_whose_call_is_on_an_earlier_page_is_a_card_of_its_own():
    ((_, (card,), _),) = [(b.kind, b.parts, b.fork_at) for b in turns.blocks([item(9, "tool_result", "tool", id="a", name="find", text="x", outcome="success")], runs={RUN: run()})]

    assert (card.name, card.arguments, card.text) == ("find", None, "x")


def test_call_without_result_runs_in_a_live_run_and_was_interrupted_in_a_finished_one():
    items = [item(1), item(2, "tool_call", "assistant", id="a", name="find", arguments={})]

    live = turns.blocks(items, runs={RUN: run("running")})[1].parts[0]
    over = turns.blocks(items, runs={RUN: run("cancelled")})[1].parts[0]

    assert (live.outcome, live.label) == (None, "running")
    assert (over.outcome, over.label) == ("interrupted", "interrupted")


def test_waiting_call_waits():
    approval = Approval(run_id=RUN, call_id="a", status="pending")
    items = [item(1), item(2, "tool_call", "assistant", id="a", name="find", arguments={}), item(3, "approval_request", "system", approval_id="x", call_id="a", name="find")]

    (card,) = turns.blocks(items, runs={RUN: run("awaiting_approval")}, approvals={(RUN, "a"): approval})[1].parts

    assert (card.is_waiting, card.label) == (True, "waiting")


def test_turns_fork_at_their_last_item_and_a_live_one_does_not():
    other = uuid7()
    items = [item(1), item(2, role="assistant"), item(3, turn=2, run_id=other), item(4, role="assistant", turn=2, run_id=other)]

    assert drawn(items, runs={RUN: run(), other: run("running", other)}) == [
        ("user", ["message"], None), ("agent", ["message"], 2), ("user", ["message"], None), ("agent", ["message"], None),
    ]  # fmt: skip


def test_note_inside_a_run_stays_in_its_block_and_others_are_marks():
    items = [
        item(1), item(2, role="assistant"), item(3, "note", "system", code="mode_changed", text="execute"), item(4, role="assistant"),
        item(5, "note", "system", run_id=None, code="interrupted", text="interrupted"),
    ]  # fmt: skip

    assert drawn(items) == [("user", ["message"], None), ("agent", ["message", "note", "message"], None), ("mark", ["note"], None)]


def test_run_that_said_nothing_has_a_place_for_its_state():
    assert drawn([item(1)], runs={RUN: run("failed")}) == [("user", ["message"], None), ("agent", [], 1)]


def test_queued_run_is_shown_from_its_request():
    waiting = Run(id=uuid7(), status="queued", request={"message": "next"})

    blocks = turns.blocks([item(1), item(2, role="assistant")], runs={RUN: run()}, pending=[waiting])

    assert [(block.kind, [part.text for part in block.parts]) for block in blocks[2:]] == [("user", ["next"]), ("agent", [])]
    assert blocks[3].is_live


def test_empty_message_of_a_model_that_only_called_a_tool_is_not_drawn():
    items = [item(1), item(2, role="assistant", text=""), item(3, "tool_call", "assistant", id="a", name="find", arguments={})]

    assert drawn(items)[1][1] == ["card"]


def test_mark_of_a_summary_stands_before_what_it_does_not_cover():
    pending = Run(id=uuid7(), status="queued", request={"message": "next"})
    blocks = turns.blocks([item(1), item(3), item(4, role="assistant")], runs={RUN: run()}, pending=[pending])

    def places(*ends):
        marked = turns.with_marks(blocks, [turns.Stands(Summary(from_seq=1, to_seq=end), 2, "current") for end in ends])
        return [block.last_seq if block.kind == "mark" else block.kind for block in marked]

    assert places(2) == ["user", 2, "user", "agent", "user", "agent"]
    assert places(3, 4) == ["user", "user", 3, "agent", 4, "user", "agent"]
    assert places(9) == ["user", "user", "agent", 9, "user", "agent"]
    assert [block.kind for block in turns.with_marks([], [turns.Stands(Summary(to_seq=1), 1, "stale")])] == ["mark"]


def test_page_is_cut_at_a_turn_unless_it_has_only_one():
    tail = [item(2, role="assistant"), item(3, turn=2), item(4, role="assistant", turn=2)]

    assert [entry.seq for entry in turns.whole_turns(tail, more_before=True)] == [3, 4]
    assert [entry.seq for entry in turns.whole_turns(tail, more_before=False)] == [2, 3, 4]
    assert [entry.seq for entry in turns.whole_turns(tail[:1], more_before=True)] == [2]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"query": "open  invoice\n2026"}, "open invoice 2026"),
        ({"path": "draft.md", "limit": 2}, 'path="draft.md" limit=2'),
        ({"n": 7}, "7"),
        ({}, ""),
        (None, ""),
        ("not json", "not json"),
        ({"text": "x" * 200}, "x" * 89 + "…"),
    ],
)
def test_arguments_in_a_line(arguments, line):
    assert turns.brief(arguments) == line


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
        ("- a\n- b\n  more", "<ul><li>a</li><li>b<br>more</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("## Title", "<p><strong>Title</strong></p>"),
        ("**bold** and *soft* and 2*3*4", "<p><strong>bold</strong> and <em>soft</em> and 2*3*4</p>"),
        ("`a **b** <c>`", "<p><code>a **b** &lt;c&gt;</code></p>"),
        ("```py\nif a < b:\n```\nend", '<pre tabindex="0"><code>if a &lt; b:</code></pre><p>end</p>'),
        ("```\nnever closed", '<pre tabindex="0"><code>never closed</code></pre>'),
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
        ("[a](javascript:alert(1)) ![b](https://evil.test/b.png)", "<p>[a](javascript:alert(1)) ![b](https://evil.test/b.png)</p>"),
        ("---", "<hr>"),
        ("", ""),
    ],
)
def test_prose_is_a_small_and_safe_markdown(text, html):
    assert prose(text) == html


def test_prose_of_a_long_hostile_text_takes_no_time():
    for text in ("*" * 20_000, "**a" * 7_000, "`" * 20_000, "- " * 10_000, "#" * 20_000, "a\n" * 20_000):
        assert prose(text)
