"""The audit page: filters, verification, and a copy of the trail."""

from django.db import connection
from django.urls import reverse

from governance.domain import anchors, audit, trail
from governance.models import AuditEvent
from tests.owner import as_owner


def record(by, action="agent.saved", **more):
    event = audit.record(action, by=by, object_type="agent", object_label="Support", **more)
    connection.check_constraints()
    return event


def test_verify_says_the_verdict_with_and_without_a_script(owner, tenant):
    record(owner.actor)
    anchors.checkpoint(tenant_id=tenant.id)

    page = owner.post(reverse("audit-verify"))
    part = owner.post(reverse("audit-verify"), headers={"HX-Request": "true"}).content.decode()

    assert page.context["verdict"].verdict == "valid"
    assert "agent.saved" in page.content.decode()
    assert "<html" not in part
    assert "as it was written" in part


def test_verify_says_what_was_altered(owner, tenant):
    seq = AuditEvent.objects.get(pk=record(owner.actor).pk).seq
    as_owner("SET LOCAL session_replication_role = replica")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE governance_auditevent SET object_label = 'Sales' WHERE seq = %s", [seq])
    as_owner("SET LOCAL session_replication_role = origin")

    text = owner.post(reverse("audit-verify"), headers={"HX-Request": "true"}).content.decode()

    assert f"The finding is at event {seq}." in text


def test_export_holds_the_days_asked_for_and_is_told(owner, tenant):
    record(owner.actor)

    everything = b"".join(owner.get(reverse("audit-export")).streaming_content).splitlines()
    nothing = b"".join(owner.get(reverse("audit-export"), {"until": "2001-01-01"}).streaming_content)

    assert trail.check_lines(iter(everything))[0] == len(everything)
    assert nothing == b""
    assert AuditEvent.objects.filter(action="audit.exported").count() == 2


def test_page_offers_the_export_of_the_filtered_days(owner):
    record(owner.actor)

    page = owner.get(reverse("audit"), {"since": "2001-01-01", "actor": owner.member.username})

    assert f"{reverse('audit-export')}?since=2001-01-01" in page.content.decode()


def test_export_refuses_days_that_are_none(owner):
    assert owner.get(reverse("audit-export"), {"since": "yesterday"}).status_code == 400


def test_audit_of_another_tenant_stays_there(owner, stranger):
    record(stranger.actor)

    text = b"".join(owner.get(reverse("audit-export")).streaming_content).decode()

    assert stranger.member.username not in text


def test_viewer_may_neither_verify_nor_export(viewer):
    assert viewer.post(reverse("audit-verify")).status_code == 403
    assert viewer.get(reverse("audit-export")).status_code == 403
