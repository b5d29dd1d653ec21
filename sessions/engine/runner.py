"""Who executes runs: one event loop a process, in a thread of its own.

Web processes and workers use the same runner, so streaming, waiting and queued runs are one code path. A run is a task
of that loop: it beats its lease, listens for its cancellation, and ends in exactly one of the ways of `_execute`.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from uuid import UUID

from django.conf import settings
from django.db import Error as DatabaseError

from governance.errors import LetheError, SubjectFenced, storage_full
from sessions import dispatch, notify
from sessions.domain import executions, leases
from sessions.domain.opening import Fresh
from sessions.domain.run_store import RunStore
from sessions.engine import aggregating, background, mcp_tools, wiring
from sessions.engine.errors import ModelFailed
from sessions.engine.loop import run_turn
from sessions.engine.providers import close_clients
from sessions.engine.store import RunStopped
from sessions.models import Run
from sessions.threads import in_thread

logger = logging.getLogger("lethe.runner")

_INTERNAL = {
    "class": "internal",
    "code": "internal_error",
    "message": "Lethe failed while it worked on this run. The operator's log has the details.",
}
_LEFT = "run %s was left to the sweeper"
_FIRST_LOOK_SECONDS = 0.5
_lock = threading.Lock()
_runner: "Runner | None" = None


def runner() -> "Runner":
    """This process's runner; its loop starts with the first use, so that it is never carried over a fork."""
    global _runner  # noqa: PLW0603
    with _lock:
        if _runner is None:
            _runner = Runner()
        return _runner


def submit(run_id: UUID, *, fresh: Fresh | None = None) -> Future:
    """Execute a run that holds its lease. The future ends with the run; nobody has to wait for it.

    `fresh` is the run, if it was stored a moment ago.
    """
    return runner().submit(run_id, fresh=fresh)


async def execute_child(run_id: UUID) -> None:
    """Execute a run that another one called, in the loop of that one; it ends with the task that waits for it."""
    await runner().tracked(run_id)


def warm_up() -> None:
    """Import what the tenants' providers need before the first run has to wait for it. Returns at once."""
    threading.Thread(target=wiring.warm_up, name="lethe-warm-up", daemon=True).start()
    runner()


