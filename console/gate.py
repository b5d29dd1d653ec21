"""The boot gate: a process that could keep personal data nobody answers for does not start.

Servers do not run Django's system checks by themselves, so web, worker and beat ask here.
"""

import logging

from django.db import connection

from governance import checks
from governance.domain import quarantine

logger = logging.getLogger("lethe.gate")


def reason_not_to_start() -> str | None:
    """What is wrong with the register of personal data, or None. Each finding is logged with its id.

    Also looks whether the database was restored: such a process starts, and serves nothing.
    """
    try:
        found = checks.problems()
        quarantine.enter()
    finally:
        connection.close()
    for problem in found:
        logger.error("%s: %s", problem.id, problem.msg)
    if not found:
        return None
    return f"{len(found)} stores of personal data are not accounted for; the log names each of them."
