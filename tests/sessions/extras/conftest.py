import pytest

from sessions.domain import metering
from tests.factories import governance as people
from tests.factories import sessions as made


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
