"""People who sign in to the console, and their roles in a tenant."""

import secrets
import unicodedata

from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from governance.actors import Actor
from governance.domain import audit
from governance.errors import Conflict, Invalid, NotFound
from governance.models import Member, Membership, Tenant
from governance.models.members import canonical_username
from governance.permissions import ROLES
from governance.text import clean


class LastAdministrator(Conflict):
    code, title = "last_administrator", "Somebody must stay in charge"
    detail = "This is the tenant's last administrator. Make somebody else an administrator first."


class SharedAccount(Conflict):
    code, title = "shared_account", "This account is not this tenant's alone"
    detail = (
        "This person also signs in elsewhere with the same password, so no tenant may replace it. They can change it "
        "under Account; if they forgot it, whoever runs Lethe gives them a new one with manage.py changepassword."
    )


class PasswordNotTheirs(Conflict):
    code, title = "password_not_theirs", "This person has not chosen a password yet"
    detail = (
        "The account was made elsewhere, and whoever made it still knows its one-time password. Once the person has signed in "
        "and chosen their own, they can be added here."
    )


@transaction.atomic
def create_member(
    *,
    username: str,
    password: str,
    display_name: str = "",
    must_change_password: bool = False,
    is_staff: bool = False,
) -> Member:
    """Make a person who can sign in, with no role anywhere yet. Raises Invalid by field, Conflict for a taken name."""
    member = Member(
        username=_username(username),
        display_name=_display_name(display_name),
        must_change_password=must_change_password,
        is_staff=is_staff,
    )
    _check_password(password, member)
    member.password = make_password(password)
    try:
        with transaction.atomic():
            member.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is already a member {member.username!r}.", errors={"username": ["This is taken."]}) from None
    return member


@transaction.atomic
def add_member(
    *, tenant: Tenant, username: str, roles: list[str], display_name: str = "", by: Actor
) -> tuple[Membership, str | None]:
    """Give a person roles in the tenant. The second value is a one-time password when the person is new here.

    Somebody who already signs in to another tenant keeps their password, and gets None; what that tenant calls them
    is not shown here. Raises SharedAccount for an account that was switched off and still belongs elsewhere,
    PasswordNotTheirs for one that somebody elsewhere can still sign in to.
    """
    by.require("members.write")
    _own(tenant.id, by)
    roles = _roles(roles)
    member = Member.objects.filter(username=_username(username)).first()
    password = None
    if member is None:
        password = one_time_password()
        member = create_member(
            username=username, password=password, display_name=display_name, must_change_password=True
        )
    elif not member.is_active:
        _not_shared(member, tenant.id)
        password = _give_one_time_password(member)
    elif member.must_change_password and member.memberships.exclude(tenant=tenant).exists():
        raise PasswordNotTheirs
    try:
        with transaction.atomic():
            membership = Membership.objects.create(
                tenant=tenant, member=member, roles=roles, display_name=_display_name(display_name)
            )
    except IntegrityError:
        raise Conflict(f"{member.username} is already a member.", errors={"username": ["Already a member."]}) from None
    _record("member.added", membership, by, roles=roles)
    return membership, password


@transaction.atomic
def set_roles(*, membership: Membership, roles: list[str], by: Actor) -> Membership:
    """Replace the roles. Raises LastAdministrator when nobody would be left in charge."""
    by.require("members.write")
    membership = _locked(membership, by)
    new = _roles(roles)
    if "tenant_admin" in membership.roles and "tenant_admin" not in new:
        _keep_an_administrator(membership)
    if new != membership.roles:
        old, membership.roles = membership.roles, new
        membership.save(update_fields=["roles"])
        _record("member.roles_changed", membership, by, old=old, new=new)
    return membership


@transaction.atomic
def remove_member(*, membership: Membership, by: Actor) -> None:
    """Take a person's access to the tenant. Somebody who belongs to no tenant any more can no longer sign in."""
    by.require("members.write")
    membership = _locked(membership, by)
    if "tenant_admin" in membership.roles:
        _keep_an_administrator(membership)
    _record("member.removed", membership, by)
    member = membership.member
    membership.delete()
    if not member.is_staff and not member.memberships.exists():
        member.is_active = False
        member.set_unusable_password()
        member.save(update_fields=["is_active", "password"])


