"""The database's clock, the only one that decides anything."""

from datetime import datetime, timedelta

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, Func, Value


class ClockTime(Func):
    """The time at which the row is written, not the start of the transaction."""

    template = "clock_timestamp()"
    output_field = DateTimeField()


def after(delay: timedelta) -> ExpressionWrapper:
    """An expression: the database's time, `delay` from now."""
    return ExpressionWrapper(ClockTime() + Value(delay, output_field=DurationField()), output_field=DateTimeField())


def now() -> datetime:
    """What the database's clock says."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]
