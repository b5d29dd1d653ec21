"""What every test may rely on."""

import sys
import uuid

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

from tests.owner import AS_OWNER, as_owner

pytest_plugins = ["tests.stuck"]
# The time of one example says more about the machine than about the code.
examples.register_profile("lethe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("lethe")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix):
    """The test database is made, migrated and dropped by the owner."""
    from governance import database_roles

    with database_roles.as_owner():
        yield


@pytest.fixture(scope="session", autouse=True)
def _tests_run_as_web_worker_and_beat(django_db_setup, django_db_blocker):
    """Tests connect as the role that owns nothing; what only the owner may do, they ask of a function of this database."""
    from django.db import connection

    from governance import database_roles

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        # Django empties the tables after transactional tests by TRUNCATE, which personal tables refuse elsewhere. The
        # setting is read when a connection begins.
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET lethe.truncate = 'allowed'")
        # Who waits for a lock this long waits for a transaction that nobody ends.
        cursor.execute(f"ALTER DATABASE {name} SET lock_timeout = '100s'")
        cursor.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '60s'")
        cursor.execute(AS_OWNER)
    with database_roles.connected_as(connection.settings_dict["RUNTIME"]):
        # Commands that tests call stay on the test's connection, and in its transaction.
        kept = {name: connection.settings_dict.pop(name) for name in ("OWNER", "RUNTIME")}
        yield
        connection.settings_dict.update(kept)


@pytest.fixture(scope="session", autouse=True)
def _engine_stops_before_the_database(_tests_run_as_web_worker_and_beat, django_db_blocker):
    """Runs are executed in threads of this process: they leave the test database before it is dropped."""
    yield
    if (engine := sys.modules.get("sessions.engine.runner")) is not None:
        engine.drain(5)
    with django_db_blocker.unblock():
        # Event loops of tests that failed may still listen.
        as_owner("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


@pytest.fixture(autouse=True)
def _files_outside_the_database(settings, tmp_path_factory):
    """What stands beside the database would outlive a test's rollback: each test has its own."""
    folder = tmp_path_factory.getbasetemp() / uuid.uuid4().hex
    settings.ANCHOR_DIR, settings.LEDGER_DIR = folder / "anchors", folder / "ledger"
    settings.ARCHIVE_DIR = folder / "archive"
