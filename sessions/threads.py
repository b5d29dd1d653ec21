"""Database work of the engine, off its event loop.

The engine is asynchronous, Django's ORM is not. One pool of threads a process serves all runs; each call borrows a
connection and gives it back, so a run that waits for a model holds none.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a database thread and return what it returns."""
    global _pool  # noqa: PLW0603 -- one pool a process, made on first use so that it is never carried over a fork
    if _pool is None:
        _pool = ThreadPoolExecutor(settings.LETHE["engine_threads"], thread_name_prefix="lethe-db")
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(_borrowing, function, *args, **kwargs))


def _borrowing(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    finally:
        connection.close()
