"""What every test may rely on."""

import sys
import uuid

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

pytest_plugins = ["tests.stuck"]
# The time of one example says more about the machine than about the code.
examples.register_profile("lethe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("lethe")


@pytest.fixture(scope="session", autouse=True)
def _tables_may_be_emptied(django_db_setup, django_db_blocker):
    """Django empties the tables after transactional tests by TRUNCATE, which personal tables refuse elsewhere."""
    with django_db_blocker.unblock():
        from django.db import connection

        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            cursor.execute(f"ALTER DATABASE {name} SET lethe.truncate = 'allowed'")
        # The setting is read when a connection begins.
        connection.close()
        connection.close_pool()


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


@pytest.fixture(autouse=True)
def _files_outside_the_database(settings, tmp_path_factory):
    """What stands beside the database would outlive a test's rollback: each test has its own."""
    folder = tmp_path_factory.getbasetemp() / uuid.uuid4().hex
    settings.ANCHOR_DIR, settings.LEDGER_DIR = folder / "anchors", folder / "ledger"
    settings.ARCHIVE_DIR = folder / "archive"
