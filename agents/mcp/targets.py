"""Values that cross the border to MCP servers."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is. `key` changes with every change of its row; `secrets` are headers, or environment variables.

    `timeout` is how long one call may take, in seconds.
    """

    key: str
    name: str
    transport: str
    url: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    secrets: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers. `tools` as {"name", "offered", "description", "schema", "reads"}, `resources` as {"uri",
    "name", "description", "mime_type"}, with "is_template" where the URI has places to fill; `left_out` has sentences."""

    tools: list[dict[str, Any]]
    resources: list[dict[str, Any]]
    left_out: list[str]
    instructions: str = ""


class McpFailed(Exception):
    """A server that cannot be used now. `code` is stable, the text a sentence for a person or a model."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code, self.message = code, message


class ToolError(Exception):
    """What the server itself says went wrong with a call; its words are for the model."""
