"""Archives in volumes of bounded size, with what they leave out and the one-time addresses given out for them; and who
else a row is about.
"""

from django.db import migrations, models
from django.db.models.functions import Now

from governance import ids, triggers

FILL = """
UPDATE governance_export
SET parts = jsonb_build_array(jsonb_build_object('path', path, 'size', size, 'sha256', sha256))
"""


class Migration(migrations.Migration):
    dependencies = [("governance", "0004_audit_chain")]

    operations = [
        migrations.AddField("export", "parts", models.JSONField(default=list)),
        migrations.AddField("export", "omissions", models.JSONField(default=list)),
        migrations.AddField("export", "links", models.JSONField(default=list)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RemoveField("export", "path"),
        migrations.RemoveField("export", "sha256"),
        migrations.CreateModel(
            name="SubjectLink",
            fields=[
                ("id", models.UUIDField(default=ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("subject_id", models.UUIDField()),
                ("category", models.CharField(max_length=40)),
                ("row_id", models.CharField(max_length=120)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("author", "Wrote it"),
                            ("recipient", "Received it"),
                            ("mentioned", "Is named in it"),
                            ("operator", "Handled it"),
                        ],
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "subject_id"], name="subject_link_of_subject")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant_id", "category", "row_id", "subject_id", "role"), name="subject_link_once"
                    )
                ],
            },
        ),
        triggers.guard("governance_subjectlink"),
    ]
