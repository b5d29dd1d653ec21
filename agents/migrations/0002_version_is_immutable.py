from django.db import migrations

CREATE = """
CREATE FUNCTION agent_version_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a published version cannot be changed' USING ERRCODE = 'LE010';
END $$;

CREATE TRIGGER agent_version_is_immutable BEFORE UPDATE ON agents_agentversion FOR EACH ROW
WHEN (
    (OLD.agent_id, OLD.tenant_id, OLD.number, OLD.document, OLD.digest, OLD.published_by, OLD.created_at)
    IS DISTINCT FROM
    (NEW.agent_id, NEW.tenant_id, NEW.number, NEW.document, NEW.digest, NEW.published_by, NEW.created_at)
) EXECUTE FUNCTION agent_version_is_immutable();
"""
DROP = """
DROP TRIGGER agent_version_is_immutable ON agents_agentversion;
DROP FUNCTION agent_version_is_immutable();
"""


class Migration(migrations.Migration):
    """Runs, sessions and audits refer to a version by its number: what it says must never change under them."""

    dependencies = [("agents", "0001_initial")]

    operations = [migrations.RunSQL(CREATE, DROP)]
