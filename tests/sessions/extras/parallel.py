"""Work done by many threads at once, each with a connection of its own."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection


def in_parallel(number: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work(index)` in `number` threads that start together; returns results, or exceptions, in order."""
    results: list[Any] = [None] * number
    barrier = threading.Barrier(number)

    def call(index: int) -> None:
        barrier.wait()
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=call, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
