"""The ledger's files: JSON lines in a folder outside the database, numbered, hash-linked and signed. See docs/ledger.md.

A file holds up to SEGMENT entries and is named by its first number. One process at a time appends, under a lock on the
folder. What a crash left half written is cut off by the next writer: nobody was told that it is there.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from governance import signing
from governance.errors import Unavailable

SCHEMA = "lethe.ledger/1"
SEGMENT = 10_000
NOTHING = "0" * 64


class LedgerUnreachable(Unavailable):
    code, title = "ledger_unreachable", "The ledger cannot be written"
    detail = "The ledger outside the database cannot be reached. Nothing goes on that it must know of; it is tried again."


class LedgerDamaged(Unavailable):
    code, title = "ledger_damaged", "The ledger is not what was written"


@dataclass(frozen=True, slots=True)
class Tail:
    """The last entry: its number and the SHA-256 of its line in hex; 0 and NOTHING for an empty ledger."""

    number: int
    hash: str


def directory() -> Path:
    return Path(settings.LEDGER_DIR)


@contextmanager
def opened() -> Iterator[Tail]:
    """Inside: nobody else appends. Yields where the ledger ends. Raises LedgerUnreachable."""
    try:
        directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(directory() / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise LedgerUnreachable from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tail()
    finally:
        os.close(lock)


def tail() -> Tail:
    """Where the ledger ends. A folder that does not exist is an empty ledger. Raises LedgerUnreachable, LedgerDamaged."""
    for path in reversed(_segments()):
        lines = _whole_lines(path)
        if lines:
            return Tail(_parse(lines[-1], path)["no"], digest(lines[-1]))
    return Tail(0, NOTHING)


def entries(*, after: int = 0) -> Iterator[tuple[dict[str, Any], str]]:
    """(entry, SHA-256 of its line) with a number above `after`. Raises LedgerDamaged where a link, a number or a signature is wrong."""
    number, before = None, None
    for path in _segments():
        for line in _whole_lines(path):
            entry, own = _parse(line, path), digest(line)
            if number is not None and entry["no"] != number + 1 and entry["kind"] != "break_glass":
                raise LedgerDamaged(f"Entry {entry['no']} follows entry {number} in {path.name}.")
            if before is not None and entry["prev"] != before or not signing.is_signed(entry):
                raise LedgerDamaged(f"Entry {entry['no']} in {path.name} was changed, or another installation wrote it.")
            number, before = entry["no"], own
            if number > after:
                yield entry, own


def write(end: Tail, bodies: list[dict[str, Any]], *, first: int | None = None) -> Tail:
    """Number, link, sign and append entries; returns the new end when the disk has them. Only inside `opened`.

    `first` sets the number of the first one, after a break. Raises LedgerUnreachable; then nothing counts as written.
    """
    try:
        for body in bodies:
            number = first or end.number + 1
            first = None
            line = _line({"schema": SCHEMA, "no": number, **body, "prev": end.hash})
            _append(_segment_for(number), line)
            end = Tail(number, digest(line))
    except OSError as error:
        raise LedgerUnreachable from error
    return end


def has_older(*, than: datetime) -> bool:
    """Whether the oldest file is not the newest, and nobody has written to it since. Reads no file."""
    segments = _segments()
    try:
        return len(segments) > 1 and segments[0].stat().st_mtime < than.timestamp()
    except OSError:
        return False


def drop(*, before: datetime) -> int:
    """Delete files all of whose entries are older. The newest file stays, and with it the end of the chain. Only inside
    `opened`. Returns how many entries went.
    """
    gone = 0
    for path in _segments()[:-1]:
        lines = _whole_lines(path)
        if lines and datetime.fromisoformat(_parse(lines[-1], path)["at"]) >= before:
            break
        try:
            path.unlink()
        except OSError as error:
            raise LedgerUnreachable from error
        gone += len(lines)
    return gone


def digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(signing.signed(entry), separators=(",", ":"), sort_keys=True).encode()


def _segments() -> list[Path]:
    try:
        return sorted(path for path in directory().iterdir() if path.name.startswith("ledger-") and path.suffix == ".jsonl")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerUnreachable from error


def _segment_for(number: int) -> Path:
    segments = _segments()
    if segments and number - int(segments[-1].stem.removeprefix("ledger-")) < SEGMENT:
        return segments[-1]
    return directory() / f"ledger-{number:012}.jsonl"


def _whole_lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerUnreachable from error
    return data[: data.rfind(b"\n") + 1].splitlines()


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        entry["no"], entry["kind"], entry["prev"] = int(entry["no"]), str(entry["kind"]), str(entry["prev"])
    except (ValueError, KeyError, TypeError):
        raise LedgerDamaged(f"{path.name} holds a line that is no entry.") from None
    return entry


def _append(path: Path, line: bytes) -> None:
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        end = _end_of_lines(descriptor, size)
        if end != size:
            os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _end_of_lines(descriptor: int, size: int) -> int:
    """Where the last whole line ends."""
    at = size
    while at > 0:
        start = max(0, at - 65536)
        found = os.pread(descriptor, at - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0
