"""What the pages of sessions and runs read: a page of the transcript, one turn of it, and what the model saw.

Each function makes the same number of queries whatever it finds.
"""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from console import turns
from console.context_report import Report
from governance.domain.expiry import left
from governance.ids import shown
from sessions.domain import history
from sessions.models import Approval, Item, ModelCall, Run, RunEvent, Session

PAGE_ITEMS = 60


@dataclass(slots=True)
class Transcript:
    """A page of a session's history as blocks; `older` is the cursor of what lies before, None at the start."""

    session: Session
    blocks: list[turns.Block]
    older: str | None
    is_newest: bool

    @property
    def newest_run(self) -> Run | None:
        return next((block.run for block in reversed(self.blocks) if block.run is not None), None)

    @property
    def is_live(self) -> bool:
        return any(block.is_live for block in self.blocks)


def transcript(session: Session, *, before: str | None = None, limit: int = PAGE_ITEMS) -> Transcript:
    """The last page, or the one before a cursor, cut at the start of a turn."""
    page = history.page(session=session, before=before, limit=limit)
    items = turns.whole_turns(page.items, more_before=page.previous_cursor is not None)
    pending = list(_runs(session.tenant_id).filter(session_id=session.id, status__in=turns.ONGOING).order_by("id")) if before is None else []
    runs = _runs_by_id(session, items)
    runs.update({run.id: run for run in pending})
    blocks = turns.blocks(items, runs=runs, approvals=_approvals(session.tenant_id, runs), pending=pending, session=session)
    older = str(items[0].seq) if items and page.previous_cursor is not None else None
    return Transcript(session, blocks, older, before is None)


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
