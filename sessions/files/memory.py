"""Files in the memory of this process: for tests, and for what may be forgotten."""

import threading

from sessions.files import store


class MemoryFiles:
    def __init__(self, *, limit: int):
        self._limit = limit
        self._files: dict[str, bytes] = {}
        self._revisions: dict[str, int] = {}
        self._lock = threading.Lock()

    def read(self, path: str) -> str | None:
        data = self._files.get(path)
        return None if data is None else data.decode()

    def write(self, path: str, text: str, expected: str | None = None) -> str:
        data = text.encode()
        store.check_size(len(data), self._limit)
        with self._lock:
            store.check_version(self._files.get(path), expected)
            self._put(path, data)
        return store.version_of(data)

    def append(self, path: str, text: str) -> int:
        data = text.encode()
        with self._lock:
            before = self._files.get(path, b"")
            store.check_size(len(before) + len(data), self._limit)
            self._put(path, before + data)
        return len(before)

    def read_range(self, path: str, start: int, end: int | None = None) -> str:
        return store.whole(self._files.get(path, b"")[start:end])

    def list(self, folder: str) -> list[str]:
        return store.children(list(self._files), folder)

    def exists(self, path: str) -> bool:
        return path in self._files

    def delete(self, path: str, expected: str | None = None) -> bool:
        with self._lock:
            current = self._files.get(path)
            if current is None and expected is None:
                return False
            store.check_version(current, expected)
            if current is None:
                return False
            del self._files[path]
            self._revisions[path] = self._revisions.get(path, 0) + 1
        return True

    def revisions(self, folder: str) -> dict[str, str]:
        with self._lock:
            return store.below({path: str(self._revisions[path]) for path in self._files}, folder)

    def _put(self, path: str, data: bytes) -> None:
        self._files[path] = data
        self._revisions[path] = self._revisions.get(path, 0) + 1
