from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from governance import queries
from governance.domain import audit, keys, previews, requests
from governance.errors import NotFound, UnknownFilter
from governance.ids import shown, uuid7
from governance.models import SubjectRequest
from tests.factories import governance as make


@pytest.fixture
def trail(tenant, stranger_tenant, admin, officer):
    """Two events of ours, one of somebody else."""
    audit.record("agent.published", by=admin, object_type="agent", object_ref=uuid7(), object_label="support", number=1)
    audit.record("agent.disabled", by=officer, object_type="agent", object_ref=uuid7(), object_label="sales")
    audit.record("agent.published", by=make.actor(stranger_tenant), object_type="agent", object_label="support")


def actions(tenant, **filters):
    return [event.action for event in queries.audit_events(tenant.id, **filters) if event.action != "tenant.created"]


def test_audit_events_are_the_tenants_newest_first(trail, tenant):
    assert actions(tenant) == ["agent.disabled", "agent.published"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"actor": "admin"}, ["agent.published"]),
        ({"action": "agent.disabled"}, ["agent.disabled"]),
        ({"action": "agent"}, ["agent.disabled", "agent.published"]),
        ({"action": "age"}, []),
        ({"object": "support"}, ["agent.published"]),
        ({"object": "agent"}, ["agent.disabled", "agent.published"]),
        ({"after": timezone.now() - timedelta(hours=1)}, ["agent.disabled", "agent.published"]),
        ({"before": timezone.now() - timedelta(hours=1)}, []),
        ({"actor": "", "action": None}, ["agent.disabled", "agent.published"]),
    ],
)
def test_audit_events_filters(trail, tenant, filters, expected):
    assert actions(tenant, **filters) == expected


def test_audit_events_finds_an_object_by_its_id_in_any_form(tenant, admin):
    ref = uuid7()
    audit.record("session.deleted", by=admin, object_type="session", object_ref=ref)

    for text in (ref.hex, str(ref), shown("ses", ref)):
        assert actions(tenant, object=text) == ["session.deleted"]


def test_audit_events_refuses_unknown_filters_and_times_without_a_zone(tenant):
    with pytest.raises(UnknownFilter):
        queries.audit_events(tenant.id, colour="red")
    with pytest.raises(ValueError, match="zone"):
        queries.audit_events(tenant.id, after=datetime(2026, 1, 1))


def test_requests_of_filters_by_state_kind_and_time(tenant, officer, subject, stranger_tenant):
    erase, _ = previews.preview(subject=subject, by=officer)
    export = requests.export(subject=subject, by=officer)
    previews.preview(subject=make.subject(stranger_tenant), by=make.actor(stranger_tenant, "privacy_officer"))

    def found(**filters):
        return list(queries.requests_of(tenant.id, **filters))

    assert found() == [export, erase]
    assert found(state="previewed") == [erase]
    assert found(state=["previewed", "executing"]) == [export, erase]
    assert found(kind="export") == [export]
    assert found(profile="lgpd") == []
    assert found(subject=subject.id) == [export, erase]
    assert found(due_before=timezone.now()) == []
    with pytest.raises(UnknownFilter):
        found(colour="red")


def test_single_rows_are_found_by_every_form_of_their_id_and_only_in_their_tenant(tenant, officer, admin, subject, stranger_tenant):
    request, _ = previews.preview(subject=subject, by=officer)
    key, _ = keys.create_key(tenant_id=tenant.id, name="k", scopes=["runs:read"], by=admin)
    membership = queries.members_of(tenant.id).get(member__username="admin")

    for find, prefix, row in (
        (queries.request_by, "req", request),
        (queries.key_by, "key", key),
        (queries.membership_by, "mem", membership),
    ):
        for text in (row.id, str(row.id), shown(prefix, row.id)):
            assert find(tenant_id=tenant.id, id=text) == row
            with pytest.raises(NotFound):
                find(tenant_id=stranger_tenant.id, id=text)
        with pytest.raises(NotFound):
            find(tenant_id=tenant.id, id="nonsense")
    assert queries.request_by(tenant_id=tenant.id, id=request.ref.lower()) == request
    with pytest.raises(NotFound):
        queries.request_by(tenant_id=stranger_tenant.id, id=request.ref)


def test_requests_of_is_one_query_for_one_row_and_for_three(tenant, officer, django_assert_num_queries):
    for number in (1, 3):
        while SubjectRequest.objects.count() < number:
            previews.preview(subject=make.subject(tenant), by=officer)
        with django_assert_num_queries(1):
            for request in queries.requests_of(tenant.id):
                assert request.subject.display_ref
