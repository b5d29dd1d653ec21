"""What the role of web, worker and beat may not, and how it is found out when it may. The whole suite runs as that role."""

import pytest
from django.core import checks as django_checks
from django.db import DatabaseError, connection, transaction

from console import embedded
from governance import checks, database_roles
from governance.domain import purge
from tests.factories import governance as make
from tests.owner import as_owner

REFUSED = {
    "to empty a table": "TRUNCATE agent_sessions_item CASCADE",
    "to empty a table, settings or not": "SET LOCAL lethe.truncate = 'allowed'; TRUNCATE governance_auditevent",
    "to switch a guard off": "ALTER TABLE agent_sessions_item DISABLE TRIGGER subject_guard",
    "to switch every guard off": "SET session_replication_role = replica",
    "to take a guard away": "DROP TRIGGER subject_hold ON agent_sessions_item",
    "to replace a guard": "CREATE OR REPLACE FUNCTION subject_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "to remove a table": "DROP TABLE agent_sessions_item CASCADE",
    "to make a table": "CREATE TABLE copies AS SELECT * FROM agent_sessions_item",
    "to remove all": "DROP SCHEMA public CASCADE",
    "to become the owner": f"SET ROLE {embedded.OWNER_ROLE}",
    "to raise itself": f"ALTER ROLE {embedded.RUNTIME_ROLE} SUPERUSER",
}


