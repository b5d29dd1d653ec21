"""The writers' side of a fence, in the database, so that raw SQL, COPY, workers and imports cannot pass it by.

`subject_guard()` is one plpgsql function, attached to every personal table by a migration of the app that owns the
table:

    operations = [triggers.guard("agent_sessions_item"), ...]

Plain SQL rather than triggers declared on models: one function body to read and to change, and a new table takes one
line. A check alone would not do: a writer that read "no fence" may commit its row after the eraser has passed. Under
the shared lock it has either committed before the fence, or it sees the fence.

Inserts and updates are looked at row by row, before they happen. Deletes are looked at once for each statement, after it
and in its transaction: the lock is taken and the check made before anything can be committed, so they are as safe, and
erasing millions of rows costs one look for each batch. Refusals, by SQLSTATE:

- LE001: a fence is open for the subject, and this is not the worker of its request.
- LE003: the transaction is not READ COMMITTED, so the check might read a snapshot from before the fence.

Measured on PostgreSQL 18 with fsync: 11 to 13 % fewer single-row transactions a second; about 10 microseconds a row in
bulk inserts, because a transaction enters once for each subject and not once for each row; under 1 microsecond a row in
bulk deletes, where looking at each row took 15 to 20 (`python -m tests.bench guards`).
"""

from importlib import import_module

from django.db.migrations import RunSQL


class Guard(RunSQL):
    """Attaches a guard to a table, in the place of an earlier one of the same name."""


# Any 64-bit hash does: a collision costs a short wait, never a wrong answer.
CREATE_FUNCTIONS = """
CREATE FUNCTION subject_key(subject uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT uuid_hash_extended(subject, 7305443) $$;

CREATE FUNCTION subject_enter(subject uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    fence_request uuid;
BEGIN
    -- Entered before in this transaction: the lock is still held, so no fence can have been opened. A rollback to a
    -- savepoint takes back the lock and this setting together.
    IF current_setting('lethe.entered', true) = subject::text THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'writes for a subject need READ COMMITTED' USING ERRCODE = 'LE003';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(subject_key(subject));
    SELECT request_id INTO fence_request FROM governance_fence WHERE subject_id = subject AND lifted_at IS NULL;
    IF FOUND AND NOT EXISTS (
        SELECT FROM governance_subjectrequest r
        WHERE r.id = fence_request
          AND r.id::text = current_setting('lethe.request', true)
          AND r.lease_no::text = current_setting('lethe.lease', true)
          AND r.state IN ('fencing', 'executing', 'verifying')
    ) THEN
        RAISE EXCEPTION 'a fence is open for this subject' USING ERRCODE = 'LE001';
    END IF;
    PERFORM set_config('lethe.entered', subject::text, true);
END $$;

-- Only a transaction that opens or lifts a fence itself can have entered before: it looks again.
CREATE FUNCTION subject_reenter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lethe.entered', '', true);
    RETURN NULL;
END $$;

CREATE TRIGGER subject_reenter AFTER INSERT OR UPDATE OR DELETE ON governance_fence
FOR EACH STATEMENT EXECUTE FUNCTION subject_reenter();
"""
GUARD_FUNCTIONS = """
CREATE OR REPLACE FUNCTION subject_guard() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before uuid;
    after uuid := NEW.subject_id;
    entered text := current_setting('lethe.entered', true);
BEGIN
    IF TG_OP = 'UPDATE' THEN before := OLD.subject_id; END IF;
    -- As subject_enter() does, which takes longer to call than this to see. Row after row of one subject ends here.
    IF (before IS NULL OR before::text = entered) AND (after IS NULL OR after::text = entered) THEN RETURN NEW; END IF;
    -- The smaller key first, so that two updates which move rows cannot wait for each other.
    IF before <> after AND subject_key(after) < subject_key(before) THEN
        PERFORM subject_enter(after);
        PERFORM subject_enter(before);
    ELSE
        IF before IS NOT NULL THEN PERFORM subject_enter(before); END IF;
        IF after IS NOT NULL AND before IS DISTINCT FROM after THEN PERFORM subject_enter(after); END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION subject_guard_gone() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    owner uuid;
BEGIN
    -- In the order of the keys, for the same reason.
    FOR owner IN SELECT subject_id FROM gone WHERE subject_id IS NOT NULL GROUP BY 1 ORDER BY subject_key(subject_id) LOOP
        PERFORM subject_enter(owner);
    END LOOP;
    RETURN NULL;
END $$;
"""
DROP_FUNCTIONS = """
DROP TRIGGER subject_reenter ON governance_fence;
DROP FUNCTION subject_reenter();
DROP FUNCTION subject_guard_gone();
DROP FUNCTION subject_guard();
DROP FUNCTION subject_enter(uuid);
DROP FUNCTION subject_key(uuid);
"""


