"""Slowing down the guessing of passwords: failed sign-ins are counted per username and address, and refused past a limit.

Three counts, so that one guesser is stopped at once, one machine that tries many names soon, and many machines that try
one name late enough that nobody can lock a colleague out with a handful of wrong passwords.
"""

from datetime import timedelta

from django.db import connection
from django.utils import timezone
from django.utils.crypto import salted_hmac

from console.models import SignInAttempts
from governance.models.members import canonical_username

WINDOW = timedelta(minutes=15)
LIMITS = {"both": 5, "address": 30, "username": 50}


def _keys(username, address):
    username = canonical_username(username)
    values = {"both": f"{username}\n{address}", "address": address, "username": username}
    return {name: salted_hmac(f"console.attempts.{name}", value, algorithm="sha256").hexdigest() for name, value in values.items()}


def wait_for(*, username, address) -> int:
    """Seconds until this username may be tried again from this address; 0 when it may be tried now."""
    keys = _keys(username, address)
    rows = SignInAttempts.objects.filter(key__in=keys.values(), ends_at__gt=timezone.now()).in_bulk()
    waits = [
        (rows[key].ends_at - timezone.now()).total_seconds()
        for name, key in keys.items()
        if key in rows and rows[key].failures >= LIMITS[name]
    ]
    return max(1, round(max(waits))) if waits else 0


def failed(*, username, address) -> None:
    """Count one failure everywhere it belongs; windows that have ended start again, and old rows go."""
    keys = sorted(_keys(username, address).values())
    with connection.cursor() as cursor:
        # One statement: two failures at the same moment are two.
        cursor.executemany(
            """
            INSERT INTO console_signinattempts (key, failures, ends_at) VALUES (%s, 1, now() + %s)
            ON CONFLICT (key) DO UPDATE SET
                failures = CASE WHEN console_signinattempts.ends_at > now() THEN console_signinattempts.failures + 1 ELSE 1 END,
                ends_at = CASE WHEN console_signinattempts.ends_at > now() THEN console_signinattempts.ends_at ELSE excluded.ends_at END
            """,
            [(key, WINDOW) for key in keys],
        )
    SignInAttempts.objects.filter(ends_at__lt=timezone.now() - WINDOW).delete()


def succeeded(*, username, address) -> None:
    """Forget the failures of this person at this address; what others tried keeps counting."""
    SignInAttempts.objects.filter(key=_keys(username, address)["both"]).delete()
