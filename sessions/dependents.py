"""What an agent leaves on this floor: its sessions, and its runs without one. Deleting an agent counts and takes them."""

from agents import dependents
from agents.models import Agent
from governance.actors import Actor
from governance.domain import fences, registry
from sessions.domain import sessions
from sessions.errors import SessionBusy
from sessions.models import AgentFile, Approval, IdempotencyRecord, ModelCall, Run, RunEvent, Session


def count_sessions(agent: Agent) -> int:
    return Session.objects.filter(tenant_id=agent.tenant_id, agent=agent).count()


def delete_sessions(agent: Agent, by: Actor) -> None:
    """Each as if it were deleted by itself. Raises SessionBusy while one of them has a running turn."""
    for session in Session.objects.filter(tenant_id=agent.tenant_id, agent=agent).order_by("id").iterator(chunk_size=500):
        sessions.delete(session=session, by=by)


def count_runs(agent: Agent) -> int:
    return Run.objects.filter(tenant_id=agent.tenant_id, agent=agent, session=None).count()


def delete_runs(agent: Agent, by: Actor) -> None:
    """Runs without a session, leaf first. Raises SessionBusy while one of them works, Held under a legal hold."""
    by.require("sessions.delete")
    runs = Run.objects.filter(tenant_id=agent.tenant_id, agent=agent, session=None)
    if runs.exclude(status__in=Run.FINISHED).exists():
        raise SessionBusy("A run of this agent is still working. Wait for it to end, or cancel it, and delete the agent again.")
    ids = runs.values("id")
    with fences.told():
        IdempotencyRecord.objects.filter(tenant_id=agent.tenant_id, run_id__in=ids).delete()
        for model in (RunEvent, ModelCall, Approval):
            model.objects.filter(run_id__in=ids).delete()
        runs.delete()


def count_files(agent: Agent) -> int:
    return AgentFile.objects.filter(tenant_id=agent.tenant_id, agent=agent).count()


def delete_files(agent: Agent, by: Actor) -> None:
    """What it keeps between sessions; files of the whole tenant stay. Raises Held under a legal hold."""
    by.require("sessions.delete")
    with fences.told():
        registry.get("agent_files").delete_where("t.tenant_id = %s AND t.agent_id = %s", [agent.tenant_id, agent.id])


dependents.register("sessions", count=count_sessions, delete=delete_sessions)
dependents.register("runs without a session", count=count_runs, delete=delete_runs)
dependents.register("files", count=count_files, delete=delete_files)
