"""A session as Markdown and as JSON."""

import json
import math

import pytest

from governance.ids import shown, uuid7
from sessions.domain import history, transcripts
from sessions.domain import sessions as session_verbs
from sessions.models import Item
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db


@pytest.fixture
def talk(agent, subject):
    session = made.session(agent, subject, key="case-1", title="Where is my order?", labels=["vip"])
    made.item(
        session,
        content={
            "text": "Where is it?",
            "attachments": [{"sha256": "a" * 64, "media_type": "image/png", "name": "receipt.png", "size": 12_345}],
        },
    )
    made.item(session, "reasoning", "assistant", {"text": "Look it up.\nThen tell.", "provider": "demo"})
    made.item(session, "tool_call", "assistant", {"id": "c1", "name": "find_order", "arguments": {"id": 7}, "raw": {"x": 1}})
    made.item(session, "approval_request", "system", {"approval_id": uuid7().hex, "call_id": "c1", "name": "find_order"})
    made.item(
        session, "approval_response", "system",
        {"approval_id": uuid7().hex, "call_id": "c1", "decision": "approve", "reason": "Fine", "edited": True},
    )  # fmt: skip
    made.item(
        session, "tool_result", "tool",
        {"id": "c1", "name": "find_order", "text": "```\non its way\n```", "outcome": "success", "truncated": {"characters": 90_000}},
    )  # fmt: skip
    made.item(session, role="assistant", content={"text": "It is on its **way**.", "cut": True})
    made.item(session, "note", "system", {"code": "interrupted", "text": "The run was interrupted."})
    made.item(session, content={"text": "Thanks"})
    made.item(session, content={"text": "Never mind"}, is_hidden=True)
    return session


def lines(text):
    return [line for line in text.splitlines() if line]


def test_markdown_tells_the_conversation(talk, agent):
    when = f"{Item.objects.get(session=talk, seq=1).created_at:%Y-%m-%d %H:%M} UTC"

    assert lines(transcripts.as_markdown(session=talk)) == [
        "# Where is my order?",
        f"- Agent: {agent.name}",
        f"- Session: case-1 ({shown('ses', talk.id)})",
        f"- Started: {when}",
        f"- Last active: {when}",
        "## Turn 1",
        f"### Subject · {when}",
        "Where is it?",
        "- Attachment: receipt.png (image/png, 12,345 bytes)",
        "*Reasoning*",
        "> Look it up.",
        "> Then tell.",
        "**Calls `find_order`**",
        "```json",
        "{",
        '  "id": 7',
        "}",
        "```",
        "*`find_order` waits for an approval.*",
        "*Approved with edited arguments: Fine*",
        "**`find_order`: success**",
        "````",
        "```",
        "on its way",
        "```",
        "````",
        "*Shortened; the whole result had 90,000 characters.*",
        f"### {agent.name} · {when}",
        "It is on its **way**.",
        "*The answer ends here: it was cut off.*",
        "*The run was interrupted.*",
        "## Turn 2",
        f"### Subject · {when}",
        "Thanks",
    ]


def test_json_holds_every_visible_item(talk, agent):
    document = transcripts.as_json(session=talk)

    assert document["session"] == {
        "id": shown("ses", talk.id), "key": "case-1", "agent": agent.name, "title": "Where is my order?", "labels": ["vip"],
        "status": "open", "created_at": talk.created_at.isoformat(), "last_active_at": talk.last_active_at.isoformat(),
        "ended_at": None, "turns": 3,
    }  # fmt: skip
    assert [(item["seq"], item["turn"], item["kind"]) for item in document["items"]] == [
        (1, 1, "message"), (2, 1, "reasoning"), (3, 1, "tool_call"), (4, 1, "approval_request"), (5, 1, "approval_response"),
        (6, 1, "tool_result"), (7, 1, "message"), (8, 1, "note"), (9, 2, "message"),
    ]  # fmt: skip
    assert document["items"][2]["content"] == {"id": "c1", "name": "find_order", "arguments": {"id": 7}}
    assert document["items"][3]["content"]["approval_id"].startswith("apr_")


def test_streamed_json_is_the_same_document(talk):
    assert json.loads("".join(transcripts.json_text(session=talk))) == transcripts.as_json(session=talk)


def test_empty_session(session):
    assert transcripts.as_json(session=session)["items"] == []
    assert json.loads("".join(transcripts.json_text(session=session)))["items"] == []
    assert "## Turn" not in transcripts.as_markdown(session=session)


def test_arguments_that_are_no_json_are_shown_as_they_came(session):
    made.item(session, "tool_call", "assistant", {"id": "c1", "name": "f", "arguments": {}, "arguments_text": "{oops"})

    assert "{oops" in lines(transcripts.as_markdown(session=session))


def test_no_text_can_leave_its_block_or_its_line(session):
    made.item(session, "tool_result", "tool", {"id": "c", "name": "f`x`\n# y", "text": "`````\n# Forged", "outcome": "success"})
    made.item(session, "note", "system", {"code": "x", "text": "one\n# two"})

    found = lines(transcripts.as_markdown(session=session))

    assert found[-6:] == ["**`fx # y`: success**", "``````", "`````", "# Forged", "``````", "*one # two*"]


def test_a_fork_tells_what_it_shares(talk, lethe):
    fork = session_verbs.fork(session=talk, at_seq=7, key="fork", by=lethe)
    made.item(fork, content={"text": "Another question"})

    texts = [item["content"].get("text") for item in transcripts.as_json(session=fork)["items"]]

    assert (texts[0], texts[-1]) == ("Where is it?", "Another question")
    assert "Thanks" not in texts


def test_a_long_session_is_written_piece_by_piece(session, django_assert_num_queries):
    """Read in pages, so the first piece is there at once and memory stays flat, however long it is."""
    made.turns(session, 2_000)
    stream = transcripts.markdown(session=session)

    with django_assert_num_queries(2):  # the agent's name, the first page
        for _ in range(20):
            next(stream)
    with django_assert_num_queries(math.ceil(4_000 / history._PAGE)):  # the other pages, and the end
        assert sum(len(piece) for piece in stream) > 200_000
