"""Tenants, people and keys for tests."""

import itertools
from functools import lru_cache

from django.contrib.auth.hashers import make_password

from governance.actors import Actor, system
from governance.domain import archiving, members, subjects
from governance.domain import tenants as tenant_verbs
from governance.models import ArchivedPart, Member, Membership, RetentionPolicy, RetentionRun, Subject, Tenant

PASSWORD = "correct horse battery"
_numbers = itertools.count(1)


def tenant(slug: str | None = None, *, timezone: str = "UTC", **settings) -> Tenant:
    slug = slug or f"tenant-{next(_numbers)}"
    made = tenant_verbs.create_tenant(slug=slug, name=slug.title(), timezone=timezone)
    if settings:
        made.settings = settings
        made.save(update_fields=["settings"])
    return made


def member(tenant: Tenant | None = None, roles: tuple[str, ...] = ("tenant_admin",), username: str | None = None) -> Member:
    """Somebody who signs in with PASSWORD, with roles in the tenant when one is given."""
    made = Member.objects.create(username=username or f"member-{next(_numbers)}", password=_hashed())
    if tenant:
        Membership.objects.create(tenant=tenant, member=made, roles=list(roles))
    return made


def actor(tenant: Tenant, *roles: str, username: str | None = None) -> Actor:
    """A member of the tenant with these roles, as the one who acts."""
    made = member(tenant, roles or ("tenant_admin",), username)
    return members.actor_of(membership=made.memberships.select_related("member").get(tenant=tenant))


def lethe(tenant: Tenant) -> Actor:
    return system(tenant.id)


def subject(tenant: Tenant, name: str | None = None) -> Subject:
    return subjects.resolve(tenant_id=tenant.id, value=name or f"person-{next(_numbers)}")


def archived(tenant: Tenant, session_id) -> ArchivedPart:
    """The rows of a conversation in the archive, as retention puts them there before it deletes them."""
    policy = RetentionPolicy.objects.create(tenant=tenant, category="sessions", days=30, enabled=False)
    policy.refresh_from_db()
    run = RetentionRun.objects.create(
        tenant=tenant, policy=policy, scheduled_for=policy.created_at, policy_version=1, cutoff=policy.created_at
    )
    archiving.keep(run=run, category="sessions", ids=[session_id])
    return ArchivedPart.objects.get(run_id=run.id)


@lru_cache(maxsize=1)
def _hashed() -> str:
    return make_password(PASSWORD)
