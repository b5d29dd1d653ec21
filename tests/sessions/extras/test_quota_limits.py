"""Setting, changing and removing limits."""

from decimal import Decimal

import pytest

from governance.errors import MissingPermission, NotFound
from governance.ids import shown, uuid7
from governance.models import AuditEvent
from sessions.domain import quotas
from sessions.errors import InvalidQuota, QuotaExceeded, QuotaExists
from sessions.models import Quota, QuotaCounter, QuotaReservation
from tests.factories import governance as people
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db


def test_create_quota_stores_and_records_it(tenant, operator, limit):
    quota = limit("cost", "12.50", scope="subject", period="month")

    assert (quota.scope, quota.scope_ref, quota.subject_id, quota.limit) == ("subject", "", None, Decimal("12.5"))
    event = AuditEvent.objects.get(tenant_id=tenant.id, action="quota.created")
    assert (event.object_ref, event.payload["limit"]) == (shown("quo", quota.id), "12.5")


@pytest.mark.parametrize("written", [str, lambda ref: ref.hex, lambda ref: shown("sub", ref)])
def test_create_quota_takes_an_id_as_it_is_shown(limit, subject, written):
    quota = limit(scope="subject", scope_ref=written(subject.id))

    assert (quota.scope_ref, quota.subject_id) == (subject.id.hex, subject.id)


@pytest.mark.parametrize(
    "wrong, path",
    [
        ({"scope": "galaxy"}, "scope"),
        ({"measure": "minutes"}, "measure"),
        ({"period": "year"}, "period"),
        ({"number": "many"}, "limit"),
        ({"number": -1}, "limit"),
        ({"number": "NaN"}, "limit"),
        ({"number": "Infinity"}, "limit"),
        ({"number": 10**12}, "limit"),
        ({"number": "1.5"}, "limit"),
        ({"number": True}, "limit"),
        ({"number": None}, "limit"),
        ({"measure": "cost", "number": "0.0000001"}, "limit"),
        ({"scope_ref": "anything"}, "scope_ref"),
        ({"scope": "agent", "scope_ref": "no id"}, "scope_ref"),
        ({"scope": "agent", "scope_ref": str(uuid7())}, "scope_ref"),
    ],
)
def test_create_quota_names_the_field_of_a_mistake(limit, wrong, path):
    with pytest.raises(InvalidQuota) as caught:
        limit(**wrong)

    assert list(caught.value.errors) == [path]


def test_create_quota_refuses_the_same_limit_twice(limit):
    limit()

    with pytest.raises(QuotaExists):
        limit(number=9)


def test_create_quota_does_not_find_another_tenants_agent(limit, stranger):
    with pytest.raises(InvalidQuota):
        limit(scope="agent", scope_ref=made.agent(stranger).id.hex)


def test_quota_verbs_need_the_permission(tenant, viewer, limit):
    quota = limit()

    with pytest.raises(MissingPermission):
        quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="cost", period="day", limit=1, by=viewer)
    with pytest.raises(MissingPermission):
        quotas.update_quota(quota=quota, limit=5, by=viewer)
    with pytest.raises(MissingPermission):
        quotas.delete_quota(quota=quota, by=viewer)
    assert Quota.objects.get() == quota


def test_quota_verbs_do_not_reach_another_tenant(tenant, stranger, limit):
    quota, other = limit(), people.actor(stranger, "operator")

    with pytest.raises(NotFound):
        quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="cost", period="day", limit=1, by=other)
    with pytest.raises(NotFound):
        quotas.update_quota(quota=quota, limit=5, by=other)
    with pytest.raises(NotFound):
        quotas.delete_quota(quota=quota, by=other)
    assert list(Quota.objects.values_list("limit", flat=True)) == [2]


def test_update_quota_keeps_what_is_used(operator, limit, start):
    quota = limit(number=1)
    start()

    quotas.update_quota(quota=quota, limit=2, by=operator)

    start()
    with pytest.raises(QuotaExceeded):
        start()


def test_delete_quota_takes_its_counters_along(operator, limit, start):
    quota = limit(number=1)
    start()

    quotas.delete_quota(quota=quota, by=operator)

    assert [Quota.objects.count(), QuotaCounter.objects.count(), QuotaReservation.objects.count()] == [0, 0, 0]
    start()
