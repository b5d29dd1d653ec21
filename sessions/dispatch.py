"""The way from a stored run to whoever executes it.

The engine is imported with the first run: the model library takes more than a second, and most commands need none.
"""

import logging
import threading
from uuid import UUID

from django.db import transaction
from kombu.exceptions import OperationalError

from agents.definition import Definition
from sessions.domain.opening import Fresh
from sessions.models import Run, Session

logger = logging.getLogger("lethe.dispatch")

# Set when this process shuts down: it takes no new run.
draining = threading.Event()


def submit(run_id: UUID, *, fresh: Fresh | None = None) -> None:
    """Execute the run in this process once the current transaction is committed. A run that was stored a moment ago
    comes along as `fresh`: it is not read again."""

    def now() -> None:
        from sessions.engine import runner  # noqa: PLC0415 -- see above

        runner.submit(run_id, fresh=fresh)

    transaction.on_commit(now)


def enqueue(run_id: UUID) -> None:
    """Have a worker execute the run once the current transaction is committed.

    A broker that cannot be reached, or a full disk under it, loses nothing: the sweeper finds the queued row.
    """

    def now() -> None:
        from sessions.tasks import execute_run  # noqa: PLC0415 -- tasks import the verbs that call this

        try:
            execute_run.delay(str(run_id))
        except (OperationalError, OSError) as error:
            logger.warning("run %s waits for the sweeper: %s", run_id.hex, type(error).__name__)

    transaction.on_commit(now)


def write_down(session_id: UUID) -> None:
    """Have the session's agent write down what is due now that the session has ended, once this transaction is committed."""

    def now() -> None:
        from sessions.engine import aggregating, runner  # noqa: PLC0415 -- see above

        runner.runner().call(aggregating.ended(session_id))

    transaction.on_commit(now)


def summarise(*, session: Session, run: Run, definition: Definition, seq: int, seconds: float) -> str | None:
    """Bring a session's summary up to an item now, and wait for it: None, or the code of why there is none.

    Raises TimeoutError after `seconds`; the work goes on.
    """
    from sessions.engine import background, runner, wiring  # noqa: PLC0415 -- see above

    work = background.now(session=session, run=run, definition=definition, config_of=wiring.config_of, seq=seq)
    return runner.runner().call(work).result(seconds)
