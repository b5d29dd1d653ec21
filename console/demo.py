"""The demo tenant of a first start: an administrator, three published agents and a little history."""

import secrets
from dataclasses import dataclass

from django.db import connection, transaction

from agents.domain.demo import seed_demo_agents
from governance.actors import system
from governance.domain import members, tenants
from governance.models import Member, Tenant
from governance.permissions import ROLES
from sessions.domain.demo import seed_demo_history

TENANT = "demo"
ADMIN = "admin"
_LOCK = 7163110


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the person who starts Lethe for the first time is told, once."""

    username: str
    password: str


@transaction.atomic
def ensure() -> Welcome | None:
    """Make the demo tenant and its administrator if there are none. Returns the one-time password when it was made now."""
    with connection.cursor() as cursor:
        # Two starts at once: the second one waits and finds everything there.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    if Member.objects.exists():
        return None
    password = secrets.token_urlsafe(9)
    members.create_member(
        username=ADMIN, password=password, display_name="Administrator", must_change_password=True, is_staff=True
    )
    tenant = Tenant.objects.filter(slug=TENANT).first() or tenants.create_tenant(slug=TENANT, name="Demo")
    by = system(tenant.id)
    members.add_member(tenant=tenant, username=ADMIN, roles=list(ROLES), by=by)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    seed_demo_history(tenant_id=tenant.id, by=by)
    return Welcome(ADMIN, password)
