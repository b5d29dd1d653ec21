"""The database's two roles: an owner that migrates, and the role of web, worker and beat, which owns nothing.

Whoever owns a table may disable its triggers, and with them fences, holds and the audit trail's guard. So the running
processes use a role of their own: it reads and writes rows, and cleans files (MAINTAIN), and no more. Commands that need the
owner connect as it for their duration.

`DATABASES["default"]["OWNER"]` says how to connect as the owner: the keys of Django's settings that differ.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import sql

# What the running processes need of a table: rows, and VACUUM, ANALYZE and REINDEX for purges (PostgreSQL 17 or newer).
ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "MAINTAIN")
ON_SEQUENCES = ("USAGE", "SELECT")


@contextmanager
def as_owner(alias: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Connect as the owner of the tables within. Without an owner in the settings, or inside another such block, nothing
    changes. For commands: every thread of the process is concerned, and connections are opened anew.
    """
    known = connections[alias].settings_dict
    if not known.get("OWNER") or "RUNTIME" in known:
        yield
        return
    known["RUNTIME"] = {name: known.get(name, "") for name in known["OWNER"]}
    try:
        with connected_as(known["OWNER"], alias):
            yield
    finally:
        del known["RUNTIME"]


@contextmanager
def connected_as(who: dict[str, Any], alias: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Connect with these keys of Django's settings within, outside any transaction."""
    connection = connections[alias]
    known = connection.settings_dict
    before = {name: known.get(name, "") for name in who}
    _renew(connection, who)
    try:
        yield
    finally:
        _renew(connection, before)


def runtime_role(alias: str = DEFAULT_DB_ALIAS) -> str:
    """The name of the role of web, worker and beat; "" where libpq decides."""
    known = connections[alias].settings_dict
    return known.get("RUNTIME", known)["USER"]


def missing(alias: str = DEFAULT_DB_ALIAS) -> str | None:
    """The name of the role of web, worker and beat when the server does not know it."""
    role = runtime_role(alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = coalesce(nullif(%s, ''), current_user))", [role])
        return None if cursor.fetchone()[0] else role


def grant(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Let the role of web, worker and beat use what the owner made in this database, and what it will make. As the owner;
    where the settings name none, there is nobody else to grant to.
    """
    connection = connections[alias]
    role = runtime_role(alias)
    if not connection.settings_dict.get("OWNER") or not role:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        schema = sql.Identifier(cursor.fetchone()[0])
        to = sql.Identifier(role)
        cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, to))
        for kinds, objects, privileges in (("rpvm", "TABLES", ON_TABLES), ("S", "SEQUENCES", ON_SEQUENCES)):
            listed = sql.SQL(", ".join(privileges))
            cursor.execute(_UNGRANTED, {"kinds": kinds, "role": role, "privileges": list(privileges)})
            if names := [sql.SQL(name) for (name,) in cursor.fetchall()]:
                one = sql.SQL(objects.removesuffix("S"))
                cursor.execute(sql.SQL("GRANT {} ON {} {} TO {}").format(listed, one, sql.SQL(", ").join(names), to))
            cursor.execute(
                sql.SQL("ALTER DEFAULT PRIVILEGES IN SCHEMA {} GRANT {} ON {} TO {}").format(schema, listed, sql.SQL(objects), to)
            )
        cursor.execute(_UNGRANTED_FUNCTIONS, [role])
        if names := [sql.SQL(name) for (name,) in cursor.fetchall()]:
            cursor.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(", ").join(names), to))


# Of the owner's own only: a schema may also hold what an extension made.
_UNGRANTED = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind::text = ANY(string_to_array(%(kinds)s, NULL)) AND pg_has_role(c.relowner, 'USAGE')
  AND EXISTS (
    SELECT FROM unnest(%(privileges)s::text[]) AS privilege
    WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(%(role)s, c.oid, privilege)
                   ELSE has_table_privilege(%(role)s, c.oid, privilege) END)
ORDER BY 1
"""


_UNGRANTED_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f' AND pg_has_role(p.proowner, 'USAGE')
  AND NOT has_function_privilege(%s, p.oid, 'EXECUTE')
ORDER BY 1
"""


def powers(alias: str = DEFAULT_DB_ALIAS) -> list[str]:
    """What the role of web, worker and beat could pass the guards with, by itself or as a member of other roles, as ends of
    a sentence. Asked about the role by name: the answer is the same to the owner.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_POWERS, [runtime_role(alias)])
        is_superuser, tables, others, emptied, may_replicate = cursor.fetchone()
    if is_superuser:
        return ["is a superuser"]
    found = [f"owns {tables} tables"] if tables else []
    found += [f"owns {others}"] if others else []
    found += [f"may TRUNCATE {emptied} tables"] if emptied else []
    return found + (["may set session_replication_role"] if may_replicate else [])


_POWERS = """
WITH role AS (SELECT oid FROM pg_roles WHERE rolname = coalesce(nullif(%s, ''), current_user)),
     held AS (
        SELECT r.oid, r.rolsuper FROM pg_roles r, role
        WHERE pg_has_role(role.oid, r.oid, 'USAGE') OR pg_has_role(role.oid, r.oid, 'SET')),
     ours AS (SELECT oid FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%%' AND nspname <> 'information_schema')
SELECT EXISTS (SELECT FROM held WHERE rolsuper),
       (SELECT count(*) FROM pg_class c
        WHERE c.relkind IN ('r', 'p', 'm') AND c.relnamespace IN (TABLE ours) AND c.relowner IN (SELECT oid FROM held)),
       (SELECT string_agg(what, ', ') FROM (
            SELECT 'the database' AS what FROM pg_database d WHERE d.datname = current_database() AND d.datdba IN (SELECT oid FROM held)
            UNION ALL
            SELECT 'the schema ' || n.nspname FROM pg_namespace n
            WHERE n.nspname = current_schema() AND n.nspowner IN (SELECT oid FROM held)
            UNION ALL
            SELECT count(*) || ' functions' FROM pg_proc p
            WHERE p.pronamespace IN (TABLE ours) AND p.proowner IN (SELECT oid FROM held) HAVING count(*) > 0) AS other),
       (SELECT count(*) FROM pg_class c, role
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace IN (TABLE ours) AND c.relowner NOT IN (SELECT oid FROM held)
          AND has_table_privilege(role.oid, c.oid, 'TRUNCATE')),
       (SELECT has_parameter_privilege(role.oid, 'session_replication_role', 'SET') FROM role)
"""


def _renew(connection, who: dict[str, Any]) -> None:
    if connection.in_atomic_block:
        raise RuntimeError("The role of a connection is not changed inside a transaction.")
    connection.close()
    connection.close_pool()
    connection.settings_dict.update(who)
