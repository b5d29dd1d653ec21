import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import governance.ids
from django.db import migrations, models

from governance import triggers

# Derived text never outlives its source: whoever changes or deletes an item, by whatever way, takes the text of the
# summaries over it along. Once a statement, so that large deletions pay nothing for each row.
FOLLOW = """
CREATE FUNCTION summary_follows_items() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE agent_sessions_summary summary SET is_stale = true, text = '', tokens = 0
    FROM (SELECT session_id, min(seq) AS first, max(seq) AS last FROM changed GROUP BY session_id) AS gone
    WHERE summary.owners @> ARRAY[gone.session_id] AND summary.from_seq <= gone.last AND summary.to_seq >= gone.first
      AND NOT summary.is_stale AND summary.failure = '';
    RETURN NULL;
END $$;

CREATE TRIGGER summary_follows_deletions AFTER DELETE ON agent_sessions_item REFERENCING OLD TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION summary_follows_items();

CREATE TRIGGER summary_follows_changes AFTER UPDATE ON agent_sessions_item REFERENCING OLD TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION summary_follows_items();
"""
LEAVE = """
DROP TRIGGER summary_follows_deletions ON agent_sessions_item;
DROP TRIGGER summary_follows_changes ON agent_sessions_item;
DROP FUNCTION summary_follows_items();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('agent_sessions', '0006_run_unfinished_of_session'),
        ('governance', '0002_subject_guard'),
    ]

    operations = [
        migrations.CreateModel(
            name='Summary',
            fields=[
                ('id', models.UUIDField(default=governance.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('subject_id', models.UUIDField(null=True)),
                ('owners', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=None)),
                ('from_seq', models.PositiveBigIntegerField()),
                ('to_seq', models.PositiveBigIntegerField()),
                ('text', models.TextField(blank=True)),
                ('tokens', models.PositiveIntegerField(default=0)),
                ('source_tokens', models.PositiveBigIntegerField(default=0)),
                ('model', models.CharField(blank=True, max_length=270)),
                ('settings_digest', models.CharField(max_length=64)),
                ('parent_id', models.UUIDField(null=True)),
                ('run_id', models.UUIDField(null=True)),
                ('is_stale', models.BooleanField(default=False)),
                ('failure', models.CharField(blank=True, max_length=40)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='summaries', to='agent_sessions.session')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('failure', ''), ('is_stale', False)), fields=['session', '-to_seq'], name='summary_usable'), models.Index(fields=['session', '-created_at'], name='summary_newest'), models.Index(fields=['tenant_id', 'subject_id'], name='summary_of_subject'), django.contrib.postgres.indexes.GinIndex(fields=['owners'], name='summary_owners')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('failure', ''), ('is_stale', False), models.Q(('text', ''), _negated=True)), models.Q(models.Q(('is_stale', True), models.Q(('failure', ''), _negated=True), _connector='OR'), ('text', '')), _connector='OR'), name='summary_usable_has_text'), models.CheckConstraint(condition=models.Q(('to_seq__gte', models.F('from_seq'))), name='summary_range_in_order')],
            },
        ),
        triggers.guard("agent_sessions_summary"),
        migrations.RunSQL(FOLLOW, LEAVE),
    ]
