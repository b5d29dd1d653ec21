"""A session as a document to keep: Markdown to read, JSON to process. Written piece by piece, whatever its length."""

import json
import re
from collections.abc import Iterator
from typing import Any

from governance.ids import shown
from sessions.domain import history
from sessions.models import Item, Session

_FENCE = re.compile(r"`{3,}")
_SPEAKERS = {"user": "Subject", "system": "Note"}


def as_markdown(*, session: Session) -> str:
    """The whole transcript; for a long session write `markdown` to a stream instead."""
    return "".join(markdown(session=session))


def as_json(*, session: Session) -> dict[str, Any]:
    """{"session": {...}, "items": [...]}; for a long session write `json_text` to a stream instead."""
    return {"session": _head(session), "items": [_entry(item) for item in history.every(session=session)]}


def markdown(*, session: Session) -> Iterator[str]:
    """The transcript in Markdown, one piece an item. What a rollback has hidden is not in it."""
    head = _head(session)
    yield f"# {_one_line(session.title or session.key)}\n\n"
    for label, value in (
        ("Agent", head["agent"]),
        ("Session", f"{_one_line(session.key)} ({head['id']})"),
        ("Started", _moment(session.created_at)),
        ("Last active", _moment(session.last_active_at)),
    ):
        yield f"- {label}: {value}\n"
    turn = 0
    for item in history.every(session=session):
        if item.turn != turn:
            turn = item.turn
            yield f"\n## Turn {turn}\n"
        yield _WRITERS[item.kind](item, head["agent"])


def json_text(*, session: Session) -> Iterator[str]:
    """The text of `as_json`, one piece an item."""
    yield f'{{"session": {_dumped(_head(session))}, "items": ['
    separator = "\n"
    for item in history.every(session=session):
        yield separator + _dumped(_entry(item))
        separator = ",\n"
    yield "\n]}\n"


def _head(session: Session) -> dict[str, Any]:
    return {
        "id": shown("ses", session.id),
        "key": session.key,
        "agent": session.agent.name,
        "title": session.title,
        "labels": list(session.labels),
        "status": session.status,
        "created_at": session.created_at.isoformat(),
        "last_active_at": session.last_active_at.isoformat(),
        "ended_at": session.ended_at.isoformat() if session.ended_at else None,
        "turns": session.turns,
    }


def _entry(item: Item) -> dict[str, Any]:
    """What an item says to the outside: without the library's own form of it."""
    content = {name: value for name, value in item.content.items() if name != "raw"}
    if "approval_id" in content:
        content["approval_id"] = f"apr_{content['approval_id'].removeprefix('apr_')}"
    return {
        "seq": item.seq,
        "turn": item.turn,
        "kind": item.kind,
        "role": item.role,
        "run_id": shown("run", item.run_id) if item.run_id else None,
        "created_at": item.created_at.isoformat(),
        "content": content,
    }


def _message(item: Item, agent: str) -> str:
    speaker = _SPEAKERS.get(item.role, agent)
    parts = [f"\n### {speaker} · {_moment(item.created_at)}\n\n", item.content.get("text", "").rstrip(), "\n"]
    for attachment in item.content.get("attachments", ()):
        parts.append(f"\n- Attachment: {_one_line(attachment.get('name') or attachment['sha256'][:12])}"
                     f" ({attachment['media_type']}, {attachment['size']:,} bytes)\n")  # fmt: skip
    if item.content.get("cut"):
        parts.append("\n*The answer ends here: it was cut off.*\n")
    return "".join(parts)


def _call(item: Item, agent: str) -> str:
    arguments = item.content.get("arguments_text")
    if arguments is None:
        arguments = json.dumps(item.content.get("arguments", {}), ensure_ascii=False, indent=2)
    return f"\n**Calls {_code(item.content['name'])}**\n\n{_fenced(arguments, 'json')}"


def _result(item: Item, agent: str) -> str:
    outcome = item.content.get("outcome", "success")
    cut = item.content.get("truncated")
    note = f"\n*Shortened; the whole result had {cut['characters']:,} characters.*\n" if cut else ""
    return f"\n**{_code(item.content['name'])}: {outcome}**\n\n{_fenced(item.content.get('text', ''))}{note}"


def _asked(item: Item, agent: str) -> str:
    return f"\n*{_code(item.content['name'])} waits for an approval.*\n"


def _answered(item: Item, agent: str) -> str:
    decision = {"approve": "Approved", "reject": "Rejected"}.get(item.content.get("decision", ""), "Decided")
    edited = " with edited arguments" if item.content.get("edited") else ""
    reason = f": {_one_line(item.content['reason'])}" if item.content.get("reason") else ""
    return f"\n*{decision}{edited}{reason}*\n"


def _reasoning(item: Item, agent: str) -> str:
    text = item.content.get("text", "").strip()
    return f"\n*Reasoning*\n\n{_quoted(text)}\n" if text else ""


def _note(item: Item, agent: str) -> str:
    return f"\n*{_one_line(item.content.get('text', ''))}*\n"


_WRITERS = {
    Item.Kind.MESSAGE: _message,
    Item.Kind.TOOL_CALL: _call,
    Item.Kind.TOOL_RESULT: _result,
    Item.Kind.APPROVAL_REQUEST: _asked,
    Item.Kind.APPROVAL_RESPONSE: _answered,
    Item.Kind.REASONING: _reasoning,
    Item.Kind.NOTE: _note,
}


def _fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any inside, so that no text can end it."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _code(text: str) -> str:
    return f"`{_one_line(text).replace('`', '')}`"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(at) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
