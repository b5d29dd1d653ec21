"""Compacting a session now: what a person or an application asks for, instead of waiting for the next trigger."""

from collections import namedtuple

from agents import queries as catalogue
from agents.definition import SUMMARISES, Compaction
from governance.actors import Actor
from governance.domain import audit
from governance.ids import shown
from sessions import dispatch
from sessions.context.assemble import SEEN
from sessions.context.compaction import compaction_of, plan
from sessions.domain import definitions, history, leases, summaries
from sessions.errors import NoSummaries, NothingToCompact, SessionBusy, SummaryFailed
from sessions.models import Item, Run, Session, Summary

# As long as a request may take; the summary goes on without whoever asked for it.
WAIT_SECONDS = 50.0

Outline = namedtuple("Outline", ("seq", "kind", "role", "turn", "group", "tokens"))


def compact(*, session: Session, by: Actor) -> Summary | None:
    """Have a summary stand for everything but the turns that the agent's settings preserve.

    Returns the newest summary, None when it is still being written. Raises SessionBusy while a turn runs, NoSummaries,
    NothingToCompact, QuotaExceeded, DefinitionInvalid, and SummaryFailed.
    """
    by.require("sessions.write")
    if leases.is_live(session):
        raise SessionBusy(run_id=shown("run", session.lease_run_id))
    agent, version = catalogue.runnable(tenant_id=session.tenant_id, name=session.agent.name)
    version = session.pinned_version or version
    definition = definitions.compiled(
        tenant_id=session.tenant_id, version=version, document=version.document, agent_name=agent.name
    )
    settings = compaction_of(definition)
    if settings is None or settings.strategy not in SUMMARISES:
        raise NoSummaries
    seq, run = _reach(session, settings), payer_of(session)
    if seq is None or run is None:
        raise NothingToCompact
    try:
        reason = dispatch.summarise(session=session, run=run, definition=definition, seq=seq, seconds=WAIT_SECONDS)
    except TimeoutError:
        reason = "running"
    audit.record(
        "session.compacted", by=by, object_type="session", object_ref=shown("ses", session.id), to_seq=seq, outcome=reason or "done"
    )
    if reason not in (None, "running"):
        raise SummaryFailed(reason=reason)
    return summaries.newest(session) if reason is None else None


def outline(session: Session, *, after_seq: int = 0) -> list[Outline]:
    """The items that a model would see, described for planners."""
    return [entry for row in history.outline(session=session, after_seq=after_seq) if (entry := Outline(*row)).kind in SEEN]


def _reach(session: Session, settings: Compaction) -> int | None:
    """The last item that a summary would stand for, as if a trigger were reached."""
    stored = summaries.newest(session)
    forced = settings.model_copy(update={"strategy": "summarization", "trigger_turns": 1})
    items = outline(session, after_seq=stored.to_seq if stored else 0)
    made = plan(items, forced, summary_tokens=stored.tokens if stored else 0)
    return made.summarised[-1].seq if made.summarised else None


def payer_of(session: Session) -> Run | None:
    """The ended run whose ledger takes the cost: the session's newest, for a fresh fork that of its newest item."""
    newest = Run.objects.filter(session_id=session.id, status__in=Run.FINISHED).order_by("-id").first()
    if newest is not None:
        return newest
    for owner, first, last in reversed(history.segments(session)):
        items = Item.objects.filter(session_id=owner, seq__gte=first, seq__lte=last, run_id__isnull=False)
        run_id = items.order_by("-seq").values_list("run_id", flat=True).first()
        run = Run.objects.filter(id=run_id, status__in=Run.FINISHED).first() if run_id else None
        if run is not None:
            return run
    return None
