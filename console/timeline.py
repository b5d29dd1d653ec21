"""The events of a run as rows with a start and a length: what took how long, and what waited for whom.

Pure, and without content: texts, arguments and results are named by the seq of their event and fetched when somebody
asks for them.
"""

from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext as _

from console.live import remark
from console.templatetags.ui import duration, number
from sessions.models import Approval, ModelCall, Run

# Per mille of the track.
_MOMENT = 6.0


@dataclass(slots=True)
class Step:
    """One row. `start` and `width` are per mille of the whole run; a width of 0 is a moment."""

    title: str
    tone: str
    at: datetime
    offset_ms: float
    ms: float | None = None
    detail: str = ""
    is_open: bool = False
    call: ModelCall | None = None
    approval: Approval | None = None
    # (label, seq of the event) of what can be opened.
    payloads: list[tuple[str, int]] = field(default_factory=list)
    start: float = 0.0
    width: float = 0.0

    @property
    def offset(self) -> str:
        return "+" + duration(self.offset_ms)

    @property
    def bar_x(self) -> str:
        """Attributes of the SVG: a dot in every language, and a moment is wide enough to be seen."""
        return f"{min(self.start, 1000 - _MOMENT):.1f}"

    @property
    def bar_width(self) -> str:
        return f"{max(self.width, _MOMENT):.1f}"

    @property
    def took(self) -> str:
        return duration(self.ms) if self.ms is not None else ""


def steps(run: Run, events: list[tuple], *, calls: list[ModelCall], approvals: list[Approval], facts: dict[int, dict], now: datetime) -> list[Step]:
    """Rows for `events`, (seq, type, data, at) in order. `facts` has name, outcome and duration by item seq."""
    # A run that goes on after an approval has started again; its first event is where it began.
    begin = min([at for _, _, _, at in events[:1]] + [run.started_at or run.created_at])
    builder = _Builder(run, begin, calls, approvals, facts, now)
    for seq, kind, data, at in events:
        builder.take(seq, kind, data, at)
    return builder.closed()


class _Clock:
    """Time on the bars: the waits for people take a quarter of them at most, however long a person slept on it."""

    def __init__(self, waits: list[tuple[float, float]], total: float):
        self.waits: list[tuple[float, float]] = []
        for first, last in sorted(waits):
            # Several calls may have waited at once.
            first = max(first, self.waits[-1][1]) if self.waits else first
            if last > first:
                self.waits.append((first, last))
        waited = sum(last - first for first, last in self.waits)
        self.factor = min(1.0, max(total - waited, 1.0) / 3 / waited) if waited else 1.0

    def at(self, offset: float) -> float:
        """The place of a moment, in milliseconds of this clock."""
        inside = sum(max(0.0, min(offset, last) - first) for first, last in self.waits)
        return offset - inside * (1 - self.factor)


