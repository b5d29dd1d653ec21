from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.auth import authenticate
from django.db import connections

from governance.domain import members
from governance.domain.members import LastAdministrator, PasswordNotTheirs, SharedAccount
from governance.errors import Conflict, Invalid, MissingPermission, NotFound
from governance.models import AuditEvent, Member, Membership
from tests.factories import governance as make


def membership_of(actor):
    return Membership.objects.select_related("member").get(member__username=actor.label)


def test_add_member_gives_a_new_person_a_one_time_password(tenant, admin):
    membership, password = members.add_member(tenant=tenant, username=" Eva ", roles=["operator", "viewer"], by=admin)

    eva = authenticate(username="EVA", password=password)
    assert eva == membership.member
    assert (eva.username, eva.must_change_password, membership.roles) == ("eva", True, ["viewer", "operator"])
    event = AuditEvent.objects.get(action="member.added")
    assert (event.object_label, event.payload) == ("eva", {"roles": ["viewer", "operator"]})
    assert password not in str(event.__dict__)


def test_add_member_keeps_the_password_of_somebody_known(tenant, admin, stranger_tenant):
    make.member(stranger_tenant, username="eva")

    membership, password = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    assert password is None
    assert authenticate(username="eva", password=make.PASSWORD) == membership.member


def test_add_member_refuses_somebody_whose_password_another_tenant_knows(tenant, admin, stranger_tenant):
    stranger = make.actor(stranger_tenant, "tenant_admin")
    theirs, _ = members.add_member(tenant=stranger_tenant, username="eva", roles=["viewer"], by=stranger)

    with pytest.raises(PasswordNotTheirs):
        members.add_member(tenant=tenant, username="eva", roles=["tenant_admin"], by=admin)

    members.change_password(member=theirs.member, password="another long password")
    assert members.add_member(tenant=tenant, username="eva", roles=["tenant_admin"], by=admin)[1] is None


def test_tenants_have_their_own_names_for_one_person(tenant, admin, stranger_tenant):
    stranger = make.actor(stranger_tenant, "tenant_admin")
    theirs, _ = members.add_member(tenant=stranger_tenant, username="eva", display_name="Eva of theirs", roles=["viewer"], by=stranger)
    members.change_password(member=theirs.member, password="another long password")

    ours, _ = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    assert (theirs.shown_name, ours.shown_name) == ("Eva of theirs", "eva")
    ours.delete()
    again, _ = members.add_member(tenant=tenant, username="eva", display_name=" Eva of ours ", roles=["viewer"], by=admin)
    assert (Membership.objects.get(pk=theirs.pk).shown_name, again.shown_name) == ("Eva of theirs", "Eva of ours")


def test_add_member_twice_is_a_conflict(tenant, admin):
    members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    with pytest.raises(Conflict):
        members.add_member(tenant=tenant, username="Eva", roles=["builder"], by=admin)
    assert Membership.objects.get(member__username="eva").roles == ["viewer"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"roles": []}, "roles"),
        ({"roles": ["owner"]}, "roles"),
        ({"username": ""}, "username"),
        ({"username": "two words"}, "username"),
        ({"username": "x" * 151}, "username"),
    ],
)
def test_add_member_refuses(tenant, admin, values, field):
    with pytest.raises(Invalid) as caught:
        members.add_member(**{"tenant": tenant, "username": "eva", "roles": ["viewer"], "by": admin, **values})
    assert list(caught.value.errors) == [field]
    assert Member.objects.count() == 1


def test_add_member_to_another_tenant_is_not_found(stranger_tenant, admin):
    with pytest.raises(NotFound):
        members.add_member(tenant=stranger_tenant, username="eva", roles=["viewer"], by=admin)


def test_create_member_refuses_a_weak_password(db):
    with pytest.raises(Invalid) as caught:
        members.create_member(username="eva", password="short")
    assert list(caught.value.errors) == ["password"]


def test_create_member_refuses_a_taken_name(db):
    members.create_member(username="eva", password=make.PASSWORD)

    with pytest.raises(Conflict):
        members.create_member(username="EVA", password=make.PASSWORD)


def test_set_roles_replaces_and_records_both(tenant, admin):
    membership, _ = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    members.set_roles(membership=membership, roles=["builder"], by=admin)

    assert Membership.objects.get(pk=membership.pk).roles == ["builder"]
    assert AuditEvent.objects.get(action="member.roles_changed").payload == {"old": ["viewer"], "new": ["builder"]}


def test_last_administrator_can_be_neither_demoted_nor_removed(tenant, admin):
    own = membership_of(admin)

    with pytest.raises(LastAdministrator):
        members.set_roles(membership=own, roles=["viewer"], by=admin)
    with pytest.raises(LastAdministrator):
        members.remove_member(membership=own, by=admin)
    assert Membership.objects.get(pk=own.pk).roles == ["tenant_admin"]


def test_administrator_of_another_tenant_does_not_count(tenant, admin, stranger_tenant):
    make.actor(stranger_tenant, "tenant_admin")

    with pytest.raises(LastAdministrator):
        members.remove_member(membership=membership_of(admin), by=admin)


def test_inactive_administrator_does_not_count(tenant, admin):
    other = make.actor(tenant, "tenant_admin", username="gone")
    Member.objects.filter(username=other.label).update(is_active=False)

    with pytest.raises(LastAdministrator):
        members.remove_member(membership=membership_of(admin), by=admin)


