"""Providers and tools over the API."""

import pytest

from agents.models import Provider
from tests.console.api.conftest import problem
from tests.factories import sessions

BODY = {"name": "main", "kind": "openai", "key": "sk-secret-1234", "models": [{"name": "gpt-5", "inputPrice": "0.25", "context_window": 400000}]}


def test_create_never_shows_the_key(api, world):
    answer = api.post("/providers", BODY)

    assert answer.status_code == 201, answer.content
    assert answer["Location"] == "/api/providers/main"
    shown = answer.json()
    assert (shown["has_key"], shown["key_hint"]) == (True, "1234")
    assert "sk-secret" not in answer.content.decode()
    assert b"sk-secret" not in bytes(Provider.objects.get(tenant=world.tenant, name="main").key_enc)
    assert shown["models"][0]["input_price"] == "0.25"


@pytest.mark.parametrize(
    "change, path",
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"kind": "other"}, "kind"),
        ({"models": [{"name": "m", "input_price": "-1"}]}, "models.0.input_price"),
        ({"models": [{}]}, "models.0.name"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"api": "soap"}, "api"),
    ],
)
def test_create_refuses_settings_that_make_no_sense(api, change, path):
    answer = api.post("/providers", {**BODY, **change})

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == [path]


def test_private_address_is_refused(api):
    answer = api.post("/providers", {"name": "inner", "kind": "openai_compatible", "base_url": "http://169.254.169.254/v1"})

    assert answer.status_code in (400, 403)
    problem(answer)


def test_create_refuses_a_name_that_is_taken(api):
    answer = api.post("/providers", {"name": "demo", "kind": "demo"})

    assert (answer.status_code, problem(answer)["code"]) == (409, "provider_exists")


def test_change_leaves_the_key_alone_unless_it_is_sent(api, world):
    api.post("/providers", BODY)

    api.patch("/providers/main", {"max_concurrency": 4})
    kept = Provider.objects.get(tenant=world.tenant, name="main")
    api.patch("/providers/main", {"key": ""})
    removed = Provider.objects.get(tenant=world.tenant, name="main")

    assert (kept.max_concurrency, bool(kept.key_enc)) == (4, True)
    assert removed.key_enc is None


def test_delete_refuses_while_agents_use_it(api, world):
    sessions.provider(world.tenant, name="unused")

    used = api.delete("/providers/demo")
    unused = api.delete("/providers/unused")

    assert (used.status_code, problem(used)["code"]) == (409, "provider_in_use")
    assert unused.status_code == 204


def test_demo_provider_passes_its_test(api):
    answer = api.post("/providers/demo/test", {})

    assert answer.status_code == 200, answer.content
    assert answer.json()["ok"] is True


def test_tools_are_listed_with_schema_and_effect(api):
    listed = api.get("/tools").json()["results"]
    clock = api.get("/tools/current_time").json()

    assert [tool["name"] for tool in listed] == sorted(tool["name"] for tool in listed)
    assert clock in listed
    assert (clock["effect"], clock["schema"]["type"]) == ("read", "object")
    assert api.get("/tools/none").status_code == 404


def test_price_of_searches_is_kept_as_it_was_sent(api, world):
    shown = api.post("/providers", {**BODY, "pricing": {"webSearch": "10.50"}}).json()
    changed = api.patch("/providers/main", {"pricing": {}}).json()
    refused = api.patch("/providers/main", {"pricing": {"web_search": -1}})

    assert (shown["pricing"], changed["pricing"]) == ({"web_search": "10.5"}, {})
    assert list(problem(refused)["errors"]) == ["pricing.web_search"]


def test_utility_model_is_read_set_and_cleared(api, world):
    none = api.get("/utility-model")
    put = api.put("/utility-model", {"provider": "demo", "model": "small"})
    read = api.get("/utility-model")
    refused = api.delete("/providers/demo")
    cleared = api.delete("/utility-model")
    after = api.get("/utility-model")

    nothing, chosen = {"provider": None, "model": None}, {"provider": "demo", "model": "small"}
    assert [answer.status_code for answer in (none, put, read, cleared, after)] == [200, 200, 200, 204, 200]
    assert [answer.json() for answer in (none, put, read, after)] == [nothing, chosen, chosen, nothing]
    assert (refused.status_code, problem(refused)["utility_model"]) == (409, True)


def test_clearing_the_utility_model_twice_is_no_mistake(api):
    assert [api.delete("/utility-model").status_code for _ in range(2)] == [204, 204]


@pytest.mark.parametrize(
    "body, paths",
    [
        ({"provider": "demo"}, ["model"]),
        ({"provider": "demo", "model": ""}, ["model"]),
        ({"provider": "demo", "model": "   "}, ["model"]),
        ({"provider": "demo", "model": "x" * 201}, ["model"]),
        ({"provider": "demo", "model": None}, ["model"]),
        ({"provider": "nobody", "model": "small"}, ["provider"]),
        ({"provider": "off", "model": "small"}, ["provider"]),
        ({"provider": "theirs", "model": "small"}, ["provider"]),
        ({"provider": ["demo"], "model": "small"}, ["provider"]),
    ],
)
def test_utility_model_that_cannot_be_is_refused_by_field(api, world, stranger, body, paths):
    sessions.provider(world.tenant, name="off", is_disabled=True)
    sessions.provider(stranger.tenant, name="theirs")

    answer = api.put("/utility-model", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == paths
    assert api.get("/utility-model").json() == {"provider": None, "model": None}


def test_utility_model_needs_the_scopes_of_providers(world):
    reader, other = world.key("agents:read"), world.key("runs:read")

    assert reader.get("/utility-model").status_code == 200
    assert reader.put("/utility-model", {"provider": "demo", "model": "small"}).status_code == 403
    assert reader.delete("/utility-model").status_code == 403
    assert other.get("/utility-model").status_code == 403


def test_utility_model_of_another_tenant_is_not_shown(api, stranger):
    sessions.provider(stranger.tenant, name="demo")
    stranger.api.put("/utility-model", {"provider": "demo", "model": "theirs"})

    assert api.get("/utility-model").json() == {"provider": None, "model": None}
    assert stranger.api.get("/utility-model").json()["model"] == "theirs"
