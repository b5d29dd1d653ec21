"""Find Redis for the tests of its store, or install Debian's: `python -m tests.redis_server`."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

from tests.programs import Program

PROGRAM = Program(
    title="redis-server",
    package="redis-server",
    variable="LETHE_REDIS_SERVER",
    names=("redis-server", "valkey-server"),
    purpose="The tests of files in Redis need its server.",
)


class Server:
    """A Redis of the tests' own, on a socket in a folder of its own: nothing on disk, no port."""

    def __init__(self, *options: str):
        self._folder = Path(tempfile.mkdtemp(prefix="lethe-redis-"))
        self._socket = self._folder / "redis.sock"
        self.url = f"unix://{self._socket}?db=0"
        program = PROGRAM.find()
        assert program, "redis-server is missing: run `python -m tests.redis_server`"
        self._process = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no",
             "--dir", str(self._folder), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    assert self._process.poll() is None, "redis-server did not start"
                    assert time.monotonic() < deadline, "redis-server does not answer"
                    time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(PROGRAM.main())
