from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from governance.domain import audit, members, tenants
from governance.ids import uuid7
from governance.models import AuditEvent, Tenant
from tests.factories import governance as make


def test_record_keeps_who_what_and_which(tenant, admin):
    ref = uuid7()

    audit.record(
        "agent.published", by=admin, object_type="agent", object_ref=ref, object_label="Support", number=3, digest="sha256:ab"
    )

    event = AuditEvent.objects.get(action="agent.published")
    assert (event.tenant_id, event.actor_kind, event.actor_ref, event.actor_label) == (
        tenant.id, "member", admin.ref, "admin",
    )  # fmt: skip
    assert (event.object_type, event.object_ref, event.object_label) == ("agent", ref.hex, "Support")
    assert event.payload == {"number": 3, "digest": "sha256:ab"}
    assert event.at is not None


def test_record_turns_ids_times_and_amounts_into_text(admin):
    ref = uuid7()

    event = audit.record(
        "quota.updated", by=admin, ref=ref, at=datetime(2026, 5, 1, tzinfo=UTC), cost=Decimal("1.50"), fields={"b", "a"},
        none=None, yes=True, counts={"items": 3},
    )  # fmt: skip

    assert AuditEvent.objects.get(pk=event.pk).payload == {
        "ref": ref.hex, "at": "2026-05-01T00:00:00+00:00", "cost": "1.50", "fields": ["a", "b"], "none": None, "yes": True,
        "counts": {"items": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["Please call me", "anna@example.com", "x" * 129, ["fine", "not fine"], {"k": "two words"}, b"bytes", {"a": {"b": 1}}],
)
def test_record_refuses_prose_addresses_and_structures(admin, value):
    with pytest.raises(ValueError, match="note is not an id, a count or a code"):
        audit.record("member.added", by=admin, note=value)
    assert not AuditEvent.objects.filter(action="member.added").exists()


def test_record_refuses_an_action_that_nobody_listed(admin):
    with pytest.raises(ValueError, match="member.tickled"):
        audit.record("member.tickled", by=admin)


def test_record_refuses_an_odd_name_in_the_payload(admin):
    with pytest.raises(ValueError, match="cannot be the name"):
        audit.record("member.added", by=admin, **{"Anna Muster": 1})


def test_failing_audit_undoes_the_change(admin, tenant, monkeypatch):
    def fail(*args, **kwargs):
        raise IntegrityError("no")

    monkeypatch.setattr(AuditEvent.objects, "create", fail)

    with pytest.raises(IntegrityError):
        tenants.rename_tenant(tenant=tenant, name="Renamed", by=admin)
    assert Tenant.objects.get(pk=tenant.pk).name == "Acme"


def test_undone_change_leaves_no_event(admin, tenant):
    before = AuditEvent.objects.count()

    with transaction.atomic():
        members.add_member(tenant=tenant, username="eva", roles=["viewer"], by=admin)
        transaction.set_rollback(True)

    assert AuditEvent.objects.count() == before


def test_labels_and_refs_are_cut_to_their_columns(tenant):
    from dataclasses import replace

    by = replace(make.lethe(tenant), label="x" * 500, ref="y" * 500)

    event = audit.record("run.started", by=by, object_ref="z" * 500, object_label="l" * 500)

    assert [len(text) for text in (event.actor_label, event.actor_ref, event.object_ref, event.object_label)] == [
        200, 64, 64, 200,
    ]  # fmt: skip
    assert isinstance(event.id, UUID)
