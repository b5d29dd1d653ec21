"""Writing down what happened: working notes and summaries of conversations, after runs and when a session ends.

By the same way as summaries: in the background, without tools, by the aggregate's own, the tenant's utility or the agent's
model under its provider's key and egress rules, on the bill of a run that is over, within quotas and the agent's budget.
"""

import logging
from uuid import UUID

from django.db import IntegrityError

from agents import queries as catalogue
from agents.definition import Aggregate, Compaction, Definition
from governance.domain import fences
from governance.errors import LetheError, SubjectFenced
from sessions.context import tokens
from sessions.context.view import SummaryView
from sessions.domain import aggregations, compacting, definitions, history, summaries
from sessions.engine import background, wiring
from sessions.engine.compacting import CALLS_AFTER, models_for
from sessions.engine.errors import ModelFailed
from sessions.engine.store import CallRecord, ItemView
from sessions.engine.summariser import Refused, Summariser
from sessions.errors import FileChanged
from sessions.files.rows import RowFiles
from sessions.files.store import version_of
from sessions.models import Run, Session
from sessions.threads import in_thread

logger = logging.getLogger("lethe.engine")

_KIND = "aggregation"
INSTRUCTIONS = {
    aggregations.WORKING: (
        "You keep the working notes of an agent about the person it works for. You are shown the notes so far and what was "
        "said since. Write the notes anew: what is being worked on, what was decided and why, what is to be remembered, names, "
        "numbers, dates and identifiers as they were given, what is open and what comes next. Keep what still holds, correct "
        "what changed, leave out what is done with. Invent nothing. Short lines, no courtesies."
    ),
    aggregations.EPISODE: (
        "You write down one conversation, so that a later one can build on it: who the person is and what they wanted, what "
        "came of it, what was decided and why, names, numbers, dates and identifiers as they were given, what stayed open. "
        "Say who said what. Invent nothing, and leave out courtesies."
    ),
}


def after_run(job) -> None:
    """Write down what the finished run of `job` has made due. Called on the loop; costs nothing without aggregates."""
    if job.run.session_id is None or not job.definition.aggregation or background.over_budget(job):
        return
    session = job.run.session
    background.begin((_KIND, session.id), _write_due(session.id, job.run, job.definition, has_ended=False))


async def ended(session_id: UUID) -> None:
    """Write down what is due at the end of a session, on the bill of its newest run."""
    background.begin(("aggregation at end", session_id), _write_at_end(session_id))


async def _write_at_end(session_id: UUID) -> None:
    # What its last run has made due may still be under way.
    await background.over((_KIND, session_id))
    found = await in_thread(_of_ended, session_id)
    if found is not None:
        await _write_due(session_id, *found, has_ended=True)


def _of_ended(session_id: UUID) -> tuple[Run, Definition] | None:
    session = Session.objects.select_related("agent", "pinned_version").filter(id=session_id).first()
    run = compacting.payer_of(session) if session is not None else None
    if session is None or run is None:
        return None
    try:
        agent, version = catalogue.runnable(tenant_id=session.tenant_id, name=session.agent.name)
        version = session.pinned_version or version
        definition = definitions.compiled(
            tenant_id=session.tenant_id, version=version, document=version.document, agent_name=agent.name
        )
    except LetheError as error:
        logger.info("nothing was written down of session %s: %s", session_id.hex, error.code)
        return None
    return run, definition


async def _write_due(session_id: UUID, run: Run, definition: Definition, *, has_ended: bool) -> None:
    try:
        session = await in_thread(Session.objects.select_related("subject").filter(id=session_id).first)
        if session is None or not await in_thread(Run.objects.filter(id=run.id, status__in=Run.FINISHED).exists):
            return
        for aggregate in await in_thread(_due, session, definition, has_ended):
            await _Aggregator(session, run, definition, aggregate).write()
    except LetheError as error:
        logger.info("nothing was written down of session %s: %s", session_id.hex, error.code)
    except Exception:
        logger.exception("nothing was written down of session %s", session_id.hex)


def _due(session: Session, definition: Definition, has_ended: bool) -> list[Aggregate]:
    return aggregations.due(session=session, definition=definition, has_ended=has_ended)