def test_one_of_two_administrators_may_go(tenant, admin):
    make.actor(tenant, "tenant_admin", username="second")

    members.remove_member(membership=membership_of(admin), by=admin)

    assert [membership.member.username for membership in Membership.objects.filter(tenant=tenant)] == ["second"]


def test_remove_member_ends_the_sign_in_of_somebody_without_a_tenant(tenant, admin):
    membership, password = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    members.remove_member(membership=membership, by=admin)

    assert authenticate(username="eva", password=password) is None
    assert AuditEvent.objects.get(action="member.removed").object_label == "eva"


def test_remove_member_leaves_other_tenants_alone(tenant, admin, stranger_tenant):
    eva = make.member(stranger_tenant, username="eva")
    membership, _ = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    members.remove_member(membership=membership, by=admin)

    assert authenticate(username="eva", password=make.PASSWORD) == eva


def test_returning_member_gets_a_new_one_time_password(tenant, admin):
    membership, old = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)
    members.remove_member(membership=membership, by=admin)

    again, password = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    assert password != old
    assert authenticate(username="eva", password=password) == again.member


def test_reset_password_replaces_it(tenant, admin):
    make.member(tenant, ("viewer",), username="eva")
    membership = Membership.objects.get(member__username="eva")

    password = members.reset_password(membership=membership, by=admin)

    assert authenticate(username="eva", password=make.PASSWORD) is None
    assert authenticate(username="eva", password=password).must_change_password is True
    assert AuditEvent.objects.filter(action="member.password_reset").count() == 1


def test_reset_password_refuses_an_account_that_opens_another_tenant(tenant, admin, stranger_tenant):
    """Any administrator may add somebody by name: a password of theirs must not open where that person works."""
    eva = make.member(stranger_tenant, username="eva")
    membership, _ = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    with pytest.raises(SharedAccount):
        members.reset_password(membership=membership, by=admin)

    assert authenticate(username="eva", password=make.PASSWORD) == eva
    assert not AuditEvent.objects.filter(action="member.password_reset").exists()


def test_add_member_gives_no_password_of_an_account_that_another_tenant_keeps(tenant, admin, stranger_tenant):
    eva = make.member(stranger_tenant, username="eva")
    Member.objects.filter(pk=eva.pk).update(is_active=False)

    with pytest.raises(SharedAccount):
        members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    eva.refresh_from_db()
    assert (eva.is_active, eva.check_password(make.PASSWORD), eva.memberships.count()) == (False, True, 1)


def test_change_password_ends_the_one_time_password(tenant, admin):
    membership, password = members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)

    members.change_password(member=membership.member, password="another long password")

    eva = authenticate(username="eva", password="another long password")
    assert eva.must_change_password is False
    assert authenticate(username="eva", password=password) is None
    assert AuditEvent.objects.get(action="member.password_changed").actor_label == "eva"


@pytest.mark.parametrize("password", ["short", "password1234", make.PASSWORD])
def test_change_password_refuses_weak_and_unchanged(tenant, password):
    eva = make.member(tenant, username="eva")

    with pytest.raises(Invalid) as caught:
        members.change_password(member=eva, password=password)
    assert list(caught.value.errors) == ["password"]


def test_set_theme(tenant):
    eva = make.member(tenant)

    members.set_theme(member=eva, theme="dark")

    assert Member.objects.get(pk=eva.pk).theme == "dark"
    with pytest.raises(Invalid):
        members.set_theme(member=eva, theme="neon")


def test_actor_of_carries_the_roles_permissions(tenant):
    actor = make.actor(tenant, "viewer", username="eva")

    assert (actor.tenant_id, actor.kind, actor.label) == (tenant.id, "member", "eva")
    assert actor.may("agents.read")
    assert not actor.may("agents.write")


@pytest.mark.parametrize(
    "verb",
    [
        lambda tenant, own, by: members.add_member(tenant=tenant, username="x", roles=["viewer"], by=by),
        lambda tenant, own, by: members.set_roles(membership=own, roles=["viewer"], by=by),
        lambda tenant, own, by: members.remove_member(membership=own, by=by),
        lambda tenant, own, by: members.reset_password(membership=own, by=by),
    ],
    ids=["add", "roles", "remove", "reset"],
)
def test_verbs_need_the_role_and_stay_in_the_tenant(tenant, admin, stranger_tenant, verb):
    membership = membership_of(admin)

    with pytest.raises(MissingPermission):
        verb(tenant, membership, make.actor(tenant, "builder"))
    with pytest.raises(NotFound):
        verb(tenant, membership, make.actor(stranger_tenant, "tenant_admin"))


@pytest.mark.django_db(transaction=True)
def test_two_administrators_who_remove_each_other_at_once_leave_one():
    tenant = make.tenant("acme")
    actors = [make.actor(tenant, "tenant_admin", username=name) for name in ("first", "second")]
    others = [membership_of(actor) for actor in reversed(actors)]
    barrier = Barrier(2)

    def remove(by, membership):
        barrier.wait()
        try:
            members.remove_member(membership=membership, by=by)
            return "removed"
        except LastAdministrator:
            return "refused"
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(remove, actors, others))

    assert results == ["refused", "removed"]
    assert Membership.objects.filter(tenant=tenant).count() == 1
