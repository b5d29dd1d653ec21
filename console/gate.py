"""The boot gate: a process that could keep personal data nobody answers for does not start.

Servers do not run Django's system checks by themselves, so web, worker and beat ask here.
"""

import logging

from django.db import connection

from governance import checks
from governance.domain import quarantine

logger = logging.getLogger("lethe.gate")


def reason_not_to_start() -> str | None:
    """What is wrong with the register of personal data or its guards, or None. Each finding is logged with its id.

    Also looks whether the database was restored: such a process starts, and serves nothing.
    """
    try:
        found = checks.problems()
        quarantine.enter()
    finally:
        connection.close()
    for problem in found:
        logger.log(problem.level, "%s: %s", problem.id, problem.msg)
    serious = sum(problem.is_serious() for problem in found)
    return f"{serious} checks of governance failed; the log says which." if serious else None
