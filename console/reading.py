"""What the pages of sessions and runs read: a page of the transcript, one turn of it, and what the model saw.

Each function makes the same number of queries whatever it finds; the messages behind summaries are one more to count.
"""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from console import turns
from console.context_report import Report
from governance.domain.expiry import left
from governance.ids import shown
from sessions.domain import history, summaries
from sessions.models import Approval, Item, ModelCall, Run, RunEvent, Session, Summary

PAGE_ITEMS = 60


@dataclass(slots=True)
class Transcript:
    """A page of a session's history as blocks, from `first_seq` to `last_seq` of the whole.

    `older` is the cursor of what lies before it, None at the start, `newer` that of what follows, None at the end.
    `summarised_to` is where the range of the current summary ends, wherever that is.
    """

    session: Session
    blocks: list[turns.Block]
    first_seq: int
    last_seq: int
    older: str | None
    newer: str | None
    summarised_to: int | None

    @property
    def is_newest(self) -> bool:
        return self.newer is None

    @property
    def summarised_above(self) -> int | None:
        """Where the current summary ends, when that is on an earlier page."""
        return self.summarised_to if self.summarised_to is not None and self.summarised_to < self.first_seq else None

    @property
    def summarised_below(self) -> int | None:
        """Where the current summary ends, when that is on a later page: all of this one is in its range."""
        return self.summarised_to if self.summarised_to is not None and self.summarised_to > self.last_seq else None

    @property
    def newest_run(self) -> Run | None:
        return next((block.run for block in reversed(self.blocks) if block.run is not None), None)

    @property
    def is_live(self) -> bool:
        return any(block.is_live for block in self.blocks)


def transcript(session: Session, *, before: str | None = None, after: str | None = None, limit: int = PAGE_ITEMS) -> Transcript:
    """The last page, or the one on a side of a cursor. A page that is read backwards begins with a whole turn."""
    page = history.page(session=session, before=before, after=after, limit=limit)
    items = page.items if after is not None else turns.whole_turns(page.items, more_before=page.previous_cursor is not None)
    older = str(items[0].seq) if items and page.previous_cursor is not None else None
    newer = page.next_cursor
    first, last = items[0].seq if older else 1, items[-1].seq if newer else session.head_seq
    pending = [] if newer else list(_runs(session.tenant_id).filter(session_id=session.id, status__in=turns.ONGOING).order_by("id"))
    runs = _runs_by_id(session, items)
    runs.update({run.id: run for run in pending})
    blocks = turns.blocks(items, runs=runs, approvals=_approvals(session.tenant_id, runs), pending=pending, session=session)
    current = summaries.newest(session)
    marks = _marks(session, current, summaries.ending(session=session, first_seq=first, last_seq=last), first_seq=first)
    return Transcript(session, turns.with_marks(blocks, marks), first, last, older, newer, current.to_seq if current else None)


def _marks(session: Session, current: Summary | None, found: list[Summary], *, first_seq: int) -> list[turns.Stands]:
    counts = history.messages_in(session=session, ranges=[(summary.from_seq, summary.to_seq) for summary in found])
    return [_stands(summary, count, current, first_seq) for summary, count in zip(found, counts, strict=True)]


def _stands(summary: Summary, messages: int, current: Summary | None, first_seq: int) -> turns.Stands:
    after = None if summary.from_seq >= first_seq else summary.from_seq - 1
    if summary.is_stale:
        return turns.Stands(summary, messages, "stale", after)
    if current is not None and current.to_seq > summary.to_seq:
        return turns.Stands(summary, messages, "replaced", after, later=current.to_seq)
    return turns.Stands(summary, messages, "current", after)


def turn(run: Run, *, with_message: bool = False) -> list[turns.Block]:
    """What a run answered so far, with the message that started it if asked for."""
    items = list(Item.objects.filter(session_id=run.session_id, run_id=run.id, is_hidden=False).order_by("seq"))
    runs = {run.id: run}
    found = turns.blocks(items, runs=runs, approvals=_approvals(run.tenant_id, runs), pending=[run], session=run.session)
    return found if with_message else [block for block in found if block.kind != "user"]


def item(session: Session, seq: int) -> Item | None:
    """One visible item by its seq, wherever a fork has it from."""
    found = history.page(session=session, after=str(seq - 1), limit=1).items if seq > 0 else []
    return found[0] if found and found[0].seq == seq else None


def report(run: Run | None) -> Report | None:
    """What the model saw in the run's last call."""
    if run is None:
        return None
    data = RunEvent.objects.filter(run_id=run.id, type="context.assembled").order_by("-seq").values_list("data", flat=True).first()
    if data is not None:
        return Report.of_event(data, run_ref=shown("run", run.id))
    call = left(ModelCall.objects.filter(run_id=run.id), tenant_id=run.tenant_id).order_by("-number").first()
    return Report.of_call(call, run_ref=shown("run", run.id)) if call else None


def _runs(tenant_id: UUID) -> QuerySet[Run]:
    return left(Run.objects.filter(tenant_id=tenant_id), tenant_id=tenant_id).select_related("agent", "version").defer("document", "output")


def _runs_by_id(session: Session, items: list[Item]) -> dict[UUID, Run]:
    wanted = {entry.run_id for entry in items if entry.run_id}
    return {run.id: run for run in _runs(session.tenant_id).filter(id__in=wanted)}


def _approvals(tenant_id: UUID, runs: dict[UUID, Run]) -> dict[tuple[UUID, str], Approval]:
    found = left(Approval.objects.filter(tenant_id=tenant_id, run_id__in=list(runs)), tenant_id=tenant_id)
    return {(approval.run_id, approval.call_id): approval for approval in found}
