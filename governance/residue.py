"""Looks for given texts everywhere, without asking the register what there is: the register may be what is wrong.

Level 1 reads what a program could read: every column of every table, and every file beside the database. Level 2 reads
the database's own files, level 3 its write-ahead log and the backups. A hit names the place, never the text.
"""

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

BLOCK = 4 * 1024 * 1024
# What lies in the database's folder and is written by other rules than its tables.
WAL = "pg_wal"


@dataclass(frozen=True, slots=True)
class Hit:
    level: int
    place: str
    number: int


def scan(*, canaries: list[str], level: int = 1) -> Iterator[Hit]:
    """Every place in which one of the texts stands. Levels 2 and 3 need to read the database's folder."""
    needles = forms(canaries)
    yield from _tables(canaries)
    for folder in _folders():
        yield from _files(folder, needles, level=1, leave_out=database_folder())
    if level >= 2:
        checkpoint()
        yield from _files(database_folder(), needles, level=2, leave_out=database_folder() / WAL)
    if level >= 3:
        yield from _files(database_folder() / WAL, needles, level=3)
        if settings.BACKUP_DIR is not None:
            yield from _files(settings.BACKUP_DIR, needles, level=3)


def forms(canaries: list[str]) -> list[bytes]:
    """A text as it may be stored: UTF-8, UTF-16, and the hexadecimal digits of either a dump or a bytea column."""
    found = []
    for canary in canaries:
        plain = canary.encode()
        found += [plain, canary.encode("utf-16-le"), plain.hex().encode()]
    return found


def database_folder() -> Path:
    """The database's own folder, of the embedded server or as the server says. Raises ValueError where it is out of reach."""
    embedded = settings.DATABASES["default"].get("DATA_DIR")
    if embedded:
        return Path(embedded) / "postgres"
    with connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        folder = Path(cursor.fetchone()[0])
    if not folder.is_dir():
        raise ValueError(f"The database's folder {folder} is not on this machine.")
    return folder


def checkpoint() -> None:
    """Have the server write what it only holds in memory."""
    with connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")


def _tables(canaries: list[str]) -> Iterator[Hit]:
    """Every row of every table of every schema as text, materialised views included; bytea shows as hexadecimal."""
    patterns = [f"%{_escaped(text)}%" for canary in canaries for text in (canary, canary.encode().hex())]
    with connection.cursor() as cursor:
        for table in _named(cursor, may_read=True):
            # Some of the catalogue's columns have no array form; a row as a whole always has a text.
            cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text ILIKE ANY(%s)", [patterns])
            if number := cursor.fetchone()[0]:
                yield Hit(1, f"table {table}", number)


def unread() -> list[str]:
    """Tables that the database keeps from this role. Some of the server's own are for superusers only."""
    with connection.cursor() as cursor:
        return _named(cursor, may_read=False)


def _named(cursor, *, may_read: bool) -> list[str]:
    cursor.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg_toast%%'"
        " AND has_table_privilege(c.oid, 'SELECT') = %s ORDER BY 1",
        [may_read],
    )
    return [name for (name,) in cursor.fetchall()]


def _folders() -> list[Path]:
    """Whatever Lethe writes beside the database: exports, queue, secrets, static files, ledger, checkpoints, archive."""
    folders = {Path(settings.DATA_DIR), Path(settings.LEDGER_DIR), Path(settings.ANCHOR_DIR)}
    folders |= {Path(settings.ARCHIVE_DIR)} if settings.ARCHIVE_DIR else set()
    return sorted(folder for folder in folders if not any(folder != other and folder.is_relative_to(other) for other in folders))


def _files(folder: Path, needles: list[bytes], *, level: int, leave_out: Path | None = None) -> Iterator[Hit]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if leave_out is not None and path.is_relative_to(leave_out):
            continue
        if any(needle.decode("latin-1") in path.name for needle in needles):
            yield Hit(level, f"name {path}", 1)
        if path.is_file() and not path.is_symlink():
            try:
                number = _in_file(path, needles)
            except (FileNotFoundError, ProcessLookupError):
                # A server at work removes files of its own.
                continue
            if number:
                yield Hit(level, f"file {path}", number)


def _in_file(path: Path, needles: list[bytes]) -> int:
    """Occurrences in the file as it is, and unpacked when it is an archive."""
    with path.open("rb") as file:
        number = _count(file, needles)
        file.seek(0)
        head = file.read(4)
    try:
        return number + sum(_count(stream, needles) for stream in _unpacked(path, head))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        # Not an archive after all, or one that is damaged or encrypted: its bytes were read.
        return number


def _unpacked(path: Path, head: bytes) -> Iterator:
    if head[:2] == b"\x1f\x8b":
        with gzip.open(path) as file:
            yield file
    elif head == b"PK\x03\x04":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    yield file


def _count(stream, needles: list[bytes]) -> int:
    """Occurrences, also across the edges of blocks."""
    longest, kept, number = max(map(len, needles)) - 1, b"", 0
    while block := stream.read(BLOCK):
        data = kept + block
        kept = data[-longest:] if longest else b""
        for needle in needles:
            number += data.count(needle) - kept.count(needle)
    return number + sum(kept.count(needle) for needle in needles)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
