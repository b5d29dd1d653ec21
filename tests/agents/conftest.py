import pytest

from agents import code_defined, dependents, tools
from tests.factories import agents, governance


@pytest.fixture
def tenant(db):
    return governance.tenant("acme")


@pytest.fixture
def stranger(db):
    return governance.tenant("stranger")


@pytest.fixture
def builder(tenant):
    return governance.actor(tenant, "builder", username="ada")


@pytest.fixture
def viewer(tenant):
    return governance.actor(tenant, "viewer", username="vera")


@pytest.fixture
def demo(tenant):
    return agents.provider(tenant)


@pytest.fixture
def registered_tools():
    """Tools may be registered; afterwards there are those from before."""
    before = dict(tools._tools)
    yield
    tools._tools.clear()
    tools._tools.update(before)


@pytest.fixture
def code_agents():
    yield code_defined.register_agent
    code_defined._registered.clear()


@pytest.fixture
def registered_dependents():
    before = dict(dependents._registered)
    dependents._registered.clear()
    yield dependents.register
    dependents._registered.clear()
    dependents._registered.update(before)
