"""The harness's loop and web search: what cannot be together, and what it may cost."""

import json
import re

from agents import queries
from agents.compile.facts import Facts
from agents.compile.report import Findings, Fix
from agents.definition import Definition, ModelRef
from agents.models import Provider

MODEL_CALLS = 40
# Gemini takes functions and its own search together from version 3 on (Google's documentation, "Grounding").
_EITHER_OR = re.compile(r"(models/)?gemini-[12]\b")
_SEARCHES = re.compile(r"web_search|google_search")


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    harness = definition.harness
    if harness is None:
        return
    if harness.loop is not None:
        _loop(definition, findings)
    if harness.enable_web_search:
        _search(definition, facts, findings)


def _loop(definition: Definition, findings: Findings) -> None:
    harness, loop, path = definition.harness, definition.harness.loop, "harness.loop.criteria"
    criteria = loop.criteria or []
    for number, name in enumerate(criteria):
        if name is not None and name in criteria[:number]:
            at = f"{path}.{number}"
            findings.error("duplicate", at, f"{name} is listed twice.", fixes=[Fix("Remove it", {at: None})])
    if "todos_remaining" in criteria and harness.disable_todo_provider:
        title = type(harness).model_fields["disable_todo_provider"].title
        findings.error(
            "loop_without_todos",
            path,
            "The loop goes on while todos remain, and the harness keeps no todos.",
            f"Switch off '{title}', or choose another criterion.",
            [Fix(f"Switch off '{title}'", {"harness.disable_todo_provider": False})],
        )
    if "completion_marker" in criteria and definition.response_format and definition.response_format.kind != "text":
        findings.error(
            "marker_in_json",
            path,
            "An answer that is JSON cannot end with a completion marker.",
            "Choose another criterion, or answers in text.",
            [Fix("Answer in text", {"response_format": None})],
        )
    most = harness.maximum_iterations_per_request or MODEL_CALLS
    if loop.max_iterations and loop.max_iterations >= most:
        findings.warning(
            "rounds_over_iterations",
            "harness.loop.max_iterations",
            f"A run ends after {most} model calls, and each round takes one at least.",
            fixes=[Fix(f"Set it to {max(1, most // 2)}", {"harness.loop.max_iterations": max(1, most // 2)})],
        )


def _search(definition: Definition, facts: Facts, findings: Findings) -> None:
    path, binding = "harness.enable_web_search", definition.model
    if binding is None:
        return
    off = [Fix("Switch web search off", {path: False})]
    for ref in [binding, *binding.fallbacks]:
        provider = facts.providers.get(ref.provider) if ref and ref.provider else None
        if provider is None or not ref.model:
            continue
        if reason := _cannot_search(provider, ref):
            findings.error("web_search_unsupported", path, reason, "Choose another model, or switch web search off.", off)
        elif queries.search_price(provider, ref.model) is None:
            findings.warning(
                "web_search_without_price",
                path,
                f"What a search of {ref.model} costs is not known: runs that search have no known cost.",
                f"Enter the price of a search at the provider {provider.name}.",
            )
    if _SEARCHES.search(json.dumps(binding.settings.get("extra_body") or {}, default=str)):
        findings.error(
            "search_twice",
            "model.settings.extra_body",
            "Web search is chosen twice: here and in the harness.",
            fixes=[Fix("Keep the harness's", {"model.settings.extra_body": None})],
        )


def _cannot_search(provider: Provider, ref: ModelRef) -> str | None:
    if provider.kind == "openai" and provider.api == "chat":
        return f"{provider.name} speaks the chat protocol, which has no web search; its Responses API has."
    if provider.kind not in ("openai", "anthropic", "google"):
        return f"Providers of the kind {provider.get_kind_display()} have no web search of their own."
    if provider.kind == "google" and _EITHER_OR.match(ref.model):
        return f"{ref.model} takes either tools or web search, and a harness has tools."
    return None
