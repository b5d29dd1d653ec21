"""Reading everything about a subject as of one moment."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def snapshot() -> Iterator[None]:
    """A transaction of its own that sees one moment and cannot write: REPEATABLE READ, READ ONLY.

    Refuses to run inside somebody else's transaction, as Django's durable blocks do. The test runner's enclosing
    transaction is the one exception; there it reads what the test wrote.
    """
    with transaction.atomic(durable=True):
        if len(connection.atomic_blocks) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
