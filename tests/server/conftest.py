"""Lethe as its users run it: `manage.py up` in a data directory of its own, on a port of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lethe:
    """One installation. `start` may be called again after `stop`: the data stays."""

    def __init__(self, directory: Path):
        self.directory, self.port = directory, free_port()
        self.password: str | None = None
        self.output: list[str] = []
        self.said_first = ""
        self._process: subprocess.Popen | None = None
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("LETHE_", "DJANGO_", "PYTEST_"))}
        self._env.update(
            LETHE_DATA_DIR=str(directory), PORT=str(self.port), LETHE_LEASE_SECONDS="4", LETHE_HEARTBEAT_SECONDS="1",
            LETHE_DRAIN_SECONDS="6", LETHE_ALLOW_PRIVATE_PROVIDERS="1", LETHE_WEB_PROCESSES="2", PYTHONUNBUFFERED="1",
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, seconds: float = 300) -> "Lethe":
        self.output.clear()
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "up"], cwd=ROOT, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if any(line.startswith("Lethe ") for line in self.output) and any("Data:" in line for line in self.output):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("Lethe did not start:\n" + "".join(self.output))
        self.said_first = self.said_first or "".join(self.output)
        if found := re.search(r"one-time password (\S+)", "".join(self.output)):
            self.password = found[1]
        return self

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> int:
        """Ctrl-C; returns the exit code once everything has ended."""
        children = self.children()
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(60)
        assert psutil.wait_procs(children, timeout=10)[1] == []
        # The database is nobody's child, and ends with the last who uses it.
        assert not (self.directory / "postgres" / "postmaster.pid").exists()
        self._reader.join(10)
        return code

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def child(self, word: str) -> psutil.Process:
        """The youngest direct child whose command line has `word`."""
        found = [child for child in psutil.Process(self._process.pid).children() if word in child.cmdline()]
        return max(found, key=lambda child: child.create_time())

    def manage(self, *words: str) -> str:
        done = self.run_manage(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run_manage(self, *words: str, **env: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env={**self._env, **env}, capture_output=True, text=True, timeout=300
        )

    def with_server(self, act):
        """`act` while only the database runs: a shell of Django's holds it."""
        script = "from django.db import connection; connection.ensure_connection(); connection.close(); print('up', flush=True); input()"
        holder = subprocess.Popen(
            [sys.executable, "manage.py", "shell", "-v", "0", "-c", script], cwd=ROOT,
            env={**self._env, "LETHE_DATABASE_POOL": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert holder.stdout.readline() == "up\n"
            act()
        finally:
            holder.communicate("\n", timeout=60)

    def client(self, key: str | None = None, **more) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)

    def kill_everything(self):
        """Leave nothing behind, whatever state a failed test left."""
        if self._process is not None and self._process.poll() is None:
            children = self.children()
            self._process.kill()
            for child in children:
                child.kill()
            self._process.wait(10)
        pid_file = self.directory / "postgres" / "postmaster.pid"
        if pid_file.exists():
            os.kill(int(pid_file.read_text().split()[0]), signal.SIGINT)

    def _read(self, stream):
        with stream:
            for line in stream:
                self.output.append(line)


def events_of(response) -> list[dict]:
    """The events of a server-sent stream: {"id", "event", "data"}."""
    found, current = [], {}
    for line in response.iter_lines():
        if not line:
            if "event" in current:
                found.append({**current, "data": json.loads(current["data"])})
            current = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            current[name] = value.strip()
    return found


def until(ask, wanted, seconds=120):
    """What `ask` returns once `wanted` says yes to it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if wanted(found := ask()):
            return found
        time.sleep(0.3)
    raise AssertionError(found)


@pytest.fixture(scope="module")
def lethe(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lethe")
    # PostgreSQL runs as a user of its own when we are root.
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    installation = Lethe(directory)
    try:
        yield installation.start()
        if installation.is_running:
            installation.stop()
    finally:
        installation.kill_everything()
