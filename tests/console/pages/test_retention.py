from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from console import stepup
from console.views.retention import chart_points
from governance.domain import keeping, retention, retention_runs
from governance.ids import shown
from governance.models import RetentionPolicy, RetentionRun
from sessions.models import Session
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def manager(tenant, sign_in):
    return sign_in(tenant, "records_manager")


@pytest.fixture
def policy(tenant, manager):
    return retention.create_policy(tenant_id=tenant.pk, category="sessions", age_basis="last_activity", days=30, by=manager.actor)


@pytest.fixture
def old_session(tenant):
    made = sessions.session(sessions.agent(tenant, "research"), governance.subject(tenant))
    Session.objects.filter(pk=made.pk).update(last_active_at=timezone.now() - timedelta(days=40))
    return made


def address(name, policy):
    return reverse(name, args=[shown("pol", policy.pk)])


def test_policy_is_made_and_counts_only_at_first(manager, tenant):
    response = manager.post(reverse("policy-new"), {"category": "sessions", "days": "90", "age_basis": "last_activity", "action": "delete"})

    policy = RetentionPolicy.objects.get(tenant=tenant)
    assert response.url == address("policy", policy)
    assert (policy.category, policy.days, policy.age_basis, policy.enabled) == ("sessions", 90, "last_activity", True)
    assert "counting only" in manager.get(response.url).content.decode()


def test_policy_that_cannot_be_is_said_at_the_field(manager, tenant):
    response = manager.post(reverse("policy-new"), {"category": "sessions", "days": "0", "age_basis": "last_activity", "action": "delete"})

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["days"]


def test_policy_twice_is_said(manager, policy):
    response = manager.post(reverse("policy-new"), {"category": "sessions", "days": "9", "age_basis": "last_activity", "action": "delete"})

    assert response.status_code == 422
    assert "same category and agent" in response.content.decode()


def test_policy_is_changed(manager, policy):
    manager.post(address("policy", policy), {"days": "60", "age_basis": "last_activity", "action": "delete", "enabled": "on", "expected_version": "1"})

    policy.refresh_from_db()
    assert (policy.days, policy.version, policy.enabled) == (60, 2, True)


def test_policy_that_somebody_else_changed_is_not_overwritten(manager, policy):
    retention.update_policy(policy=policy, expected_version=1, days=45, by=manager.actor)

    response = manager.post(address("policy", policy), {"days": "60", "age_basis": "last_activity", "action": "delete", "enabled": "on", "expected_version": "1"})

    assert response.status_code == 422
    policy.refresh_from_db()
    assert policy.days == 45


def test_dry_run_shows_what_would_go_and_deletes_nothing(manager, policy, old_session):
    part = manager.post(address("policy-preview", policy), headers={"HX-Request": "true"})
    page = manager.post(address("policy-preview", policy))

    assert page.context["preview"]["eligible"]["rows"] == 1
    assert [point["value"] for point in page.context["points"]] == [1]
    assert part.content.decode().startswith('<section class="card" id="preview"')
    assert Session.objects.filter(pk=old_session.pk).exists()


def test_run_is_started_and_its_history_is_shown(manager, policy, old_session):
    manager.post(address("policy-run", policy), {"expected_version": "1"})
    waiting = manager.get(address("policy", policy)).content.decode()
    retention_runs.work(run_id=RetentionRun.objects.get().pk)
    over = manager.get(address("policy-runs", policy)).content.decode()

    assert 'hx-trigger="every 2s"' in waiting
    assert 'hx-trigger="every 2s"' not in over
    assert "1 would go" in over


def test_run_of_a_changed_policy_is_refused(manager, policy):
    response = manager.post(address("policy-run", policy), {"expected_version": "7"}, follow=True)

    assert "changed after you opened it" in response.content.decode()
    assert not RetentionRun.objects.exists()


def test_policy_ends(manager, policy):
    response = manager.post(address("policy-delete", policy), {"expected_version": "1"})

    assert response.url == reverse("retention")
    assert manager.get(address("policy", policy)).status_code == 404


def test_policy_in_years_is_made_shown_and_changed(manager, tenant):
    sent = {"category": "sessions", "days": "2", "unit": "years", "min_keep": "3", "age_basis": "last_activity", "action": "delete"}
    made = manager.post(reverse("policy-new"), sent)
    page = manager.get(made.url)
    policy = RetentionPolicy.objects.get()
    assert (policy.days, policy.months, policy.min_keep) == (None, 24, 3)
    assert (page.context["form"]["days"].value(), page.context["form"]["unit"].value()) == (2, "years")
    assert "kept 2 years from its last activity, the 3 newest of each person stay" in page.content.decode()

    manager.post(made.url, {**sent, "days": "20", "unit": "months", "expected_version": "1", "enabled": "on"})
    manager.post(made.url, {**sent, "days": "1", "unit": "days", "expected_version": "1", "enabled": "on"})

    policy.refresh_from_db()
    assert (policy.days, policy.months, policy.version) == (None, 20, 2)


