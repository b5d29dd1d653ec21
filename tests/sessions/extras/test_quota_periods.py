"""Days and months of quotas, in every zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.ids import uuid7
from sessions.domain import quotas
from sessions.domain.metering import period_of
from sessions.models import QuotaCounter
from tests.factories import governance as people
from tests.factories import sessions as made

ZONES = [
    "UTC", "Europe/Zurich", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "Pacific/Kiritimati", "Australia/Lord_Howe",
    "America/Sao_Paulo", "Africa/Casablanca",
]  # fmt: skip
moments = st.datetimes(datetime(2011, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))


@given(moments, st.sampled_from(ZONES), st.sampled_from(["day", "month"]))
def test_period_holds_its_moment_and_ends_where_the_next_begins(at, zone, period):
    zone = ZoneInfo(zone)

    first, ends_at = period_of(period, zone, at)
    following, _ = period_of(period, zone, ends_at.astimezone(UTC) + timedelta(hours=1))

    assert first <= at.astimezone(zone).date()
    assert at < ends_at
    assert ends_at - at <= timedelta(days=32 if period == "month" else 2)
    assert following == ends_at.date()


@pytest.mark.parametrize(
    "period, zone, at, first, ends_at",
    [
        # 23 hours: clocks go forward.
        ("day", "Europe/Zurich", "2026-03-28T23:30+00:00", "2026-03-29", "2026-03-29T22:00+00:00"),
        # 25 hours: clocks go back.
        ("day", "Europe/Zurich", "2026-10-24T22:30+00:00", "2026-10-25", "2026-10-25T23:00+00:00"),
        ("day", "Asia/Kolkata", "2026-01-31T18:29+00:00", "2026-01-31", "2026-01-31T18:30+00:00"),
        ("day", "Asia/Kolkata", "2026-01-31T18:30+00:00", "2026-02-01", "2026-02-01T18:30+00:00"),
        ("month", "America/St_Johns", "2026-03-01T03:29+00:00", "2026-02-01", "2026-03-01T03:30+00:00"),
        ("month", "UTC", "2028-02-29T23:59+00:00", "2028-02-01", "2028-03-01T00:00+00:00"),
        ("month", "UTC", "2026-12-31T12:00+00:00", "2026-12-01", "2027-01-01T00:00+00:00"),
        # There was no 30 December 2011 in Samoa.
        ("day", "Pacific/Apia", "2011-12-30T09:00+00:00", "2011-12-29", "2011-12-30T10:00+00:00"),
    ],
)
def test_period_of(period, zone, at, first, ends_at):
    found_first, found_end = period_of(period, ZoneInfo(zone), datetime.fromisoformat(at))

    assert (found_first.isoformat(), found_end.astimezone(UTC)) == (first, datetime.fromisoformat(ends_at))


@pytest.mark.django_db
def test_two_tenants_count_the_same_moment_on_their_own_days():
    """The zones are 25 hours apart, so their dates always differ."""
    days = []
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        tenant = people.tenant(timezone=zone)
        lethe = people.lethe(tenant)
        quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=5, by=lethe)
        quotas.reserve(
            tenant_id=tenant.id, agent_id=made.agent(tenant).id, actor=lethe, subject_id=None, run_id=uuid7()
        )
        days.append(QuotaCounter.objects.get(tenant_id=tenant.id).period_start)

    assert days[0] > days[1]
