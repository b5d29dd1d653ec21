import django.contrib.postgres.fields
from django.db import migrations, models

from governance import triggers

_CONTENT = ("category", "path", "counts", "content_sha256")
_OPEN = "h.tenant_id = OLD.tenant_id AND h.released_at IS NULL"
# One of the file's agents that is held, if any; the category that heads its groups where that is held; and the ids in it.
_GUARD = triggers.hold_guard(
    "governance_archivedpart",
    category="archived_rows",
    content=_CONTENT,
    root=f"""coalesce((SELECT h.root FROM governance_hold h WHERE {_OPEN} AND h.scope = 'category' AND h.root = OLD.root LIMIT 1),
                     'archived_rows')""",
    roots=f"""OLD.id || coalesce(OLD.roots, ARRAY(SELECT r.row_id FROM governance_heldrow r
                     JOIN governance_hold h ON h.id = r.hold_id WHERE {_OPEN}))""",
    agent=f"""(SELECT h.agent_id FROM governance_hold h WHERE {_OPEN} AND h.scope = 'agent'
                     AND (OLD.agents IS NULL OR h.agent_id = ANY(OLD.agents)) LIMIT 1)""",
)
_BEFORE = triggers.hold_guard("governance_archivedpart", category="archived_rows", content=_CONTENT)


class Migration(migrations.Migration):
    dependencies = [("governance", "0017_mentions_under_restriction")]

    operations = [
        migrations.AddField("archivedpart", "root", models.CharField(blank=True, default="", max_length=40), preserve_default=False),
        migrations.AddField(
            "archivedpart", "roots", django.contrib.postgres.fields.ArrayField(models.UUIDField(), null=True, size=None)
        ),
        migrations.AddField(
            "archivedpart", "agents", django.contrib.postgres.fields.ArrayField(models.UUIDField(), null=True, size=None)
        ),
        migrations.RunSQL(
            "UPDATE governance_archivedpart SET root = CASE WHEN category IN ('archived_rows', 'agent_files') THEN category ELSE 'sessions' END",
            migrations.RunSQL.noop,
        ),
        migrations.RunSQL(_GUARD.sql, _BEFORE.sql),
    ]
