"""Categories over the tables of sessions, declared here so that these tests read by themselves."""

from datetime import date

from django.db.models import Exists, OuterRef, Q

from governance.domain.registry import EndsAfter, NoLimit, Processing, TableCategory
from sessions.models import (
    Approval,
    ApprovalRule,
    Blob,
    IdempotencyRecord,
    Item,
    ModelCall,
    Run,
    RunEvent,
    Session,
    Summary,
    WorkspaceFile,
)

ABOUT = Processing(purposes=("carry on a conversation",), legal_basis="contract", recipients=("model_provider",))
CHILDREN = ("items", "summaries", "blobs", "approvals", "approval_rules", "runs", "model_calls", "session_workspace")


def sessions_categories(**changes) -> list[TableCategory]:
    """Fresh declarations; `changes` replaces arguments by category key."""

    def table(key, model, order, **options):
        return TableCategory(key=key, title=key.title(), model=model, order=order, **{"about": ABOUT, **options, **changes.get(key, {})})

    return [
        table("idempotency_records", IdempotencyRecord, ("id",), limit=EndsAfter(1, "swept by their owner")),
        table("run_events", RunEvent, ("run_id", "seq"), group_of=("runs", "run_id")),
        table(
            "model_calls", ModelCall, ("id",), group_of=("runs", "run_id"),
            ages={"created": "at"}, anonymise={"subject_id": None, "context": []},
        ),
        table("approvals", Approval, ("id",), group_of=("runs", "run_id"), row_version="t.status"),
        table("approval_rules", ApprovalRule, ("id",), group_of=("sessions", "session_id")),
        table("session_workspace", WorkspaceFile, ("id",), group_of=("sessions", "session_id")),
        table("summaries", Summary, ("id",), group_of=("sessions", "session_id")),
        table(
            "items", Item, ("session_id", "seq"), group_of=("sessions", "session_id"),
            erase_after=("summaries",), sample_title=lambda item: item.content.get("text", ""),
        ),
        table(
            "blobs", Blob, ("id",), group_of=("sessions", "session_id"), size_expression="t.size",
            export_fields=("id", "sha256", "media_type", "name", "size"), file=("sha256", "name", "data"),
        ),
        table(
            "runs", Run, ("id",), group_of=("sessions", "session_id"), erase_after=("run_events", "model_calls", "approvals"),
            ages={"created": "created_at", "ended": "ended_at"}, agent_field="agent__name", row_version="t.status",
            anonymise={"subject_id": None, "request": {}, "output": None, "metadata": {}},
        ),
        table(
            "sessions", Session, ("id",), erase_after=CHILDREN, row_version="t.version", agent_field="agent__name",
            ages={"created": "created_at", "ended": "ended_at", "last_activity": "last_active_at"},
            limit=NoLimit("A conversation ends when the person says so.", date(2026, 11, 30)),
            sample_title=lambda session: session.title or session.key,
            eligible={
                "active_run": Q(lease_run_id=None),
                "pending_approval": ~Exists(Approval.objects.filter(session=OuterRef("pk"), status="pending")),
                "referenced": ~Exists(Session.objects.filter(forked_from=OuterRef("pk"))),
            },
        ),
    ]  # fmt: skip
