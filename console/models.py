from django.db import models


class SignInAttempts(models.Model):
    """Failed sign-ins counted in one window of time, for a username, an address, or both together.

    In PostgreSQL and not in a cache: every web process must see the same count, a restart must not forget it, and
    Lethe runs without a cache server. The row holds a keyed hash, so it names neither the person nor the machine.
    """

    key = models.CharField(primary_key=True, max_length=64)
    failures = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField(db_index=True)

    def __str__(self):
        return f"{self.failures} until {self.ends_at}"
