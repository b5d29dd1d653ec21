"""What a fake provider answers: one script for all protocols."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """A tool call, its arguments sent in `pieces` parts."""

    name: str
    arguments: str = "{}"
    id: str = "call_1"
    pieces: int = 3

    def parts(self) -> list[str]:
        size = max(1, -(-len(self.arguments) // self.pieces))
        return [self.arguments[at : at + size] for at in range(0, len(self.arguments), size)] or [""]


@dataclass
class Say:
    """An answer. `text` is sent piece by piece with `pause` seconds between.

    `end` is how it ends: "finish", "cut" (the stream closes in order, without a finish), "reset" (the connection
    breaks), "hang" (nothing more comes), "error" (an error event inside the stream). `usage` of None sends none:
    (input, cached, output, reasoning), input with what was cached.
    """

    text: list[str] = field(default_factory=list)
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    usage: tuple[int, int, int, int] | None = (100, 40, 20, 7)
    finish: str = "stop"
    end: str = "finish"
    pause: float = 0.0
    refusal: str = ""
    # What the provider looks up by itself before it answers; `paused`: it wants to go on (Anthropic's pause_turn).
    searches: list[str] = field(default_factory=list)
    paused: bool = False


@dataclass
class Status:
    """An HTTP error, or any other body in place of a stream."""

    status: int
    body: str = '{"error": {"message": "secret detail of the provider"}}'
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass
class Hang:
    """The request is taken and never answered."""


@dataclass
class Reset:
    """The connection breaks before any answer."""


Reply = Say | Status | Hang | Reset


def said(text: str, **options: Any) -> Say:
    words = text.split(" ")
    return Say([word if index == 0 else f" {word}" for index, word in enumerate(words)], **options)


def calling(*calls: Call, **options: Any) -> Say:
    return Say(calls=list(calls), finish="tool_calls", **options)


RATE_LIMITED = Status(429, '{"error": {"message": "slow down", "type": "rate_limit_error"}}', {"retry-after": "0"})
OVERLOADED = Status(503, '{"error": {"message": "overloaded", "type": "overloaded_error"}}')
FAILING = Status(500, '{"error": {"message": "boom", "type": "server_error"}}')
UNAUTHORIZED = Status(401, '{"error": {"message": "bad key sk-very-secret", "type": "authentication_error"}}')
HTML = Status(200, "<html><body>Welcome to the proxy</body></html>", content_type="text/html")
GARBAGE = Status(200, "data: {not json\n\n", content_type="text/event-stream")
