"""Members, API keys, the tenant, quotas."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from governance.domain import keeping, keys
from governance.errors import Unauthenticated
from governance.ids import shown
from governance.models import ApiKey, Member, Membership
from sessions.domain import quotas
from sessions.models import Quota
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db


def mem(membership):
    return shown("mem", membership.pk)


@pytest.fixture
def colleague(tenant):
    return governance.member(tenant, ("viewer",), username="ben").memberships.get()


@pytest.fixture
def key(tenant, owner):
    return keys.create_key(tenant_id=tenant.pk, name="crm", scopes=["runs:write"], by=owner.actor)[0]


# Members


def test_new_member_gets_a_one_time_password_that_works_once(owner, tenant, client):
    response = owner.post(reverse("member-new"), {"username": "Cleo", "display_name": "Cleo C", "roles": ["builder", "viewer"]})

    password = re.search(r'<code id="secret">([^<]+)</code>', response.content.decode())[1]
    membership = Membership.objects.get(tenant=tenant, member__username="cleo")
    assert sorted(membership.roles) == ["builder", "viewer"]
    entered = client.post(reverse("sign-in"), {"username": "cleo", "password": password})
    assert client.get(entered.url).url == reverse("change-password")
    assert response["Cache-Control"].startswith("max-age=0, no-cache, no-store")


def test_member_who_exists_keeps_their_password(owner, tenant):
    governance.member(governance.tenant(), username="dora")

    response = owner.post(reverse("member-new"), {"username": "dora", "roles": ["viewer"]}, follow=True)

    assert response.redirect_chain == [(reverse("members"), 302)]
    assert "signs in with the password they already have" in response.content.decode()


def test_new_member_needs_a_role(owner):
    response = owner.post(reverse("member-new"), {"username": "cleo"})

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["roles"]


def test_member_twice_is_said_at_the_field(owner, colleague):
    response = owner.post(reverse("member-new"), {"username": "ben", "roles": ["viewer"]})

    assert response.status_code == 422
    assert response.context["form"].errors == {"username": ["Already a member."]}


def test_roles_are_changed(owner, colleague):
    owner.post(reverse("member", args=[mem(colleague)]), {"roles": ["operator"]})

    colleague.refresh_from_db()
    assert colleague.roles == ["operator"]


def test_last_administrator_stays(owner):
    response = owner.post(reverse("member", args=[mem(owner.membership)]), {"roles": ["viewer"]})

    assert response.status_code == 422
    assert "last administrator" in response.content.decode()


def test_name_that_another_tenant_gave_is_not_shown(owner, tenant, colleague):
    elsewhere = governance.member(governance.tenant("contoso"), username="dora")
    elsewhere.display_name = "Dora of Contoso"
    elsewhere.save(update_fields=["display_name"])
    elsewhere.memberships.update(display_name="Dora of Contoso")

    owner.post(reverse("member-new"), {"username": "dora", "display_name": "", "roles": ["viewer"]})

    membership = Membership.objects.get(tenant=tenant, member=elsewhere)
    for url in (reverse("members"), reverse("members") + "?q=dora", reverse("member", args=[mem(membership)])):
        page = owner.get(url).content.decode()
        assert "dora" in page
        assert "Contoso" not in page
    assert "dora" not in owner.get(reverse("members"), {"q": "Contoso"}).content.decode().split("<tbody", 1)[-1].split("</tbody")[0]


def test_password_is_reset(owner, colleague):
    response = owner.post(reverse("member-reset", args=[mem(colleague)]))

    password = re.search(r'<code id="secret">([^<]+)</code>', response.content.decode())[1]
    member = Member.objects.get(username="ben")
    assert member.check_password(password)
    assert member.must_change_password


def test_password_of_an_account_of_two_tenants_is_not_reset(owner, colleague):
    Membership.objects.create(tenant=governance.tenant("contoso"), member=colleague.member, roles=["viewer"])
    before = Member.objects.get(username="ben").password

    response = owner.post(reverse("member-reset", args=[mem(colleague)]), follow=True)

    assert "also signs in elsewhere" in response.content.decode()
    assert Member.objects.get(username="ben").password == before


def test_member_is_removed(owner, colleague, tenant):
    response = owner.post(reverse("member-remove", args=[mem(colleague)]))

    assert response.url == reverse("members")
    assert not Membership.objects.filter(pk=colleague.pk).exists()


@pytest.mark.parametrize("name", ["member", "member-reset", "member-remove"])
def test_foreign_member_is_not_found(stranger, colleague, name):
    assert stranger.post(reverse(name, args=[mem(colleague)]), {"roles": ["viewer"]}).status_code == 404


def test_member_pages_need_their_roles(viewer, sign_in, tenant, colleague):
    auditor = sign_in(tenant, "auditor")

    assert viewer.get(reverse("members")).status_code == 403
    assert auditor.get(reverse("members")).status_code == 200
    assert auditor.get(reverse("member", args=[mem(colleague)])).status_code == 200
    assert auditor.get(reverse("member-new")).status_code == 403
    assert auditor.post(reverse("member", args=[mem(colleague)]), {"roles": ["tenant_admin"]}).status_code == 403
    assert auditor.post(reverse("member-reset", args=[mem(colleague)])).status_code == 403
    assert auditor.post(reverse("member-remove", args=[mem(colleague)])).status_code == 403


def test_member_list_finds_by_name(owner, colleague):
    response = owner.get(reverse("members"), {"q": "BEN"}, headers={"HX-Request": "true"})

    assert [membership.member.username for membership in response.context["page"]] == ["ben"]
    assert "<html" not in response.content.decode()


def test_member_list_costs_the_same_for_more_rows(owner, tenant, queries_of):
    one = queries_of(owner, reverse("members"))
    for _ in range(2):
        governance.member(tenant, ("viewer",))

    assert queries_of(owner, reverse("members")) == one


# Keys


def test_key_is_created_and_shown_once(owner, tenant):
    response = owner.post(reverse("key-new"), {"name": "crm", "scopes": ["runs:write", "subjects:assert"], "lifetime": "30"})

    secret = re.search(r'<code id="secret">([^<]+)</code>', response.content.decode())[1]
    key = ApiKey.objects.get(tenant=tenant)
    assert keys.authenticate(secret=secret).ref == key.pk.hex
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)
    assert response["Cache-Control"].startswith("max-age=0, no-cache, no-store")
    assert secret not in owner.get(reverse("keys")).content.decode()


def test_key_may_speak_for_one_subject(owner, tenant):
    owner.post(reverse("key-new"), {"name": "app", "scopes": ["runs:write"], "subject": "customer-7", "lifetime": ""})

    key = ApiKey.objects.get(tenant=tenant)
    assert key.subject == governance.subject(tenant, "customer-7")
    assert key.expires_at is None


def test_key_that_cannot_be_is_said_at_the_field(owner, key):
    response = owner.post(reverse("key-new"), {"name": "crm", "scopes": ["runs:write", "subjects:assert"], "subject": "x"})

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["subject"]


def test_key_is_revoked(owner, tenant):
    key, secret = keys.create_key(tenant_id=tenant.pk, name="crm", scopes=["runs:write"], by=owner.actor)

    owner.post(reverse("key-revoke", args=[shown("key", key.pk)]))

    with pytest.raises(Unauthenticated):
        keys.authenticate(secret=secret)


def test_foreign_key_is_not_found(stranger, key):
    assert stranger.post(reverse("key-revoke", args=[shown("key", key.pk)])).status_code == 404
    key.refresh_from_db()
    assert key.revoked_at is None


def test_key_pages_need_their_roles(viewer, sign_in, tenant, key):
    auditor = sign_in(tenant, "auditor")

    assert viewer.get(reverse("keys")).status_code == 403
    assert auditor.get(reverse("keys")).status_code == 200
    assert auditor.get(reverse("key-new")).status_code == 403
    assert auditor.post(reverse("key-revoke", args=[shown("key", key.pk)])).status_code == 403


def test_key_list_shows_only_its_tenant_and_costs_the_same_for_more_rows(owner, stranger, tenant, key, queries_of):
    keys.create_key(tenant_id=stranger.actor.tenant_id, name="foreign", scopes=["runs:read"], by=stranger.actor)
    one = queries_of(owner, reverse("keys"))
    for name in ("a", "b"):
        keys.create_key(tenant_id=tenant.pk, name=name, scopes=["runs:read"], subject=name, by=owner.actor)

    assert queries_of(owner, reverse("keys")) == one
    assert [row.name for row in owner.get(reverse("keys")).context["page"]] == ["a", "b", "crm"]


# The tenant and its quotas


def test_tenant_is_renamed(owner, tenant):
    owner.post(reverse("tenant"), {"name": "Northwind AG", "timezone": "Europe/Zurich"})

    tenant.refresh_from_db()
    assert (tenant.name, tenant.timezone) == ("Northwind AG", "Europe/Zurich")


def test_tenant_page_is_for_its_administrator(viewer):
    assert viewer.get(reverse("tenant")).status_code == 403


@pytest.fixture
def quota(tenant, owner):
    return quotas.create_quota(tenant_id=tenant.pk, scope="tenant", measure="runs", period="day", limit=100, by=owner.actor)


def test_quota_is_set_for_one_agent(owner, tenant):
    agent = sessions.agent(tenant, "research")

    response = owner.post(reverse("quota-new"), {"scope": "agent", "scope_ref": shown("agt", agent.pk), "measure": "cost", "period": "month", "limit": "12.50"})

    assert response.url == reverse("quotas")
    made = Quota.objects.get(tenant=tenant)
    assert (made.scope, made.scope_ref, made.measure, made.period, f"{made.limit:f}") == ("agent", agent.pk.hex, "cost", "month", "12.500000")


def test_quota_that_cannot_be_is_said_at_the_field(owner, tenant):
    agent = sessions.agent(tenant, "research")

    response = owner.post(reverse("quota-new"), {"scope": "tenant", "scope_ref": shown("agt", agent.pk), "measure": "runs", "period": "day", "limit": "5"})

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["scope_ref"]


def test_quota_is_changed_and_removed(owner, quota):
    ref = shown("quo", quota.pk)
    owner.post(reverse("quota-edit", args=[ref]), {"limit": "250"})
    quota.refresh_from_db()
    changed = quota.limit
    owner.post(reverse("quota-delete", args=[ref]))

    assert changed == 250
    assert not Quota.objects.filter(pk=quota.pk).exists()


def test_foreign_quota_is_not_found(stranger, quota):
    ref = shown("quo", quota.pk)

    assert stranger.post(reverse("quota-edit", args=[ref]), {"limit": "1"}).status_code == 404
    assert stranger.post(reverse("quota-delete", args=[ref])).status_code == 404


def test_quota_pages_need_their_roles(viewer, quota):
    ref = shown("quo", quota.pk)

    assert viewer.get(reverse("quotas")).status_code == 200
    assert viewer.get(reverse("quota-new")).status_code == 403
    assert viewer.post(reverse("quota-edit", args=[ref]), {"limit": "1"}).status_code == 403
    assert viewer.post(reverse("quota-delete", args=[ref])).status_code == 403


def test_quota_list_costs_the_same_for_more_rows(owner, tenant, quota, queries_of):
    one = queries_of(owner, reverse("quotas"))
    for measure in ("tokens", "cost"):
        quotas.create_quota(tenant_id=tenant.pk, scope="tenant", measure=measure, period="day", limit=100, by=owner.actor)

    assert queries_of(owner, reverse("quotas")) == one


# Keeping


def test_rules_of_keeping_are_set_by_the_administrator(sign_in, tenant, viewer):
    admin = sign_in(tenant, "tenant_admin")
    data = {
        "retention_dry_run_days": "3", "retention_second_person_percent": "50", "hold_release_alone": "on",
        "retention_minimum_days": "runs 180\n\nsessions  30",
    }  # fmt: skip

    saved = admin.post(reverse("tenant-keeping"), data, follow=True)
    words = admin.post(reverse("tenant-keeping"), {**data, "retention_minimum_days": "runs long"})
    unknown = admin.post(reverse("tenant-keeping"), {**data, "retention_minimum_days": "dreams 3"})

    tenant.refresh_from_db()
    assert keeping.of(tenant) == keeping.Keeping(3, 50, {"runs": 180, "sessions": 30}, True)
    assert "The rules hold from now on" in saved.content.decode()
    assert saved.context["keeping_form"]["retention_minimum_days"].value() == "runs 180\nsessions 30"
    for bad in (words, unknown):
        assert (bad.status_code, list(bad.context["keeping_form"].errors)) == (422, ["retention_minimum_days"])
    assert viewer.post(reverse("tenant-keeping"), data).status_code == 403
