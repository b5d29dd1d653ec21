"""By when a request must be answered, in the tenant's zone.

The profiles are product assumptions: gdpr, one month (Regulation (EU) 2016/679, Art. 12(3); counted as in Regulation
1182/71); ccpa, 45 calendar days (Cal. Civ. Code 1798.130); lgpd, 15 days for the full statement (Lei 13.709, Art. 19).
The operator's counsel decides.
"""

import calendar
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from governance.errors import Invalid

PROFILES = {
    "gdpr": "EU: one month",
    "ccpa": "California: 45 days",
    "lgpd": "Brazil: 15 days",
}
_DAYS = {"ccpa": 45, "lgpd": 15}


def due_at(*, profile: str, received_at: datetime, zone: str) -> datetime:
    """The end of the last day, in UTC. Raises Invalid for an unknown profile, ValueError for a time without a zone."""
    if received_at.tzinfo is None:
        raise ValueError("received_at needs a zone.")
    if profile not in PROFILES:
        raise Invalid(errors={"profile": [f"Unknown profile. Known profiles: {', '.join(PROFILES)}."]})
    received = received_at.astimezone(ZoneInfo(zone)).date()
    last = _next_month(received) if profile == "gdpr" else received + timedelta(days=_DAYS[profile])
    return end_of(last, zone=zone)


def end_of(day: date, *, zone: str) -> datetime:
    """The instant at which `day` is over in `zone`: midnight of the next day, in UTC."""
    midnight = datetime.combine(day + timedelta(days=1), time(), tzinfo=ZoneInfo(zone))
    return midnight.astimezone(UTC)


def _next_month(day: date) -> date:
    """The same day of the next month, or its last day when it is shorter."""
    year, month = (day.year + 1, 1) if day.month == 12 else (day.year, day.month + 1)
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))
