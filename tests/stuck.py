"""A test that is stuck is one failure: it says who held it up, and takes no other test with it."""

import os
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.db.backends.postgresql.operations import DatabaseOperations
from psycopg.errors import LockNotAvailable
from psycopg.pq import TransactionStatus

from tests.owner import as_owner

# More than an idle transaction is given (see conftest.py), and less than a test.
_PATIENCE = "90s"
_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_WHO = f"SELECT pid, state, now() - state_change, wait_event, left(query, 300) {_OTHERS} AND state <> 'idle' ORDER BY xact_start"
_END = f"SELECT pg_terminate_backend(pid) {_OTHERS}"


def free():
    """End the statement in which a time limit struck.

    The limit is an exception in the midst of waiting for PostgreSQL's answer; the connection would refuse all further
    statements, those of every later test as well.
    """
    driver = connection.connection
    if driver is None or driver.closed or driver.info.transaction_status != TransactionStatus.ACTIVE:
        return
    driver.cancel_safe(timeout=5)
    while driver.pgconn.get_result():
        pass


@pytest.fixture(scope="session", autouse=True)
def _emptied_between_tests():
    """Tests that commit empty the tables afterwards, which triggers of ours refuse to everybody else."""
    flush = DatabaseOperations.execute_sql_flush

    def emptied(operations, statements):
        first = [f"SET LOCAL lock_timeout = '{_PATIENCE}';", "SET LOCAL session_replication_role = replica;"]
        whole = f"SELECT as_owner($flush${' '.join([*first, *statements])}$flush$)"
        try:
            flush(operations, [whole])
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            held = _holding()
            as_owner(_END)
            flush(operations, [whole])
            pytest.fail(f"The tables could not be emptied within {_PATIENCE}, because of:\n" + "\n".join(map(str, held)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", emptied)
        yield


def _holding():
    with connection.cursor() as cursor:
        cursor.execute(_WHO)
        return cursor.fetchall()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    free()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    free()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """What was forgotten; and where many fail, the first, which say why. Last, where somebody looks who sees only the end."""
    result = yield
    log = Path(os.environ["LETHE_TEST_DATA_DIR"]) / "postgres" / "log"
    if left := log.read_text(errors="replace").count("idle-in-transaction timeout"):
        terminalreporter.write_line(f"{left} transactions were left open, and ended after a while: a test or its code forgot them.")
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    if len(failed) > 5:
        terminalreporter.write_line("The first that failed:")
        for report in sorted(failed, key=lambda report: report.start)[:3]:
            crash = getattr(report.longrepr, "reprcrash", None)
            terminalreporter.write_line(f"{report.nodeid} ({report.when}): {' '.join((crash.message if crash else '').split())[:200]}")
    return result
