import pytest

from sessions.files.rows import Shelf, Writer
from sessions.models import AgentFile
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.redis_server import Server


@pytest.fixture(scope="session")
def redis_server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server):
    """An empty Redis."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def tenant(db):
    return people.tenant()


@pytest.fixture
def agent(tenant):
    return made.agent(tenant)


@pytest.fixture
def subject(tenant):
    return people.subject(tenant)


@pytest.fixture
def shelf(agent, subject):
    return Shelf(agent.tenant_id, agent.id, subject.id)


@pytest.fixture
def writer(subject):
    return Writer("tests", subject_id=subject.id)


def texts():
    """What is on all shelves: path and text."""
    return dict(AgentFile.objects.order_by("path").values_list("path", "content"))
