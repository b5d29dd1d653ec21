"""The Celery application. Tasks live in each floor's `tasks.py` and carry ids only."""

import os
import threading
from pathlib import Path

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_init, worker_shutting_down

from console import file_queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

file_queue.install()
app = Celery("lethe", task_cls="console.quarantine:QuietTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["governance", "agents", "sessions", "console"])


@setup_logging.connect
def keep_our_logging(**kwargs):
    """Django's LOGGING is the one configuration of every process."""


@app.on_after_configure.connect
def make_queue_folders(sender, **kwargs):
    options = sender.conf.broker_transport_options or {}
    for name in ("data_folder_in", "control_folder"):
        if folder := options.get(name):
            Path(folder).mkdir(parents=True, exist_ok=True)


@worker_init.connect
@beat_init.connect
def pass_the_gate(**kwargs):
    """Refuse to start with a store of personal data that nobody answers for; take nothing in quarantine."""
    from console import gate  # noqa: PLC0415 -- Django is set up by now

    if (reason := gate.reason_not_to_start()) is not None:
        raise SystemExit(reason)


@worker_shutting_down.connect
def drain(**kwargs):
    """A worker that is asked to stop gives its runs time to end, then hands them back."""
    from django.conf import settings  # noqa: PLC0415 -- Django is set up in a worker

    from sessions.engine import runner  # noqa: PLC0415 -- the engine is imported by those who run

    # In a thread of its own: the signal arrives inside the handler that must return.
    threading.Thread(target=runner.drain, args=(settings.LETHE["drain_seconds"] - 5,), name="lethe-drain").start()
