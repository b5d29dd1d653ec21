"""Child processes of `manage.py up`: started together, restarted when one dies, stopped together."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from django.conf import settings

_RESTART_SECONDS = 1.0
_STABLE_SECONDS = 30.0
_GIVE_UP_AFTER = 5


class Supervisor:
    """Runs named commands. One that dies is started again; one that keeps dying ends all of them."""

    def __init__(self, commands: dict[str, list[str]], *, grace: float, sockets: dict[str, socket.socket] | None = None):
        """`sockets` are what commands inherit, by their names, under the numbers that the sockets have here."""
        self._commands, self._grace, self._sockets = commands, grace, sockets or {}
        self._children: dict[str, subprocess.Popen] = {}
        self._started_at: dict[str, float] = {}
        self._failures: dict[str, int] = dict.fromkeys(commands, 0)
        self._stopping = threading.Event()

    def start(self):
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: self._stopping.set())
        for name in self._commands:
            self._launch(name)

    @property
    def alive(self) -> bool:
        return not self._stopping.is_set() and all(child.poll() is None for child in self._children.values())

    def wait(self):
        """Watch the children until a signal asks to stop, or one of them cannot be kept running."""
        while not self._stopping.wait(0.3):
            for name, child in list(self._children.items()):
                if child.poll() is not None:
                    self._restart(name, child.returncode)
        self.stop()

    def stop(self):
        """Ask every child to end, in order; end what has not after the grace."""
        print("Stopping; running work may end or is handed back.", flush=True)
        for opened in self._sockets.values():
            opened.close()
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace
        for name, child in self._children.items():
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"{name} did not stop in time and is ended.", flush=True)
                child.kill()
                child.wait()

    def _launch(self, name: str):
        # A session of its own: Ctrl-C reaches the supervisor, which tells the children once.
        self._children[name] = subprocess.Popen(
            self._commands[name], cwd=settings.BASE_DIR, env=os.environ.copy(), start_new_session=True, stdin=subprocess.DEVNULL,
            pass_fds=[self._sockets[name].fileno()] if name in self._sockets else [],
        )  # fmt: skip
        self._started_at[name] = time.monotonic()

    def _restart(self, name: str, code: int):
        if time.monotonic() - self._started_at[name] > _STABLE_SECONDS:
            self._failures[name] = 0
        self._failures[name] += 1
        if self._failures[name] > _GIVE_UP_AFTER:
            print(f"{name} keeps ending (exit code {code}); giving up.", file=sys.stderr, flush=True)
            self._stopping.set()
            return
        print(f"{name} ended (exit code {code}) and is started again.", file=sys.stderr, flush=True)
        self._stopping.wait(_RESTART_SECONDS * self._failures[name])
        if not self._stopping.is_set():
            self._launch(name)


def wait_until_ready(host: str, port: int, children: Supervisor, seconds: float = 90) -> bool:
    """Whether the web server answers before one of the children dies."""
    shown = f"[{host}]" if ":" in host else host
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and children.alive:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(
            f"http://{'127.0.0.1' if host == '0.0.0.0' else shown}:{port}/healthz", timeout=2
        ) as answer:
            if answer.status == 200:
                return True
        time.sleep(0.1)
    return False
