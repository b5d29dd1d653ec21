"""Trying a provider, and the clients of event loops."""

import asyncio

import pytest
from asgiref.sync import sync_to_async

from agents.domain import providers as catalogue
from governance.errors import MissingPermission
from governance.models import AuditEvent
from sessions.domain.providers import test_provider as try_provider
from sessions.engine import providers
from sessions.engine.models import ProviderConfig
from sessions.engine.ping import ping
from tests.factories import governance as people
from tests.sessions.engine.scenes import ALL
from tests.wire.replies import FAILING, UNAUTHORIZED, Status


@pytest.mark.parametrize("protocol", ALL)
async def test_ping_lists_models_and_asks_one(serve, protocol):
    fake, _ = await serve(protocol)

    found = await ping(fake.config(), None)

    assert (found.ok, found.code, found.models) == (True, None, ["model-a", "model-b"])
    assert found.message.endswith("-2026 answered.")
    assert found.latency_ms > 0
    assert len(fake.bodies) == 1


@pytest.mark.parametrize("protocol", ALL)
async def test_ping_with_a_refused_key_asks_nothing_more(serve, protocol):
    fake, _ = await serve(protocol)
    fake.model_status = 401

    found = await ping(fake.config(), "m")

    assert (found.ok, found.code, found.models) == (False, "provider_auth", [])
    assert fake.bodies == []


async def test_ping_of_a_server_without_a_list_asks_the_model(serve):
    fake, _ = await serve("chat")
    fake.model_status = 404

    assert (await ping(fake.config(kind="openai_compatible", limits={}), "llama")).ok
    nothing = await ping(fake.config(kind="openai_compatible", limits={}), None)
    assert (nothing.ok, nothing.code) == (False, "provider_rejected")


async def test_ping_without_any_known_model_is_content_with_the_list(serve):
    fake, _ = await serve("chat")

    found = await ping(fake.config(limits={}), None)

    assert (found.ok, found.models) == (True, ["model-a", "model-b"])
    assert fake.bodies == []


@pytest.mark.parametrize("reply, code", [(UNAUTHORIZED, "provider_auth"), (FAILING, "provider_overloaded"), (Status(404, "{}"), "model_not_found")])
async def test_ping_says_what_is_wrong_with_the_model(serve, reply, code):
    fake, _ = await serve("chat", reply)

    found = await ping(fake.config(), "m")

    assert (found.ok, found.code) == (False, code)
    assert "secret" not in found.message
    assert len(fake.bodies) == 1


async def test_ping_of_nobody():
    found = await ping(ProviderConfig(None, "gone", "openai_compatible", "http://127.0.0.1:9/v1", "chat"), "m")

    assert (found.ok, found.code, found.latency_ms) == (False, "provider_unreachable", None)


async def test_ping_of_the_demo():
    found = await ping(ProviderConfig(None, "demo", "demo"), None)

    assert found.ok
    assert found.models[0] == "demo-1"


@pytest.fixture
def tenant(db):
    return people.tenant()


@pytest.mark.django_db(transaction=True)
async def test_trying_a_provider_is_audited_and_kept(serve, settings):
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True}
    fake, _ = await serve("chat")

    def act():
        tenant = people.tenant()
        by = people.actor(tenant, "builder")
        provider = catalogue.create_provider(
            tenant_id=tenant.id, by=by, name="local", kind="openai_compatible", base_url=fake.base_url, key="sk-very-secret"
        )
        result = try_provider(provider=provider, model="llama", by=by)
        provider.refresh_from_db()
        events = list(AuditEvent.objects.filter(action="provider.tested").values_list("object_label", flat=True))
        return result, provider.last_test, events

    result, kept, events = await sync_to_async(act)()

    assert (result["ok"], result["models"], result["model"]) == (True, ["model-a", "model-b"], "llama")
    assert kept == result
    assert events == ["local"]
    assert fake.headers[-1]["authorization"] == "Bearer sk-very-secret"


def test_a_provider_that_may_not_be_called_is_a_result(tenant, settings, monkeypatch):
    by = people.actor(tenant, "builder")
    monkeypatch.delenv("ENGINE_TEST_API_KEY", raising=False)
    provider = catalogue.create_provider(tenant_id=tenant.id, by=by, name="keyless", kind="openai", key_env="ENGINE_TEST_API_KEY")

    result = try_provider(provider=provider, model=None, by=by)

    assert (result["ok"], result["code"], result["latency_ms"]) == (False, "provider_key_unavailable", None)
    assert "ENGINE_TEST_API_KEY" in result["message"]


def test_trying_a_provider_needs_the_permission(tenant):
    builder, reader = people.actor(tenant, "builder"), people.actor(tenant, "viewer")
    provider = catalogue.create_provider(tenant_id=tenant.id, by=builder, name="demo", kind="demo")

    with pytest.raises(MissingPermission):
        try_provider(provider=provider, model=None, by=reader)

    assert try_provider(provider=provider, model=None, by=builder)["ok"]


async def test_each_event_loop_has_a_client_of_its_own():
    here = providers.client()
    there = await asyncio.to_thread(asyncio.run, _client_of_another_loop())

    assert providers.client() is here
    assert there is not here
    await providers.close_clients()
    assert here.is_closed
    assert providers.client() is not here


async def _client_of_another_loop():
    found = providers.client()
    await providers.close_clients()
    return found
