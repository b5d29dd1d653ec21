"""The way from a stored run to whoever executes it.

The engine is imported with the first run: the model library takes more than a second, and most commands need none.
"""

import threading
from uuid import UUID

from django.db import transaction

# Set when this process shuts down: it takes no new run.
draining = threading.Event()


def submit(run_id: UUID) -> None:
    """Execute the run in this process once the current transaction is committed."""

    def now() -> None:
        from sessions.engine import runner  # noqa: PLC0415 -- see above

        runner.submit(run_id)

    transaction.on_commit(now)


def enqueue(run_id: UUID) -> None:
    """Have a worker execute the run once the current transaction is committed."""
    from sessions.tasks import execute_run  # noqa: PLC0415 -- tasks import the verbs that call this

    execute_run.delay_on_commit(str(run_id))
