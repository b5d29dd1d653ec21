"""Compaction in runs: the view of each model call, and the summary that is brought up to date.

Summaries are written after a run, in the background. A run writes one itself only when the window would not hold what
the summary is to stand for, or when its agent says so.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from django.db import IntegrityError

from agents import queries as catalogue
from agents.definition import Compaction, Definition, ModelRef
from agents.models import Provider
from governance.domain import fences
from governance.errors import LetheError, SubjectFenced
from sessions.context.assemble import SEEN
from sessions.context.compaction import compaction_of, plan
from sessions.context.view import HISTORY, MESSAGE, SUMMARY, SummaryView, View, ranges
from sessions.domain import history, opening, summaries
from sessions.engine.errors import ModelFailed
from sessions.engine.models import ModelSource, ProviderConfig
from sessions.engine.store import CallRecord, ItemView, Store
from sessions.engine.summariser import Paid, Refused, Summariser
from sessions.models import Run, Session
from sessions.threads import in_thread

logger = logging.getLogger("lethe.engine")

# Model calls that one bringing up to date may take: in a run somebody waits, afterwards nobody does.
CALLS_IN_RUN, CALLS_AFTER = 2, 20
# Seconds that a summariser may be silent, and that one summary may take.
_SILENCE, _LONGEST = 60.0, 180.0
RESTING = Refused("resting")


class SummaryWriter:
    """Brings the summary of one session up to an item, in as many steps as the summariser's window asks for."""

    def __init__(
        self, *, session: Session, run: Run, definition: Definition, settings: Compaction, config_of: Callable[[Provider], ProviderConfig]
    ):
        self.session, self.run, self.definition, self.settings = session, run, definition, settings
        self.config_of = config_of

    async def bring_up_to(self, seq: int, *, paid: Paid, most_calls: int) -> SummaryView | Refused:
        """The usable summary afterwards, or why there is none; failures are kept. May fall short of `seq`."""
        try:
            models = await in_thread(self._models)
        except (ModelFailed, LetheError) as error:
            return await self._failed(seq, error.code)
        summariser = Summariser(models, self.settings, paid, cap=self.definition.layer_caps.summary)
        summary = await in_thread(summaries.newest, self.session)
        for _ in range(most_calls):
            after = summary.to_seq if summary else 0
            rows = await in_thread(
                history.turns_after, session=self.session, after_seq=after, until_seq=seq, token_budget=summariser.room()
            )
            if not rows:
                break
            items = [ItemView(number, kind, role, turn, group, size, content) for number, kind, role, turn, group, size, content in rows]
            outcome = await summariser.write(items, summaries.as_view(summary) if summary else None)
            if isinstance(outcome, Refused):
                return await self._failed(seq, outcome.code)
            try:
                summary = await in_thread(
                    self._told, summaries.keep, session=self.session, run_id=self.run.id, parent=summary, to_seq=items[-1].seq,
                    items=len(items), text=outcome.text, tokens=outcome.tokens, source_tokens=outcome.source_tokens,
                    model=outcome.model, settings=self.settings,
                )  # fmt: skip
            except (summaries.SourceChanged, SubjectFenced, IntegrityError):
                return Refused("source_changed")
        return summaries.as_view(summary) if summary else Refused("nothing_to_summarise")

    async def may_try(self) -> bool:
        return await in_thread(summaries.may_try, self.session)

    def _models(self) -> ModelSource:
        return models_for(self.settings.summarization_model, self.definition, self.session.tenant_id, self.config_of)

    async def _failed(self, seq: int, code: str) -> Refused:
        logger.warning("session %s was not summarised: %s", self.session.id.hex, code)
        try:
            await in_thread(
                self._told, summaries.keep_failure, session=self.session, run_id=self.run.id, to_seq=seq, reason=code, settings=self.settings
            )
        except (SubjectFenced, IntegrityError):
            # The session is going; nothing of it is to be noted any more.
            pass
        return Refused(code)

    @staticmethod
    def _told(write: Callable, **values):
        with fences.told():
            return write(**values)


def models_for(
    named: ModelRef | None, definition: Definition, tenant_id: UUID, config_of: Callable[[Provider], ProviderConfig]
) -> ModelSource:
    """The models for work beside the answers of an agent, such as summaries: the one that its settings name for it and no
    other; without one the tenant's utility model, and for want of that the agent's own with its fallbacks.

    Checks key and egress; raises ModelFailed and LetheError.
    """
    wanted = [named] if named is not None else [definition.model, *definition.model.fallbacks]
    needed = {ref.provider for ref in wanted}
    if named is None and (utility := catalogue.utility_model(tenant_id)) is not None:
        wanted = [utility, *(ref for ref in wanted if (ref.provider, ref.model) != (utility.provider, utility.model))]
    rows = catalogue.providers_of(tenant_id).filter(name__in={ref.provider for ref in wanted}, is_disabled=False)
    configs = [config for row in rows if (config := _config(row, config_of, is_needed=row.name in needed)) is not None]
    return ModelSource.of(wanted, configs, first_event_timeout=_SILENCE, request_timeout=_LONGEST)


