"""Summaries: finding the one that a turn begins with, and keeping what was written."""

import hashlib
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Now

from agents.definition import Compaction, canonical
from governance import sql
from governance.domain import fences
from governance.ids import shown
from sessions.context.view import SummaryView
from sessions.domain import history, leases, quotas, usage
from sessions.models import Item, ModelCall, Run, Session, Summary

# A summariser that fails is asked again after this long, doubled with each failure.
FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=2)


class SourceChanged(Exception):
    """What was summarised is not there any more as it was: the text must not be kept."""


def newest(session: Session) -> Summary | None:
    """The usable summary that reaches furthest; a fork uses those of what it shares."""
    reach = history.segments(session)
    found = _NEWEST.first([[owner for owner, _, _ in reach], [last for _, _, last in reach], session.tenant_id])
    return found[0] if found else None


# For each session that has a part in it, the index ends at its newest: the cost does not grow with their number.
_NEWEST = sql.Reader(
    """
    SELECT {summary} FROM unnest(%s::uuid[], %s::bigint[]) AS reach (owner, last), LATERAL (
        SELECT * FROM agent_sessions_summary
        WHERE session_id = reach.owner AND to_seq <= reach.last AND tenant_id = %s AND NOT is_stale AND failure = ''
        ORDER BY to_seq DESC, created_at DESC LIMIT 1
    ) AS summary ORDER BY summary.to_seq DESC, summary.created_at DESC LIMIT 1
    """,
    summary=Summary,
)


def ending(*, session: Session, first_seq: int, last_seq: int) -> list[Summary]:
    """Summaries whose range ends in a part of the history, in order: for each end the usable one, else the newest stale
    one. A fork has those of what it shares, too.
    """
    reach = Q()
    for owner, _, last in history.segments(session):
        reach |= Q(session_id=owner, to_seq__lte=last)
    written = Summary.objects.filter(reach, tenant_id=session.tenant_id, failure="", to_seq__range=(first_seq, last_seq))
    return list(written.order_by("to_seq", "is_stale", "-created_at").distinct("to_seq"))


def as_view(summary: Summary) -> SummaryView:
    return SummaryView(
        ref=shown("sum", summary.id), from_seq=summary.from_seq, to_seq=summary.to_seq, text=summary.text,
        tokens=summary.tokens, source_tokens=summary.source_tokens,
    )  # fmt: skip


def settings_digest(settings: Compaction) -> str:
    """SHA-256 of what decides how a summary is written."""
    model = settings.summarization_model
    decides = {"prompt": settings.summarization_prompt, "model": model.model_dump(mode="json") if model else None}
    return hashlib.sha256(canonical(decides).encode()).hexdigest()


def may_try(session: Session) -> bool:
    """Whether the summariser may be asked by itself."""
    return has_rested(Summary.objects.filter(session_id=session.id, is_stale=False))


def has_rested(attempts: QuerySet) -> bool:
    """Whether it may be tried again, by rows with `failure` and `created_at`: longer after each failure in a row."""
    recent = list(attempts.annotate(now=Now()).order_by("-created_at").values_list("failure", "created_at", "now")[:8])
    failures = next((number for number, row in enumerate(recent) if not row[0]), len(recent))
    if failures == 0:
        return True
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (failures - 1))
    return recent[0][2] - recent[0][1] >= wait


@transaction.atomic
def keep(
    *,
    session: Session,
    run_id: UUID | None,
    parent: Summary | None,
    to_seq: int,
    items: int,
    text: str,
    tokens: int,
    source_tokens: int,
    model: str,
    settings: Compaction,
) -> Summary:
    """Store a summary of the `items` visible items after `parent` up to `to_seq`.

    Raises SourceChanged when they are not those any more; the session's lock keeps a rollback from coming between.
    """
    locked = leases.lock(session.id)
    if locked is None or visible_items(locked, parent.to_seq if parent else 0, to_seq) != items:
        raise SourceChanged
    if parent is not None and not Summary.objects.filter(id=parent.id, is_stale=False).exists():
        raise SourceChanged
    return Summary.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, session_id=session.id, owners=owners_of(locked, to_seq),
        from_seq=parent.from_seq if parent else 1, to_seq=to_seq, text=text, tokens=tokens, source_tokens=source_tokens,
        model=model, settings_digest=settings_digest(settings), parent_id=parent.id if parent else None, run_id=run_id,
    )  # fmt: skip


def keep_failure(*, session: Session, run_id: UUID | None, to_seq: int, reason: str, settings: Compaction) -> None:
    """Note why there is no summary up to `to_seq`."""
    Summary.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, session_id=session.id, owners=[session.id],
        from_seq=1, to_seq=to_seq, settings_digest=settings_digest(settings), run_id=run_id, failure=reason[:40],
    )  # fmt: skip


def visible_items(session: Session, after_seq: int, to_seq: int) -> int:
    """How many items a view can show between two seqs."""
    return sum(
        Item.objects.filter(session_id=owner, seq__gt=max(after_seq, first - 1), seq__lte=min(last, to_seq), is_hidden=False).count()
        for owner, first, last in history.segments(session)
    )


def owners_of(session: Session, to_seq: int) -> list[UUID]:
    """The session, and those whose items it shares up to `to_seq`."""
    return list(dict.fromkeys([session.id, *(owner for owner, first, _ in history.segments(session) if first <= to_seq)]))


@fences.told()
@transaction.atomic
def charge(*, run: Run, call) -> None:
    """Put a model call that was made after the run's end on the run's bill. `call` is the engine's CallRecord.

    Raises SubjectFenced.
    """
    locked = Run.objects.select_for_update().get(id=run.id)
    priced = call.price(call) if call.price else usage.UNKNOWN
    number = (ModelCall.objects.filter(run_id=run.id).aggregate(last=Max("number"))["last"] or 0) + 1
    ModelCall.objects.create(
        tenant_id=run.tenant_id, subject_id=run.subject_id, run_id=run.id, agent_id=run.agent_id, number=number,
        provider=call.provider, model=call.model, input_tokens=call.input_tokens, cached_tokens=call.cached_tokens,
        output_tokens=call.output_tokens, reasoning_tokens=call.reasoning_tokens, is_estimated=call.is_estimated,
        cost=priced.cost, prices=priced.prices, context=call.context, duration_ms=call.duration_ms,
    )  # fmt: skip
    Run.objects.filter(id=run.id).update(
        model_calls=F("model_calls") + 1,
        input_tokens=F("input_tokens") + call.input_tokens,
        cached_tokens=F("cached_tokens") + call.cached_tokens,
        output_tokens=F("output_tokens") + call.output_tokens,
        reasoning_tokens=F("reasoning_tokens") + call.reasoning_tokens,
        # Null plus something stays null: a cost that is not known whole is not known.
        cost=F("cost") + priced.cost if priced.cost is not None and locked.model_calls else priced.cost,
    )
    quotas.charge(run=run, tokens=call.input_tokens + call.output_tokens, cost=priced.cost or Decimal(0))
