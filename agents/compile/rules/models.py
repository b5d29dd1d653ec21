"""Providers, models, their settings and their limits."""

import re
from decimal import Decimal
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from agents import queries
from agents.compile.facts import Facts, models_of
from agents.compile.nearest import did_you_mean, nearest
from agents.compile.report import Findings, Fix
from agents.definition import Definition, ModelRef
from agents.models import Provider

# Settings besides those of the definition itself, by what providers know: the engine hands them on as they are.
_OPENAI = ("openai", "openai_compatible")
_REAL = (*_OPENAI, "anthropic", "google")
SETTINGS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "parallel_tool_calls": (bool, _REAL),
    "stop_sequences": (list[str], _REAL),
    "service_tier": (str, _REAL),
    "extra_body": (dict[str, JsonValue], _REAL),
    "seed": (int, (*_OPENAI, "google")),
    "presence_penalty": (float, (*_OPENAI, "google")),
    "frequency_penalty": (float, (*_OPENAI, "google")),
    "logit_bias": (dict[str, int], _OPENAI),
    "top_k": (int, ("openai_compatible", "anthropic", "google")),
    "openai_text_verbosity": (str, ("openai",)),
    "openai_service_tier": (str, ("openai",)),
    "openai_user": (str, ("openai",)),
    "openai_prompt_cache_key": (str, ("openai",)),
    "openai_prompt_cache_retention": (str, ("openai",)),
    "openai_reasoning_summary": (str, ("openai",)),
    "anthropic_service_tier": (str, ("anthropic",)),
    "anthropic_speed": (str, ("anthropic",)),
    "google_safety_settings": (list[dict[str, JsonValue]], ("google",)),
}
NEEDS_KEY = ("openai", "anthropic", "google")
# Dollars for a million output tokens from which an agent without limits is worth a word.
COSTLY = Decimal(10)
# Anthropic: extended thinking reserves a budget that must stay below max_tokens, and sampling must be left alone
# (Anthropic's documentation, "Extended thinking"). Newer models choose the budget themselves.
_THINKING_BUDGET = {"low": 2048, "medium": 10_000, "high": 16_384}
_TAKES_BUDGET = re.compile(r"claude-(3-7|(opus|sonnet|haiku)-4(-[015]|-\d{6,8}|@|$))")


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    for path, ref in models_of(definition):
        _reference(path, ref, facts, findings)
    binding = definition.model
    provider = facts.providers.get(binding.provider) if binding and binding.provider else None
    if provider is None or not binding.model:
        return
    _fallbacks(definition, findings)
    _settings(definition, provider, findings)
    _sampling(definition, provider, findings)
    _limits(definition, provider, findings)
    _cost(definition, provider, findings)


def _reference(path: str, ref: ModelRef, facts: Facts, findings: Findings) -> None:
    if not ref.provider:
        return
    provider = facts.providers.get(ref.provider)
    at = f"{path}.provider"
    if provider is None:
        findings.error(
            "unknown_provider",
            at,
            f"There is no provider named {ref.provider}.",
            did_you_mean(ref.provider, facts.providers, none="Add one under Providers."),
            [Fix(f"Use {found}", {at: found})] if (found := nearest(ref.provider, facts.providers)) else [],
        )
        return
    if provider.is_disabled:
        findings.error("provider_disabled", at, f"The provider {ref.provider} is switched off.", "Switch it on, or use another.")
    if provider.kind in NEEDS_KEY and not provider.key_enc and not provider.key_env:
        findings.warning("provider_without_key", at, f"The provider {ref.provider} has no key yet.", "Enter it under Providers.")
    listed = [entry["name"] for entry in provider.model_list]
    if ref.model and listed and ref.model not in listed:
        findings.warning(
            "model_not_listed",
            f"{path}.model",
            f"{ref.model} is not among the models of {ref.provider}.",
            did_you_mean(ref.model, listed) + " Its limits and prices are not known.",
            [Fix(f"Use {found}", {f"{path}.model": found})] if (found := nearest(ref.model, listed)) else [],
        )


def _fallbacks(definition: Definition, findings: Findings) -> None:
    binding, seen = definition.model, {(definition.model.provider, definition.model.model)}
    for number, ref in enumerate(binding.fallbacks):
        if not ref:
            continue
        if (ref.provider, ref.model) in seen:
            findings.warning(
                "repeated_fallback",
                f"model.fallbacks.{number}",
                f"{ref.model} of {ref.provider} has been tried by then.",
                "Choose another model, or remove this one.",
                [Fix("Remove it", {f"model.fallbacks.{number}": None})],
            )
        seen.add((ref.provider, ref.model))


