"""The Celery application. Tasks live in each floor's `tasks.py` and carry ids only."""

import os
from pathlib import Path

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("lethe")
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
