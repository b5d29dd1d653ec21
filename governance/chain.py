"""The audit trail's chain, in the database, so that raw SQL cannot pass it by.

An event is inserted without a place. When its transaction commits, a deferred trigger locks the tenant's head, gives
the event the next number and the hash of its predecessor, and moves the head. The lock is thereby held for the commit
only, whatever the transaction did before. `audit_guard()` refuses every change, deletion and truncation (SQLSTATE
LE004), but for a prefix that was exported: see domain/trail.py.

The hash is SHA-256 over the canonical text of what is read back: a JSON array as PostgreSQL writes `jsonb`. `canonical`
makes the same bytes from an exported event without a database.
"""

import json
from decimal import Decimal
from typing import Any

from django.db.migrations import RunSQL

SCHEMA = "lethe.audit/1"
# What the first event of a tenant names as its predecessor.
GENESIS = bytes(32)
FIELDS = (
    "tenant_id", "seq", "id", "at", "actor_kind", "actor_ref", "actor_label", "action", "object_type", "object_ref",
    "object_label", "payload", "prev_hash",
)  # fmt: skip
_SQL = {
    "tenant_id": "{e}.tenant_id::text",
    "id": "{e}.id::text",
    "at": "to_char({e}.at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    "prev_hash": "encode({e}.prev_hash, 'hex')",
}


def field_sql(name: str, alias: str) -> str:
    """SQL for one field of an event as the hash and the export see it."""
    return _SQL.get(name, f"{{e}}.{name}").format(e=alias)


def hash_sql(alias: str) -> str:
    """SQL for the hash of an event whose `seq` and `prev_hash` are known."""
    parts = ", ".join(field_sql(name, alias) for name in FIELDS)
    return f"sha256(convert_to(jsonb_build_array('{SCHEMA}', {parts})::text, 'UTF8'))"


def canonical(event: dict[str, Any]) -> bytes:
    """The bytes that are hashed, from an exported event; numbers with a fraction must be Decimal, as `read` makes them."""
    return _text([SCHEMA, *(event[name] for name in FIELDS)]).encode()


def read(line: str | bytes) -> dict[str, Any]:
    """One line of an export."""
    return json.loads(line, parse_float=Decimal)


def _text(value: Any) -> str:
    """JSON as PostgreSQL prints jsonb: spaces after commas and colons, keys by length and then by bytes."""
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        return "{" + ", ".join(f"{_text(key)}: {_text(entry)}" for key, entry in ordered) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(entry) for entry in value) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


_LINK = f"""
    SELECT seq, hash INTO head_seq, head_hash FROM governance_audithead WHERE tenant_id = e.tenant_id FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO governance_audithead (tenant_id, seq, hash, anchored_seq)
        VALUES (e.tenant_id, 0, decode(repeat('00', 32), 'hex'), 0) ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO head_seq, head_hash FROM governance_audithead WHERE tenant_id = e.tenant_id FOR UPDATE;
    END IF;
    e.seq := head_seq + 1;
    e.prev_hash := head_hash;
    e.hash := {hash_sql("e")};
    UPDATE governance_auditevent SET seq = e.seq, prev_hash = e.prev_hash, hash = e.hash WHERE id = e.id;
    UPDATE governance_audithead SET seq = e.seq, hash = e.hash WHERE tenant_id = e.tenant_id;
"""

CHAIN_EXISTING = f"""
DO $$
DECLARE e governance_auditevent; head_seq bigint; head_hash bytea;
BEGIN
    FOR e IN SELECT * FROM governance_auditevent WHERE seq IS NULL ORDER BY tenant_id, id LOOP
        {_LINK}
    END LOOP;
END $$
"""

CREATE = f"""
CREATE FUNCTION audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE e governance_auditevent; head_seq bigint; head_hash bytea;
BEGIN
    SELECT * INTO e FROM governance_auditevent WHERE id = NEW.id AND seq IS NULL;
    IF FOUND THEN
        {_LINK}
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit_chain AFTER INSERT ON governance_auditevent DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION audit_chain();

CREATE FUNCTION audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.seq := NULL; NEW.prev_hash := NULL; NEW.hash := NULL;
        RETURN NEW;
    ELSIF TG_OP = 'UPDATE' THEN
        -- The chain's own trigger gives an event its place, once.
        IF OLD.seq IS NULL AND NEW.seq IS NOT NULL AND pg_trigger_depth() > 1 THEN RETURN NEW; END IF;
    ELSIF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT FROM governance_auditboundary b WHERE b.tenant_id = OLD.tenant_id AND b.through_seq >= OLD.seq)
        THEN RETURN OLD; END IF;
    END IF;
    RAISE EXCEPTION 'audit events can neither be changed nor removed' USING ERRCODE = 'LE004';
END $$;
CREATE TRIGGER audit_guard BEFORE INSERT OR UPDATE OR DELETE ON governance_auditevent
FOR EACH ROW EXECUTE FUNCTION audit_guard();
CREATE TRIGGER audit_guard_all BEFORE TRUNCATE ON governance_auditevent
FOR EACH STATEMENT EXECUTE FUNCTION audit_guard();
"""
DROP = """
DROP TRIGGER audit_guard_all ON governance_auditevent;
DROP TRIGGER audit_guard ON governance_auditevent;
DROP TRIGGER audit_chain ON governance_auditevent;
DROP FUNCTION audit_guard();
DROP FUNCTION audit_chain();
"""


def chain_existing() -> RunSQL:
    """The migration operation that gives events from before the chain their places, in the order of their ids."""
    return RunSQL(CHAIN_EXISTING, RunSQL.noop)


def install() -> RunSQL:
    """The migration operation that makes functions and triggers. Once, in governance."""
    return RunSQL(CREATE, DROP)
