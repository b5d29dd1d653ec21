"""What a process has read of a tenant a moment ago, where asking the database each time would cost a statement each time."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

_TENANTS = 10_000


class Recent:
    """Remembers something by tenant for so many seconds. Who changes it calls `forget`: this process then knows at once, others
    within the time.
    """

    def __init__(self, *, seconds: float):
        self.seconds = seconds
        self._known: dict[UUID, tuple[float, Any]] = {}

    def get(self, tenant_id: UUID, read: Callable[[], Any]) -> Any:
        found = self._known.get(tenant_id)
        if found is None or time.monotonic() - found[0] > self.seconds:
            if len(self._known) >= _TENANTS:
                self._known.clear()
            found = self._known[tenant_id] = (time.monotonic(), read())
        return found[1]

    def forget(self, tenant_id: UUID) -> None:
        """Now, for the transaction that has changed it, and once more when others can see the change."""
        self._known.pop(tenant_id, None)
        transaction.on_commit(partial(self._known.pop, tenant_id, None))


# Which rows of a tenant are over: see domain/expiry.py.
OVER = Recent(seconds=15.0)
