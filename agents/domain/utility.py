"""The utility model of a tenant: for work beside the answers of agents, such as summaries, where a definition names no model."""

from uuid import UUID

from django.db import transaction

from agents import queries
from agents.definition import ModelRef
from agents.domain.definitions import check_tenant
from agents.models import Provider
from governance.actors import Actor
from governance.domain import audit
from governance.errors import Invalid
from governance.models import Tenant
from governance.text import clean

_LONGEST = 200


@transaction.atomic
def set_utility_model(*, tenant_id: UUID, provider: str, model: str, by: Actor) -> ModelRef:
    """Have a model of one of the tenant's providers do such work from now on; any model name will do, as in definitions.

    Raises Invalid by field: for a provider that is unknown or switched off, and for a model without a name.
    """
    check_tenant(tenant_id, by, "providers.write")
    provider, model = clean(provider).strip(), clean(model).strip()
    errors = {"provider": _wrong_with_provider(tenant_id, provider), "model": _wrong_with_model(model)}
    if found := {field: [sentence] for field, sentence in errors.items() if sentence}:
        raise Invalid("This cannot be the utility model.", errors=found)
    wanted = ModelRef(provider=provider, model=model)
    _keep(tenant_id, wanted, by)
    return wanted


@transaction.atomic
def clear_utility_model(*, tenant_id: UUID, by: Actor) -> None:
    """Have each agent's own model do such work from now on."""
    check_tenant(tenant_id, by, "providers.write")
    _keep(tenant_id, None, by)


def _wrong_with_provider(tenant_id: UUID, name: str) -> str | None:
    if not name:
        return "Choose a provider."
    # Locked, so that it is not deleted before this is stored.
    provider = Provider.objects.select_for_update(no_key=True).filter(tenant_id=tenant_id, name=name).first()
    if provider is None:
        return f"There is no provider named {name}. Add it first, or choose another."
    if provider.is_disabled:
        return f"The provider {name} is switched off. Switch it on first, or choose another."
    return None


def _wrong_with_model(name: str) -> str | None:
    if not name or not name.isprintable() or "\ufffd" in name:
        return "Enter the model's name exactly as the provider spells it."
    return f"A model's name has at most {_LONGEST} characters." if len(name) > _LONGEST else None


def _keep(tenant_id: UUID, wanted: ModelRef | None, by: Actor) -> None:
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
    if wanted == queries.utility_model_of(tenant):
        return
    tenant.settings = {name: value for name, value in tenant.settings.items() if name != queries.UTILITY_MODEL}
    if wanted is not None:
        tenant.settings[queries.UTILITY_MODEL] = wanted.model_dump(mode="json")
    tenant.save(update_fields=["settings"])
    # Not the model: its name is free text.
    audit.record(
        "tenant.settings_changed", by=by, object_type="tenant", object_ref=tenant.pk, object_label=tenant.name,
        fields=[queries.UTILITY_MODEL], utility_provider=wanted.provider if wanted else None,
    )  # fmt: skip
