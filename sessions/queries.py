"""Reads of sessions and runs. Every one takes the tenant; what is another's is not found, nor what a retention policy has ended."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.postgres.search import SearchQuery
from django.db.models import QuerySet

from governance import sealing
from governance.domain.expiry import left
from governance.errors import NotFound
from governance.ids import parse, shown
from sessions.errors import FileUnknown, SessionAmbiguous
from sessions.models import AgentFile, Approval, ApprovalRule, Item, ModelCall, Run, Session, Summary, WorkspaceFile

# A list never reads what can be large: no state, no task, no request.
_SLIM = ("state", "task", "shared")


@dataclass(frozen=True, slots=True)
class FileCall:
    """A tool call about a file. `outcome` is empty while it has no result."""

    seq: int
    name: str
    outcome: str
    run_id: UUID | None
    at: datetime


def sessions_of(
    tenant_id: UUID,
    *,
    agent: str | None = None,
    subject_id: UUID | None = None,
    state: str | None = None,
    q: str | None = None,
    label: str | None = None,
    created_after=None,
    created_before=None,
    active_after=None,
    active_before=None,
    archived: bool = False,
) -> QuerySet[Session]:
    """Slim rows, newest activity first. `q` is looked for in titles and keys."""
    found = Session.objects.filter(tenant_id=tenant_id, archived_at__isnull=not archived).defer(*_SLIM)
    exact = {
        "agent__name": agent, "subject_id": subject_id, "status": state, "labels__contains": [label] if label else None,
        "created_at__gte": created_after, "created_at__lt": created_before,
        "last_active_at__gte": active_after, "last_active_at__lt": active_before,
    }  # fmt: skip
    found = found.filter(**{name: value for name, value in exact.items() if value is not None})
    if q:
        found = found.filter(title__icontains=q) | found.filter(key__icontains=q)
    return left(found, tenant_id=tenant_id).select_related("agent", "subject").order_by("-last_active_at", "-id")


def session_by(*, tenant_id: UUID, ref: str, agent: str | None = None, subject_id: UUID | None = None) -> Session:
    """A session by our id, or by the caller's key together with `agent`.

    `subject_id` is the credential's subject: it then sees its own sessions only. Raises NotFound, and
    SessionAmbiguous when a key without a subject names several sessions.
    """
    found = left(Session.objects.filter(tenant_id=tenant_id), tenant_id=tenant_id)
    found = found.select_related("agent", "subject", "pinned_version")
    if subject_id is not None:
        found = found.filter(subject_id=subject_id)
    if agent is None:
        session = found.filter(id=parse("ses", ref)).first()
        if session is None:
            raise NotFound
        return session
    matches = list(found.filter(agent__name=agent, key=ref)[:20])
    if not matches:
        raise NotFound
    if len(matches) > 1:
        raise SessionAmbiguous(ids=[shown("ses", session.id) for session in matches])
    return matches[0]


def summaries_of(session: Session) -> QuerySet[Summary]:
    """Newest first: usable ones, those that went stale, and attempts that failed."""
    return Summary.objects.filter(tenant_id=session.tenant_id, session_id=session.id).order_by("-created_at", "-id")


def forks_of(session: Session) -> QuerySet[Session]:
    forks = Session.objects.filter(tenant_id=session.tenant_id, forked_from=session.id)
    return left(forks, tenant_id=session.tenant_id).order_by("created_at")


def runs_of(
    tenant_id: UUID,
    *,
    agent: str | None = None,
    status: str | None = None,
    session_id: UUID | None = None,
    subject_id: UUID | None = None,
    created_after=None,
    created_before=None,
) -> QuerySet[Run]:
    """Slim rows, newest first."""
    exact = {
        "agent__name": agent, "status": status, "session_id": session_id, "subject_id": subject_id,
        "created_at__gte": created_after, "created_at__lt": created_before,
    }  # fmt: skip
    found = Run.objects.filter(tenant_id=tenant_id, **{name: value for name, value in exact.items() if value is not None})
    return (
        left(found, tenant_id=tenant_id)
        .defer("request", "document", "output", *(f"session__{name}" for name in _SLIM))
        .select_related("agent", "version", "session")
        .order_by("-id")
    )


def run_by(*, tenant_id: UUID, ref: str | UUID, subject_id: UUID | None = None) -> Run:
    """A run by its id, as text with or without its prefix. Raises NotFound."""
    found = Run.objects.filter(tenant_id=tenant_id, id=ref if isinstance(ref, UUID) else parse("run", ref))
    if subject_id is not None:
        found = found.filter(subject_id=subject_id)
    run = left(found, tenant_id=tenant_id).select_related("agent", "version", "session").first()
    if run is None:
        raise NotFound
    return run


def answer_of(run: Run) -> str | None:
    """The text of the run's answer: its last message inside a session, its own output without one."""
    if run.session_id is None:
        return (run.output or {}).get("text")
    found = Item.objects.filter(
        session_id=run.session_id, run_id=run.id, kind=Item.Kind.MESSAGE, role="assistant", is_hidden=False
    )
    content = found.order_by("-seq").values_list("content", flat=True).first()
    return content.get("text") if content else None


