"""The demo tenant of a first start: an administrator, three published agents and a little history."""

import secrets
from dataclasses import dataclass

from django.db import connection, transaction

from agents.domain.demo import seed_demo_agents
from governance.actors import system
from governance.domain import members, subjects, tenants
from governance.models import Member, Tenant
from governance.permissions import ROLES
from sessions.domain import runs
from sessions.domain.runs import RunRequest

TENANT = "demo"
ADMIN = "admin"
_LOCK = 7163110
_HISTORY = [
    ("research", "case-1001", "customer-1001", ["Our invoice 2026-118 was charged twice. Who can refund it?", "Summarize what I asked for."]),
    ("research", "case-1002", "customer-1002", ["How many words are in this sentence: remember what you should?"]),
    ("assistant", "onboarding", "customer-1001", ["Add a todo: send the contract to the customer.", "What is still to do?"]),
]


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the person who starts Lethe for the first time is told, once."""

    username: str
    password: str


def ensure() -> Welcome | None:
    """Make the demo tenant and its administrator if there are none. Returns the one-time password when it was made now."""
    made = _make_tenant()
    if made is None:
        return None
    tenant, welcome = made
    _talk(tenant)
    return welcome


@transaction.atomic
def _make_tenant() -> tuple[Tenant, Welcome] | None:
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
    return tenant, Welcome(ADMIN, password)


def _talk(tenant: Tenant) -> None:
    """A little history, made by real runs of the demo agents."""
    from sessions.engine import runner  # noqa: PLC0415 -- the model library is needed on the first start only

    by = system(tenant.id)
    for agent, key, person, messages in _HISTORY:
        subject = subjects.resolve(tenant_id=tenant.id, value=person, source="demo")
        for message in messages:
            run = runs.start(agent_name=agent, request=RunRequest(message=message, session_key=key), by=by, subject=subject)
            runner.runner().wait(run.id)
    # The process that starts Lethe runs nothing itself from here on.
    runner.drain(5)
