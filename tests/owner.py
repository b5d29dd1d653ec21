"""What tests do as the owner of the tables, in the transaction of the test."""

from typing import Any

from django.db import connection

# Made in the database of the test run, and nowhere else.
AS_OWNER = """
CREATE FUNCTION as_owner(statements text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN EXECUTE statements; END $$
"""


def as_owner(statements: str, *values: Any) -> None:
    """Execute what the role of web, worker and beat may not: on the test's own connection, so that it sees what the test
    wrote, and is rolled back with it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT as_owner(%s)", [connection.ops.compose_sql(statements, values or None)])
