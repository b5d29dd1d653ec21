import re
import zoneinfo

from django.db import IntegrityError, transaction

from governance.actors import Actor, system
from governance.domain import audit
from governance.errors import Conflict, Invalid
from governance.models import Tenant
from governance.text import clean

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


@transaction.atomic
def create_tenant(*, slug: str, name: str, timezone: str = "UTC", by: Actor | None = None) -> Tenant:
    """Make an isolated owner of agents and data. Raises Invalid by field, Conflict when the slug is taken."""
    if not _SLUG.fullmatch(slug):
        raise Invalid(errors={"slug": ["Use 1 to 64 lower-case letters, digits and hyphens."]})
    tenant = Tenant(slug=slug, name=_name(name), timezone=_zone(timezone))
    try:
        with transaction.atomic():
            tenant.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is already a tenant {slug!r}.", errors={"slug": ["This is taken."]}) from None
    audit.record(
        "tenant.created", by=_inside(by, tenant), object_type="tenant", object_ref=tenant.id, object_label=tenant.name
    )
    return tenant


@transaction.atomic
def rename_tenant(*, tenant: Tenant, name: str | None = None, timezone: str | None = None, by: Actor) -> Tenant:
    """Change the tenant's name or zone; what is not given stays."""
    by.require("tenant.write")
    changed = []
    if name is not None and _name(name) != tenant.name:
        tenant.name, changed = _name(name), [*changed, "name"]
    if timezone is not None and _zone(timezone) != tenant.timezone:
        tenant.timezone, changed = timezone, [*changed, "timezone"]
    if changed:
        tenant.save(update_fields=changed)
        audit.record(
            "tenant.renamed", by=by, object_type="tenant", object_ref=tenant.id, object_label=tenant.name, fields=changed
        )
    return tenant


def _inside(by: Actor | None, tenant: Tenant) -> Actor:
    """The trail belongs to the new tenant, whoever made it."""
    if by is None:
        return system(tenant.id)
    return Actor(tenant_id=tenant.id, kind=by.kind, ref=by.ref, label=by.label)


def _name(name: str) -> str:
    name = clean(name).strip()
    if not 1 <= len(name) <= 200:
        raise Invalid(errors={"name": ["Give it a name of 1 to 200 characters."]})
    return name


def _zone(timezone: str) -> str:
    if timezone not in zoneinfo.available_timezones():
        raise Invalid(errors={"timezone": ["This is not a time zone. Use a name such as Europe/Zurich."]})
    return timezone
