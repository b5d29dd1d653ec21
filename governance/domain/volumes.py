"""ZIPs of bounded size, encrypted on their way to the disk. Each volume is a ZIP of its own, readable without the others."""

import contextlib
import errno
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from governance.sealed import SealedWriter

PART_BYTES = 2 * 1024**3
# What a volume may still grow by when its limit is seen: the directory of the ZIP, and what the compressor holds back.
_SLACK = 4 * 1024**2
_PROBE = 64 * 1024
# EFBIG: the process may not write files that large.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Volumes:
    """Writes entries into `folder/stem.1.part`, `.2.part` and so on; `files` tells of each entry for a manifest.

    An entry that would pass the limit goes on in the next volume, cut between two of its parts: `items.jsonl` there
    is `items.2.jsonl`. Use as a context manager: an error leaves no readable file.
    """

    def __init__(self, *, folder: Path, stem: str, key: bytes, context: str, limit: int = PART_BYTES):
        self._folder, self._stem, self._key, self._context = folder, stem, key, context
        self._limit = max(limit - _SLACK, limit // 2)
        self.paths: list[Path] = []
        self.files: list[dict[str, Any]] = []

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            self._close()
        else:
            # The ZIP closes into nothing: what was written stays without its end, and can never be read as a whole.
            self._position.is_closed = True
            self._zip.close()
            self._sealed.abandon()
            with contextlib.suppress(OSError):
                self._file.close()

    @property
    def number(self) -> int:
        """The volume that is being written, from 1."""
        return len(self.paths)

    def add(self, name: str, parts: Iterable[bytes], *, count_rows: bool = False, is_last: bool = False) -> int:
        """One entry of `parts`, each of which stays whole. Returns how many there were. The last one is not listed, and goes
        into the volume at hand whatever its size.

        An error raised by `parts` leaves what came before it, and is raised again.
        """
        source, written, number = iter(parts), 0, 1
        part = next(source, None)
        while True:
            if part is not None and not is_last and self._is_over(part):
                self._close()
                self._open()
            part, rows = self._entry(_numbered(name, number), part, source, count_rows, is_last)
            written, number = written + rows, number + 1
            if part is None:
                return written

    def _entry(self, name, part, source, count_rows, is_last) -> tuple[bytes | None, int]:
        """Write until the source or the volume ends. Returns the part that did not fit, and how many did."""
        digest, size, rows = hashlib.sha256(), 0, 0
        info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_STORED if part is not None and _is_dense(part) else zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        try:
            with self._zip.open(info, "w", force_zip64=True) as entry:
                while part is not None:
                    entry.write(part)
                    digest.update(part)
                    size, rows = size + len(part), rows + 1
                    part = next(source, None)
                    if part is not None and not is_last and self._position.tell() >= self._limit:
                        break
        finally:
            if not is_last:
                told = {"path": name, "part": self.number, "bytes": size, "sha256": digest.hexdigest()}
                self.files.append({**told, "rows": rows} if count_rows else told)
        return part, rows

    def _is_over(self, part: bytes) -> bool:
        at = self._position.tell()
        return at >= self._limit or (at > 0 and at + len(part) > self._limit)

    def _open(self) -> None:
        path = self._folder / f"{self._stem}.{len(self.paths) + 1}.part"
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self.paths.append(path)
        self._sealed = SealedWriter(self._file, key=self._key, context=f"{self._context}|{self.number}")
        self._position = _Position(self._sealed)
        self._zip = zipfile.ZipFile(self._position, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=3)

    def _close(self) -> None:
        self._zip.close()
        self._sealed.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _Position(io.RawIOBase):
    """Lets zipfile write into a stream: it can tell where it is and cannot go back. Once closed, it takes and drops."""

    def __init__(self, target: io.RawIOBase):
        self._target, self._at = target, 0
        self.is_closed = False

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._at += len(data) if self.is_closed else self._target.write(data)
        return len(data)

    def tell(self) -> int:
        return self._at


def digest_of(path: Path) -> tuple[str, int]:
    """SHA-256 and bytes of a file, as it lies on the disk."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size


def _numbered(name: str, number: int) -> str:
    if number == 1:
        return name
    head, dot, tail = name.rpartition(".")
    return f"{head}.{number}.{tail}" if dot else f"{name}.{number}"


def _is_dense(part: bytes) -> bool:
    """Pictures, archives and the like: compressing them again only costs time."""
    head = part[:_PROBE]
    return len(head) > 1024 and len(zlib.compress(head, 1)) > 0.9 * len(head)