class _Builder:
    def __init__(self, run, begin, calls, approvals, facts, now):
        self.run, self.begin, self.facts, self.now = run, begin, facts, now
        self.calls = {call.number: call for call in calls}
        self.approvals = {approval.call_id: approval for approval in approvals}
        self.rows: list[Step] = []
        self.tools: dict[str, Step] = {}

    def take(self, seq: int, kind: str, data: dict, at: datetime) -> None:
        known = {**self.facts.get(data.get("item_seq"), {}), **data}
        match kind:
            case "run.started" if self.rows:
                self._add(_("Went on"), "info", at)
            case "run.started":
                waited = self._ms(self.run.created_at, self.begin)
                self._add(_("Started"), "info", at, detail=_("waited %(time)s in the queue") % {"time": duration(waited)} if waited > 500 else "")
            case "context.assembled":
                self._model_call(data.get("call"), at)
            case "message.completed":
                self._add(_("Answer"), "ok", at, payloads=[(_("text"), seq)])
            case "tool.called":
                row = self._add(known.get("name") or _("tool"), "tool", at, is_open=True, payloads=[(_("arguments"), seq)])
                self.tools[data.get("call_id")] = row
            case "tool.completed" | "tool.failed":
                self._tool_done(seq, kind, known, at)
            case "approval.requested":
                self._approval(seq, known, at)
            case "history.compacted":
                self._add(_("History compacted"), "note", at, detail=_compacted(data))
            case _:
                self._remark(seq, kind, data, at)

    def closed(self) -> list[Step]:
        """The rows, with their places on the bar."""
        end = self.run.ended_at or self.now
        for row in self.rows:
            if row.is_open:
                row.ms = max(self._ms(row.at, end), 0.0)
                row.is_open = not self.run.is_finished
        total = self._ms(self.begin, end)
        clock = _Clock([(row.offset_ms, row.offset_ms + row.ms) for row in self.rows if row.tone == "wait" and row.ms], total)
        whole = max(clock.at(total), 1.0)
        for row in self.rows:
            row.start = min(1000.0, 1000 * clock.at(row.offset_ms) / whole)
            row.width = min(1000.0 - row.start, 1000 * clock.at(row.offset_ms + (row.ms or 0)) / whole - row.start)
        return self.rows

    def _ms(self, first: datetime, last: datetime) -> float:
        return (last - first).total_seconds() * 1000

    def _add(self, title: str, tone: str, at: datetime, **more) -> Step:
        row = Step(title, tone, at, max(0.0, self._ms(self.begin, at)), **more)
        self.rows.append(row)
        return row

    def _model_call(self, number, at: datetime) -> None:
        call = self.calls.get(number)
        title = call.model if call else _("Model call")
        self._add(title, "model", at, call=call, ms=call.duration_ms if call else None, is_open=call is None)

    def _tool_done(self, seq: int, kind: str, known: dict, at: datetime) -> None:
        row = self.tools.get(known.get("call_id")) or self._add(known.get("name") or _("tool"), "tool", at)
        row.is_open, row.ms = False, known.get("duration_ms")
        if row.ms is None:
            row.ms = max(0.0, self._ms(row.at, at))
        outcome = known.get("outcome") or ("failed" if kind == "tool.failed" else "success")
        row.detail = {"failed": _("failed"), "denied": _("denied"), "interrupted": _("interrupted")}.get(outcome, "")
        row.tone = {"failed": "bad", "denied": "warn", "interrupted": "warn"}.get(outcome, "tool")
        row.payloads.append((_("result"), seq))

    def _approval(self, seq: int, known: dict, at: datetime) -> None:
        approval = self.approvals.get(known.get("call_id"))
        decided = approval.decided_at if approval else None
        row = self._add(_("Approval of %(tool)s") % {"tool": known.get("tool") or ""}, "wait", at, approval=approval, payloads=[(_("arguments"), seq)])
        row.ms, row.is_open = (self._ms(at, decided), False) if decided else (None, True)
        tool = self.tools.get(known.get("call_id"))
        if tool is not None:
            # What follows is the wait of a person, not of the tool.
            tool.is_open = False

    def _remark(self, seq: int, kind: str, data: dict, at: datetime) -> None:
        endings = {"run.completed": _("Completed"), "run.failed": _("Failed"), "run.cancelled": _("Cancelled"), "run.interrupted": _("Interrupted")}
        text = remark(kind, data)
        if kind in endings:
            tone = {"run.completed": "ok", "run.failed": "bad"}.get(kind, "warn")
            payloads = [(_("output"), seq)] if data.get("output") else []
            self._add(endings[kind], tone, at, detail=text or "", payloads=payloads)
        elif text:
            self._add(text, "warn" if kind in ("alert", "halt") else "note", at)


def _compacted(data: dict) -> str:
    """What the model saw of the history from here on, and what gave way."""
    said = [_("%(before)s tokens shown as %(after)s") % {"before": number(data.get("before")), "after": number(data.get("after"))}]
    if data.get("summarised"):
        said.append(_("items %(range)s by a summary") % {"range": data["summarised"].replace("-", "–")})
    for name, words in (("shortened", _("shortened: %(ranges)s")), ("dropped", _("left out: %(ranges)s"))):
        if data.get(name):
            said.append(words % {"ranges": ", ".join(data[name]).replace("-", "–")})
    return "; ".join(said)
