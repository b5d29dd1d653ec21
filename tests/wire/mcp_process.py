"""Starting the MCP server of the tests, and pointing at it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.mcp.targets import Target

ROOT = Path(__file__).resolve().parents[2]
ARGS = ["-m", "tests.wire.mcp_server"]


@dataclass
class HttpServer:
    process: subprocess.Popen
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def target(self, key: str = "http", **values) -> Target:
        return Target(key, "helpful", "http", **{"url": self.url, "timeout": 20.0, **values})


@contextmanager
def http_server() -> Iterator[HttpServer]:
    """A server over HTTP. It listens before it is ready, so that nobody has to wait for it."""
    process = subprocess.Popen([sys.executable, *ARGS, "http"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield HttpServer(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def stdio_target(key: str = "stdio", **values) -> Target:
    """A program that is started when it is called. `secrets` are its environment."""
    given = {"command": sys.executable, "args": (*ARGS, "stdio"), "timeout": 20.0, **values}
    # A program is started outside the repository, and Python looks for modules where it is told to.
    given["secrets"] = {"PYTHONPATH": f"{ROOT}{os.pathsep}", **given.get("secrets", {})}
    return Target(key, "helpful", "stdio", **given)
