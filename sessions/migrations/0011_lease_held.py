"""`lease_held()`: one statement that writes what a run adds fails as a whole when its lease is lost."""

from django.db import migrations

CREATE = """
CREATE FUNCTION lease_held(is_held boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT is_held THEN RAISE EXCEPTION 'the lease of the session is lost' USING ERRCODE = 'LE005'; END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0010_indexes_by_end")]

    operations = [migrations.RunSQL(CREATE, "DROP FUNCTION lease_held(boolean)")]
