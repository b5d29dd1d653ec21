"""A tenant with real demo agents: these tests run real turns on the built-in demo model."""

import time

import pytest
from django.db import connection

from agents.domain import providers, utility
from agents.domain.demo import seed_demo_agents
from agents.queries import agent_named
from governance.actors import system
from governance.domain import subjects, tenants
from sessions.domain import definitions, runs
from sessions.domain.runs import RunRequest
from sessions.engine import background, runner
from sessions.models import Run
from tests.wire.replies import said
from tests.wire.threaded import serving


@pytest.fixture(autouse=True)
def fresh_definitions():
    definitions.forget()
    yield
    definitions.forget()


@pytest.fixture
def tenant(db):
    return tenants.create_tenant(slug="acme", name="Acme")


@pytest.fixture
def actor(tenant):
    return system(tenant.id, "test")


@pytest.fixture
def stranger(db):
    return system(tenants.create_tenant(slug="stranger", name="Stranger").id, "stranger")


@pytest.fixture
def agent(tenant, actor):
    """The plain demo agent: no harness, tools for the time and for counting."""
    seed_demo_agents(tenant_id=tenant.id, by=actor)
    return agent_named(tenant_id=tenant.id, name="research")


@pytest.fixture
def subject(tenant):
    return subjects.resolve(tenant_id=tenant.id, value="person-1")


def finished(run, *, seconds=20.0, statuses=Run.FINISHED):
    """The run once it is over; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run = Run.objects.get(id=run.id)
        if run.status in statuses:
            return run
        connection.close()
        time.sleep(0.01)
    raise AssertionError(f"the run is still {run.status}")


def rested():
    """Wait for runs to leave this process, and for what is written after them: a run is over before that begins."""
    engine = runner.runner()
    for run_id in Run.objects.values_list("id", flat=True):
        engine.wait(run_id)
    engine.call(background.finished()).result(60)


@pytest.fixture
def say(actor, agent):
    """Send a message to the demo agent and wait for the end of its run."""

    def send(message, *, key="case-1", by=None, agent_name=None, subject=None, **more):
        run = runs.start(
            agent_name=agent_name or agent.name, request=RunRequest(message=message, session_key=key), by=by or actor,
            subject=subject, **more,
        )  # fmt: skip
        return finished(run)

    return send


@pytest.fixture
def utility_model(tenant, actor, settings):
    """The provider `small` of the tenant's utility model, which always writes the same: `bodies` has what it was asked."""
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True}
    with serving("chat", *[said("They talked about kettles.")] * 20) as served:
        # It answers as gpt-4o-2026: the price of the name that it is asked for by applies.
        prices = [{"name": "gpt-4o", "input_price": "1", "output_price": "2"}]
        providers.create_provider(
            tenant_id=tenant.id, by=actor, name="small", kind="openai_compatible", base_url=served.base_url, models=prices
        )
        utility.set_utility_model(tenant_id=tenant.id, provider="small", model="gpt-4o", by=actor)
        yield served