def one(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_tests_run_as_web_worker_and_beat_do(db):
    assert one("SELECT session_user") == one("SELECT current_user") == embedded.RUNTIME_ROLE
    assert database_roles.powers() == []


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
def test_role_that_runs_is_refused(db, statement):
    with pytest.raises(DatabaseError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    # insufficient_privilege
    assert caught.value.__cause__.sqlstate == "42501"


def test_table_that_the_owner_makes_later_can_be_used_and_not_emptied(db):
    as_owner("CREATE TABLE later (id bigint GENERATED ALWAYS AS IDENTITY, note text)")

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO later (note) VALUES ('a'); UPDATE later SET note = 'b'; DELETE FROM later")
        cursor.execute("SELECT has_table_privilege('later', 'MAINTAIN'), has_table_privilege('later', 'TRUNCATE')")
        assert cursor.fetchone() == (True, False)


GIVEN = {
    "ALTER TABLE agent_sessions_item OWNER TO {role}; ALTER TABLE agent_sessions_run OWNER TO {role}": "owns 2 tables",
    "ALTER FUNCTION subject_guard() OWNER TO {role}": "owns 1 functions",
    "ALTER SCHEMA public OWNER TO {role}": "owns the schema public",
    "GRANT ALL ON agent_sessions_item TO {role}": "may TRUNCATE 1 tables",
    "GRANT SET ON PARAMETER session_replication_role TO {role}": "may set session_replication_role",
    "ALTER ROLE {role} SUPERUSER": "is a superuser",
    "GRANT {owner} TO {role} WITH INHERIT FALSE": "is a superuser",
    "CREATE ROLE keeper; GRANT keeper TO {role} WITH INHERIT FALSE; ALTER TABLE agent_sessions_item OWNER TO keeper": "owns 1 tables",
}


@pytest.mark.parametrize(("statement", "power"), GIVEN.items(), ids=GIVEN.values())
def test_role_that_could_switch_off_guards_is_an_error(db, statement, power):
    as_owner(statement.format(role=embedded.RUNTIME_ROLE, owner=embedded.OWNER_ROLE))

    [error] = checks.problems()

    assert (error.id, error.level) == ("governance.E006", django_checks.ERROR)
    assert error.msg == f"The database role {embedded.RUNTIME_ROLE} {power}: it could switch off what guards the data of people."


@pytest.mark.parametrize(
    ("is_external", "debug", "chosen", "level"),
    [
        (True, False, False, django_checks.ERROR), (True, True, False, django_checks.WARNING), (True, False, True, django_checks.WARNING),
        (False, True, True, django_checks.ERROR),
    ],
)  # fmt: skip
def test_one_role_on_a_server_of_ones_own_is_a_warning_for_development_or_by_choice(
    db, settings, monkeypatch, is_external, debug, chosen, level
):
    settings.DEBUG, settings.LETHE = debug, {**settings.LETHE, "one_database_role": chosen}
    as_owner(f"ALTER TABLE agent_sessions_item OWNER TO {embedded.RUNTIME_ROLE}")
    if is_external:
        monkeypatch.delitem(connection.settings_dict, "DATA_DIR")

    assert [(found.id, found.level) for found in checks.check_role(databases=["default"])] == [("governance.E006", level)]


@pytest.fixture
def owner(transactional_db, monkeypatch):
    """The settings as commands have them."""
    monkeypatch.setitem(connection.settings_dict, "OWNER", {"USER": embedded.OWNER_ROLE})


def test_command_is_the_owner_for_as_long_as_it_says(owner):
    with database_roles.as_owner():
        assert one("SELECT current_user") == embedded.OWNER_ROLE
        assert database_roles.runtime_role() == embedded.RUNTIME_ROLE
        with database_roles.as_owner():
            pass
        assert one("SELECT current_user") == embedded.OWNER_ROLE
        # The answer is about the role that runs, whoever asks.
        assert database_roles.powers() == []

    assert one("SELECT current_user") == embedded.RUNTIME_ROLE
    assert "RUNTIME" not in connection.settings_dict


def test_role_is_not_changed_inside_a_transaction(owner):
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"), database_roles.as_owner():
        pass

    assert one("SELECT current_user") == embedded.RUNTIME_ROLE


def test_migrate_grants_what_was_made_without_grants(owner):
    """As on a folder of an earlier version, and after a restore that left the grants out."""
    role = embedded.RUNTIME_ROLE
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE early (id bigint GENERATED ALWAYS AS IDENTITY)")
        cursor.execute(f"REVOKE ALL ON early, early_id_seq FROM {role}; REVOKE ALL ON FUNCTION purge_switch_wal() FROM {role}")
        try:
            cursor.execute(_MAY, [role, role])
            before = cursor.fetchone()
            database_roles.grant()
            cursor.execute(_MAY, [role, role])
            assert (before, cursor.fetchone()) == ((False, False, False), (True, True, True))
            assert database_roles.powers() == []
        finally:
            cursor.execute("DROP TABLE early")


_MAY = """
SELECT has_table_privilege(%s, 'early', 'SELECT'), has_sequence_privilege(%s, 'early_id_seq', 'USAGE'),
       has_function_privilege('lethe', 'purge_switch_wal()', 'EXECUTE')
"""


def test_table_that_may_not_be_maintained_is_not_said_to_be_clean(db):
    """PostgreSQL passes it by with a warning."""
    role = embedded.RUNTIME_ROLE
    as_owner(f"REVOKE MAINTAIN ON agent_sessions_item FROM {role}; REVOKE pg_maintain FROM {role}")

    with pytest.raises(purge.MayNotMaintain, match="agent_sessions_item"):
        purge.clean_table("agent_sessions_item")


def test_index_that_an_interrupted_rebuilding_left_is_dropped(transactional_db, settings):
    settings.LETHE = {**settings.LETHE, "purge_rewrite_mb": -1}
    make.tenant("acme")
    as_owner("CREATE INDEX tenant_name_ccnew ON governance_tenant (name); CREATE INDEX tenant_name_other ON governance_tenant (name)")
    as_owner("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tenant_name_ccnew'::regclass")
    try:
        purge.clean_table("governance_tenant")

        assert one("SELECT to_regclass('tenant_name_ccnew') IS NULL AND to_regclass('tenant_name_other') IS NOT NULL")
    finally:
        as_owner("DROP INDEX IF EXISTS tenant_name_ccnew, tenant_name_other")