@transaction.atomic
def reset_password(*, membership: Membership, by: Actor) -> str:
    """Give the person a one-time password, which is returned and shown once. Their open sessions end.

    Raises SharedAccount when it would open another tenant too: whoever reads the password could sign in there.
    """
    by.require("members.write")
    membership = _locked(membership, by)
    _not_shared(membership.member, by.tenant_id)
    password = _give_one_time_password(membership.member)
    _record("member.password_reset", membership, by)
    return password


@transaction.atomic
def change_password(*, member: Member, password: str) -> Member:
    """The person chooses a password themselves. Raises Invalid with the rules that it breaks."""
    _check_password(password, member)
    if member.has_usable_password() and member.check_password(password):
        raise Invalid(errors={"password": ["Choose a password you have not used just now."]})
    member.set_password(password)
    member.must_change_password = False
    member.save(update_fields=["password", "must_change_password"])
    for membership in member.memberships.all():
        _record("member.password_changed", membership, actor_of(membership=membership))
    return member


def set_theme(*, member: Member, theme: str) -> Member:
    if theme not in Member.Theme.values:
        raise Invalid(errors={"theme": [f"Choose one of {', '.join(Member.Theme.values)}."]})
    member.theme = theme
    member.save(update_fields=["theme"])
    return member


def actor_of(*, membership: Membership) -> Actor:
    """The member as the one who acts in this tenant."""
    return Actor(
        tenant_id=membership.tenant_id,
        kind="member",
        ref=membership.member_id.hex,
        label=membership.member.username,
        permissions=membership.permissions,
    )


def one_time_password() -> str:
    """96 random bits, in letters that are safe to read out and copy."""
    return secrets.token_urlsafe(12)


def _not_shared(member: Member, tenant_id) -> None:
    """Under the member's lock, which a tenant that is adding them waits for."""
    Member.objects.select_for_update().get(pk=member.pk)
    if member.memberships.exclude(tenant_id=tenant_id).exists():
        raise SharedAccount


def _give_one_time_password(member: Member) -> str:
    password = one_time_password()
    member.set_password(password)
    member.must_change_password, member.is_active = True, True
    member.save(update_fields=["password", "must_change_password", "is_active"])
    return password


def _locked(membership: Membership, by: Actor) -> Membership:
    """The row as it is now. The tenant's row is the lock under which its administrators are counted."""
    _own(membership.tenant_id, by)
    Tenant.objects.select_for_update(no_key=True).get(pk=membership.tenant_id)
    current = Membership.objects.select_related("member").filter(pk=membership.pk, tenant_id=by.tenant_id).first()
    if current is None:
        raise NotFound
    return current


def _keep_an_administrator(membership: Membership) -> None:
    others = Membership.objects.filter(tenant_id=membership.tenant_id, roles__contains=["tenant_admin"]).exclude(
        pk=membership.pk
    )
    if not others.filter(member__is_active=True).exists():
        raise LastAdministrator


def _own(tenant_id, by: Actor) -> None:
    if tenant_id != by.tenant_id:
        raise NotFound


def _record(action: str, membership: Membership, by: Actor, **payload) -> None:
    audit.record(
        action,
        by=by,
        object_type="membership",
        object_ref=membership.id,
        object_label=membership.member.username,
        **payload,
    )


def _roles(roles: list[str]) -> list[str]:
    unknown = sorted(set(roles) - set(ROLES))
    if unknown:
        raise Invalid(errors={"roles": [f"Unknown role: {', '.join(unknown)}. Known roles: {', '.join(ROLES)}."]})
    if not roles:
        raise Invalid(errors={"roles": ["Choose at least one role."]})
    return [role for role in ROLES if role in roles]


def _username(username: str) -> str:
    name = canonical_username(clean(username))
    if not 1 <= len(name) <= 150 or any(unicodedata.category(letter)[0] in "CZ" for letter in name):
        raise Invalid(errors={"username": ["Use 1 to 150 characters without spaces."]})
    return name


def _display_name(name: str) -> str:
    return clean(name).strip()[:200]


def _check_password(password: str, member: Member) -> None:
    try:
        validate_password(password, member)
    except ValidationError as error:
        raise Invalid("The password is not good enough.", errors={"password": error.messages}) from None
