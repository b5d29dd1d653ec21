"""Providers of models: where they are, the key, what they offer, and where their calls may go."""

import os
import re
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from agents import addresses, queries
from agents.definition.document import TOOL_NAME
from agents.domain import egress
from agents.domain.definitions import check_tenant
from agents.errors import KeyUnavailable, ProviderExists, ProviderInUse, ProviderInvalid
from agents.models import Agent, EgressRule, Provider
from governance.actors import Actor
from governance.domain import audit, protection, rotation
from governance.errors import NotFound
from governance.text import clean

# A variable must be meant for a provider: no provider may read the server's own secrets.
_KEY_ENV = re.compile(r"[A-Z][A-Z0-9_]{0,90}_API_KEY|LETHE_PROVIDER_[A-Z0-9_]{1,80}")
_CHANGEABLE = ("base_url", "key", "key_env", "api", "models", "pricing", "max_concurrency", "is_disabled")
_PRICES = ("input_price", "cached_input_price", "output_price")
_LIMITS = ("context_window", "max_output_tokens")


@transaction.atomic
def create_provider(
    *,
    tenant_id: UUID,
    by: Actor,
    name: str,
    kind: str,
    base_url: str = "",
    key: str = "",
    key_env: str = "",
    api: str = "responses",
    models: list[dict] | None = None,
    pricing: dict | None = None,
    max_concurrency: int | None = None,
    is_disabled: bool = False,
) -> Provider:
    """A new provider. `key` is stored encrypted, `key_env` names an environment variable instead; `models` is the list
    of `Provider.model_list`, `pricing` what `Provider.pricing` has. Raises ProviderInvalid by field, ProviderExists and EgressRefused."""
    check_tenant(tenant_id, by, "providers.write")
    provider = Provider(tenant_id=tenant_id, name=name, kind=kind)
    errors = _name_and_kind(name, kind)
    changes = {"base_url": base_url, "key_env": key_env, "api": api, "models": models or [], "pricing": pricing or {}}
    changes |= {"max_concurrency": max_concurrency, "is_disabled": is_disabled}
    errors |= _apply(provider, {**changes, **({"key": key} if key else {})})
    if errors:
        raise ProviderInvalid(errors=errors)
    _check_address(provider, host_may_be_unknown=True)
    try:
        with transaction.atomic():
            provider.save(force_insert=True)
    except IntegrityError:
        raise ProviderExists(name) from None
    _record("provider.created", provider, by, kind=kind)
    return _fresh(provider)


@transaction.atomic
def update_provider(*, provider: Provider, by: Actor, **changes: Any) -> Provider:
    """Change what is given: base_url, key ("" removes it), key_env, api, models, pricing, max_concurrency,
    is_disabled.

    Name and kind stay: definitions refer to them. Another host needs the key again, so that nobody can have a stored
    key sent to an address of their own.
    """
    provider = _locked(provider, by)
    errors = {name: ["This cannot be changed."] for name in changes if name not in _CHANGEABLE}
    old_host, had_key = addresses.host_of(provider.kind, provider.base_url), bool(provider.key_enc)
    errors |= _apply(provider, {name: value for name, value in changes.items() if name in _CHANGEABLE})
    moved = addresses.host_of(provider.kind, provider.base_url) != old_host
    if moved and had_key and provider.key_enc and not changes.get("key") and "base_url" not in errors:
        errors["key"] = ["Enter the key again: it was given for another host."]
    if errors:
        raise ProviderInvalid(errors=errors)
    if "base_url" in changes:
        _check_address(provider, host_may_be_unknown=True)
    provider.updated_at = Now()
    if moved or "key" in changes or "key_env" in changes:
        # What was learned about the old address or key says nothing about the new one.
        provider.failures, provider.open_until, provider.last_test = 0, None, None
    provider.save()
    _record("provider.updated", provider, by, fields=sorted(changes))
    if "key" in changes or "key_env" in changes:
        _record("provider.key_changed", provider, by)
    return _fresh(provider)


@transaction.atomic
def delete_provider(*, provider: Provider, by: Actor) -> None:
    """Raises ProviderInUse while the published version of an agent names it, or the tenant's utility model is one of its."""
    provider = _locked(provider, by)
    agents, utility = agents_using(provider), queries.utility_model(provider.tenant_id)
    has_utility = utility is not None and utility.provider == provider.name
    if agents or has_utility:
        raise ProviderInUse(provider.name, agents, utility_model=has_utility)
    _record("provider.deleted", provider, by)
    provider.delete()