# A restriction forbids to use what is held on a person, not to note that somebody else's row names them: without the link
# an erasure could not find that row. Any other fence refuses it.
MENTION_GUARD = """
CREATE OR REPLACE FUNCTION subject_guard_mention() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'writes for a subject need READ COMMITTED' USING ERRCODE = 'LE003';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(subject_key(NEW.subject_id));
    IF EXISTS (SELECT FROM governance_fence WHERE subject_id = NEW.subject_id AND lifted_at IS NULL AND mode <> 'restrict') THEN
        RAISE EXCEPTION 'a fence is open for this subject' USING ERRCODE = 'LE001';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER subject_guard BEFORE UPDATE ON governance_subjectlink
FOR EACH ROW EXECUTE FUNCTION subject_guard();
CREATE OR REPLACE TRIGGER subject_guard_link BEFORE INSERT ON governance_subjectlink
FOR EACH ROW WHEN (NEW.role <> 'mentioned') EXECUTE FUNCTION subject_guard();
CREATE OR REPLACE TRIGGER subject_guard_mention BEFORE INSERT ON governance_subjectlink
FOR EACH ROW WHEN (NEW.role = 'mentioned') EXECUTE FUNCTION subject_guard_mention();
"""
_NO_MENTION_GUARD = """
DROP TRIGGER subject_guard_mention ON governance_subjectlink;
DROP TRIGGER subject_guard_link ON governance_subjectlink;
DROP FUNCTION subject_guard_mention();
"""


def mention_guard() -> RunSQL:
    """The migration operation that lets links of mentioned people be made under a restriction."""
    return RunSQL(MENTION_GUARD, _NO_MENTION_GUARD)


def renewed() -> RunSQL:
    """The migration operation that gives the guards, as they are attached, the functions of today."""
    return RunSQL(GUARD_FUNCTIONS, RunSQL.noop)


def functions() -> RunSQL:
    """The migration operation that makes the functions. Once, in governance."""
    return RunSQL(CREATE_FUNCTIONS + GUARD_FUNCTIONS, DROP_FUNCTIONS)


def guard(table: str, *, columns: tuple[str, ...] = ()) -> Guard:
    """The migration operation that attaches the guard to a table with a `subject_id`.

    With `columns`, updates that set none of them pass unseen: for tables whose rows may be tended under a fence.
    """
    update = f"UPDATE OF {', '.join(columns)}" if columns else "UPDATE"
    # With its functions: another app's migration may come before the one of governance that renews them.
    return Guard(
        GUARD_FUNCTIONS + f"CREATE OR REPLACE TRIGGER subject_guard BEFORE INSERT OR {update} ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION subject_guard();"
        f"CREATE OR REPLACE TRIGGER subject_guard_gone AFTER DELETE ON {table}"
        " REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION subject_guard_gone()",
        f"DROP TRIGGER subject_guard_gone ON {table}; DROP TRIGGER subject_guard ON {table}",
    )


def again(app: str, *migrations: str) -> list[RunSQL]:
    """The migration operations that attach the guards of an app's earlier migrations as they are made today."""
    operations = (
        operation for name in migrations for operation in import_module(f"{app}.migrations.{name}").Migration.operations
    )
    return [RunSQL(operation.sql, RunSQL.noop) for operation in operations if isinstance(operation, Guard)]


# -- Holds: rows that the law says to keep

