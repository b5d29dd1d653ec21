"""Upgrades with rows and a hold in place, on a database of their own: what was guarded before is guarded afterwards."""

import importlib
from contextlib import contextmanager

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from console import embedded
from governance import triggers
from governance.ids import uuid7

SCRATCH = "scratch"
# Before the guards looked at deletions once for each statement.
BEFORE = [("governance", "0013_retention_lengths_and_approvals"), ("agent_sessions", "0012_agent_files")]
GUARDED = {
    "governance": ("0002_subject_guard", "0005_archives_in_volumes", "0007_holds", "0010_lineage"),
    "sessions": ("0003_subject_guard", "0005_quota_guard", "0007_summaries", "0008_hold_guard", "0012_agent_files"),
}
OLD_SUBJECT_GUARD = """
CREATE OR REPLACE FUNCTION subject_guard() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before uuid;
    after uuid;
BEGIN
    IF TG_OP <> 'INSERT' THEN before := OLD.subject_id; END IF;
    IF TG_OP <> 'DELETE' THEN after := NEW.subject_id; END IF;
    IF before IS NOT NULL THEN PERFORM subject_enter(before); END IF;
    IF after IS NOT NULL AND before IS DISTINCT FROM after THEN PERFORM subject_enter(after); END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
"""
OLD_HOLD_GUARD = """
CREATE FUNCTION hold_guard_{table}() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    kinds text := hold_kinds(OLD.tenant_id);
    is_moved boolean := false;
BEGIN
    IF kinds <> '' THEN
        IF TG_OP = 'UPDATE' THEN
            is_moved := {moved};
            IF NOT is_moved AND NOT ({changed}) THEN RETURN NEW; END IF;
        END IF;
        IF hold_on_row(OLD.tenant_id, OLD.subject_id, {root},
                       CASE WHEN kinds ~ 'session|query' THEN {roots} END,
                       CASE WHEN kinds ~ 'agent' THEN {agent} END) THEN
            IF TG_OP = 'DELETE' OR {refuses} THEN
                RAISE EXCEPTION 'a legal hold covers this row' USING ERRCODE = 'LE002';
            END IF;
            {copy}
        END IF;
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER subject_hold BEFORE DELETE OR UPDATE OF {columns} ON {table}
FOR EACH ROW EXECUTE FUNCTION hold_guard_{table}('{category}');
"""


def old_guard(table, *, columns=()):
    update = f"UPDATE OF {', '.join(columns)}" if columns else "UPDATE"
    return triggers.Guard(
        f"CREATE TRIGGER subject_guard BEFORE INSERT OR DELETE OR {update} ON {table} FOR EACH ROW EXECUTE FUNCTION subject_guard()",
        f"DROP TRIGGER subject_guard ON {table}",
    )


def guards():
    """The operations of the migrations that attach guards, in their order."""
    modules = (importlib.import_module(f"{app}.migrations.{name}") for app, names in GUARDED.items() for name in names)
    found = (operation for module in modules for operation in importlib.reload(module).Migration.operations)
    return [operation for operation in found if isinstance(operation, triggers.Guard)]


@pytest.fixture
def scratch(transactional_db):
    """An empty database beside that of the tests."""
    name = f"lethe_{uuid7().hex}"
    owner = {"host": connection.settings_dict["HOST"], "user": embedded.OWNER_ROLE, "dbname": "postgres", "autocommit": True}
    with psycopg.connect(**owner) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    options = {key: value for key, value in connection.settings_dict["OPTIONS"].items() if key != "pool"}
    # Not among the databases of the settings: those a test may not use beside its own.
    connections[SCRATCH] = type(connections["default"])({**connection.settings_dict, "NAME": name, "USER": owner["user"], "OPTIONS": options}, SCRATCH)
    try:
        yield connections[SCRATCH]
    finally:
        connections[SCRATCH].close()
        del connections[SCRATCH]
        with psycopg.connect(**owner) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def migrate(database, targets=None):
    executor = MigrationExecutor(database)
    executor.migrate(targets or executor.loader.graph.leaf_nodes())
    return MigrationExecutor(database)


