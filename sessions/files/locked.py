"""One writer at a time, over any store: for a place without versions, and for changes that read before they write."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessions.files import paths
from sessions.files.store import KnowledgeStore, OnChange, Subscription


class LockedStore:
    """A KnowledgeStore whose writes to one path follow one another, within one event loop.

    `async with store.lock(path):` lets a caller read and write as one; writes inside are made on `store.inner`.
    """

    def __init__(self, inner: KnowledgeStore):
        self.inner = inner
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._users: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def lock(self, path: str) -> AsyncIterator[None]:
        path = paths.absolute(path)
        self._users[path] += 1
        try:
            async with self._locks[path]:
                yield
        finally:
            self._users[path] -= 1
            if not self._users[path]:
                del self._users[path], self._locks[path]

    async def read(self, path: str) -> str | None:
        return await self.inner.read(path)

    async def write(self, path: str, content: str, *, expected: str | None = None) -> str:
        async with self.lock(path):
            return await self.inner.write(path, content, expected=expected)

    async def append(self, path: str, content: str) -> int:
        async with self.lock(path):
            return await self.inner.append(path, content)

    async def read_range(self, path: str, start: int, end: int | None = None) -> str:
        return await self.inner.read_range(path, start, end)

    async def list(self, path: str = "/") -> list[str]:
        return await self.inner.list(path)

    async def exists(self, path: str) -> bool:
        return await self.inner.exists(path)

    async def delete(self, path: str, *, expected: str | None = None) -> bool:
        async with self.lock(path):
            return await self.inner.delete(path, expected=expected)

    async def on_change(self, path: str, callback: OnChange) -> Subscription:
        return await self.inner.on_change(path, callback)