# `hold_guard()` gives a personal table a second trigger: it refuses to delete what a hold covers and to change its
# content, whoever asks. SQLSTATE LE002 for a held row, LE003 as above, LE004 for a TRUNCATE, which no row sees.
#
# Each table has a function of its own, because what leads from its rows to a session or an agent is SQL of the app that
# owns it: planned once, where EXECUTE would plan for each row. It runs only where the tenant has a hold of that kind.
CREATE_HOLD_FUNCTIONS = """
CREATE FUNCTION hold_key(tenant uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT uuid_hash_extended(tenant, 4861109) $$;

-- The oldest hold that covers such a row, if any.
CREATE FUNCTION hold_over(tenant uuid, subject uuid, root_category text, roots uuid[], agent uuid) RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT h.id FROM governance_hold h
        WHERE h.tenant_id = tenant AND h.released_at IS NULL
          AND (h.scope = 'subject' AND h.subject_id = subject
               OR h.scope = 'agent' AND h.agent_id = agent
               OR h.scope = 'category' AND h.root = root_category
               OR h.scope IN ('session', 'query') AND EXISTS (
                    SELECT FROM governance_heldrow r WHERE r.hold_id = h.id AND r.row_id = ANY(roots)))
        ORDER BY h.id LIMIT 1);
END $$;

-- The kinds of holds that a tenant has in force, such as 'agent,subject'; '' for none. Takes part as a writer.
CREATE FUNCTION hold_kinds(tenant uuid) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known text := current_setting('lethe.holds', true);
    kinds text;
BEGIN
    -- Looked before in this transaction: the lock is still held, so no hold can have been placed or released.
    IF starts_with(known, tenant::text) THEN RETURN substr(known, 37); END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'rows that a hold may cover need READ COMMITTED' USING ERRCODE = 'LE003';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hold_key(tenant));
    -- A statement of its own: it sees what was placed while the lock was waited for.
    SELECT coalesce(string_agg(DISTINCT h.scope, ','), '') INTO kinds
    FROM governance_hold h WHERE h.tenant_id = tenant AND h.released_at IS NULL;
    PERFORM set_config('lethe.holds', tenant::text || kinds, true);
    RETURN kinds;
END $$;

-- The same question for one row after the other: neighbours have the same answer. Under the lock of hold_kinds().
CREATE FUNCTION hold_on_row(tenant uuid, subject uuid, root_category text, roots uuid[], agent uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    row_of text := concat_ws('|', tenant, coalesce(subject::text, '-'), root_category, roots, agent);
BEGIN
    IF current_setting('lethe.free', true) = row_of THEN RETURN false; END IF;
    IF hold_over(tenant, subject, root_category, roots, agent) IS NOT NULL THEN RETURN true; END IF;
    PERFORM set_config('lethe.free', row_of, true);
    RETURN false;
END $$;

-- Only a transaction that places or releases a hold itself can have looked before: it looks again.
CREATE FUNCTION hold_forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lethe.holds', '', true);
    PERFORM set_config('lethe.free', '', true);
    RETURN NULL;
END $$;

CREATE TRIGGER hold_forget AFTER INSERT OR UPDATE OR DELETE ON governance_hold
FOR EACH STATEMENT EXECUTE FUNCTION hold_forget();

CREATE FUNCTION truncate_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Only a database of tests says so, by ALTER DATABASE: its tables are emptied between tests.
    IF current_setting('lethe.truncate', true) = 'allowed' THEN RETURN NULL; END IF;
    RAISE EXCEPTION '% holds personal data and is not emptied as a whole', TG_TABLE_NAME USING ERRCODE = 'LE004';
END $$;
"""
DROP_HOLD_FUNCTIONS = """
DROP TRIGGER hold_forget ON governance_hold;
DROP FUNCTION hold_forget();
DROP FUNCTION truncate_guard();
DROP FUNCTION hold_on_row(uuid, uuid, text, uuid[], uuid);
DROP FUNCTION hold_kinds(uuid);
DROP FUNCTION hold_over(uuid, uuid, text, uuid[], uuid);
DROP FUNCTION hold_key(uuid);
"""
_HOLD_GUARD = """
CREATE OR REPLACE FUNCTION hold_guard_{table}() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    kinds text := hold_kinds(OLD.tenant_id);
    is_moved boolean := {moved};
BEGIN
    IF kinds <> '' THEN
        IF NOT is_moved AND NOT ({changed}) THEN RETURN NEW; END IF;
        IF hold_on_row(OLD.tenant_id, OLD.subject_id, {root},
                       CASE WHEN kinds ~ 'session|query' THEN {roots} END,
                       CASE WHEN kinds ~ 'agent' THEN {agent} END) THEN
            IF {refuses} THEN
                RAISE EXCEPTION 'a legal hold covers this row' USING ERRCODE = 'LE002';
            END IF;
            {copy}
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION hold_gone_{table}() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    tenant uuid;
    kinds text;
BEGIN
    FOR tenant IN SELECT tenant_id FROM gone GROUP BY 1 ORDER BY hold_key(tenant_id) LOOP
        kinds := hold_kinds(tenant);
        -- A statement of its own: it sees the holds that the lock was waited for. Rows of one kind are asked about once:
        -- OFFSET keeps the question from being asked before they are put together.
        IF kinds <> '' AND EXISTS (
            SELECT FROM (
                SELECT DISTINCT subject_id AS subject, {root} AS root,
                       CASE WHEN kinds ~ 'session|query' THEN {roots} END AS roots,
                       CASE WHEN kinds ~ 'agent' THEN {agent} END AS agent
                FROM gone AS old WHERE tenant_id = tenant OFFSET 0) AS kind
            WHERE hold_over(tenant, kind.subject, kind.root, kind.roots, kind.agent) IS NOT NULL) THEN
            RAISE EXCEPTION 'a legal hold covers this row' USING ERRCODE = 'LE002';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER subject_hold BEFORE UPDATE OF {columns} ON {table}
FOR EACH ROW EXECUTE FUNCTION hold_guard_{table}('{category}');
CREATE OR REPLACE TRIGGER subject_hold_gone AFTER DELETE ON {table}
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION hold_gone_{table}('{category}');
"""
_COPY = """INSERT INTO governance_heldcopy (id, tenant_id, subject_id, category, root, row_id, roots, agent_id, content)
            VALUES (uuidv7(), OLD.tenant_id, OLD.subject_id, '{category}', {root}, OLD.id, {roots}, {agent}, to_jsonb(OLD));"""


