"""Sessions, items, runs and approvals for tests: rows as the product would have left them, without running a model."""

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.utils import timezone

from agents.models import Agent, AgentVersion, Provider
from governance.ids import uuid7
from governance.models import Subject, Tenant
from sessions.files.store import version_of
from sessions.models import (
    AgentFile,
    Aggregation,
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

_numbers = itertools.count(1)


def agent(tenant: Tenant, name: str | None = None, *, document: dict | None = None, published: bool = True) -> Agent:
    """An agent of the demo provider, with one published version unless told otherwise."""
    name = name or f"agent-{next(_numbers)}"
    document = document or {"name": name, "model": {"provider": "demo", "model": "demo"}}
    made = Agent.objects.create(tenant=tenant, name=name, draft=document)
    if published:
        made.published = AgentVersion.objects.create(
            agent=made, tenant_id=tenant.id, number=1, document=document, digest=f"{made.id.hex:0>64}", published_by="test"
        )
        made.save(update_fields=["published"])
    return made


def provider(tenant: Tenant, kind: str = "demo", **values: Any) -> Provider:
    return Provider.objects.create(tenant=tenant, kind=kind, **{"name": f"provider-{next(_numbers)}", **values})


def session(agent: Agent, subject: Subject | None = None, key: str | None = None, **values: Any) -> Session:
    """An open session without items."""
    made = Session.objects.create(
        tenant_id=agent.tenant_id, agent=agent, subject=subject, key=key or f"session-{next(_numbers)}", **values
    )
    made.refresh_from_db()
    return made


def item(session: Session, kind: str = "message", role: str = "user", content: dict | None = None, **values: Any) -> Item:
    """The session's next item. A user's message begins a turn."""
    session.head_seq += 1
    session.version += 1
    if (kind, role) == ("message", "user") or not session.turns:
        session.turns += 1
    session.save(update_fields=["head_seq", "version", "turns"])
    made = Item.objects.create(
        session=session,
        seq=session.head_seq,
        tenant_id=session.tenant_id,
        subject_id=session.subject_id,
        kind=kind,
        role=role,
        turn=session.turns,
        group=values.pop("group", session.head_seq),
        tokens=values.pop("tokens", 5),
        content=content if content is not None else {"text": f"Text {session.head_seq}"},
        **values,
    )
    return Item.objects.get(session_id=made.session_id, seq=made.seq)


def items(session: Session, entries: Iterable[tuple[str, str, dict]], run: Run | None = None) -> None:
    """The session's next items, each (kind, role, content), in one statement. A user's message begins a turn."""
    rows = []
    for kind, role, content in entries:
        session.head_seq += 1
        if (kind, role) == ("message", "user") or not session.turns:
            session.turns += 1
        rows.append(
            Item(
                session=session, seq=session.head_seq, tenant_id=session.tenant_id, subject_id=session.subject_id,
                run_id=run.id if run else None, kind=kind, role=role, turn=session.turns, group=session.head_seq,
                tokens=5, content=content,
            )
        )  # fmt: skip
    Item.objects.bulk_create(rows, batch_size=2_000)
    session.version += 1
    session.save(update_fields=["head_seq", "version", "turns"])


def turns(session: Session, number: int, run: Run | None = None) -> None:
    """`number` turns of a question and an answer each."""
    first = session.head_seq + 1
    said = (("message", ("user", "assistant")[index % 2], first + index) for index in range(2 * number))
    items(session, ((kind, role, {"text": f"{role} says {seq}"}) for kind, role, seq in said), run)


def run(
    agent: Agent | None = None,
    session: Session | None = None,
    *,
    subject: Subject | None = None,
    status: str = Run.Status.COMPLETED,
    **values: Any,
) -> Run:
    """A run of the session's agent, or of `agent` without a session. An ended one has started and ended."""
    agent = agent or session.agent
    subject = subject or (session.subject if session else None)
    if status in Run.FINISHED:
        now = timezone.now()
        values = {"started_at": now - timedelta(seconds=2), "ended_at": now, **values}
    made = Run.objects.create(
        tenant_id=agent.tenant_id,
        subject_id=subject.id if subject else None,
        epoch=subject.epoch if subject else 0,
        agent=agent,
        version=agent.published,
        session=session,
        status=status,
        **{"started_by": "key", "actor_kind": "api_key", "actor_ref": uuid7().hex, **values},
    )
    made.refresh_from_db()
    return made


def approval(run: Run, tool: str = "send_mail", arguments: dict | None = None, **values: Any) -> Approval:
    """A call of the run that waits for a person."""
    made = Approval.objects.create(
        tenant_id=run.tenant_id,
        subject_id=run.subject_id,
        run=run,
        session=run.session,
        agent_id=run.agent_id,
        tool=tool,
        arguments=arguments if arguments is not None else {"to": "ada@example.com", "text": "Hello"},
        **{
            "call_id": f"call-{next(_numbers)}",
            "origin": "code:tests",
            "expires_at": timezone.now() + timedelta(hours=24),
            **values,
        },
    )
    made.refresh_from_db()
    return made


def rule(agent: Agent, session: Session | None = None, tool: str = "send_mail", **values: Any) -> ApprovalRule:
    made = ApprovalRule.objects.create(
        tenant_id=agent.tenant_id,
        agent=agent,
        session=session,
        subject_id=session.subject_id if session else None,
        tool=tool,
        **{"origin": "code:tests", "created_by": "operator", **values},
    )
    made.refresh_from_db()
    return made


def event(run: Run, seq: int = 1, type: str = "run.started", data: dict | None = None) -> RunEvent:
    return RunEvent.objects.create(
        run=run, seq=seq, tenant_id=run.tenant_id, subject_id=run.subject_id, type=type, data=data or {}
    )


def model_call(run: Run, number: int = 1, **values: Any) -> ModelCall:
    return ModelCall.objects.create(
        tenant_id=run.tenant_id,
        subject_id=run.subject_id,
        run=run,
        agent_id=run.agent_id,
        number=number,
        **{"provider": "demo", "model": "demo", "input_tokens": 100, "output_tokens": 20, **values},
    )


def blob(session: Session, data: bytes = b"text", **values: Any) -> Blob:
    return Blob.objects.create(
        tenant_id=session.tenant_id,
        subject_id=session.subject_id,
        session=session,
        size=len(data),
        data=data,
        **{"sha256": f"{next(_numbers):064x}", "media_type": "text/plain", "name": "note.txt", **values},
    )


def agent_file(agent: Agent, subject: Subject | None, path: str | None = None, content: str = "text", **values: Any) -> AgentFile:
    """A file that the agent keeps for the subject."""
    made = AgentFile.objects.create(
        tenant_id=agent.tenant_id, agent=agent, subject_id=subject.id if subject else None, path=path or f"/note-{next(_numbers)}.md",
        content=content, size=len(content.encode()), sha256=version_of(content), **{"written_by": "tests", **values},
    )  # fmt: skip
    made.refresh_from_db()
    return made


def workspace_file(session: Session, path: str | None = None, content: str = "text", **values: Any) -> WorkspaceFile:
    made = WorkspaceFile.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, session=session, path=path or f"note-{next(_numbers)}.md",
        content=content, size=len(content.encode()), sha256=version_of(content), **{"written_by": "tests", **values},
    )  # fmt: skip
    made.refresh_from_db()
    return made


