"""By when a request must be answered, in the tenant's zone. Pure arithmetic; the verbs are in `clocks`.

The profiles are product assumptions; the operator's counsel decides. gdpr: one month, twice more when extended
(Regulation (EU) 2016/679, Art. 12(3); counted as in Regulation 1182/71). ccpa: confirm in 10 business days, answer in
45 calendar days, 45 more when extended (Cal. Code Regs. tit. 11, 7021). lgpd: a simple answer at once, 15 days for the
full statement (Lei 13.709, Art. 19).
"""

import calendar
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from governance.errors import Invalid


@dataclass(frozen=True, slots=True)
class Profile:
    """Months or days from receipt; `longer` is what an extension comes to, from receipt too, none when not offered."""

    title: str
    months: int = 0
    days: int = 0
    longer_months: int = 0
    longer_days: int = 0
    first_business_days: int | None = None
    may_pause: bool = False

    @property
    def may_extend(self) -> bool:
        return bool(self.longer_months or self.longer_days)


_PROFILES = {
    "gdpr": Profile("EU: one month", months=1, longer_months=3, may_pause=True),
    "ccpa": Profile("California: 45 days", days=45, longer_days=90, first_business_days=10),
    "lgpd": Profile("Brazil: 15 days", days=15, first_business_days=0),
}
PROFILES = {name: profile.title for name, profile in _PROFILES.items()}


def profile_of(name: str) -> Profile:
    """Raises Invalid for an unknown profile."""
    if name not in _PROFILES:
        raise Invalid(errors={"profile": [f"Unknown profile. Known profiles: {', '.join(PROFILES)}."]})
    return _PROFILES[name]


def due_at(*, profile: str, received_at: datetime, zone: str) -> datetime:
    """The end of the last day, in UTC. Raises Invalid for an unknown profile, ValueError for a time without a zone."""
    rule = profile_of(profile)
    return end_of(_later(_day(received_at, zone), months=rule.months, days=rule.days), zone=zone)


def extended(*, profile: str, received_at: datetime, zone: str) -> datetime:
    """The end of the last day after an extension. Raises ValueError where the profile offers none."""
    rule = profile_of(profile)
    if not rule.may_extend:
        raise ValueError(f"{profile} has no extension.")
    return end_of(_later(_day(received_at, zone), months=rule.longer_months, days=rule.longer_days), zone=zone)


def first_due_at(*, profile: str, received_at: datetime, zone: str, days_off: Collection[date] = ()) -> datetime | None:
    """By when a first answer is due: so many business days after the day of receipt, or that day. None where none is asked.

    Business days are Monday to Friday without the tenant's holidays.
    """
    left = profile_of(profile).first_business_days
    if left is None:
        return None
    day = _day(received_at, zone)
    while left:
        day += timedelta(days=1)
        left -= day.weekday() < 5 and day not in days_off
    return end_of(day, zone=zone)


def shifted(due: datetime, *, by: timedelta, zone: str) -> datetime:
    """A deadline moved by a pause, to the end of the day that it then falls on."""
    if not by:
        return due
    return end_of((due - timedelta(microseconds=1) + by).astimezone(ZoneInfo(zone)).date(), zone=zone)


def share_used(*, received_at: datetime, due_at: datetime, now: datetime, paused: timedelta = timedelta(0)) -> float:
    """How much of the time is over: 0 at receipt, 1 when due, beyond that overdue. Time in pauses does not count."""
    whole = (due_at - received_at - paused).total_seconds()
    return max(0.0, (now - received_at - paused).total_seconds() / whole) if whole > 0 else 1.0


def end_of(day: date, *, zone: str) -> datetime:
    """The instant at which `day` is over in `zone`: midnight of the next day, in UTC."""
    midnight = datetime.combine(day + timedelta(days=1), time(), tzinfo=ZoneInfo(zone))
    return midnight.astimezone(UTC)


def fewest_days(months: int) -> int:
    """So many days lie within so many months, wherever they begin, at the least."""
    starts = [date(year, month, 1) for year in range(2001, 2005) for month in range(1, 13)]
    return min((_later(start, months=months, days=0) - start).days for start in starts)


def _day(received_at: datetime, zone: str) -> date:
    if received_at.tzinfo is None:
        raise ValueError("received_at needs a zone.")
    return received_at.astimezone(ZoneInfo(zone)).date()


def _later(day: date, *, months: int, days: int) -> date:
    """The same day so many months on, or that month's last day when it is shorter; then so many days."""
    month = day.month - 1 + months
    year, month = day.year + month // 12, month % 12 + 1
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1])) + timedelta(days=days)
