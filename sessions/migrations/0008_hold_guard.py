from django.db import migrations

from governance import triggers

_OF_SESSION = "(SELECT s.agent_id FROM agent_sessions_session s WHERE s.id = OLD.session_id)"
_OF_RUN = "(SELECT r.agent_id FROM agent_sessions_run r WHERE r.id = OLD.run_id)"
_SESSION = "(SELECT r.session_id FROM agent_sessions_run r WHERE r.id = OLD.run_id)"


def _of_conversation(table: str, category: str, *, content: tuple[str, ...], roots: str, agent: str, **options):
    """Everything of a session is held with it."""
    return triggers.hold_guard(table, category=category, root="'sessions'", content=content, roots=roots, agent=agent, **options)


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0007_summaries"), ("governance", "0007_holds")]

    operations = [
        _of_conversation(
            "agent_sessions_session", "sessions", on_hold="copy", owners=("agent_id",), roots="ARRAY[OLD.id]",
            agent="OLD.agent_id", content=("key", "title", "labels", "state", "task"),
        ),
        _of_conversation(
            "agent_sessions_item", "items", owners=("session_id",), roots="ARRAY[OLD.session_id]", agent=_OF_SESSION,
            content=("seq", "turn", "kind", "role", "content"),
        ),
        _of_conversation(
            "agent_sessions_blob", "blobs", owners=("session_id",), roots="ARRAY[OLD.id, OLD.session_id]", agent=_OF_SESSION,
            content=("sha256", "media_type", "name", "data"),
        ),
        # What was asked moves from the run into the session's items, so `request` is not the evidence.
        _of_conversation(
            "agent_sessions_run", "runs", owners=("session_id", "agent_id"), roots="ARRAY[OLD.id, OLD.session_id]",
            agent="OLD.agent_id", content=("labels", "metadata", "error", "output"),
        ),
        _of_conversation(
            "agent_sessions_runevent", "run_events", owners=("run_id",), roots=f"ARRAY[OLD.run_id, {_SESSION}]", agent=_OF_RUN,
            content=("seq", "type", "data"),
        ),
        _of_conversation(
            "agent_sessions_modelcall", "model_calls", owners=("run_id",), roots=f"ARRAY[OLD.id, OLD.run_id, {_SESSION}]", agent="OLD.agent_id",
            content=("provider", "model", "context"),
        ),
        _of_conversation(
            "agent_sessions_approval", "approvals", owners=("run_id", "session_id"),
            roots=f"ARRAY[OLD.id, OLD.run_id, {_SESSION}]",
            agent="OLD.agent_id", content=("tool", "arguments", "edited_arguments", "reason"),
        ),
        _of_conversation(
            "agent_sessions_approvalrule", "approval_rules", owners=("session_id",), roots="ARRAY[OLD.id, OLD.session_id]",
            agent="OLD.agent_id", content=("tool", "origin", "condition"),
        ),
        # A summary follows its items, also when they are only hidden.
        _of_conversation(
            "agent_sessions_summary", "summaries", on_hold="copy", owners=("session_id",),
            roots="ARRAY[OLD.id, OLD.session_id]", agent=_OF_SESSION, content=("text",),
        ),
        triggers.hold_guard("agent_sessions_idempotencyrecord", category="idempotency_records", content=("key", "body_sha256")),
        triggers.hold_guard("agent_sessions_quota", category="quotas", on_hold="copy", content=("measure", "period", "limit")),
        *(
            triggers.truncate_guard(f"agent_sessions_{name}")
            for name in (
                "session", "item", "blob", "run", "runevent", "modelcall", "approval", "approvalrule", "idempotencyrecord",
                "summary", "quota", "quotacounter", "quotareservation",
            )
        ),
    ]  # fmt: skip
