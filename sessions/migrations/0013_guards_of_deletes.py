from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0012_agent_files"), ("governance", "0014_guards_of_deletes")]

    operations = triggers.again(
        "sessions", "0003_subject_guard", "0005_quota_guard", "0007_summaries", "0008_hold_guard", "0012_agent_files",
    )  # fmt: skip