def test_policy_shorter_than_the_tenants_minimum_is_said_at_the_field(manager, tenant):
    keeping.change(tenant=tenant, retention_minimum_days={"sessions": 60}, by=governance.lethe(tenant))

    response = manager.post(reverse("policy-new"), {"category": "sessions", "days": "1", "unit": "months", "age_basis": "last_activity", "action": "delete"})

    assert response.status_code == 422
    assert "at least 60 days, says the tenant; 1 month would be shorter" in response.context["form"].errors["days"][0]


@pytest.fixture
def due(policy, old_session):
    """Past its trial, with everything old enough to go."""
    RetentionPolicy.objects.update(dry_run_until=None)
    return policy


def test_large_first_run_is_approved_by_a_second_person(manager, due, tenant, sign_in):
    admin = sign_in(tenant, "tenant_admin")
    assert "needs a second person" in manager.post(address("policy-preview", due)).content.decode()
    refused = manager.post(address("policy-run", due), {"expected_version": "1"}, follow=True)
    assert "would take 100% of its rows" in refused.content.decode()
    assert address("policy-approve", due) in admin.get(address("policy", due)).content.decode()

    admin.post(address("policy-approve", due), {"expected_version": "1"})

    assert f"{admin.actor.label} approved it" in manager.get(address("policy", due)).content.decode()
    manager.post(address("policy-run", due), {"expected_version": "1"})
    retention_runs.work(run_id=RetentionRun.objects.get().pk)
    assert not Session.objects.exists()
    page = manager.get(address("policy", due))
    assert page.context["success"] == RetentionRun.objects.get()
    assert "rows/s" in page.content.decode()


def test_approving_needs_the_role_another_person_and_a_fresh_password(manager, tenant, sign_in, stranger):
    both = sign_in(tenant, "tenant_admin", "records_manager")
    policy = retention.create_policy(tenant_id=tenant.pk, category="sessions", age_basis="last_activity", days=30, by=both.actor)
    where = address("policy-approve", policy)

    assert "You set it yourself" in both.get(address("policy", policy)).content.decode()
    own = both.post(where, {"expected_version": "1"}, follow=True)
    assert "Somebody else must agree to it" in own.content.decode()
    assert (manager.post(where).status_code, stranger.post(where).status_code) == (403, 404)
    admin = sign_in(tenant, "tenant_admin")
    session = admin.session
    session[stepup.KEY] = 0
    session.save()
    admin.post(where, {"expected_version": "1"})
    assert not RetentionPolicy.objects.get().is_approved


def test_dry_run_draws_the_line_between_what_goes_and_what_is_due_soon(manager, policy, old_session, tenant):
    soon = sessions.session(sessions.agent(tenant, "other"), governance.subject(tenant))
    Session.objects.filter(pk=soon.pk).update(last_active_at=timezone.now() - timedelta(days=25))

    page = manager.post(address("policy-preview", policy))

    values = [point["value"] for point in page.context["points"]]
    assert (values[0], values[-1], sum(values)) == (1, 1, 2)
    assert 0 < page.context["cut"] < len(values)
    assert 'class="cut"' in page.content.decode()


@pytest.mark.parametrize("name", ["policy", "policy-preview", "policy-run", "policy-approve", "policy-delete"])
def test_foreign_policy_is_not_found(stranger, policy, name):
    assert stranger.post(address(name, policy), {"expected_version": "1"}).status_code == 404


def test_retention_pages_need_their_roles(viewer, sign_in, tenant, policy):
    auditor = sign_in(tenant, "auditor")

    assert viewer.get(reverse("retention")).status_code == 403
    assert auditor.get(reverse("retention")).status_code == 200
    assert auditor.get(address("policy", policy)).status_code == 200
    assert auditor.post(address("policy-preview", policy)).status_code == 200
    assert auditor.get(reverse("policy-new")).status_code == 403
    assert auditor.post(address("policy", policy), {"days": "1"}).status_code == 403
    assert auditor.post(address("policy-run", policy), {"expected_version": "1"}).status_code == 403
    assert auditor.post(address("policy-delete", policy), {"expected_version": "1"}).status_code == 403


@pytest.mark.parametrize(
    ("days", "told"),
    [(7, "first 7 days"), (1, "n its first day"), (0, "deletes from its first night on")],
)
def test_retention_tells_how_long_a_new_policy_only_counts(manager, tenant, days, told):
    keeping.change(tenant=tenant, retention_dry_run_days=days, by=governance.lethe(tenant))

    for name in ("retention", "policy-new"):
        text = manager.get(reverse(name)).content.decode()
        assert told in text
        assert ("only counts" in text) is (days > 0)


def test_retention_list_has_every_category_and_costs_the_same_for_more_policies(manager, tenant, policy, queries_of):
    one = queries_of(manager, reverse("retention"))
    sessions.agent(tenant, "research")
    for agent in ("research", "other"):
        retention.create_policy(tenant_id=tenant.pk, category="sessions", agent=agent, age_basis="last_activity", days=9, by=manager.actor)

    assert queries_of(manager, reverse("retention")) == one
    page = manager.get(reverse("retention")).content.decode()
    assert "only of research" in page
    assert "Identifiers" in page


def test_long_histories_share_columns():
    points = chart_points([{"day": "2020-01-01", "rows": 3}, {"day": "2026-01-01", "rows": 4}])

    assert len(points) <= 60
    assert sum(point["value"] for point in points) == 7