def _config(row: Provider, config_of: Callable[[Provider], ProviderConfig], *, is_needed: bool) -> ProviderConfig | None:
    """None for the utility model's provider when it may not be called: the agent's own models do without it."""
    try:
        return config_of(row)
    except LetheError as error:
        if is_needed:
            raise
        logger.warning("the utility model's provider %s is passed over: %s", row.name, error.code)
        return None


class Compactor:
    """What a run's history gives way to. Without settings the view is only held to the window."""

    def __init__(self, settings: Compaction | None, *, summary: SummaryView | None = None, writer: SummaryWriter | None = None):
        self.settings, self.summary, self.writer = settings, summary, writer
        self.factor = 1.0
        self._tried = False
        self._told: tuple | None = None

    @property
    def after_seq(self) -> int:
        """Items up to here need not be loaded."""
        return self.summary.to_seq if self.summary else 0

    async def view(self, store: Store, assembled: Callable[..., View[ItemView]], *, factor: float) -> View[ItemView]:
        """The view of one call. Writes a summary first when there is no other way, and tells what gave way."""
        self.factor = factor
        assembled = partial(assembled, compaction=self.settings, factor=factor)
        view = assembled(summary=self.summary)
        if view.wanted is not None and self._is_needed(view):
            self._tried = True
            view = await self._written(store, view, assembled)
        await self._tell(store, view)
        return view

    def _is_needed(self, view: View[ItemView]) -> bool:
        if self.writer is None or self.settings is None or self._tried:
            return False
        return bool(view.crowded_out) or not self.settings.background

    async def _written(self, store: Store, view: View[ItemView], assembled: Callable[..., View[ItemView]]) -> View[ItemView]:
        assert self.writer is not None
        assert view.wanted is not None

        async def paid(call: CallRecord) -> None:
            await store.add([], call=call)

        outcome: SummaryView | Refused = RESTING
        if await self.writer.may_try():
            outcome = await self.writer.bring_up_to(view.wanted, paid=paid, most_calls=CALLS_IN_RUN)
        if isinstance(outcome, SummaryView):
            self.summary = outcome
            return assembled(summary=outcome)
        if outcome is not RESTING:
            message = f"The conversation could not be summarised ({outcome.code}); the oldest part is left out where there is no room."
            await store.emit("alert", {"code": "summary_failed", "reason": outcome.code, "message": message})
        return view

    async def _tell(self, store: Store, view: View[ItemView]) -> None:
        """Once for each way in which the history gave way in this run."""
        made, summary = view.plan, view.summary
        if made is None or self.settings is None or not (summary or made.dropped or made.shortened):
            return
        state = (summary.to_seq if summary else 0, len(made.dropped), len(made.shortened))
        if state == self._told:
            return
        self._told = state
        stood_for = summary.source_tokens - summary.tokens if summary else 0
        await store.emit(
            "history.compacted",
            {
                "strategy": self.settings.strategy,
                "before": made.before + stood_for,
                "after": sum(layer.tokens for layer in view.layers if layer.layer in (SUMMARY, HISTORY, MESSAGE)),
                "summarised": f"{summary.from_seq}-{summary.to_seq}" if summary else None,
                "shortened": list(ranges(item for item in made.kept if item.seq in made.shortened)),
                "dropped": list(ranges(made.dropped)),
            },
        )

    def due(self, items: Sequence[ItemView]) -> int | None:
        """The seq up to which a summary is to be written now that a turn is over; None when none is."""
        if self.writer is None or not items:
            return None
        shown = [item for item in items if item.kind in SEEN and item.kind != "reasoning" and item.seq > self.after_seq]
        made = plan(shown, self.settings, summary_tokens=self.summary.tokens if self.summary else 0, factor=self.factor)
        return made.summarised[-1].seq if made.summarised else None


def for_run(run: Run, definition: Definition, config_of: Callable[[Provider], ProviderConfig]) -> Compactor:
    """The compactor of a run, with the stored summary that its session has. One query, none without summaries."""
    settings = compaction_of(definition)
    if settings is None or run.session is None or not opening.starts_at_a_summary(definition):
        return Compactor(settings)
    stored = summaries.newest(run.session)
    writer = SummaryWriter(session=run.session, run=run, definition=definition, settings=settings, config_of=config_of)
    return Compactor(settings, summary=summaries.as_view(stored) if stored else None, writer=writer)
