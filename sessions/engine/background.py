"""What is written after runs: tasks of the engine's own loop, one of a kind for a session at a time.

Nothing is queued. A summary that is lost with its process is due again at the end of the session's next run, and a run
that finds no room meanwhile writes it itself.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from agents.definition import Definition
from governance.domain import fences
from governance.errors import LetheError
from sessions.context.compaction import compaction_of
from sessions.context.view import SummaryView
from sessions.domain import quotas, summaries
from sessions.engine.compacting import CALLS_AFTER, SummaryWriter
from sessions.engine.store import CallRecord
from sessions.engine.summariser import Refused
from sessions.models import Run, Session
from sessions.threads import in_thread

logger = logging.getLogger("lethe.engine")

# By the kind of work and the session.
_tasks: dict[tuple[str, UUID], asyncio.Task] = {}
_SUMMARY = "summary"


def begin(key: tuple[str, UUID], work: Coroutine[Any, Any, None]) -> None:
    """Do `work` beside everything else; not while the same is under way. Called on the loop."""
    if key in _tasks:
        work.close()
        return
    task = asyncio.create_task(work)
    _tasks[key] = task
    task.add_done_callback(lambda _: _tasks.pop(key, None))


def after_run(job) -> None:
    """Bring the session's summary up to date if the finished run of `job` has made one due. Called on the loop."""
    seq = job.compactor.due(job.store.items())
    if seq is not None and not over_budget(job):
        begin((_SUMMARY, job.run.session_id), _summarise(job.compactor.writer, seq))


async def over(key: tuple[str, UUID]) -> None:
    """Wait for the work of a key, if it is under way."""
    if key in _tasks:
        await asyncio.wait({_tasks[key]})


async def finished() -> None:
    """Wait for what is under way."""
    while _tasks:
        await asyncio.wait(_tasks.values())


async def drain() -> None:
    """Stop what is under way: the process shuts down."""
    for task in list(_tasks.values()):
        task.cancel()
    if _tasks:
        await asyncio.wait(_tasks.values(), timeout=10)


def over_budget(job) -> bool:
    """Whether the run has spent what its agent's limits allow: then nothing is written after it either."""
    limits, spent = job.definition.limits, job.store.spent()
    if limits is None:
        return False
    return (limits.max_tokens_per_run is not None and spent.tokens >= limits.max_tokens_per_run) or (
        limits.cost is not None and spent.cost >= limits.cost
    )


async def _summarise(writer: SummaryWriter, seq: int) -> None:
    try:
        if await in_thread(Run.objects.filter(id=writer.run.id, status__in=Run.FINISHED).exists) and await writer.may_try():
            await bring_up_to(writer, seq)
    except LetheError as error:
        logger.info("session %s was not summarised: %s", writer.session.id.hex, error.code)
    except Exception:
        logger.exception("session %s was not summarised", writer.session.id.hex)


async def bring_up_to(writer: SummaryWriter, seq: int) -> SummaryView | Refused:
    """A summary outside a run, on the bill of the writer's ended run.

    Raises SubjectFenced and QuotaExceeded before anything is spent.
    """
    await in_thread(admit, writer.session, writer.run)

    async def paid(call: CallRecord) -> None:
        await in_thread(summaries.charge, run=writer.run, call=call)

    return await writer.bring_up_to(seq, paid=paid, most_calls=CALLS_AFTER)


def admit(session: Session, run: Run) -> None:
    """Whether a model may be asked on the bill of an ended run. Raises SubjectFenced and QuotaExceeded."""
    if session.subject is not None:
        fences.check(subject=session.subject)
    quotas.charge(run=run)


async def now(*, session: Session, run: Run, definition: Definition, config_of, seq: int) -> str | None:
    """`bring_up_to` for whoever asks for it: the code of why there is no summary, None when there is one.

    A summary of the session that is under way is waited for first.
    """
    settings = compaction_of(definition)
    assert settings is not None
    await over((_SUMMARY, session.id))
    writer = SummaryWriter(session=session, run=run, definition=definition, settings=settings, config_of=config_of)
    outcome = await bring_up_to(writer, seq)
    return outcome.code if isinstance(outcome, Refused) else None
