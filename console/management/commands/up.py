"""`manage.py up`: everything Lethe needs, in one terminal."""

import os
import subprocess
import sys

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command

from console import demo, supervisor, web_processes
from governance.domain import quarantine


class Command(BaseCommand):
    help = "Start Lethe: database, migrations, demo tenant, web, worker and beat. Ctrl-C stops all of it."

    def handle(self, *args, **options):
        web = web_processes.listen(settings.HOST, settings.PORT, settings.WEB_PROCESSES)
        call_command("migrate", interactive=False, verbosity=0)
        os.environ["LETHE_COLLECTED_STATIC"] = "1"
        self._collect_static()
        reason = quarantine.check()
        # Nothing is written to a database that was restored.
        welcome = demo.ensure() if reason is None else None
        names = [f"web {number}" for number in range(1, len(web) + 1)] if len(web) > 1 else ["web"]
        children = supervisor.Supervisor(
            {name: process.words for name, process in zip(names, web, strict=True)} | self._commands(),
            sockets={name: process.socket for name, process in zip(names, web, strict=True)},
            grace=settings.LETHE["drain_seconds"] + 10,
        )
        children.start()
        if not supervisor.wait_until_ready(settings.HOST, settings.PORT, children):
            children.stop()
            raise CommandError("The web server did not start. The lines above say why.")
        self._greet(welcome)
        if reason is not None:
            print(f"  In quarantine: {quarantine.sentence(reason)}\n", flush=True)
        children.wait()

    def _collect_static(self):
        # In a process of its own: the storage is chosen when settings are loaded.
        done = subprocess.run(
            [sys.executable, "manage.py", "collectstatic", "--noinput", "--clear", "--verbosity", "0"],
            cwd=settings.BASE_DIR, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CommandError(f"The static files could not be written to {settings.STATIC_ROOT}. Is the disk full?")

    def _commands(self):
        python = sys.executable
        return {
            "worker": [
                python, "-W", "ignore:You're running the worker", "-m", "celery", "--quiet", "-A", "console", "worker", "--pool", "threads", "--concurrency", "8",
                "--loglevel", "warning", "--without-gossip", "--without-mingle", "--without-heartbeat",
            ],
            "beat": [python, "-m", "celery", "--quiet", "-A", "console", "beat", "--loglevel", "warning", "--pidfile", ""],
        }  # fmt: skip

    def _greet(self, welcome):
        host = "localhost" if settings.HOST in ("127.0.0.1", "::1") else settings.HOST
        print(f"\nLethe {settings.VERSION} runs at http://{host}:{settings.PORT}  (Ctrl-C stops it)")
        if welcome:
            print(f"  Sign in as {welcome.username} with the one-time password {welcome.password}")
        print(f"  Data: {settings.DATA_DIR}\n", flush=True)
