"""Finishing what must be kept."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger("lethe.engine")
T = TypeVar("T")


async def completed(step: Coroutine[Any, Any, T]) -> T:
    """Finish a step that keeps what was paid for, even when the run is cancelled meanwhile."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("could not be kept after a cancel: %s", type(error).__name__)
        raise
