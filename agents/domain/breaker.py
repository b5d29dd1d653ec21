"""The circuit breaker of each provider, shared by all processes through its row.

Five failures in a row open it for 30 seconds; then one caller may try, and its result closes or reopens it. Time is the
database's, so machines with different clocks agree.
"""

from uuid import UUID

from django.db import connection

from agents.models import Provider

FAILURES = 5
OPEN_SECONDS = 30

_FAILED = """
UPDATE agents_provider
   SET failures = failures + 1,
       open_until = CASE WHEN failures + 1 >= %s THEN now() + make_interval(secs => %s) ELSE open_until END
 WHERE id = %s
"""
# Whoever moves the end of the pause is the one probe; everybody else sees the new end.
_PROBE = """
UPDATE agents_provider
   SET open_until = now() + make_interval(secs => %s)
 WHERE id = %s AND open_until IS NOT NULL AND open_until <= now()
"""
_STATE = "SELECT open_until IS NOT NULL, open_until > now() FROM agents_provider WHERE id = %s"


def is_open(provider: Provider) -> bool:
    """Whether calls are held back now. After the pause it answers False to exactly one caller, who tries."""
    with connection.cursor() as cursor:
        cursor.execute(_STATE, [provider.pk])
        row = cursor.fetchone()
        if row is None or not row[0]:
            return False
        if row[1]:
            return True
        cursor.execute(_PROBE, [OPEN_SECONDS, provider.pk])
        return cursor.rowcount == 0


def record_failure(provider_id: UUID) -> None:
    """A call failed in a way that says something about the provider (no connection, 429, 5xx)."""
    with connection.cursor() as cursor:
        cursor.execute(_FAILED, [FAILURES, OPEN_SECONDS, provider_id])


def record_success(provider_id: UUID) -> None:
    """A call went well: failures are forgotten and the circuit closes. No write while there are none."""
    Provider.objects.filter(pk=provider_id).exclude(failures=0, open_until=None).update(failures=0, open_until=None)
