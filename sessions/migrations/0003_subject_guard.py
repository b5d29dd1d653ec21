from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0002_quota_reservations"), ("governance", "0002_subject_guard")]

    operations = [
        triggers.guard(table)
        for table in (
            "agent_sessions_session",
            "agent_sessions_item",
            "agent_sessions_blob",
            "agent_sessions_run",
            "agent_sessions_runevent",
            "agent_sessions_modelcall",
            "agent_sessions_idempotencyrecord",
            "agent_sessions_approval",
            "agent_sessions_approvalrule",
        )
    ]