def drain(seconds: float) -> None:
    """Take no new run; let the running ones end within `seconds`, then hand the rest back to the queue."""
    dispatch.draining.set()
    if _runner is not None:
        _runner.drain(seconds)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where there is one: it takes half the time to wake up and to read from a model."""
    try:
        import uvloop  # noqa: PLC0415 -- not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Runner:
    """Executes runs until it is drained."""

    def __init__(self):
        self._tasks: dict[UUID, asyncio.Task] = {}
        self._futures: dict[UUID, Future] = {}
        self._loop = _new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="lethe-engine", daemon=True).start()

    def submit(self, run_id: UUID, *, fresh: Fresh | None = None) -> Future:
        # Here, where a connection is at hand: to hand it to the loop and from there to a thread would take longer.
        job = _loaded_or_left(run_id, fresh) if fresh is not None else None
        future = self.call(self.tracked(run_id, job)) if job is not None or fresh is None else _ended_already()
        self._futures[run_id] = future
        future.add_done_callback(lambda _: self._futures.pop(run_id, None))
        return future

    def wait(self, run_id: UUID) -> None:
        """Block until the run has left this process. Returns at once when it is not here."""
        future = self._futures.get(run_id)
        if future is not None:
            future.exception()

    def call(self, work: Coroutine) -> Future:
        """Run a coroutine on the engine's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def drain(self, seconds: float) -> None:
        """Let the running ones end within `seconds`, then hand the rest back to the queue."""
        self.call(self._drain(seconds)).result(seconds + 15)

    async def _drain(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        for task in list(self._tasks.values()):
            task.cancel("handed_back")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=10)
        await background.drain()
        await close_clients()
        await mcp_tools.close()
        await notify.hub().close()

    async def tracked(self, run_id: UUID, job: "wiring.Job | None" = None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[run_id] = task
        try:
            await _execute(run_id, task, job)
        except Exception:
            logger.exception(_LEFT, run_id.hex)
        finally:
            self._tasks.pop(run_id, None)


async def _execute(run_id: UUID, task: asyncio.Task, job: "wiring.Job | None") -> None:
    """From a leased run to its end. What stops it early is kept in the store's `stop_reason`."""
    with notify.hub().bell(notify.CANCEL, run_id) as bell:
        job = job or await in_thread(_loaded, run_id)
        if job is None:
            return
        watcher = asyncio.create_task(_watch(job, task, bell))
        try:
            ending = await _turn(job)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        await _finished(job, ending)


async def _turn(job: "wiring.Job") -> dict:
    """Run the turn and say how it ended: arguments for `executions.finish`."""
    store: RunStore = job.store
    try:
        outcome = await run_turn(
            definition=job.definition, instructions=job.instructions, store=store, models=job.models, tools=job.tools, deadline=job.deadline,
            compactor=job.compactor, budget=job.budget, system=(*job.system, *await mcp_tools.read_texts(job.mcp)),
            notes=job.notes, texts=job.texts,
        )
        return {"status": outcome.status, "output": _output(job, outcome)}
    except ModelFailed as error:
        logger.warning("run %s: model failed: %s %s", job.run.id.hex, error.code, error.reference)
        return {"status": Run.Status.FAILED, "error": error.as_dict()}
    except (RunStopped, asyncio.CancelledError, BaseExceptionGroup) as error:
        reason = store.stop_reason or _reason_of(error)
        if reason is None:
            return _failure(job, error)
        return {"stopped": reason}
    except (SubjectFenced, DatabaseError, LetheError, Exception) as error:
        return _failure(job, error)


def _reason_of(error: BaseException) -> str | None:
    """Why a run was stopped from outside, when that is what the error says."""
    if isinstance(error, BaseExceptionGroup):
        reasons = [reason for inner in error.exceptions if (reason := _reason_of(inner))]
        return reasons[0] if reasons else None
    if isinstance(error, RunStopped):
        return error.reason
    if isinstance(error, asyncio.CancelledError):
        return str(error.args[0]) if error.args else "cancelled"
    return None


def _failure(job, error: BaseException) -> dict:
    logger.error("run %s failed", job.run.id.hex, exc_info=error)
    known = error if isinstance(error, LetheError) else storage_full(error)
    told = _told(known, "internal") if known is not None else _INTERNAL
    return {"status": Run.Status.FAILED, "error": told}


def _output(job, outcome) -> dict | None:
    if job.run.session_id is not None:
        return None
    return {"text": outcome.text, "output": outcome.output} if outcome.output is not None else {"text": outcome.text}


async def _finished(job, ending: dict) -> None:
    # The task may have been cancelled: its end is written all the same.
    while (current := asyncio.current_task()) is not None and current.cancelling():
        current.uncancel()
    reason = ending["stopped"] if "stopped" in ending else await _ended(job, ending)
    if reason is None:
        background.after_run(job)
        aggregating.after_run(job)
        return
    if reason == "lease_lost":
        logger.warning("run %s lost its lease", job.run.id.hex)
        return
    if reason == "fenced":
        # Nothing may be written for this subject any more: the erasure removes the run itself.
        logger.info("run %s stopped: its subject is fenced", job.run.id.hex)
        return
    await job.store.settle()
    if reason == "handed_back" and job.run.parent_id is None:
        await in_thread(executions.hand_back, run=job.run)
        return
    status = Run.Status.CANCELLED if reason == "cancelled" else Run.Status.INTERRUPTED
    await in_thread(executions.finish, run=job.run, status=status)


async def _ended(job, ending: dict) -> str | None:
    """Write how the run ended. Returns what stopped it from ending so, if anything did."""
    try:
        await job.store.finish(**ending)
    except RunStopped as stopped:
        return stopped.reason
    except (DatabaseError, LetheError) as error:
        # The last words could not be written with it. That they are missing is how it ended.
        job.store.give_up_last()
        await job.store.finish(**_failure(job, error))
    return None


async def _watch(job, task: asyncio.Task, bell: asyncio.Event) -> None:
    """Renew the lease, and stop the run when it is lost or somebody asks for it: then it writes nothing more.

    The row is the truth: a lost notification is found by the next look. The first is soon: who was asked between the
    beginning and here was told before anybody listened.
    """
    every, clock = settings.LETHE["heartbeat_seconds"], asyncio.get_running_loop().time
    reason, look_at, beat_at = job.run.cancel_reason or None, clock() + _FIRST_LOOK_SECONDS, clock() + every
    while reason is None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(look_at, beat_at)):
                await bell.wait()
        bell.clear()
        is_due = clock() >= beat_at
        try:
            reason = await in_thread(_looked, job, is_due)
        except DatabaseError:
            logger.warning("run %s: heartbeat failed, trying again", job.run.id.hex)
        look_at = clock() + every
        beat_at = look_at if is_due else beat_at
    _stop(job, task, reason if reason in ("cancelled", "lease_lost") else "interrupted")


def _looked(job, is_due: bool) -> str | None:
    """Why the run has to stop, if it has to. Renews the lease when that is due."""
    if is_due and not leases.renew(run_id=job.run.id, session_id=job.run.session_id):
        return "lease_lost"
    return _cancel_reason(job.run.id)


def _cancel_reason(run_id: UUID) -> str | None:
    asked = Run.objects.filter(id=run_id, cancel_requested_at__isnull=False)
    return asked.values_list("cancel_reason", flat=True).first()


def _stop(job, task: asyncio.Task, reason: str) -> None:
    job.store.stop_reason = reason
    task.cancel(reason)


def _loaded(run_id: UUID, fresh: Fresh | None = None) -> "wiring.Job | None":
    """None when the run is over: it was stopped meanwhile, or cannot be executed, which is told."""
    try:
        return wiring.load(run_id, fresh)
    except (LetheError, ModelFailed) as error:
        _fail_early(run_id, error)
        return None


def _loaded_or_left(run_id: UUID, fresh: Fresh) -> "wiring.Job | None":
    """`_loaded` for whoever stored the run, who has no part in what goes wrong from here on."""
    try:
        return _loaded(run_id, fresh)
    except Exception:
        logger.exception(_LEFT, run_id.hex)
        return None


def _ended_already() -> Future:
    ended: Future = Future()
    ended.set_result(None)
    return ended


def _fail_early(run_id: UUID, error: LetheError | ModelFailed) -> None:
    run = Run.objects.filter(id=run_id).first()
    if run is not None:
        told = error.as_dict() if isinstance(error, ModelFailed) else _told(error, "definition")
        executions.finish(run=run, status=Run.Status.FAILED, error=told)


def _told(error: LetheError, kind: str) -> dict:
    return {"class": kind, "code": error.code, "message": error.detail}
