"""Deleting an agent together with what people said to it."""

import pytest

from agents import dependents
from agents.domain import definitions
from agents.errors import AgentInUse
from agents.models import Agent
from governance.errors import MissingPermission
from sessions.errors import SessionBusy
from sessions.models import Approval, Blob, IdempotencyRecord, Item, ModelCall, Run, RunEvent, Session, WorkspaceFile
from tests.factories import governance
from tests.factories import sessions as made

LEFT = (Session, Item, Run, RunEvent, ModelCall, Approval, Blob, WorkspaceFile, IdempotencyRecord)


@pytest.fixture
def tenant(db):
    return governance.tenant()


@pytest.fixture
def agent(tenant):
    """An agent with two conversations, one forked from the other's items, and a run without a session."""
    agent = made.agent(tenant, "mine")
    first = made.conversation(agent, governance.subject(tenant))
    made.conversation(agent, None)
    made.session(agent, first.subject, shared=[[str(first.id), 1, 2]])
    sessionless = made.run(agent)
    made.event(sessionless)
    made.model_call(sessionless)
    made.idempotency_record(sessionless)
    return agent


def rows(**where):
    return {model.__name__: model.objects.filter(**where).count() for model in LEFT}


def test_agent_is_kept_while_anything_belongs_to_it(tenant, agent):
    by = governance.actor(tenant, "builder", "operator")

    with pytest.raises(AgentInUse) as refused:
        definitions.delete_agent(agent=agent, by=by)

    assert refused.value.extra["counts"] == {"sessions": 3, "runs without a session": 1} == dependents.counts(agent)
    assert Agent.objects.filter(pk=agent.pk).exists()


def test_agent_takes_everything_along_and_nothing_of_others(tenant, agent):
    neighbour = made.agent(tenant, "neighbour")
    made.conversation(neighbour, governance.subject(tenant))
    made.event(made.run(neighbour))
    by = governance.actor(tenant, "builder", "operator")
    before = rows()
    kept = {
        "Session": 1, "Item": 4, "Run": 2, "RunEvent": 3, "ModelCall": 1, "Approval": 1, "Blob": 1, "WorkspaceFile": 1,
        "IdempotencyRecord": 1,
    }  # fmt: skip

    definitions.delete_agent(agent=agent, with_sessions=True, by=by)

    assert rows() == kept
    assert all(before[name] > kept[name] for name in kept)
    assert list(Agent.objects.all()) == [neighbour]


def test_who_may_not_delete_sessions_may_not_delete_them_through_an_agent(tenant, agent):
    before = rows()

    with pytest.raises(MissingPermission):
        definitions.delete_agent(agent=agent, with_sessions=True, by=governance.actor(tenant, "builder"))

    assert rows() == before


def test_working_run_stops_the_deletion_whole(tenant, agent):
    made.run(agent, status=Run.Status.RUNNING)
    before = rows()

    with pytest.raises(SessionBusy):
        definitions.delete_agent(agent=agent, with_sessions=True, by=governance.actor(tenant, "builder", "operator"))

    assert rows() == before
    assert Agent.objects.filter(pk=agent.pk).exists()
