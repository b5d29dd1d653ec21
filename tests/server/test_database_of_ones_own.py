"""A PostgreSQL of the operator's own, whose administrator gives a database, an owner for it and a role that runs: no superusers."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from console import embedded
from tests.server.conftest import ROOT

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

USE = """
import time
from django.db import connection
from console import demo
from governance.domain import purge
from sessions.models import Item
assert demo.ensure().username == "admin" and Item.objects.exists()
for table in connection.introspection.table_names():
    purge.clean_table(table)
# Transactions of the server's other databases hold it back: tests run beside this one.
for _ in range(600):
    if purge._clean_statistics():
        break
    time.sleep(0.1)
else:
    raise SystemExit("the statistics were not cleaned within a minute")
assert purge._checkpoint() and purge._oldest_wal() is not None
print("used")
"""


@pytest.fixture
def urls():
    """"owner" and "runtime" of a new database on the test run's server, as `DATABASE_URL` takes them."""
    host = embedded.socket_directory(Path(os.environ["LETHE_TEST_DATA_DIR"]))
    name = f"own_{secrets.token_hex(4)}"
    roles = {"owner": f"{name}_owner", "runtime": f"{name}_run"}
    with psycopg.connect(host=host, user=embedded.OWNER_ROLE, dbname="postgres", autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {roles['owner']} LOGIN")
        admin.execute(f"CREATE ROLE {roles['runtime']} LOGIN IN ROLE pg_monitor, pg_checkpoint, pg_maintain")
        admin.execute(f"CREATE DATABASE {name} OWNER {roles['owner']}")
        yield {what: f"postgres://{role}@/{name}?host={host}" for what, role in roles.items()}
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute(f"DROP ROLE {roles['runtime']}, {roles['owner']}")


@pytest.fixture
def manage(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LETHE_", "DJANGO_", "PYTEST_"))}

    def run(*words, **env):
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env={**kept, "LETHE_DATA_DIR": str(tmp_path), **env},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def test_one_role_is_refused_or_chosen_and_two_roles_take_over(urls, manage):
    one, two = {"DATABASE_URL": urls["owner"]}, {"DATABASE_URL": urls["runtime"], "LETHE_OWNER_DATABASE_URL": urls["owner"]}

    refused = manage("migrate", "-v", "0", **one)
    assert refused.returncode == 1
    assert "governance.E006" in refused.stderr
    assert "LETHE_OWNER_DATABASE_URL" in refused.stderr
    chosen = manage("migrate", "-v", "0", **one, LETHE_ONE_DATABASE_ROLE="1")
    assert (chosen.returncode, "governance.E006" in chosen.stderr) == (0, True), chosen.stderr

    nobody = manage("migrate", "-v", "0", **{**two, "DATABASE_URL": urls["runtime"].replace("_run@", "_nobody@")})
    assert (nobody.returncode, "_nobody, which DATABASE_URL names" in nobody.stderr) == (1, True), nobody.stderr
    # Everything belongs to the owner already: the second role is only let in.
    migrated = manage("migrate", "-v", "0", **two)
    assert (migrated.returncode, "E006" in migrated.stderr) == (0, False), migrated.stderr
    used = manage("shell", "-v", "0", "-c", USE, **two)
    # An owner that is no superuser cannot begin a WAL file: the purge says so and waits for the next one.
    assert (used.returncode, used.stdout.splitlines()[-1:]) == (0, ["used"]), used.stderr


def test_urls_of_two_databases_are_refused(urls, manage):
    done = manage("check", DATABASE_URL=urls["runtime"], LETHE_OWNER_DATABASE_URL=urls["owner"].replace("own_", "other_"))

    assert done.returncode == 1
    assert "name different databases" in done.stderr