def hold_functions() -> RunSQL:
    """The migration operation that makes the functions of holds. Once, in governance, after its tables."""
    return RunSQL(CREATE_HOLD_FUNCTIONS, DROP_HOLD_FUNCTIONS)


def hold_guard(
    table: str,
    *,
    category: str,
    content: tuple[str, ...],
    owners: tuple[str, ...] = (),
    root: str | None = None,
    roots: str = "ARRAY[OLD.id]",
    agent: str = "NULL::uuid",
    on_hold: str = "refuse",
) -> Guard:
    """The migration operation that keeps held rows of a table from being deleted or changed.

    - `content`: the columns that are evidence; others may be tended. `owners`: those that say whose the row is,
      beside tenant and subject: they never change under a hold. To fill what was empty loses nothing and is allowed.
    - `root`: SQL for the key of the category that heads the row's group; by default its own. `roots`: SQL for the ids
      that a hold may name it by, as uuid[]. `agent`: SQL for the id of its agent. The row is OLD. What they look up in
      other rows may be gone when a statement deletes those as well: they are held with their children, and refused.
    - `on_hold`: "refuse", or "copy" for rows that change as they are used: then the old row is kept in HeldCopy.

    The triggers' names come after those of subject_guard, so a fence is what a writer meets first.
    """
    owners = ("tenant_id", "subject_id", *owners)
    root = root or f"'{category}'"
    is_copied = on_hold == "copy"
    sql = _HOLD_GUARD.format(
        table=table,
        category=category,
        columns=", ".join(f'"{column}"' for column in (*owners, *content)),
        moved=" OR ".join(f'(OLD."{name}" IS DISTINCT FROM NEW."{name}" AND OLD."{name}" IS NOT NULL)' for name in owners),
        changed=" OR ".join(_changes(name) for name in content),
        root=root,
        roots=roots,
        agent=agent,
        refuses="is_moved" if is_copied else "true",
        copy=_COPY.format(category=category, root=root, roots=roots, agent=agent) if is_copied else "",
    )
    return Guard(
        sql,
        f"DROP TRIGGER subject_hold_gone ON {table}; DROP FUNCTION hold_gone_{table}();"
        f"DROP TRIGGER subject_hold ON {table}; DROP FUNCTION hold_guard_{table}();",
    )


def _changes(column: str) -> str:
    empty = "'', '{}', '[]', 'null', '\\x'"
    return f'(OLD."{column}" IS DISTINCT FROM NEW."{column}" AND coalesce(OLD."{column}"::text, \'\') NOT IN ({empty}))'


def truncate_guard(table: str) -> RunSQL:
    """The migration operation that refuses TRUNCATE on a table, which would pass every guard of rows."""
    return RunSQL(
        f"CREATE TRIGGER subject_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION truncate_guard()",
        f"DROP TRIGGER subject_truncate ON {table}",
    )