def calls_of(run: Run) -> QuerySet[ModelCall]:
    return left(ModelCall.objects.filter(run_id=run.id), tenant_id=run.tenant_id).order_by("number")


def approvals_of(tenant_id: UUID, *, status: str | None = None, subject_id: UUID | None = None) -> QuerySet[Approval]:
    """Newest first; those that wait are found through their index."""
    exact = {"status": status, "subject_id": subject_id}
    found = Approval.objects.filter(tenant_id=tenant_id, **{name: value for name, value in exact.items() if value is not None})
    return (
        left(found, tenant_id=tenant_id)
        .defer(*(f"session__{name}" for name in _SLIM), "run__request", "run__document", "run__output")
        .select_related("run__agent", "session")
        .order_by("-id")
    )


def waiting_approvals(tenant_id: UUID) -> int:
    return Approval.objects.filter(tenant_id=tenant_id, status=Approval.Status.PENDING).count()


def approval_by(*, tenant_id: UUID, ref: str, subject_id: UUID | None = None) -> Approval:
    found = approvals_of(tenant_id, subject_id=subject_id).filter(id=parse("apr", ref)).first()
    if found is None:
        raise NotFound
    return found


def rules_of(tenant_id: UUID) -> QuerySet[ApprovalRule]:
    """Standing answers that are not revoked, newest first."""
    found = left(ApprovalRule.objects.filter(tenant_id=tenant_id, revoked_at=None), tenant_id=tenant_id)
    return found.select_related("agent", "session").order_by("-id")


def rule_by(*, tenant_id: UUID, ref: str) -> ApprovalRule:
    rules = left(ApprovalRule.objects.filter(tenant_id=tenant_id, id=parse("rul", ref)), tenant_id=tenant_id)
    found = rules.select_related("agent", "session").first()
    if found is None:
        raise NotFound
    return found


def agent_files_of(
    tenant_id: UUID,
    *,
    agent: str | None = None,
    subject_id: UUID | None = None,
    scope: str | None = None,
    below: str | None = None,
    words: str | None = None,
) -> QuerySet[AgentFile]:
    """Slim rows without their texts, newest change first. `below` is the beginning of paths; `words` are looked for in texts."""
    found = left(AgentFile.objects.filter(tenant_id=tenant_id), tenant_id=tenant_id)
    if agent is not None:
        found = found.filter(agent__name=agent)
    if subject_id is not None:
        found = found.filter(subject_id=subject_id)
    if scope is not None:
        found = found.filter(subject_id__isnull=scope != "subject", agent_id__isnull=scope == "tenant")
    if below:
        found = found.filter(path__startswith=below if below.startswith("/") else f"/{below}")
    if words:
        found = found.filter(search=SearchQuery(words, search_type="websearch", config="simple"))
    return found.select_related("agent").defer("content", "search", "agent__draft").order_by("-updated_at", "-id")


def agent_file_by(*, tenant_id: UUID, ref: str, subject_id: UUID | None = None) -> AgentFile:
    """With its text where that is in the row. `subject_id` is the credential's subject: it then sees its own files only."""
    found = left(AgentFile.objects.filter(tenant_id=tenant_id, id=parse("fil", ref)), tenant_id=tenant_id)
    found = found.select_related("agent").defer("search", "agent__draft")
    file = (found.filter(subject_id=subject_id) if subject_id is not None else found).first()
    if file is None:
        raise FileUnknown
    return file


def workspace_of(session: Session) -> QuerySet[WorkspaceFile]:
    """Files of the session's workspace without their texts, by path."""
    return WorkspaceFile.objects.filter(tenant_id=session.tenant_id, session_id=session.id).defer("content").order_by("path")


def file_calls_of(session: Session, path: str) -> list[FileCall]:
    """Calls of the session's agent that name a file of its workspace, newest first, at most 50."""
    found = Item.objects.filter(session_id=session.id, kind=Item.Kind.TOOL_CALL, content__name__startswith="file_access_").order_by("-seq")
    if sealing.protects(session.tenant_id):
        calls = [call for call in found[:500] if call.content.get("arguments", {}).get("path") == path][:50]
    else:
        calls = list(found.filter(content__arguments__path=path)[:50])
    results = Item.objects.filter(
        session_id=session.id, kind=Item.Kind.TOOL_RESULT, content__id__in=[call.content["id"] for call in calls]
    )
    outcomes = {(item.run_id, item.content["id"]): item.content.get("outcome", "") for item in results}
    return [
        FileCall(call.seq, call.content["name"], outcomes.get((call.run_id, call.content["id"]), ""), call.run_id, call.created_at)
        for call in calls
    ]
