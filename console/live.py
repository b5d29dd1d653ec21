"""A run while it happens, for a browser: its events as frames of HTML, drawn with the templates of the transcript.

The REST API streams events as data. A page streams what they look like, so that there is one set of templates and
hardly any script. A frame is JSON: `html` (elements that replace those with the same id, or are added), `text` (a
piece of the answer), `thought` (that piece is reasoning), `done` (`html` stands for the pieces so far), `state` (a
word for the header), `end` (nothing follows: ask for the stored turn).
"""

import json
from collections.abc import AsyncIterator

from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from console import turns
from console.context_report import Report
from console.templatetags.ui import state_text
from governance.errors import NotFound
from governance.ids import shown
from sessions.domain import events
from sessions.models import Approval, Run
from sessions.threads import in_thread

_TEMPLATE = "sessions/parts.html"


async def frames(*, run: Run, after: int, csrf_token: str, may_decide: bool) -> AsyncIterator[bytes]:
    """Server-sent events of the run after the seq `after`, then one that says it is over."""
    narrator = Narrator(run, csrf_token=csrf_token, may_decide=may_decide)
    yield b"retry: 1000\n\n"
    if after:
        await in_thread(narrator.catch_up, after)
    try:
        async for event in events.tail(run_id=run.id, tenant_id=run.tenant_id, after=after):
            if event is None:
                yield b": still here\n\n"
                continue
            # Pieces of text are many and need neither a template nor the database.
            frame = narrator.frame(event) if event.type in events.DELTAS else await in_thread(narrator.frame, event)
            if frame:
                yield _encoded(event.seq, frame)
    except NotFound:
        # Erased while it was read: the page that asks for the stored turn is told the same.
        pass
    yield _encoded(None, {"end": True})


def _encoded(seq: int | None, frame: dict) -> bytes:
    head = f"id: {seq}\n" if seq is not None else ""
    return f"{head}data: {json.dumps(frame, ensure_ascii=False)}\n\n".encode()


class Narrator:
    """Turns the events of one run into frames. Remembers the calls: a result names its call, not its arguments."""

    def __init__(self, run: Run, *, csrf_token: str = "", may_decide: bool = False):
        self.run = run
        self.context = {"csrf_token": csrf_token, "may_decide": may_decide, "live": True}
        self.cards: dict[str, turns.Card] = {}

    def catch_up(self, after: int) -> None:
        """Learn the calls of the events that a returning reader has already seen."""
        seen = 0
        while seen < after:
            batch = events.read(run=self.run, after=seen)
            if not batch:
                return
            for event in batch:
                if event.seq <= after and event.type.startswith("tool."):
                    self.frame(event)
            seen = batch[-1].seq

    def frame(self, event: events.Event) -> dict | None:
        """The frame of an event, or None when it shows nothing."""
        data = event.data
        match event.type:
            case "run.started":
                return {"state": _("running")}
            case "message.delta":
                return {"text": data.get("text", "")}
            case "reasoning.delta":
                return {"text": data.get("text", ""), "thought": True}
            case "message.completed":
                return self._message(data)
            case "context.assembled":
                return {"html": self._render("saw", report=Report.of_event(data, run_ref=shown("run", self.run.id)))}
            case "tool.called" | "tool.completed" | "tool.failed" | "tool.output_truncated":
                return self._tool(event.type, data)
            case "approval.requested":
                return self._approval(data)
            case _:
                return self._remark(event.type, data)

    def _message(self, data: dict) -> dict | None:
        text = data.get("text", "")
        if not text:
            return {"done": True}
        return {"html": self._render("text", part=turns.Text("message", text)), "done": True}

    def _tool(self, kind: str, data: dict) -> dict:
        card = self._card(data)
        state = _("running")
        if kind == "tool.called":
            card.arguments = data.get("arguments")
            state = _("calling %(tool)s") % {"tool": card.name}
        elif kind == "tool.output_truncated":
            card.cut_characters = data.get("characters")
        else:
            turns.add_result(card, data, None)
        return {"html": self._render("card", card=card), "state": state}

    def _approval(self, data: dict) -> dict:
        card = self._card({"call_id": data["call_id"], "name": data.get("tool", "")})
        card.arguments = data.get("arguments", card.arguments)
        card.approval = Approval.objects.filter(run_id=self.run.id, call_id=data["call_id"]).first()
        return {"html": self._render("card", card=card), "state": _("waiting for approval") if card.is_waiting else _("running")}

    def _card(self, data: dict) -> turns.Card:
        call_id = data["call_id"]
        if call_id not in self.cards:
            self.cards[call_id] = turns.Card(self.run.id, call_id, data.get("name", ""))
        return self.cards[call_id]

    def _remark(self, kind: str, data: dict) -> dict | None:
        text = remark(kind, data)
        if text is None:
            return None
        return {"html": self._render("text", part=turns.Text("problem" if kind == "run.failed" else "note", text))}

    def _render(self, name: str, **context) -> str:
        return render_to_string(f"{_TEMPLATE}#{name}", {**self.context, **context}).strip()


def remark(kind: str, data: dict) -> str | None:
    """A sentence for an event that is neither text nor tool; None for those that say nothing to a reader."""
    match kind:
        case "model.fallback_used":
            return _("%(from)s did not answer; %(to)s went on.") % {"from": data.get("from", ""), "to": data.get("to", "")}
        case "mode.changed":
            return _("Mode: %(mode)s") % {"mode": data.get("mode", "")}
        case "loop.continued":
            return _("Round %(round)s of %(of)s: something is still open.") % {"round": data.get("round"), "of": data.get("of")}
        case "loop.ended" if data.get("open"):
            return _("The rounds are used up, and something is still open.")
        case "child_run.started":
            return _("%(agent)s was given a task.") % {"agent": data.get("agent", "")}
        case "child_run.completed":
            return _("%(agent)s is done: %(status)s.") % {"agent": data.get("agent", ""), "status": state_text(data.get("status", ""))}
        case "aggregation.completed" if data.get("failure"):
            return _("%(path)s could not be written: %(reason)s.") % {"path": data.get("path", ""), "reason": data["failure"].replace("_", " ")}
        case "aggregation.completed":
            return _("Wrote %(path)s.") % {"path": data.get("path", "")}
        case "alert" | "halt":
            return data.get("message") or data.get("code")
        case "run.failed":
            return (data.get("error") or {}).get("message") or _("The run failed.")
        case "run.cancelled":
            return _("Stopped.")
        case "run.interrupted":
            return _("The run was interrupted. What it had done so far is kept; send another message to go on.")
        case "run.completed" if data.get("status") == "budget_exceeded":
            return _("The run reached its limit and ended with what it had.")
    return None
