"""What a tenant has decided about requests: who must agree, when a clock rests, what an erasure may take along."""

from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from django.db import transaction

from governance.actors import Actor
from governance.domain import audit
from governance.errors import Invalid, NotFound
from governance.models import Tenant

FOUR_EYES = {
    "off": "One person is enough",
    "always": "Always two people",
    "above": "Two people above a number of rows",
    "api_keys": "Two people when an API key asked",
}
MAX_ROWS = 2_000_000_000
_KEY = "requests"
# A preview made before one of these changed is not carried out: it was shown under other rules.
_BINDING = {"four_eyes", "four_eyes_rows", "accept_added_rows"}


@dataclass(frozen=True, slots=True)
class Rules:
    """`four_eyes`: one of FOUR_EYES, `above` with `four_eyes_rows`. `pause_for_identity`: the clock of a gdpr request
    rests while proof of identity is asked for. `accept_added_rows`: so many rows that were added after the preview,
    in categories that it showed, are erased without a second look. `holidays`: days that are no business days.
    """

    four_eyes: str = "off"
    four_eyes_rows: int = 0
    pause_for_identity: bool = False
    accept_added_rows: int = 0
    holidays: tuple[str, ...] = ()

    def needs_second_person(self, *, by: Actor, rows: int) -> bool:
        """Whether a request over so many rows, confirmed by this actor, waits for an approver."""
        return {
            "always": True,
            "above": rows > self.four_eyes_rows,
            "api_keys": by.kind == "api_key",
        }.get(self.four_eyes, False)

    def days_off(self) -> frozenset[date]:
        return frozenset(date.fromisoformat(day) for day in self.holidays)


def of(tenant: Tenant) -> Rules:
    kept = tenant.settings.get(_KEY, {})
    return Rules(**{**kept, "holidays": tuple(kept.get("holidays", ()))})


@transaction.atomic
def change(*, tenant: Tenant, by: Actor, **changes: Any) -> Rules:
    """Change the rules; what is not given stays. Raises Invalid by field.

    A change of who must agree or of what goes along makes earlier previews stale.
    """
    by.require("governance.settings")
    if tenant.pk != by.tenant_id:
        raise NotFound
    current = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    before = of(current)
    after = _checked(replace(before, **changes))
    changed = [name for name, value in asdict(after).items() if value != getattr(before, name)]
    if changed:
        settings = {**current.settings, _KEY: {**asdict(after), "holidays": list(after.holidays)}}
        if _BINDING & set(changed):
            settings["policy_version"] = settings.get("policy_version", 1) + 1
        tenant.settings = settings
        tenant.save(update_fields=["settings"])
        audit.record(
            "tenant.settings_changed", by=by, object_type="tenant", object_ref=tenant.pk, object_label=tenant.name,
            fields=changed, four_eyes=after.four_eyes, four_eyes_rows=after.four_eyes_rows,
            pause_for_identity=after.pause_for_identity, accept_added_rows=after.accept_added_rows,
        )  # fmt: skip
    return after


def _checked(rules: Rules) -> Rules:
    errors: dict[str, list[str]] = {}
    if rules.four_eyes not in FOUR_EYES:
        errors["four_eyes"] = [f"Choose one of {', '.join(FOUR_EYES)}."]
    for name in ("four_eyes_rows", "accept_added_rows"):
        value = getattr(rules, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ROWS:
            errors[name] = [f"Give a whole number from 0 to {MAX_ROWS:,}."]
    try:
        days = tuple(sorted({date.fromisoformat(day).isoformat() for day in rules.holidays}))
    except (TypeError, ValueError):
        errors["holidays"] = ["Write each day as in 2026-12-25."]
    if errors:
        raise Invalid("The rules cannot be like this.", errors=errors)
    return replace(rules, pause_for_identity=bool(rules.pause_for_identity), holidays=days)