def agents_using(provider: Provider) -> list[str]:
    """Names of the agents whose published version names the provider."""
    name, at = provider.name, "published__document"
    used = Q(**{f"{at}__model__provider": name})
    used |= Q(**{f"{at}__model__fallbacks__contains": [{"provider": name}]})
    used |= Q(**{f"{at}__compaction__summarization_model__provider": name})
    used |= Q(**{f"{at}__memory__extraction_model__provider": name})
    used |= Q(**{f"{at}__aggregation__contains": [{"model": {"provider": name}}]})
    return list(Agent.objects.of(provider.tenant_id).filter(used).order_by("name").values_list("name", flat=True))


def secret_of(provider: Provider) -> str | None:
    """The key itself; None when the provider has none. Raises KeyUnavailable when its variable is not set here."""
    if provider.key_enc:
        return protection.decrypt(provider.key_enc, tenant_id=provider.tenant_id, context=_context(provider)).decode()
    if not provider.key_env:
        return None
    if not (key := os.environ.get(provider.key_env, "").strip()):
        raise KeyUnavailable(f"The environment variable {provider.key_env} is not set where this runs.")
    return key


def check_egress(provider: Provider) -> None:
    """Whether the provider may be called now. Raises EgressRefused, or AddressUnknown when its host is not found.

    Asked again before a run, because a name can point elsewhere by then.
    """
    _check_address(provider, host_may_be_unknown=False)


def record_test(*, provider: Provider, result: dict, by: Actor) -> Provider:
    """Keep what a test of the connection showed."""
    check_tenant(provider.tenant_id, by, "providers.write")
    with transaction.atomic():
        Provider.objects.filter(pk=provider.pk).update(last_test=result)
        _record("provider.tested", provider, by, ok=bool(result.get("ok")), code=str(result.get("code") or "")[:64])
    provider.last_test = result
    return provider


@transaction.atomic
def set_egress(*, tenant_id: UUID, hosts: list[str], by: Actor) -> list[str]:
    """The hosts that providers of the tenant may reach; an empty list allows every public host. Returns them cleaned."""
    check_tenant(tenant_id, by, "providers.write")
    wanted = sorted({clean(host).strip().lower().rstrip(".") for host in hosts} - {""})
    wrong = [host for host in wanted if not _HOST.fullmatch(host)]
    if wrong:
        raise ProviderInvalid("Some hosts are not written as hosts.", errors={"hosts": [f"{host} is no host." for host in wrong]})
    EgressRule.objects.update_or_create(tenant_id=tenant_id, defaults={"hosts": wanted})
    audit.record("egress.updated", by=by, object_type="egress", hosts=len(wanted))
    return wanted


_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?|[0-9a-f:]{2,45}")


# --- Reading what was given -----------------------------------------------------------------------------------------


def _name_and_kind(name: str, kind: str) -> dict[str, list[str]]:
    errors = {}
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name) or len(name) > 64:
        errors["name"] = ["Use 1 to 64 letters, digits, _ and -."]
    if kind not in Provider.Kind.values:
        errors["kind"] = [f"Choose one of {', '.join(Provider.Kind.values)}."]
    return errors


def _apply(provider: Provider, changes: dict[str, Any]) -> dict[str, list[str]]:
    """Set the fields. Returns what is wrong, by field."""
    errors: dict[str, list[str]] = {}
    if "base_url" in changes:
        _apply_url(provider, str(changes["base_url"] or "").strip(), errors)
    if "key_env" in changes:
        _apply_key_env(provider, str(changes["key_env"] or "").strip(), errors)
    if "key" in changes:
        _apply_key(provider, clean(str(changes["key"] or "")).strip(), errors)
    if provider.key_enc and provider.key_env:
        errors.setdefault("key_env", ["Enter a key or the name of a variable, not both."])
    if "api" in changes:
        provider.api = changes["api"] or "responses"
        if provider.api not in ("responses", "chat"):
            errors["api"] = ["Choose responses or chat."]
    if "models" in changes:
        provider.model_list = _models(changes["models"], errors)
    if "pricing" in changes:
        provider.pricing = _pricing(changes["pricing"], errors)
    if "max_concurrency" in changes:
        provider.max_concurrency = changes["max_concurrency"]
        if provider.max_concurrency is not None and not _is_count(provider.max_concurrency, 100_000):
            errors["max_concurrency"] = ["Enter a whole number from 1 to 100,000, or nothing."]
    if "is_disabled" in changes:
        provider.is_disabled = bool(changes["is_disabled"])
    return errors


def _apply_url(provider: Provider, url: str, errors: dict) -> None:
    provider.base_url = url.rstrip("/")
    if not url and provider.kind == Provider.Kind.OPENAI_COMPATIBLE:
        errors["base_url"] = ["Enter the address of the server, for example https://models.example.com/v1."]
    elif url and provider.kind == Provider.Kind.DEMO:
        errors["base_url"] = ["The demo provider has no address."]
    elif url and (len(url) > 500 or (problem := addresses.problem_of_url(url))):
        errors["base_url"] = ["This is longer than 500 characters." if len(url) > 500 else problem]


