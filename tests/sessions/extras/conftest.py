from decimal import Decimal
from uuid import UUID

import pytest

from agents import tools
from governance.actors import Actor
from governance.ids import uuid7
from governance.permissions import of_scopes
from sessions import dispatch
from sessions.domain import metering, quotas
from sessions.models import QuotaCounter, Run
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.governance.snapshots import rows_of


@pytest.fixture(autouse=True)
def fresh_quotas():
    """No test goes by what another one read of a tenant's quotas."""
    metering.forget()
    yield
    metering.forget()


@pytest.fixture
def tenant(db):
    return people.tenant()


@pytest.fixture
def stranger(db):
    return people.tenant()


@pytest.fixture
def lethe(tenant):
    return people.lethe(tenant)


@pytest.fixture
def operator(tenant):
    return people.actor(tenant, "operator")


@pytest.fixture
def viewer(tenant):
    return people.actor(tenant, "viewer")


@pytest.fixture
def agent(tenant):
    return made.agent(tenant)


@pytest.fixture
def subject(tenant):
    return people.subject(tenant)


@pytest.fixture
def session(agent, subject):
    return made.session(agent, subject)


@pytest.fixture
def started(monkeypatch):
    """Ids of the runs that were handed to the engine."""
    ids: list[UUID] = []
    monkeypatch.setattr(dispatch, "submit", ids.append)
    return ids


@pytest.fixture
def send_mail():
    @tools.register_tool(effect="external", origin="code:tests")
    async def send_mail(context, *, to: str, text: str, urgent: bool = False) -> str:
        """Send a mail."""
        return "sent"

    yield tools.get("send_mail")
    tools.unregister_tool("send_mail")


@pytest.fixture
def waiting(session):
    return made.run(session=session, status=Run.Status.AWAITING_APPROVAL)


@pytest.fixture
def approval(waiting):
    return made.approval(waiting)


def key_for(subject):
    return Actor(subject.tenant_id, "api_key", uuid7().hex, "key", of_scopes(["runs:write"]), subject.id)


def fill(agent, subject, lethe):
    """Something of the subject in every category; texts carry the subject's id as a canary."""
    session = made.conversation(agent, subject, title=f"About {subject.id.hex}")
    made.item(session, content={"text": f"I am {subject.id.hex}"})
    made.summary(session, text=f"The person is {subject.id.hex}")
    made.agent_file(agent, subject, content=f"Notes on {subject.id.hex}")
    made.aggregation(session, made.agent_file(agent, subject))
    quota = quotas.create_quota(
        tenant_id=agent.tenant_id, scope="subject", scope_ref=subject.id.hex, measure="runs", period="day", limit=50, by=lethe
    )
    run = made.run(session=session, cost=Decimal("0.25"), metadata={"who": subject.id.hex}, started_by=f"key of {subject.id.hex}")
    made.model_call(run, cost=Decimal("0.25"), context=[{"layer": "history", "tokens": 5, "sources": [subject.id.hex]}])
    quotas.reserve(tenant_id=agent.tenant_id, agent_id=agent.id, actor=lethe, subject_id=subject.id, run_id=run.id)
    assert QuotaCounter.objects.filter(quota=quota).exists()
    return session


@pytest.fixture
def neighbours(agent, tenant, stranger, lethe):
    """Somebody else of the tenant, and somebody of another tenant."""
    near = people.subject(tenant)
    fill(agent, near, lethe)
    far = people.subject(stranger)
    fill(made.agent(stranger), far, people.lethe(stranger))
    return near, far


def kept_of(subjects):
    return [rows_of("subject_id", subject.id) for subject in subjects]


@pytest.fixture
def limit(tenant, operator):
    def create(measure="runs", number=2, scope="tenant", period="day", **values):
        return quotas.create_quota(
            tenant_id=tenant.id, scope=scope, measure=measure, period=period, limit=number, by=operator, **values
        )

    return create


@pytest.fixture
def start(tenant, agent, lethe):
    """Reserve for a new run and return its id."""

    def reserve_one(actor=None, subject=None, of=None, **values):
        run_id = uuid7()
        quotas.reserve(
            tenant_id=tenant.id, agent_id=(of or agent).id, actor=actor or lethe,
            subject_id=subject.id if subject else None, run_id=run_id, **values,
        )  # fmt: skip
        return run_id

    return reserve_one
