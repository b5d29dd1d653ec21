"""A session of any length, turn by turn, through the view of each call and a summariser that writes a fixed size."""

from collections.abc import Iterator
from dataclasses import dataclass

from agents.definition import Compaction
from sessions.context.assemble import assemble, input_limit
from sessions.context.compaction import plan
from sessions.context.view import SummaryView
from tests.sessions.context.histories import Thing

WINDOW, OUTPUT = 16_000, 2_000
SETTINGS = Compaction(strategy="summarization", trigger_tokens=10_000)
SUMMARY = 600


@dataclass(slots=True)
class Lived:
    """`most` is the largest view, `said` all tokens ever said, `summaries` how often a summary was written."""

    turns: int = 0
    summaries: int = 0
    said: int = 0
    most: int = 0
    limit: int = input_limit(WINDOW, OUTPUT) or 0
    misfits: int = 0


def live(turns: int) -> Lived:
    """Take that many turns: questions of 30 to 130 tokens, every third with a tool result of up to 1,500."""
    lived, tail, summary = Lived(), [], None
    things = _said(turns)
    for turn in range(1, turns + 1):
        for thing in next(things):
            tail.append(thing)
            lived.said += thing.tokens
            view = assemble(tail, instructions=300, limit=lived.limit, output=OUTPUT, compaction=SETTINGS, summary=summary)
            lived.most = max(lived.most, view.tokens)
            lived.misfits += not view.fits or bool(view.crowded_out)
        made = plan(tail, SETTINGS, summary_tokens=summary.tokens if summary else 0)
        if made.summarised:
            summary = SummaryView("", 1, made.summarised[-1].seq, "", SUMMARY)
            tail = [thing for thing in tail if thing.seq > summary.to_seq]
            lived.summaries += 1
        lived.turns = turn
    return lived


def _said(turns: int) -> Iterator[list[Thing]]:
    seq = 0
    for turn in range(1, turns + 1):
        kinds = [("message", "user", 30 + turn % 100)]
        if turn % 3 == 0:
            kinds += [("tool_call", "assistant", 20), ("tool_result", "tool", 100 + turn % 1400)]
        kinds += [("message", "assistant", 60 + turn % 150)]
        made, call = [], 0
        for kind, role, size in kinds:
            seq += 1
            call = seq if kind == "tool_call" else call
            made.append(Thing(seq, kind, role, turn, call if kind == "tool_result" else seq, size))
        yield made
