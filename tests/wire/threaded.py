"""A fake provider for tests and benches that have no event loop of their own: it runs in a thread."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.wire.replies import Reply
from tests.wire.server import FakeProvider


@contextmanager
def serving(protocol: str, *script: Reply) -> Iterator[FakeProvider]:
    """The provider, ready; its `script` may be extended while it serves."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-provider", daemon=True)
    thread.start()
    provider = FakeProvider(protocol, *script)
    asyncio.run_coroutine_threadsafe(provider.__aenter__(), loop).result(10)
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(provider.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def wait_for_calls(provider: FakeProvider, number: int, seconds: float = 30) -> None:
    """Return once the provider was asked `number` times."""
    deadline = time.monotonic() + seconds
    while len(provider.bodies) < number:
        assert time.monotonic() < deadline, f"asked {len(provider.bodies)} times, not {number}"
        time.sleep(0.02)