def _apply_key_env(provider: Provider, name: str, errors: dict) -> None:
    provider.key_env = name
    if name and not _KEY_ENV.fullmatch(name):
        errors["key_env"] = ["The variable's name ends with _API_KEY or begins with LETHE_PROVIDER_."]


def _sealed_key(provider: Provider) -> rotation.Sealed | None:
    if not provider.key_enc:
        return None
    return rotation.Sealed(
        provider.tenant_id, _context(provider), provider.key_enc, lambda data, _plain: {"key_enc": data}
    )


rotation.register(rotation.Store("provider keys", Provider.objects.all, _sealed_key))


def _apply_key(provider: Provider, key: str, errors: dict) -> None:
    if not key:
        provider.key_enc, provider.key_hint = None, ""
    elif len(key) > 4000 or not key.isascii() or any(character.isspace() for character in key):
        errors["key"] = ["A key is one line of plain characters."]
    else:
        provider.key_enc = protection.encrypt(key.encode(), tenant_id=provider.tenant_id, context=_context(provider))
        provider.key_hint = key[-4:] if len(key) >= 12 else ""


def _models(given: Any, errors: dict) -> list[dict]:
    """The list of models as it is stored: known keys only, prices as text, empty values left out."""
    if not isinstance(given, list) or len(given) > 500 or not all(isinstance(entry, dict) for entry in given):
        errors["models"] = ["This is a list of models, 500 at most."]
        return []
    found: dict[str, dict] = {}
    for number, entry in enumerate(given):
        kept = {name: value for name, value in entry.items() if value not in (None, "")}
        name = kept["name"] = clean(str(kept.get("name", ""))).strip()
        for path, sentence in _model_problems(kept):
            errors[f"models.{number}.{path}"] = [sentence]
        if name in found:
            errors[f"models.{number}.name"] = ["This model is listed twice."]
        found[name] = {key: str(value) if key in _PRICES else value for key, value in kept.items()}
    return list(found.values())


def _pricing(given: Any, errors: dict) -> dict[str, str]:
    if not isinstance(given, dict):
        errors["pricing"] = ["This is an object of prices."]
        return {}
    for name, price in given.items():
        if name != "web_search":
            errors[f"pricing.{name}"] = ["There is no such price; known is web_search."]
        elif price not in (None, "") and not _is_price(price):
            errors[f"pricing.{name}"] = ["Enter US dollars for 1,000 searches, for example 10."]
    return {name: str(price) for name, price in given.items() if price not in (None, "")}


def _model_problems(entry: dict):
    if not entry["name"] or len(entry["name"]) > 200:
        yield "name", "Enter the model's name, at most 200 characters."
    for key, value in entry.items():
        if key in _LIMITS and not _is_count(value, 100_000_000):
            yield key, "Enter a whole number of tokens."
        elif key in _PRICES and not _is_price(value):
            yield key, "Enter US dollars for a million tokens, for example 0.25."
        elif key not in ("name", *_LIMITS, *_PRICES):
            yield key, "A model has no such value."
    window, output = entry.get("context_window"), entry.get("max_output_tokens")
    if _is_count(window, 100_000_000) and _is_count(output, 100_000_000) and output >= window:
        yield "max_output_tokens", "The answer must be shorter than the context window."


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_price(value: Any) -> bool:
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return False
    return price.is_finite() and 0 <= price <= 1_000_000 and not isinstance(value, bool)


# --- Shared by the verbs --------------------------------------------------------------------------------------------


def _check_address(provider: Provider, *, host_may_be_unknown: bool) -> None:
    if host := addresses.host_of(provider.kind, provider.base_url):
        egress.check(
            tenant_id=provider.tenant_id, host=host, is_own=bool(provider.base_url), host_may_be_unknown=host_may_be_unknown
        )


def _locked(provider: Provider, by: Actor) -> Provider:
    check_tenant(provider.tenant_id, by, "providers.write")
    locked = Provider.objects.select_for_update().filter(pk=provider.pk, tenant_id=by.tenant_id).first()
    if locked is None:
        raise NotFound
    return locked


def _fresh(provider: Provider) -> Provider:
    provider.refresh_from_db()
    return provider


def _context(provider: Provider) -> str:
    return f"provider:{provider.pk.hex}"


def _record(action: str, provider: Provider, by: Actor, **payload: Any) -> None:
    audit.record(action, by=by, object_type="provider", object_ref=provider.pk, object_label=provider.name, **payload)