class _Aggregator:
    """Writes one file of one session, in as many steps as the model's window asks for."""

    def __init__(self, session: Session, run: Run, definition: Definition, aggregate: Aggregate):
        self.session, self.run, self.definition, self.aggregate = session, run, definition, aggregate
        self.kind = aggregate.kind

    async def write(self) -> None:
        """Raises SubjectFenced and QuotaExceeded before anything is spent."""
        files = await in_thread(aggregations.files_of, self.session, self.definition, self.run)
        if files is None:
            return
        await in_thread(background.admit, self.session, self.run)
        try:
            outcome = await self._written(files)
        except FileChanged:
            # Another conversation wrote its notes meanwhile: once more, on top of those.
            try:
                outcome = await self._written(files)
            except FileChanged as error:
                outcome = Refused(error.code)
        except (ModelFailed, LetheError) as error:
            if isinstance(error, SubjectFenced):
                raise
            outcome = Refused(error.code)
        except (summaries.SourceChanged, IntegrityError):
            return
        await self._told(outcome)

    async def _written(self, files: RowFiles) -> dict | Refused:
        models = await in_thread(models_for, self.aggregate.model, self.definition, self.session.tenant_id, wiring.config_of)
        settings = Compaction(strategy="summarization", summarization_prompt=INSTRUCTIONS[self.kind])
        summariser = Summariser(models, settings, self._paid, may_grow=True, layer="written_down")
        path = aggregations.path_of(self.kind, self.session)
        text, expected, after = await in_thread(self._before, files, path)
        earlier = None if text is None else _as_view(text, models.first.family)
        first, count, model = after, 0, ""
        for _ in range(CALLS_AFTER):
            rows = await in_thread(
                history.turns_after, session=self.session, after_seq=after, until_seq=self.session.head_seq, token_budget=summariser.room()
            )
            if not rows:
                break
            items = [ItemView(*row) for row in rows]
            outcome = await summariser.write(items, earlier)
            if isinstance(outcome, Refused):
                return outcome
            earlier = SummaryView("", 1, items[-1].seq, outcome.text, outcome.tokens)
            after, turn, count, model = items[-1].seq, items[-1].turn, count + len(items), outcome.model
        if not count or earlier is None:
            return Refused("nothing_to_write")
        kept = await in_thread(
            self._keep, files=files, after_seq=first, to_seq=after, items=count, turn=turn, text=self._as_file(earlier.text),
            model=model, expected=expected,
        )  # fmt: skip
        return {"from_seq": kept.from_seq, "to_seq": kept.to_seq, "tokens": earlier.tokens, "model": model}

    def _before(self, files: RowFiles, path: str) -> tuple[str | None, str, int]:
        """(text so far, the version that is replaced, the item up to which it is written down)."""
        text = files.read(path)
        expected = version_of(text) if text is not None else ""
        done = aggregations.covered(self.session, self.kind) if text is not None else None
        if self.kind == aggregations.EPISODE:
            # Without a row that says what it was made of, it is not carried on.
            text = text.partition("\n\n")[2] if text is not None and done is not None else None
        return text, expected, done.to_seq if done else 0

    def _as_file(self, text: str) -> str:
        if self.kind == aggregations.WORKING:
            return f"{text}\n"
        return f"Conversation of {self.session.created_at:%Y-%m-%d %H:%M} UTC\n\n{text}\n"

    def _keep(self, **values):
        with fences.told():
            return aggregations.keep(session=self.session, run=self.run, kind=self.kind, **values)

    async def _paid(self, call: CallRecord) -> None:
        await in_thread(summaries.charge, run=self.run, call=call)

    async def _told(self, outcome: dict | Refused) -> None:
        data = {"kind": self.kind, "path": aggregations.path_of(self.kind, self.session)}
        if isinstance(outcome, Refused):
            logger.warning("session %s: %s was not written: %s", self.session.id.hex, self.kind, outcome.code)
            await in_thread(aggregations.keep_failure, session=self.session, run=self.run, kind=self.kind, reason=outcome.code)
            data["failure"] = outcome.code
        else:
            data |= outcome
        await in_thread(aggregations.tell, run=self.run, data=data)


def _as_view(text: str, family: str) -> SummaryView:
    return SummaryView("", 1, 1, text, tokens.count(text, family))
