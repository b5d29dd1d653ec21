"""Identifiers: UUIDv7 (RFC 9562), ordered by time, shown with a prefix that says what they name."""

import os
import time
import uuid

from governance.errors import NotFound


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, 12 bits of what is beyond them, so that ids of one millisecond are in
    order too, then random bits (RFC 9562, sections 5.7 and 6.2, method 3).
    """
    milliseconds, beyond = divmod(time.time_ns(), 1_000_000)
    value = milliseconds << 80 | (beyond * 4096 // 1_000_000) << 64 | int.from_bytes(os.urandom(8), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def shown(prefix: str, value: uuid.UUID) -> str:
    """`shown("run", id)` is `run_0198...`: how an id looks outside."""
    return f"{prefix}_{value.hex}"


def parse(prefix: str, text: str) -> uuid.UUID:
    """Read an id as `shown` writes it, or as a plain UUID. Raises NotFound: a malformed id names nothing."""
    try:
        return uuid.UUID(text.removeprefix(f"{prefix}_"))
    except (ValueError, AttributeError):
        raise NotFound from None
