"""Web processes that share a port: one interpreter computes on one processor.

Each has a socket of its own, which whoever starts it opens and keeps; the kernel spreads the connections over them. Who
connects while a process is started again waits in its socket's queue.
"""

import socket
import sys
from dataclasses import dataclass

from django.conf import settings
from django.core.management import CommandError

_QUEUE = 2048


@dataclass(frozen=True, slots=True)
class Listening:
    """A command line, and the socket that its process inherits."""

    words: list[str]
    socket: socket.socket


def listen(host: str, port: int, number: int) -> list[Listening]:
    """`number` web processes, not yet started. Raises CommandError when something else listens there."""
    # Asked without sharing: a second Lethe would be given a part of what is meant for the first.
    _bound(host, port, shared=False).close()
    return [_listening(_bound(host, port, shared=number > 1)) for _ in range(number)]


def _listening(bound: socket.socket) -> Listening:
    bound.listen(_QUEUE)
    words = [
        sys.executable, "-m", "uvicorn", "console.asgi:application", "--fd", str(bound.fileno()), "--loop", "uvloop",
        "--http", "httptools", "--log-level", "warning", "--no-access-log", "--no-server-header",
        "--timeout-graceful-shutdown", str(settings.LETHE["drain_seconds"]),
    ]  # fmt: skip
    return Listening(words, bound)


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise CommandError(f"Port {port} on {host} cannot be used ({error.strerror}). Choose another one: PORT=8001 make up") from None
    return bound
