"""A session's history as a person reads it: blocks of turns, with each call joined to its result.

Pure: items, runs and approvals in, blocks out. The session page, the playground and the stream of a live run draw the
same blocks with the same templates.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from console.templatetags.ui import duration
from governance.ids import shown
from sessions.models import Approval, Item, Run, Session, Summary

# Longer texts are cut on a page and loaded on demand.
GATE = 4000
_SHOWN_OF_GATED = 1500
_BRIEF = 90

ONGOING = frozenset({Run.Status.QUEUED, Run.Status.RUNNING, Run.Status.AWAITING_APPROVAL})


@dataclass(slots=True)
class Text:
    """A message, a thought or a remark inside a block. `total` is its length when only the start is shown."""

    kind: str
    text: str
    seq: int | None = None
    total: int | None = None
    content: dict = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.text and not self.content.get("attachments")


@dataclass(slots=True)
class Card:
    """A tool call with what came of it. `outcome` is None while it runs or waits."""

    run_id: UUID | None
    call_id: str
    name: str
    arguments: Any = None
    call_seq: int | None = None
    result_seq: int | None = None
    text: str = ""
    total: int | None = None
    outcome: str | None = None
    duration_ms: int | None = None
    cut_characters: int | None = None
    approval: Approval | None = None
    response: dict | None = None

    kind = "card"

    @property
    def anchor(self) -> str:
        """An id for the element, whatever characters the provider puts into call ids."""
        digest = hashlib.blake2s(f"{self.run_id}:{self.call_id}".encode(), digest_size=8).hexdigest()
        return f"call-{digest}"

    @property
    def brief(self) -> str:
        """The arguments in one short line."""
        return brief(self.arguments)

    @property
    def arguments_json(self) -> str:
        return pretty(self.arguments)

    @property
    def is_waiting(self) -> bool:
        return self.outcome is None and self.approval is not None and self.approval.status == Approval.Status.PENDING

    @property
    def kind_of_badge(self) -> str:
        return {"success": "ok", "failed": "bad", "denied": "bad", "interrupted": "warn"}.get(self.outcome or "", "busy")

    @property
    def label(self) -> str:
        """The state of the call in a word, or how long it took."""
        if self.outcome == "success" and self.duration_ms is not None:
            return duration(self.duration_ms)
        words = {
            "success": _("done"),
            "failed": _("failed"),
            "denied": _("denied"),
            "interrupted": _("interrupted"),
        }
        if self.outcome:
            return words.get(self.outcome, self.outcome)
        return _("waiting") if self.is_waiting else _("running")


@dataclass(frozen=True, slots=True)
class Stands:
    """That a summary stands for everything from `first_seq` up to here. state: current, replaced or stale.

    `messages` counts what both sides said in the range. `after` is the cursor of the page that begins with the range,
    None when it begins on the page that has the mark. `later` is where the current summary ends that replaced it.
    """

    summary: Summary
    messages: int
    state: str
    after: int | None = None
    later: int | None = None

    kind = "summary"


@dataclass(slots=True)
class Block:
    """What one side said in a row. kind: user, agent or mark."""

    kind: str
    turn: int
    run_id: UUID | None = None
    at: datetime | None = None
    parts: list = field(default_factory=list)
    run: Run | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    # The seq a fork takes to keep everything up to the end of this turn; None inside a turn and while it runs.
    fork_at: int | None = None

    @property
    def is_live(self) -> bool:
        return self.kind == "agent" and self.run is not None and self.run.status in ONGOING

    @property
    def ref(self) -> str:
        return shown("run", self.run_id) if self.run_id else ""


def whole_turns(items: list[Item], *, more_before: bool) -> list[Item]:
    """Leave out the tail of a turn that starts on an earlier page, unless the page holds nothing else."""
    if not more_before or not items or items[0].turn == items[-1].turn or _is_message_of_user(items[0]):
        return items
    return [item for item in items if item.turn != items[0].turn]


def _is_message_of_user(item: Item) -> bool:
    return item.kind == Item.Kind.MESSAGE and item.role == "user"


def blocks(
    items: list[Item],
    *,
    runs: dict[UUID, Run],
    approvals: dict[tuple[UUID, str], Approval] | None = None,
    pending: list[Run] = (),
    session: Session | None = None,
) -> list[Block]:
    """Blocks of the items, in order.

    `pending` are unfinished runs of the session: one whose message is no item yet is shown from its request.
    """
    builder = _Builder(runs, approvals or {})
    for item in items:
        if not item.is_hidden:
            builder.take(item)
    builder.close()
    result = _with_answers(builder.blocks, runs, pending)
    _mark_forks(result, session)
    return result


def with_marks(found: list[Block], marks: list[Stands]) -> list[Block]:
    """The blocks with the marks of summaries between them, each behind the last block that begins in its range."""
    result, left = [], list(marks)
    for block in found:
        begins = block.first_seq or block.last_seq
        while left and (begins is None or begins > left[0].summary.to_seq):
            result.append(_mark_of(left.pop(0), block.turn))
        result.append(block)
    return result + [_mark_of(mark, found[-1].turn if found else 0) for mark in left]


def _mark_of(mark: Stands, turn: int) -> Block:
    return Block("mark", turn, parts=[mark], last_seq=mark.summary.to_seq)


class _Builder:
    def __init__(self, runs, approvals):
        self.runs, self.approvals = runs, approvals
        self.blocks: list[Block] = []
        self.cards: dict[tuple, Card] = {}

    def take(self, item: Item) -> None:
        content = item.content
        if _is_message_of_user(item):
            self._new("user", item).parts.append(_text("message", content, item.seq))
        elif item.kind == Item.Kind.NOTE or (item.kind == Item.Kind.MESSAGE and item.role == "system"):
            self._remark(item)
        else:
            self._agent(item, content)

    def _new(self, kind: str, item: Item) -> Block:
        block = Block(kind, item.turn, item.run_id, item.created_at, run=self.runs.get(item.run_id), first_seq=item.seq, last_seq=item.seq)
        self.blocks.append(block)
        return block

    def _remark(self, item: Item) -> None:
        last = self.blocks[-1] if self.blocks else None
        inside = last is not None and last.kind == "agent" and last.run_id == item.run_id
        block = last if inside else self._new("mark", item)
        block.parts.append(_text("note", item.content, item.seq))
        block.last_seq = item.seq

    def _agent(self, item: Item, content: dict) -> None:
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.kind != "agent" or last.run_id != item.run_id:
            last = self._new("agent", item)
        last.last_seq = item.seq
        match item.kind:
            case Item.Kind.MESSAGE:
                part = _text("message", content, item.seq)
                if not part.is_empty:
                    last.parts.append(part)
            case Item.Kind.REASONING:
                if content.get("text"):
                    last.parts.append(_text("reasoning", content, item.seq))
            case Item.Kind.TOOL_CALL:
                card = self._card(last, item.run_id, content)
                card.arguments = content.get("arguments", content.get("arguments_text"))
                card.call_seq = item.seq
            case Item.Kind.TOOL_RESULT:
                add_result(self._card(last, item.run_id, content), content, item.seq)
            case Item.Kind.APPROVAL_REQUEST:
                self._card(last, item.run_id, {"id": content["call_id"], "name": content.get("name", "")})
            case Item.Kind.APPROVAL_RESPONSE:
                self._card(last, item.run_id, {"id": content["call_id"], "name": ""}).response = content

    def close(self) -> None:
        """A call that never got its result, in a run that is over, was interrupted: the model is told the same."""
        for card in self.cards.values():
            run = self.runs.get(card.run_id)
            if card.outcome is None and (run is None or run.is_finished):
                card.outcome = "interrupted"

    def _card(self, block: Block, run_id, content: dict) -> Card:
        key = (run_id, content["id"])
        if key not in self.cards:
            self.cards[key] = Card(run_id, content["id"], content.get("name", ""), approval=self.approvals.get(key))
            block.parts.append(self.cards[key])
        return self.cards[key]


def _with_answers(found: list[Block], runs: dict, pending) -> list[Block]:
    """Add an answer block for runs that have said nothing yet, so that their state and their error have a place."""
    answered = {block.run_id for block in found if block.kind == "agent"}
    asked = {block.run_id for block in found if block.kind == "user"}
    result = []
    for index, block in enumerate(found):
        result.append(block)
        following = found[index + 1] if index + 1 < len(found) else None
        run = runs.get(block.run_id)
        ends_here = following is None or following.run_id != block.run_id
        if run is not None and block.kind != "agent" and run.id not in answered and ends_here:
            answered.add(run.id)
            result.append(Block("agent", block.turn, run.id, run.started_at or run.created_at, run=run, last_seq=block.last_seq))
    turn = found[-1].turn if found else 0
    for run in pending:
        if run.id in asked or run.id in answered or run.is_finished:
            continue
        turn += 1
        message = _text("message", {"text": run.request.get("message", ""), "attachments": run.request.get("attachments")}, None)
        result.append(Block("user", turn, run.id, run.created_at, [message], run=run))
        result.append(Block("agent", turn, run.id, run.created_at, run=run))
    return result


def _mark_forks(found: list[Block], session: Session | None) -> None:
    busy = session is not None and session.lease_run_id is not None
    for index, block in enumerate(found):
        is_last = index + 1 == len(found)
        ends_turn = is_last or found[index + 1].turn != block.turn
        if ends_turn and block.last_seq and block.kind == "agent" and not block.is_live and not (busy and is_last):
            block.fork_at = block.last_seq


def _text(kind: str, content: dict, seq: int | None) -> Text:
    text = content.get("text", "")
    gated, total = gate(text) if seq else (text, None)
    return Text(kind, gated, seq, total, content)


def add_result(card: Card, content: dict, seq: int | None) -> None:
    """Put what a tool answered into its card."""
    text = content.get("text", "")
    card.text, card.total = gate(text)
    card.outcome = content.get("outcome") or "success"
    card.duration_ms = content.get("duration_ms")
    card.name = card.name or content.get("name", "")
    card.result_seq = seq
    if content.get("truncated"):
        card.cut_characters = content["truncated"].get("characters")


def gate(text: str) -> tuple[str, int | None]:
    """The text, or its start and its full length when it is too long for a page."""
    if len(text) <= GATE:
        return text, None
    return text[:_SHOWN_OF_GATED], len(text)


def brief(arguments: Any) -> str:
    """Arguments of a call in one short line: the bare value when there is one, else name=value pairs."""
    if not isinstance(arguments, dict):
        return _clip(str(arguments or ""))
    if not arguments:
        return ""
    values = {name: value if isinstance(value, str) and len(arguments) == 1 else json.dumps(value, ensure_ascii=False) for name, value in arguments.items()}
    if len(values) == 1:
        return _clip(next(iter(values.values())))
    return _clip(" ".join(f"{name}={value}" for name, value in values.items()))


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _BRIEF else line[: _BRIEF - 1] + "…"


def pretty(value: Any) -> str:
    """JSON for reading; text stays text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