def run(database, *statements):
    with database.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def as_it_was(database, monkeypatch):
    """The guards of rows as they were before 0014 of governance and 0013 of sessions."""
    today = guards()
    with monkeypatch.context() as patch:
        patch.setattr(triggers, "_HOLD_GUARD", OLD_HOLD_GUARD)
        patch.setattr(triggers, "guard", old_guard)
        former = guards()
    guards()
    run(database, *(operation.reverse_sql for operation in today), OLD_SUBJECT_GUARD, *(operation.sql for operation in former))


@contextmanager
def refused(database, code):
    with pytest.raises(DatabaseError) as error, transaction.atomic(using=SCRATCH):
        yield
    assert error.value.__cause__.sqlstate == code


def check(database, rows):
    """Held rows stay as they are and where they are, whoever asks; those of a fenced subject are refused; others may go."""
    for table, key in (("session", "id"), ("item", "session_id"), ("run", "id")):
        where = f"WHERE {key} = '{rows['held'][table]}'"
        with refused(database, "LE002"):
            run(database, f"DELETE FROM agent_sessions_{table} {where}")
        with refused(database, "LE004"):
            run(database, f"TRUNCATE agent_sessions_{table} CASCADE")
    with refused(database, "LE002"):
        run(database, f"UPDATE agent_sessions_item SET content = '{{}}' WHERE session_id = '{rows['held']['item']}'")
    with refused(database, "LE001"):
        run(database, f"DELETE FROM agent_sessions_item WHERE session_id = '{rows['fenced']['item']}'")
    with transaction.atomic(using=SCRATCH):
        run(database, f"DELETE FROM agent_sessions_item WHERE session_id = '{rows['free']['item']}'")
        transaction.set_rollback(True, using=SCRATCH)


def row_triggers(database):
    """Guards that look at deletions row by row."""
    with database.cursor() as cursor:
        # 1 is FOR EACH ROW, 8 is DELETE: see pg_trigger.h.
        cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname IN ('subject_guard', 'subject_hold') AND tgtype & 9 = 9")
        return {name for (name,) in cursor.fetchall()}


def filled(apps):
    """A conversation that is held, one of a fenced subject and a free one."""
    def make(app, model, **values):
        return apps.get_model(app, model).objects.using(SCRATCH).create(**values)

    tenant = make("governance", "Tenant", slug="acme", name="Acme")
    agent = make("agents", "Agent", tenant_id=tenant.id, name="helper", draft={})
    rows = {}
    for name in ("held", "fenced", "free"):
        subject = make("governance", "Subject", tenant_id=tenant.id, display_ref=f"S-{name}")
        session = make("agent_sessions", "Session", tenant_id=tenant.id, agent_id=agent.id, subject_id=subject.id, key=name)
        item = make(
            "agent_sessions", "Item", session_id=session.id, seq=1, tenant_id=tenant.id, subject_id=subject.id, kind="message", role="user",
            turn=1, group=1, content={"text": "Hello"},
        )  # fmt: skip
        turn = make(
            "agent_sessions", "Run", tenant_id=tenant.id, subject_id=subject.id, agent_id=agent.id, session_id=session.id, status="completed",
            started_by="key", actor_kind="api_key", actor_ref="key",
        )  # fmt: skip
        rows[name] = {"subject": subject.id, "session": session.id, "item": item.session_id, "run": turn.id}
    make(
        "governance", "Hold", tenant_id=tenant.id, matter="M-1", reason="audit", scope="subject", subject_id=rows["held"]["subject"],
        placed_by="somebody", placed_by_label="Somebody",
    )  # fmt: skip
    make("governance", "Fence", tenant_id=tenant.id, subject_id=rows["fenced"]["subject"], mode="erase")
    return rows


@pytest.mark.timeout(300)
def test_guards_of_rows_become_guards_of_statements_with_rows_and_a_hold_in_place(scratch, monkeypatch):
    executor = migrate(scratch, BEFORE)
    as_it_was(scratch, monkeypatch)
    assert {"agent_sessions_item", "agent_sessions_session", "agent_sessions_run"} <= row_triggers(scratch)
    rows = filled(executor.loader.project_state(BEFORE).apps)
    check(scratch, rows)

    migrate(scratch)

    assert row_triggers(scratch) == set()
    check(scratch, rows)
    # Back and forth once more.
    migrate(scratch, BEFORE)
    check(scratch, rows)
    migrate(scratch)
    assert row_triggers(scratch) == set()
    check(scratch, rows)
