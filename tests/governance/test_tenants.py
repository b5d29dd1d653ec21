import pytest

from governance.domain import tenants
from governance.errors import Conflict, Invalid, MissingPermission
from governance.models import AuditEvent, Tenant
from tests.factories import governance as make


def test_create_tenant_is_in_its_own_trail(db):
    made = tenants.create_tenant(slug="acme", name=" Acme\x00 ", timezone="Europe/Zurich")

    event = AuditEvent.objects.get(tenant_id=made.id)
    assert (made.slug, made.name, made.timezone) == ("acme", "Acme\ufffd", "Europe/Zurich")
    assert (event.action, event.actor_kind, event.object_ref) == ("tenant.created", "system", made.id.hex)


def test_create_tenant_names_who_made_it(tenant, admin):
    made = tenants.create_tenant(slug="second", name="Second", by=admin)

    assert AuditEvent.objects.get(tenant_id=made.id).actor_label == "admin"


def test_create_tenant_refuses_a_taken_slug(tenant):
    with pytest.raises(Conflict) as caught:
        tenants.create_tenant(slug="acme", name="Again")
    assert "slug" in caught.value.errors
    assert Tenant.objects.count() == 1


@pytest.mark.parametrize("slug", ["", "Upper", "-a", "a-", "a b", "ä", "x" * 65])
def test_create_tenant_refuses_a_bad_slug(db, slug):
    with pytest.raises(Invalid) as caught:
        tenants.create_tenant(slug=slug, name="Name")
    assert list(caught.value.errors) == ["slug"]


@pytest.mark.parametrize(("values", "field"), [({"name": " "}, "name"), ({"timezone": "Mars/Olympus"}, "timezone")])
def test_tenant_refuses_bad_values(tenant, admin, values, field):
    with pytest.raises(Invalid) as caught:
        tenants.rename_tenant(tenant=tenant, by=admin, **values)
    assert list(caught.value.errors) == [field]


def test_rename_tenant_records_which_fields_changed(tenant, admin):
    tenants.rename_tenant(tenant=tenant, name="New", timezone="UTC", by=admin)

    assert Tenant.objects.get(pk=tenant.pk).name == "New"
    assert AuditEvent.objects.get(action="tenant.renamed").payload == {"fields": ["name"]}


def test_rename_tenant_to_the_same_records_nothing(tenant, admin):
    tenants.rename_tenant(tenant=tenant, name="Acme", by=admin)

    assert not AuditEvent.objects.filter(action="tenant.renamed").exists()


def test_rename_tenant_needs_the_role(tenant):
    with pytest.raises(MissingPermission):
        tenants.rename_tenant(tenant=tenant, name="New", by=make.actor(tenant, "viewer"))
