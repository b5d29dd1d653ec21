from importlib import import_module

from django.db import migrations

# A row that is only encrypted anew says what it said: nothing that was made of it is stale.
_WHAT = "BEGIN\n    UPDATE"
_UNLESS = "BEGIN\n    IF current_setting('lethe.sealing', true) = 'on' THEN RETURN NULL; END IF;\n    UPDATE"


def _function(migration: str) -> str:
    """The function that has derived rows follow items, as an earlier migration made it."""
    body = import_module(f"sessions.migrations.{migration}").FOLLOW.partition("CREATE TRIGGER")[0]
    return body.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0015_aggregations")]

    operations = [
        migrations.RunSQL(_function(name).replace(_WHAT, _UNLESS), _function(name)) for name in ("0007_summaries", "0015_aggregations")
    ]
