import pytest
from django.test import Client
from django.urls import reverse

from console import attempts
from governance.models import AuditEvent, Member
from tests.factories import governance

pytestmark = pytest.mark.django_db


def enter(client, username, password, **more):
    return client.post(reverse("sign-in"), {"username": username, "password": password, **more})


def test_sign_in_leads_to_the_page_that_was_wanted(client, tenant):
    member = governance.member(tenant)

    response = enter(client, member.username, governance.PASSWORD, next="/members")

    assert (response.status_code, response.url) == (302, "/members")


def test_sign_in_leads_to_no_other_site(client, tenant):
    member = governance.member(tenant)

    response = enter(client, member.username, governance.PASSWORD, next="https://evil.example/")

    assert response.url == "/"


def test_sign_in_says_the_same_for_an_unknown_name_and_a_wrong_password(client, tenant):
    member = governance.member(tenant)

    wrong = enter(client, member.username, "not it")
    unknown = enter(client, "nobody", "not it")

    assert (wrong.status_code, unknown.status_code) == (422, 422)
    assert wrong.context["form"].non_field_errors() == unknown.context["form"].non_field_errors() == ["The username or the password is not right."]


def test_sign_in_is_refused_after_five_failures_even_with_the_right_password(client, tenant):
    member = governance.member(tenant)
    for _ in range(5):
        enter(client, member.username, "not it")

    response = enter(client, member.username, governance.PASSWORD)

    assert response.status_code == 429
    assert "Too many attempts failed" in response.content.decode()


def test_sign_in_from_another_address_is_not_refused(client, tenant):
    member = governance.member(tenant)
    for _ in range(5):
        enter(client, member.username, "not it")

    response = enter(Client(REMOTE_ADDR="192.0.2.7"), member.username, governance.PASSWORD)

    assert response.status_code == 302


def test_sign_in_counts_the_spellings_of_one_name_together(client, tenant):
    member = governance.member(tenant, username="ann")
    for name in ("ann", "Ann", "ANN", " ann", "ann "):
        enter(client, name, "not it")

    assert enter(client, member.username, governance.PASSWORD).status_code == 429


def test_an_address_that_tries_many_names_is_refused(client, tenant):
    member = governance.member(tenant)
    for number in range(attempts.LIMITS["address"]):
        attempts.failed(username=f"guess-{number}", address="127.0.0.1")

    assert enter(client, member.username, governance.PASSWORD).status_code == 429


def test_sign_in_forgets_the_failures_of_who_comes_in(client, tenant):
    member = governance.member(tenant)
    for _ in range(4):
        enter(client, member.username, "not it")

    enter(client, member.username, governance.PASSWORD)

    assert attempts.wait_for(username=member.username, address="127.0.0.1") == 0
    client.logout()
    assert enter(client, member.username, "not it").status_code == 422


def test_sign_in_and_out_are_in_the_trail(client, tenant):
    member = governance.member(tenant)
    enter(client, member.username, "not it")
    enter(client, member.username, governance.PASSWORD)
    client.post(reverse("sign-out"))

    told = AuditEvent.objects.filter(tenant_id=tenant.pk, action__startswith="member.sign").order_by("id")

    assert [event.action for event in told] == ["member.sign_in_failed", "member.signed_in", "member.signed_out"]


def test_sign_out_ends_the_session(owner):
    owner.post(reverse("sign-out"))

    assert owner.get(reverse("overview")).status_code == 302


def test_one_time_password_must_be_changed_before_anything_else(client, tenant):
    member = governance.member(tenant)
    Member.objects.filter(pk=member.pk).update(must_change_password=True)
    client.force_login(member)

    before = client.get(reverse("members"))
    changed = client.post(reverse("change-password"), {"old": governance.PASSWORD, "new": "seven blue rivers", "again": "seven blue rivers"})
    after = client.get(reverse("members"))

    assert (before.status_code, before.url) == (302, reverse("change-password"))
    assert (changed.status_code, changed.url) == (302, reverse("overview"))
    assert after.status_code == 200


@pytest.mark.parametrize(
    "data, field",
    [
        ({"old": "wrong"}, "old"),
        ({"new": "short", "again": "short"}, "new"),
        ({"new": "password123", "again": "password123"}, "new"),
        ({"again": "other words here"}, "again"),
        ({"new": governance.PASSWORD, "again": governance.PASSWORD}, "new"),
    ],
)
def test_change_password_refuses(owner, data, field):
    response = owner.post(reverse("change-password"), {"old": governance.PASSWORD, "new": "seven blue rivers", "again": "seven blue rivers"} | data)

    assert response.status_code == 422
    assert list(response.context["form"].errors) == [field]


def test_change_password_signs_out_other_browsers(owner):
    elsewhere = Client()
    elsewhere.force_login(owner.member)

    owner.post(reverse("change-password"), {"old": governance.PASSWORD, "new": "seven blue rivers", "again": "seven blue rivers"})

    assert owner.get(reverse("account")).status_code == 200
    assert elsewhere.get(reverse("account")).status_code == 302


def test_theme_is_saved_and_served(owner):
    owner.post(reverse("account"), {"theme": "dark"})

    assert '<html lang="en" data-theme="dark">' in owner.get(reverse("account")).content.decode()


def test_unknown_theme_is_refused(owner):
    assert owner.post(reverse("account"), {"theme": "pink"}).status_code == 422


def test_tenant_switch_changes_what_pages_show(owner, tenant):
    other = governance.tenant("fabrikam")
    governance.member(other, username="fabrikam-only")
    owner.member.memberships.create(tenant=other, roles=["tenant_admin"])

    owner.post(reverse("switch-tenant"), {"tenant": other.pk.hex})

    page = owner.get(reverse("members")).content.decode()
    assert "fabrikam-only" in page


def test_tenant_switch_to_a_foreign_tenant_changes_nothing(owner, tenant, stranger):
    owner.post(reverse("switch-tenant"), {"tenant": stranger.actor.tenant_id.hex})

    assert owner.get(reverse("account")).wsgi_request.tenant == tenant


def test_member_without_a_tenant_is_told_what_to_do(client, db):
    client.force_login(governance.member())

    overview, account = client.get(reverse("overview")), client.get(reverse("account"))

    assert overview.status_code == 403
    assert "You belong to no tenant yet" in overview.content.decode()
    assert account.status_code == 200
