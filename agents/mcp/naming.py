"""How tools of MCP servers are called in definitions and by models: `server__tool`, in the letters that providers take."""

import hashlib
import re

SEPARATOR = "__"
SERVER_NAME = r"^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$"
MAX_SERVER_NAME = 32
_LONGEST = 64


def offered_name(server: str, tool: str) -> str:
    """The name of a server's tool. Letters that no provider takes become _, and what is too long ends in a hash."""
    name = f"{server}{SEPARATOR}{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def server_of(name: str) -> str | None:
    """The server in the name of a tool; None when it has the form of no server's tool."""
    server, separator, tool = name.partition(SEPARATOR)
    return server if separator and tool and re.fullmatch(SERVER_NAME, server) else None
