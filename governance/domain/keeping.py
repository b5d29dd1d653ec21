"""What a tenant has decided about keeping: the trial of a policy, who must agree, what must be kept, who releases holds."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import transaction

from governance.actors import Actor
from governance.domain import audit, registry
from governance.domain.recent import OVER
from governance.errors import Invalid, NotFound
from governance.models import Tenant

MAX_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Keeping:
    """`retention_dry_run_days`: so long a new or tightened policy only counts. `retention_second_person_percent`: the first
    real run above this share of a category needs a second person; 100 asks for none. `retention_minimum_days`: days that
    a category must be kept, by its key, as a law may ask. `hold_release_alone`: whoever placed a hold may release it.
    """

    retention_dry_run_days: int = 7
    retention_second_person_percent: int = 20
    retention_minimum_days: dict[str, int] = field(default_factory=dict)
    hold_release_alone: bool = False


def of(tenant: Tenant) -> Keeping:
    return Keeping(**{name: tenant.settings[name] for name in Keeping.__slots__ if name in tenant.settings})


@transaction.atomic
def change(*, tenant: Tenant, by: Actor, **changes: Any) -> Keeping:
    """Change the rules; what is not given stays. A minimum counts for policies that are there already, from their next run.

    Raises Invalid by field.
    """
    by.require("governance.settings")
    if tenant.pk != by.tenant_id:
        raise NotFound
    current = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    before = of(current)
    after = replace(before, **changes)
    _check(after)
    changed = [name for name, value in asdict(after).items() if value != getattr(before, name)]
    if changed:
        tenant.settings = {**current.settings, **asdict(after)}
        tenant.save(update_fields=["settings"])
        OVER.forget(tenant.pk)
        audit.record(
            "tenant.settings_changed", by=by, object_type="tenant", object_ref=tenant.pk, object_label=tenant.name,
            fields=changed, **asdict(after),
        )  # fmt: skip
    return after


def _check(rules: Keeping) -> None:
    errors: dict[str, list[str]] = {}
    if not _is_number(rules.retention_dry_run_days, 0, 365):
        errors["retention_dry_run_days"] = ["Give a whole number from 0 to 365."]
    if not _is_number(rules.retention_second_person_percent, 0, 100):
        errors["retention_second_person_percent"] = ["Give a whole number from 0 to 100."]
    if not isinstance(rules.hold_release_alone, bool):
        errors["hold_release_alone"] = ["Choose true or false."]
    aged = sorted(key for key, category in registry.categories().items() if category.ages)
    if unknown := sorted(set(rules.retention_minimum_days) - set(aged)):
        errors["retention_minimum_days"] = [f"{unknown[0]} has no age. Choose among {', '.join(aged)}."]
    elif not all(_is_number(days, 1, MAX_DAYS) for days in rules.retention_minimum_days.values()):
        errors["retention_minimum_days"] = [f"Give whole numbers of days from 1 to {MAX_DAYS:,}."]
    if errors:
        raise Invalid("The rules cannot be like this.", errors=errors)


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
