from django.db import migrations, models

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0004_run_effects_and_priority"), ("governance", "0002_subject_guard")]

    operations = [
        migrations.AddIndex("quotacounter", models.Index(fields=["period_start"], name="quota_counter_by_age")),
        *(
            triggers.guard(table)
            for table in (
                "agent_sessions_quota",
                "agent_sessions_quotacounter",
                "agent_sessions_quotareservation",
            )
        ),
    ]
