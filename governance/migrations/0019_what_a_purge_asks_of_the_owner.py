from django.db import migrations

# Two things that a purge does and that the role of web, worker and beat may not: its own right, MAINTAIN, is less than an
# owner's. They run as whoever migrates, on nothing that a caller could name besides.
CREATE = """
CREATE FUNCTION purge_drop_leftovers(cleaned regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '800ms' AS $$
DECLARE
    leftover regclass;
BEGIN
    -- What a REINDEX CONCURRENTLY that was interrupted leaves behind.
    FOR leftover IN
        SELECT x.indexrelid FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
        WHERE x.indrelid = cleaned AND NOT x.indisvalid AND i.relname ~ '_cc(new|old)[0-9]*$'
    LOOP
        EXECUTE format('DROP INDEX %s', leftover);
    END LOOP;
END $$;

CREATE FUNCTION purge_switch_wal() RETURNS pg_lsn
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT pg_switch_wal() $$;

REVOKE EXECUTE ON FUNCTION purge_drop_leftovers(regclass), purge_switch_wal() FROM PUBLIC;
"""
DROP = """
DROP FUNCTION purge_switch_wal();
DROP FUNCTION purge_drop_leftovers(regclass);
"""


class Migration(migrations.Migration):
    dependencies = [("governance", "0018_holds_reach_the_archive")]

    operations = [migrations.RunSQL(CREATE, DROP)]