def _settings(definition: Definition, provider: Provider, findings: Findings) -> None:
    known = [name for name, (_, kinds) in SETTINGS.items() if provider.kind in kinds]
    for name, value in definition.model.settings.items():
        path = f"model.settings.{name}"
        if name not in known:
            findings.error(
                "unknown_model_setting",
                path,
                f"{provider.get_kind_display()} has no setting named {name}.",
                did_you_mean(name, known, none="It needs none."),
                [Fix("Remove it", {path: None})] if "." not in name else [],
            )
            continue
        try:
            TypeAdapter(SETTINGS[name][0]).validate_python(value, strict=True)
        except ValidationError:
            findings.error("bad_model_setting", path, f"{name} must be {_TYPE_NAMES[SETTINGS[name][0]]}.")


_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list[str]: "a list of texts",
    dict[str, int]: "an object of whole numbers",
    dict[str, JsonValue]: "an object",
    list[dict[str, JsonValue]]: "a list of objects",
}


def _sampling(definition: Definition, provider: Provider, findings: Findings) -> None:
    binding = definition.model
    if provider.kind == "anthropic" and binding.temperature is not None and binding.temperature > 1:
        findings.error("temperature_range", "model.temperature", "Anthropic takes temperatures from 0 to 1.")
    if binding.reasoning_effort in (None, "none"):
        return
    given = [name for name in ("temperature", "top_p") if getattr(binding, name) is not None]
    if provider.kind == "anthropic":
        for name in given:
            findings.error(
                "sampling_with_reasoning",
                f"model.{name}",
                "Anthropic refuses this together with reasoning.",
                "Leave it empty, or set the reasoning effort to none.",
                [Fix("Leave it empty", {f"model.{name}": None}), Fix("No reasoning", {"model.reasoning_effort": "none"})],
            )
        _thinking_budget(definition, findings)
    elif provider.kind == "openai":
        for name in given:
            findings.warning(
                "sampling_with_reasoning",
                f"model.{name}",
                "OpenAI's models leave this aside while they reason.",
                fixes=[Fix("Leave it empty", {f"model.{name}": None})],
            )


def _thinking_budget(definition: Definition, findings: Findings) -> None:
    binding = definition.model
    budget = _THINKING_BUDGET[binding.reasoning_effort]
    if binding.max_output_tokens is None or not _TAKES_BUDGET.match(binding.model):
        return
    if binding.max_output_tokens <= budget:
        findings.error(
            "reasoning_budget",
            "model.max_output_tokens",
            f"Reasoning alone may take {budget:,} tokens here, so the longest answer must be longer than that.",
            f"Enter more than {budget:,}, or lower the reasoning effort.",
            [Fix(f"Set it to {budget * 2:,}", {"model.max_output_tokens": budget * 2})],
        )


def _limits(definition: Definition, provider: Provider, findings: Findings) -> None:
    limits = queries.model_limits(provider, definition.model.model)
    most, window = limits["max_output_tokens"], limits["context_window"]
    for path, value in (
        ("model.max_output_tokens", definition.model.max_output_tokens),
        ("harness.max_output_tokens", definition.harness and definition.harness.max_output_tokens),
    ):
        if most and value and value > most:
            findings.error(
                "output_over_limit",
                path,
                f"{definition.model.model} answers with at most {most:,} tokens.",
                fixes=[Fix(f"Set it to {most:,}", {path: most})],
            )
    wanted = definition.harness and definition.harness.max_context_window_tokens
    if window and wanted and wanted > window:
        findings.warning(
            "window_over_model",
            "harness.max_context_window_tokens",
            f"The context window of {definition.model.model} has {window:,} tokens.",
            fixes=[Fix(f"Set it to {window:,}", {"harness.max_context_window_tokens": window})],
        )


def _cost(definition: Definition, provider: Provider, findings: Findings) -> None:
    price = (queries.model_entry(provider, definition.model.model) or {}).get("output_price")
    limits = definition.limits
    bounded = limits and (limits.max_cost_per_run or limits.max_tokens_per_run)
    if price and Decimal(str(price)) >= COSTLY and not bounded:
        findings.warning(
            "no_limits",
            "limits",
            f"{definition.model.model} costs {price} dollars for a million tokens, and nothing limits a run.",
            "Set the most that a run may cost or use.",
        )
