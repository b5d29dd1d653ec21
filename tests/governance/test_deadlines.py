from datetime import UTC, datetime

import pytest

from governance.domain.deadlines import due_at
from governance.errors import Invalid


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("profile", "received", "zone", "due"),
    [
        ("gdpr", "2026-11-02T09:14:00+00:00", "Europe/Zurich", "2026-12-02T23:00:00+00:00"),
        ("gdpr", "2026-01-31T12:00:00+00:00", "UTC", "2026-03-01T00:00:00+00:00"),
        ("gdpr", "2028-01-31T12:00:00+00:00", "UTC", "2028-03-01T00:00:00+00:00"),
        ("gdpr", "2026-12-15T12:00:00+00:00", "UTC", "2027-01-16T00:00:00+00:00"),
        # Already the 2nd in Apia while it is the 1st in UTC.
        ("gdpr", "2026-06-01T20:00:00+00:00", "Pacific/Apia", "2026-07-02T11:00:00+00:00"),
        ("gdpr", "2026-06-01T20:00:00+00:00", "America/St_Johns", "2026-07-02T02:30:00+00:00"),
        ("gdpr", "2026-06-01T20:00:00+00:00", "Asia/Kolkata", "2026-07-02T18:30:00+00:00"),
        # Summer time begins in between: the last day still ends at local midnight.
        ("gdpr", "2026-03-10T12:00:00+00:00", "Europe/Zurich", "2026-04-10T22:00:00+00:00"),
        ("ccpa", "2026-01-01T12:00:00+00:00", "America/Los_Angeles", "2026-02-16T08:00:00+00:00"),
        ("lgpd", "2026-01-01T12:00:00+00:00", "America/Sao_Paulo", "2026-01-17T03:00:00+00:00"),
    ],
)
def test_due_at_is_the_end_of_the_last_day_in_the_tenants_zone(profile, received, zone, due):
    assert due_at(profile=profile, received_at=at(received), zone=zone) == at(due)


def test_due_at_refuses_unknown_profiles_and_times_without_a_zone():
    with pytest.raises(Invalid):
        due_at(profile="none", received_at=at("2026-01-01T00:00:00+00:00"), zone="UTC")
    with pytest.raises(ValueError, match="zone"):
        due_at(profile="gdpr", received_at=datetime(2026, 1, 1), zone="UTC")
