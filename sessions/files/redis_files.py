"""Files in Redis: one string for each file, and their names in a hash with a text that changes when they do.

Each change is one transaction, watched where it depends on what is stored; offsets and ranges are bytes, as Redis counts.
"""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError, WatchError

from governance.errors import StorageFull
from sessions.errors import StoreUnavailable
from sessions.files import store

T = TypeVar("T")
_PLACE = "in Redis"
_ATTEMPTS = 200


class RedisFiles:
    def __init__(self, url: str, *, prefix: str = "lethe:files", limit: int, timeout: float = 5.0):
        self._redis = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        self._prefix, self._limit = prefix, limit
        self._index = f"{prefix}:names"

    def close(self) -> None:
        self._redis.close()

    def read(self, path: str) -> str | None:
        data = self._ask(lambda: self._redis.get(self._key(path)))
        return None if data is None else store.text_of(data)

    def write(self, path: str, text: str, expected: str | None = None) -> str:
        data = text.encode()
        store.check_size(len(data), self._limit)

        def change(pipe) -> None:
            if expected is not None:
                store.check_version(pipe.get(self._key(path)), expected)
            pipe.multi()
            pipe.set(self._key(path), data)

        self._change(path, change)
        return store.version_of(data)

    def append(self, path: str, text: str) -> int:
        data = text.encode()

        def change(pipe) -> None:
            store.check_size(pipe.strlen(self._key(path)) + len(data), self._limit)
            pipe.multi()
            pipe.append(self._key(path), data)

        return self._change(path, change) - len(data)

    def read_range(self, path: str, start: int, end: int | None = None) -> str:
        return store.whole(self._ask(lambda: self._redis.getrange(self._key(path), start, -1 if end is None else end - 1)))

    def list(self, folder: str) -> list[str]:
        return store.children(self._revisions(), folder)

    def exists(self, path: str) -> bool:
        return self._ask(lambda: self._redis.hexists(self._index, path))

    def delete(self, path: str, expected: str | None = None) -> bool:
        def change(pipe) -> None:
            if expected is not None:
                store.check_version(pipe.get(self._key(path)), expected)
            pipe.multi()
            pipe.hdel(self._index, path)
            pipe.delete(self._key(path))

        return bool(self._watched(path, change))

    def revisions(self, folder: str) -> dict[str, str]:
        return store.below(self._revisions(), folder)

    def _revisions(self) -> dict[str, str]:
        found = self._ask(lambda: self._redis.hgetall(self._index))
        return {path.decode(): number.decode() for path, number in found.items()}

    def _change(self, path: str, change: Callable[[Any], None]) -> Any:
        def noted(pipe) -> None:
            change(pipe)
            # Not a count from one: a file that was deleted and made again is another one.
            pipe.hset(self._index, path, f"{time.time_ns()}-{random.getrandbits(32)}")

        return self._watched(path, noted)

    def _watched(self, path: str, change: Callable[[Any], None]) -> Any:
        """Run the transaction that `change` queues until nobody came between; returns the first command's answer."""

        def attempt() -> Any:
            for _ in range(_ATTEMPTS):
                with self._redis.pipeline() as pipe:
                    try:
                        pipe.watch(self._key(path))
                        change(pipe)
                        return pipe.execute()[0]
                    except WatchError:
                        continue
            raise StoreUnavailable(_PLACE)

        return self._ask(attempt)

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except ResponseError as error:
            if isinstance(error, OutOfMemoryError) or "MISCONF" in str(error) or "OOM" in str(error):
                raise StorageFull(
                    "The memory of Redis, where files are kept, is full. Nothing was stored; make room there and try again."
                ) from error
            raise StoreUnavailable(_PLACE) from error
        except RedisError as error:
            raise StoreUnavailable(_PLACE) from error

    def _key(self, path: str) -> str:
        return f"{self._prefix}:file:{path}"
