"""What a place for files promises, and what the places have in common.

A `Files` is the plain, blocking form that each place implements; `KnowledgeStore` is the same for coroutines, and the
form in which agents of other frameworks can use it too (it is a superset of AG2's protocol of that name). Paths are
Unix-like, "/notes/plan.md"; folders are implied. A version is the SHA-256 of the content: whoever expects one overwrites
nothing that was not read. `""` expects that there is no such file.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

from governance.errors import storage_full
from governance.text import clean
from sessions.errors import FileChanged, FileTooLarge, StoreUnavailable
from sessions.files import paths

T = TypeVar("T")
OnChange = Callable[[str], Awaitable[None]]
Runner = Callable[..., Awaitable[Any]]


class Files(Protocol):
    """Blocking. Paths and folders arrive as `paths.absolute` and `paths.folder` make them.

    Raises FileChanged for another version than expected, FileTooLarge, StorageFull and StoreUnavailable.
    """

    def read(self, path: str) -> str | None: ...

    def write(self, path: str, text: str, expected: str | None = None) -> str:
        """Returns the new version."""
        ...

    def append(self, path: str, text: str) -> int:
        """Atomic; returns the offset in bytes at which the text begins."""
        ...

    def read_range(self, path: str, start: int, end: int | None = None) -> str:
        """Whole characters that lie in the bytes from `start` to before `end`; empty for a missing file."""
        ...

    def list(self, folder: str) -> list[str]:
        """Names of immediate children, sorted; folders end with a slash."""
        ...

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str, expected: str | None = None) -> bool:
        """Returns whether there was such a file."""
        ...

    def revisions(self, folder: str) -> dict[str, str]:
        """Every file below the folder, or the file of that name, with a text that changes when it does."""
        ...


class Subscription(Protocol):
    async def close(self) -> None:
        """Stop the calls; what is under way ends first."""
        ...


@runtime_checkable
class KnowledgeStore(Protocol):
    async def read(self, path: str) -> str | None: ...

    async def write(self, path: str, content: str, *, expected: str | None = None) -> str: ...

    async def append(self, path: str, content: str) -> int: ...

    async def read_range(self, path: str, start: int, end: int | None = None) -> str: ...

    async def list(self, path: str = "/") -> list[str]: ...

    async def exists(self, path: str) -> bool: ...

    async def delete(self, path: str, *, expected: str | None = None) -> bool: ...

    async def on_change(self, path: str, callback: OnChange) -> Subscription: ...


def version_of(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def text_of(data: bytes) -> str:
    """Bytes as text. A place that others write to may hold what is no UTF-8, or what no database takes: it is replaced."""
    return clean(data.decode("utf-8", "replace"))


def check_version(current: str | bytes | None, expected: str | None) -> None:
    """Raise FileChanged when the stored content is not what the writer has read."""
    if expected is None:
        return
    text = text_of(current) if isinstance(current, bytes) else current
    if expected != ("" if text is None else version_of(text)):
        raise FileChanged(version=None if text is None else version_of(text))


def check_size(size: int, limit: int) -> None:
    if size > limit:
        raise FileTooLarge(size=size, limit=limit)


def whole(data: bytes) -> str:
    """The characters that are complete in a slice of UTF-8."""
    return clean(data.decode("utf-8", "ignore"))


def children(paths: Any, folder: str) -> list[str]:
    """The immediate children of `folder` among full paths."""
    found = set()
    for path in paths:
        if path.startswith(folder):
            head, slash, _ = path[len(folder) :].partition("/")
            found.add(head + slash)
    return sorted(found)


def below(paths: dict[str, str], folder: str) -> dict[str, str]:
    """Those in the folder, and the file that has the folder's own name."""
    return {path: one for path, one in paths.items() if path.startswith(folder) or path == folder.rstrip("/")}


@contextmanager
def told(place: str, *errors: type[BaseException]) -> Iterator[None]:
    """Turn errors of a disk or a server into StorageFull or StoreUnavailable, which say what a person can do."""
    try:
        yield
    except errors as error:
        if (full := storage_full(error)) is not None:
            raise full from error
        raise StoreUnavailable(place) from error


class Polling:
    """Calls back with the path of each file that changed since the last look. Looks when `bell` rings, or by the clock."""

    def __init__(
        self, look: Callable[[], Awaitable[dict[str, str]]], callback: OnChange, *, seconds: float,
        bell: asyncio.Event | None = None, held: ExitStack | None = None,
    ):  # fmt: skip
        self._look, self._callback, self._seconds = look, callback, seconds
        self._bell, self._held = bell or asyncio.Event(), held or ExitStack()
        self._task: asyncio.Task | None = None

    async def start(self) -> "Polling":
        known = await self._look()
        self._task = asyncio.create_task(self._watch(known))
        return self

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._held.close()

    async def _watch(self, known: dict[str, str]) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), self._seconds)
            self._bell.clear()
            try:
                now = await self._look()
            except StoreUnavailable:
                # It is looked again; what changed meanwhile is found then.
                continue
            for path in sorted(path for path in known.keys() | now.keys() if known.get(path) != now.get(path)):
                await self._callback(path)
            known = now


class Threaded:
    """A KnowledgeStore over a `Files` that blocks: each call is made in a thread by `runner`."""

    # Seconds between looks for changes, where nothing rings.
    poll_seconds = 1.0

    def __init__(self, files: Files, runner: Runner = asyncio.to_thread):
        self.files = files
        self._run = runner

    async def read(self, path: str) -> str | None:
        return await self._run(self.files.read, paths.absolute(path))

    async def write(self, path: str, content: str, *, expected: str | None = None) -> str:
        return await self._run(self.files.write, paths.absolute(path), clean(content), expected)

    async def append(self, path: str, content: str) -> int:
        return await self._run(self.files.append, paths.absolute(path), clean(content))

    async def read_range(self, path: str, start: int, end: int | None = None) -> str:
        start, end = max(start, 0), None if end is None else max(end, 0)
        if end is not None and end <= start:
            return ""
        return await self._run(self.files.read_range, paths.absolute(path), start, end)

    async def list(self, path: str = "/") -> list[str]:
        return await self._run(self.files.list, paths.folder(path))

    async def exists(self, path: str) -> bool:
        return await self._run(self.files.exists, paths.absolute(path))

    async def delete(self, path: str, *, expected: str | None = None) -> bool:
        return await self._run(self.files.delete, paths.absolute(path), expected)

    async def on_change(self, path: str, callback: OnChange) -> Subscription:
        """`callback(path)` for each file at or below `path` that changed. What changes between two looks is one change."""
        folder = paths.folder(path)

        async def look() -> dict[str, str]:
            return await self._run(self.files.revisions, folder)

        return await Polling(look, callback, seconds=self.poll_seconds).start()
