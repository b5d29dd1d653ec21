"""Files in a folder of this machine, readable as what they are.

A folder is "d-name", a file "f-name", so both may have the same name; a name that is longer than file systems take is
cut into pieces "c-...". One lock of the operating system serves all processes that share the folder; a file is replaced
as a whole, so a reader sees the old content or the new one.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sessions.files import store

# Characters of UTF-8 have at most 4 bytes, and names of files 255.
_PIECE = 60
_PLACE = "on disk"


class DiskFiles:
    def __init__(self, root: Path, *, limit: int):
        self.root, self._limit = Path(root), limit

    def read(self, path: str) -> str | None:
        data = self._bytes(path)
        return None if data is None else store.text_of(data)

    def write(self, path: str, text: str, expected: str | None = None) -> str:
        data = text.encode()
        store.check_size(len(data), self._limit)
        with self._alone():
            store.check_version(self._bytes(path) if expected is not None else None, expected)
            self._replace(self._place(path), data)
        return store.version_of(data)

    def append(self, path: str, text: str) -> int:
        data = text.encode()
        with self._alone():
            place = self._place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(place, "ab") as file:
                offset = file.tell()
                store.check_size(offset + len(data), self._limit)
                try:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    # All of it or nothing.
                    with suppress(OSError):
                        file.truncate(offset)
                    raise
        return offset

    def read_range(self, path: str, start: int, end: int | None = None) -> str:
        with store.told(_PLACE, OSError):
            try:
                with open(self._place(path), "rb") as file:
                    file.seek(start)
                    return store.whole(file.read() if end is None else file.read(end - start))
            except (FileNotFoundError, NotADirectoryError):
                return ""

    def list(self, folder: str) -> list[str]:
        with store.told(_PLACE, OSError):
            return sorted(_children(self._folder(folder)))

    def exists(self, path: str) -> bool:
        with store.told(_PLACE, OSError):
            return self._place(path).is_file()

    def delete(self, path: str, expected: str | None = None) -> bool:
        with self._alone():
            place = self._place(path)
            if expected is not None:
                store.check_version(self._bytes(path), expected)
            try:
                place.unlink()
            except FileNotFoundError:
                return False
            self._prune(place.parent)
        return True

    def revisions(self, folder: str) -> dict[str, str]:
        with store.told(_PLACE, OSError):
            found = dict(_walk(self._folder(folder), folder))
            if folder != "/" and (place := self._place(folder.rstrip("/"))).is_file():
                found[folder.rstrip("/")] = _revision(place)
            return found

    def _bytes(self, path: str) -> bytes | None:
        with store.told(_PLACE, OSError):
            try:
                return self._place(path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with store.told(_PLACE, OSError):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self.root / ".lock", "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def _replace(self, place: Path, data: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.root, prefix=".new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def _prune(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _place(self, path: str) -> Path:
        *folders, name = path.strip("/").split("/")
        return self.root.joinpath(*(piece for one in folders for piece in _pieces("d", one)), *_pieces("f", name))

    def _folder(self, folder: str) -> Path:
        return self.root.joinpath(*(piece for one in folder.strip("/").split("/") if one for piece in _pieces("d", one)))


def _pieces(kind: str, name: str) -> list[str]:
    parts = [name[at : at + _PIECE] for at in range(0, len(name), _PIECE)]
    return [*(f"c-{part}" for part in parts[:-1]), f"{kind}-{parts[-1]}"]


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _named(folder: Path, before: str = "") -> Iterator[tuple[str, str, Path]]:
    """(kind, whole name, place) of what is in a folder."""
    for entry in _entries(folder):
        kind, _, part = entry.name.partition("-")
        if kind == "c":
            yield from _named(Path(entry.path), before + part)
        elif kind in ("d", "f"):
            yield kind, before + part, Path(entry.path)


def _children(folder: Path) -> set[str]:
    return {name + ("/" if kind == "d" else "") for kind, name, _ in _named(folder)}


def _walk(folder: Path, path: str) -> Iterator[tuple[str, str]]:
    for kind, name, place in _named(folder):
        if kind == "d":
            yield from _walk(place, f"{path}{name}/")
        else:
            with suppress(FileNotFoundError):
                yield path + name, _revision(place)


def _revision(place: Path) -> str:
    found = place.stat()
    return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"
