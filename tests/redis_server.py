"""Find Redis for the tests of its store, or install Debian's: `python -m tests.redis_server`."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis


def find() -> str | None:
    """The path of a redis-server, from LETHE_REDIS_SERVER or the PATH; None when there is none."""
    named = os.environ.get("LETHE_REDIS_SERVER")
    if named:
        return named if os.access(named, os.X_OK) else None
    return shutil.which("redis-server") or shutil.which("valkey-server")


def install() -> bool:
    """Debian's package, when this may be done here: as root, with apt."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "redis-server"]):
        done = subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            return False
    return True


def main() -> int:
    if find():
        return 0
    sys.stderr.write("The tests of files in Redis need its server. Installing Debian's package.\n")
    if install() and find():
        return 0
    sys.stderr.write(
        "redis-server is missing and could not be installed. Install it (Debian, Ubuntu: `apt-get install redis-server` as "
        "root), or set LETHE_REDIS_SERVER to its path.\n"
    )
    return 1


class Server:
    """A Redis of the tests' own, on a socket in a folder of its own: nothing on disk, no port."""

    def __init__(self, *options: str):
        self._folder = Path(tempfile.mkdtemp(prefix="lethe-redis-"))
        self._socket = self._folder / "redis.sock"
        self.url = f"unix://{self._socket}?db=0"
        program = find()
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
    sys.exit(main())