def aggregation(session: Session, file: AgentFile | None = None, to_seq: int | None = None, **values: Any) -> Aggregation:
    """That a file of the session's agent was made of its items, the first included."""
    file = file or agent_file(session.agent, session.subject, f"/memory/conversations/{next(_numbers)}_{session.id.hex}.md")
    return Aggregation.objects.create(
        tenant_id=session.tenant_id, subject_id=session.subject_id, agent_id=session.agent_id, session_id=session.id,
        owners=[session.id], from_seq=1, to_seq=to_seq or max(1, session.head_seq), turn=session.turns, path=file.path,
        **{"kind": "conversation_summary", "file_id": file.id, "model": "demo/demo-1", **values},
    )  # fmt: skip


def summary(session: Session, to_seq: int | None = None, **values: Any) -> Summary:
    """A usable summary from the first item on."""
    return Summary.objects.create(
        tenant_id=session.tenant_id,
        subject_id=session.subject_id,
        session=session,
        owners=[session.id],
        from_seq=1,
        to_seq=to_seq or session.head_seq,
        **{"text": "They talked.", "tokens": 5, "source_tokens": 50, "model": "demo/demo-1", "settings_digest": "0" * 64, **values},
    )


def idempotency_record(run: Run, key: str | None = None) -> IdempotencyRecord:
    return IdempotencyRecord.objects.create(
        tenant_id=run.tenant_id,
        subject_id=run.subject_id,
        actor_ref=run.actor_ref,
        key=key or f"key-{next(_numbers)}",
        body_sha256="0" * 64,
        run_id=run.id,
    )


def conversation(agent: Agent, subject: Subject | None, **values: Any) -> Session:
    """A session with something in every table that a conversation can leave rows in; its run has ended."""
    made = session(agent, subject, **values)
    ended = run(session=made, input_tokens=120, output_tokens=30)
    call = {"id": "c1", "name": "find_order"}
    items(made, [
        ("message", "user", {"text": "Where is my order?"}),
        ("tool_call", "assistant", {**call, "arguments": {"id": 7}}),
        ("tool_result", "tool", {**call, "text": "on its way", "outcome": "success"}),
        ("message", "assistant", {"text": "It is on its way."}),
    ], run=ended)  # fmt: skip
    event(ended, 1, "run.started", {"agent": agent.name})
    event(ended, 2, "run.completed", {"status": "completed"})
    model_call(ended)
    approval(ended, status=Approval.Status.APPROVED, decided_by="operator")
    rule(agent, made)
    blob(made)
    workspace_file(made)
    summary(made)
    idempotency_record(ended)
    return made
