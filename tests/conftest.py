"""What every test may rely on."""

import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _engine_stops_before_the_database(django_db_setup, django_db_blocker):
    """Runs are executed in threads of this process: they leave the test database before it is dropped."""
    yield
    if (engine := sys.modules.get("sessions.engine.runner")) is not None:
        engine.drain(5)
    with django_db_blocker.unblock():
        from django.db import connection

        with connection.cursor() as cursor:
            # Event loops of tests that failed may still listen.
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
