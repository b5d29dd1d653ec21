"""Lengths, minimums and the second person of retention policies over the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from governance.domain import keeping
from governance.models import RetentionPolicy
from sessions.models import Session
from tests.console.api.conftest import browser, problem
from tests.factories import governance, sessions


@pytest.fixture
def due(api, world):
    """A policy past its trial that would take most of the sessions, made by a key without an owner."""
    for _ in range(8):
        sessions.session(world.agent, governance.subject(world.tenant), ended_at=timezone.now() - timedelta(days=40))
    made = api.post("/retention-policies", {"category": "sessions", "days": 30}).json()
    RetentionPolicy.objects.filter(category="sessions").update(dry_run_until=None)
    return f"/retention-policies/{made['id']}"


def test_policy_in_months_that_keeps_the_newest(api):
    made = api.post("/retention-policies", {"category": "sessions", "months": 24, "min_keep": 3}).json()
    path = f"/retention-policies/{made['id']}"
    assert (made["days"], made["months"], made["min_keep"], made["approved_version"]) == (None, 24, 3, None)

    changed = api.patch(path, {"expected_version": 1, "days": 90, "min_keep": 0}).json()

    assert (changed["days"], changed["months"], changed["min_keep"], changed["version"]) == (90, None, 0, 2)


@pytest.mark.parametrize(
    ("length", "field"),
    [({}, "days"), ({"days": 3, "months": 3}, "months"), ({"months": 0}, "months"), ({"days": 3, "min_keep": -1}, "min_keep"), ({"months": 1}, "months")],
)
def test_length_that_cannot_be_is_said_at_its_field(api, world, length, field):
    keeping.change(tenant=world.tenant, retention_minimum_days={"sessions": 60}, by=governance.lethe(world.tenant))

    answer = api.post("/retention-policies", {"category": "sessions", **length})

    assert (answer.status_code, list(problem(answer)["errors"])) == (400, [field])


def test_first_large_run_waits_for_a_second_person(api, world, due):
    preview = api.post(f"{due}/preview").json()
    refused = api.post(f"{due}/run", {"expected_version": 1})
    assert preview["needs_approval"] is True
    assert (refused.status_code, problem(refused)["code"], problem(refused)["share"]) == (409, "needs_approval", preview["share_of_table"])

    answer = browser(world.tenant, "tenant_admin").post(f"{due}/approve", {"expected_version": 1})

    assert (answer.status_code, answer.json()["approved_version"]) == (200, 1), answer.content
    assert answer.json()["approved_at"].endswith("Z")
    assert api.post(f"{due}/preview").json()["needs_approval"] is False
    assert api.post(f"{due}/run", {"expected_version": 1}).status_code == 202
    assert Session.objects.filter(ended_at__isnull=False).count() == 8


def test_approving_is_for_another_person_with_a_session(api, world, due):
    both = browser(world.tenant, "tenant_admin", "records_manager")
    RetentionPolicy.objects.filter(category="sessions").update(author_person=both.session["_auth_user_id"].replace("-", ""))
    cases = {
        "key": api,
        "author": both,
        "no token": browser(world.tenant, "tenant_admin", csrf=False),
        "old sign-in": browser(world.tenant, "tenant_admin", proven=False),
        "records manager": browser(world.tenant, "records_manager"),
    }

    answers = {name: client.post(f"{due}/approve", {"expected_version": 1}) for name, client in cases.items()}
    late = browser(world.tenant, "tenant_admin").post(f"{due}/approve", {"expected_version": 7})

    assert {name: (answer.status_code, problem(answer)["code"]) for name, answer in answers.items()} == {
        "key": (403, "missing_permission"), "author": (403, "self_approval"), "no token": (403, "forbidden"),
        "old sign-in": (403, "step_up_required"), "records manager": (403, "missing_permission"),
    }  # fmt: skip
    assert (late.status_code, problem(late)["code"]) == (409, "version_conflict")
    assert not RetentionPolicy.objects.exclude(approver="").exists()
