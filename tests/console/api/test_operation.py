"""Keys, members, the tenant, usage and quotas over the API."""

import pytest

from governance.models import ApiKey, Membership
from tests.console.api.conftest import Api, problem


def test_new_key_is_shown_once_and_works(api):
    answer = api.post("/api-keys", {"name": "shop", "scopes": ["agents:read"]})

    assert answer.status_code == 201
    assert answer["Cache-Control"] == "no-store"
    made = answer.json()
    assert Api(made["secret"]).get("/me").json()["id"] == made["id"]
    assert "secret" not in api.get(answer["Location"].removeprefix("/api")).json()
    assert made["secret"] not in api.get("/api-keys").content.decode()
    assert not ApiKey.objects.filter(digest=made["secret"]).exists()


@pytest.mark.parametrize(
    "body, errors",
    [
        ({"scopes": ["agents:read"]}, ["name"]),
        ({"name": "", "scopes": ["agents:read"]}, ["name"]),
        ({"name": "x", "scopes": []}, ["scopes"]),
        ({"name": "x", "scopes": ["everything"]}, ["scopes.0"]),
        ({"name": "x", "scopes": "agents:read"}, ["scopes"]),
        ({"name": "x", "scopes": ["agents:read"], "expires_at": "2000-01-01T00:00:00Z"}, ["expires_at"]),
        ({"name": "x" * 101, "scopes": ["agents:read"]}, ["name"]),
    ],
)
def test_key_that_makes_no_sense_is_refused(api, body, errors):
    answer = api.post("/api-keys", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors


def test_key_cannot_make_a_key_that_may_do_more(world):
    answer = world.key("admin").post("/api-keys", {"name": "more", "scopes": ["governance:write"]})

    assert answer.status_code == 403


def test_key_name_is_taken_while_the_key_lives(api, world):
    assert api.post("/api-keys", {"name": "application", "scopes": ["agents:read"]}).status_code == 409


def test_revoked_key_stays_listed_apart(api, world):
    other = api.post("/api-keys", {"name": "shop", "scopes": ["agents:read"]}).json()

    assert [api.delete(f"/api-keys/{other['id']}").status_code for _ in range(2)] == [204, 204]
    assert Api(other["secret"]).get("/me").status_code == 401
    assert [row["name"] for row in api.get("/api-keys").json()["results"]] == ["application"]
    assert [row["name"] for row in api.get("/api-keys?revoked=true").json()["results"]] == ["shop"]


def test_new_member_gets_a_one_time_password(api, world):
    answer = api.post("/members", {"username": "ada", "displayName": "Ada", "roles": ["viewer", "builder"]})

    assert answer.status_code == 201
    made = answer.json()
    assert (made["username"], made["roles"], made["one_time_password"] is not None) == ("ada", ["viewer", "builder"], True)
    assert "one_time_password" not in api.get(f"/members/{made['id']}").json()


@pytest.mark.parametrize(
    "body, errors",
    [
        ({"username": "a b", "roles": ["viewer"]}, ["username"]),
        ({"username": "ada", "roles": []}, ["roles"]),
        ({"username": "ada", "roles": ["king"]}, ["roles.0"]),
        ({"username": "ada"}, ["roles"]),
    ],
)
def test_member_that_makes_no_sense_is_refused(api, body, errors):
    answer = api.post("/members", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors


def test_roles_change_and_access_ends(api, world):
    path = f"/members/mem_{world.membership.id.hex}"

    assert api.patch(path, {"roles": ["operator"]}).json()["roles"] == ["operator"]
    assert api.delete(path).status_code == 204
    assert not Membership.objects.filter(id=world.membership.id).exists()


def test_last_administrator_stays(api, world):
    made = api.post("/members", {"username": "ada", "roles": ["tenant_admin"]}).json()

    answer = api.delete(f"/members/{made['id']}")

    assert (answer.status_code, problem(answer)["code"]) == (409, "last_administrator")


def test_tenant_is_renamed(api):
    answer = api.patch("/tenant", {"name": "Acme Ltd", "timezone": "Europe/Zurich"})

    assert (answer.status_code, answer.json()["name"], answer.json()["timezone"]) == (200, "Acme Ltd", "Europe/Zurich")


@pytest.mark.parametrize("body, errors", [({"timezone": "Mars/Olympus"}, ["timezone"]), ({"name": ""}, ["name"]), ({"slug": "x"}, ["slug"])])
def test_tenant_refuses_what_makes_no_sense(api, body, errors):
    answer = api.patch("/tenant", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors


def test_usage_is_told_by_day(api):
    answer = api.get("/usage?days=7").json()

    assert len(answer["days"]) == 7
    assert answer["totals"]["runs"] == sum(day["runs"] for day in answer["days"]) == 2
    assert api.get("/usage?agent=support").json()["totals"]["runs"] == 2
    assert api.get("/usage?agent=nobody").status_code == 404


def test_quota_shows_what_is_used_of_it(api, world):
    shown = api.get(f"/quotas/quo_{world.quota.id.hex}").json()

    assert (shown["scope"], shown["limit"], shown["used"], shown["reserved"]) == ("tenant", "1000", "0", "0")
    assert shown["resets_at"].endswith("Z")


def test_quota_is_made_changed_and_deleted(api, world):
    body = {"scope": "agent", "scopeRef": f"agt_{world.agent.id.hex}", "measure": "cost", "period": "month", "limit": 12.5}

    made = api.post("/quotas", body)
    path = made["Location"].removeprefix("/api")

    assert (made.status_code, made.json()["limit"], made.json()["scope_ref"]) == (201, "12.5", world.agent.id.hex)
    assert api.post("/quotas", body).status_code == 409
    assert api.patch(path, {"limit": "20"}).json()["limit"] == "20"
    assert [api.delete(path).status_code for _ in range(2)] == [204, 404]


@pytest.mark.parametrize(
    "change, errors",
    [
        ({"limit": "-1"}, ["limit"]),
        ({"limit": "many"}, ["limit"]),
        ({"limit": "1.5"}, ["limit"]),
        ({"scope": "world"}, ["scope"]),
        ({"scope_ref": "x"}, ["scope_ref"]),
        ({"scope": "agent", "scope_ref": "0" * 32}, ["scope_ref"]),
        ({"limit": "1e30"}, ["limit"]),
        ({"limit": "NaN"}, ["limit"]),
    ],
)
def test_quota_that_makes_no_sense_is_refused(api, change, errors):
    answer = api.post("/quotas", {"scope": "tenant", "measure": "tokens", "period": "day", "limit": "10", **change})

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors
