"""The model library's models for our providers, built inside the event loop that uses them.

Provider modules are imported when a definition first names their kind: each costs a second and tens of megabytes.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from agents.definition import Definition
from sessions.engine.models import Candidate, ProviderConfig

# Without a key in the environment of the server being picked up: what servers get that need none.
NO_KEY = "none"
_BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}

_loaded: set[str] = set()
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()
# What was built for a client goes with it. Models keep nothing of a call.
_models: WeakKeyDictionary[httpx2.AsyncClient, dict[tuple[str, ...], Model]] = WeakKeyDictionary()
_google_providers: WeakKeyDictionary[httpx2.AsyncClient, dict[tuple[str, str], Any]] = WeakKeyDictionary()
_MOST_MODELS = 200


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # 20 ms to read the certificates: once a process, not once a client.
    return ssl.create_default_context()


def client() -> httpx2.AsyncClient:
    """The HTTP client of the running event loop: a client must not be used in another one."""
    loop = asyncio.get_running_loop()
    found = _clients.get(loop)
    if found is None or found.is_closed:
        found = _clients[loop] = httpx2.AsyncClient(
            verify=_tls(),
            timeout=httpx2.Timeout(600, connect=5),
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=60),
            # A redirect would carry the key to an address that nobody has checked.
            follow_redirects=False,
        )
    return found


async def close_clients() -> None:
    """Close the running loop's client; called when its process or thread ends."""
    found = _clients.pop(asyncio.get_running_loop(), None)
    if found is not None:
        _models.pop(found, None)
        _google_providers.pop(found, None)
        await found.aclose()


def build(candidate: Candidate) -> Model:
    """The library's model, built once for each provider, key and name."""
    provider, known = candidate.provider, _models.setdefault(client(), {})
    key = (provider.kind, provider.api, base_url_of(provider), provider.key or NO_KEY, candidate.model)
    if key not in known:
        if len(known) >= _MOST_MODELS:
            known.clear()
        known[key] = _BUILDERS[provider.kind](candidate)
    return known[key]


async def ready(kind: str) -> None:
    """Import what this kind of provider needs, off the event loop: the first run of a kind stops no other."""
    if kind not in _loaded:
        await asyncio.to_thread(load, kind)


def load(kind: str) -> None:
    """Import what this kind of provider needs. A worker calls it at its start for the kinds it knows of."""

    async def build_once() -> None:
        build(Candidate(ProviderConfig(None, "loading", kind, "http://127.0.0.1:9", key=NO_KEY), "demo"))
        await close_clients()

    asyncio.run(build_once())
    _loaded.add(kind)


def base_url_of(provider: ProviderConfig) -> str:
    """Where the provider is reached. Always given explicitly: no environment variable may redirect a tenant's key."""
    return (provider.base_url or _BASE_URLS.get(provider.kind, "")).rstrip("/")


def _demo(candidate: Candidate) -> Model:
    from sessions.engine import demo  # noqa: PLC0415 -- only when a definition names it

    return demo.model(candidate.model)


def _openai_client(provider: ProviderConfig):
    from sessions.engine.openai_client import Client  # noqa: PLC0415 -- 0.8 s

    return Client(
        base_url=base_url_of(provider), api_key=provider.key or NO_KEY, http_client=client(), max_retries=0
    )


def _openai(candidate: Candidate) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: PLC0415 -- 0.8 s
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 -- 0.8 s

    provider = OpenAIProvider(openai_client=_openai_client(candidate.provider))
    kind = OpenAIChatModel if candidate.provider.api == "chat" else OpenAIResponsesModel
    return kind(candidate.model, provider=provider)


def _openai_compatible(candidate: Candidate) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 -- 0.8 s
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415 -- 0.8 s
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 -- 0.8 s

    # vLLM, Ollama, LM Studio, llama.cpp: `max_tokens` and one system message are what all of them take.
    profile = OpenAIModelProfile(
        openai_chat_supports_max_completion_tokens=False,
        openai_chat_supports_multiple_system_messages=False,
        openai_supports_strict_tool_definition=False,
    )
    provider = OpenAIProvider(openai_client=_openai_client(candidate.provider))
    return OpenAIChatModel(candidate.model, provider=provider, profile=profile)


def _anthropic_client(provider: ProviderConfig):
    from anthropic import AsyncAnthropic  # noqa: PLC0415 -- 1.5 s

    return AsyncAnthropic(
        api_key=provider.key or NO_KEY, base_url=base_url_of(provider), http_client=client(), max_retries=0
    )


def _anthropic(candidate: Candidate) -> Model:
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415 -- 1.5 s
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415 -- 1.5 s

    provider = AnthropicProvider(anthropic_client=_anthropic_client(candidate.provider))
    return AnthropicModel(candidate.model, provider=provider)


def _google(candidate: Candidate) -> Model:
    from pydantic_ai.models.google import GoogleModel  # noqa: PLC0415 -- 1 s
    from pydantic_ai.providers.google import GoogleProvider  # noqa: PLC0415 -- 1 s

    http = client()
    known = _google_providers.setdefault(http, {})
    key = (base_url_of(candidate.provider), candidate.provider.key or NO_KEY)
    if key not in known:
        # Its SDK reads the certificates several times for clients that we never use: 80 ms, once a key.
        known[key] = GoogleProvider(base_url=key[0], api_key=key[1], http_client=http)
    return GoogleModel(candidate.model, provider=known[key])


_BUILDERS = {
    "demo": _demo,
    "openai": _openai,
    "openai_compatible": _openai_compatible,
    "anthropic": _anthropic,
    "google": _google,
}

# Settings of a binding that are handed on as they are, by kind of provider; all others are ours to set.
_EVERYWHERE = frozenset({"parallel_tool_calls", "stop_sequences", "service_tier", "extra_body"})
KNOWN_SETTINGS: dict[str, frozenset[str]] = {
    "demo": frozenset(),
    "openai": _EVERYWHERE
    | {
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "openai_text_verbosity",
        "openai_service_tier",
        "openai_user",
        "openai_prompt_cache_key",
        "openai_prompt_cache_retention",
        "openai_reasoning_summary",
    },
    "openai_compatible": _EVERYWHERE | {"seed", "presence_penalty", "frequency_penalty", "logit_bias", "top_k"},
    "anthropic": _EVERYWHERE | {"top_k", "anthropic_service_tier", "anthropic_speed"},
    "google": _EVERYWHERE | {"seed", "top_k", "presence_penalty", "frequency_penalty", "google_safety_settings"},
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the model is told of it."""

    name: str
    description: str
    schema: dict[str, Any]


def settings_of(definition: Definition, candidate: Candidate, model: Model) -> ModelSettings:
    """The library's settings for one call. Timeouts and retries are ours (`calls.py`)."""
    binding, kind = definition.model, candidate.provider.kind
    settings: dict[str, Any] = {
        name: value for name, value in binding.settings.items() if name in KNOWN_SETTINGS[kind]
    }
    if kind == "openai_compatible" and "top_k" in settings:
        settings["extra_body"] = {**(settings.get("extra_body") or {}), "top_k": settings.pop("top_k")}
    if kind != "demo":
        settings["cache"] = True
    if kind == "openai":
        # Unset means that the provider keeps the conversation.
        settings["openai_store"] = False
    if (ceiling := output_limit(definition, candidate)) is not None:
        settings["max_tokens"] = ceiling
    effort = binding.reasoning_effort
    if effort is not None:
        settings["thinking"] = False if effort == "none" else effort
    if kind == "anthropic" and settings.get("thinking"):
        _bound_thinking(settings, model)
    if _samples(model, settings):
        if binding.temperature is not None:
            settings["temperature"] = binding.temperature
        if binding.top_p is not None:
            settings["top_p"] = binding.top_p
    return ModelSettings(**settings)


def output_limit(definition: Definition, candidate: Candidate) -> int | None:
    """The most tokens that one answer may have; None leaves it to the provider."""
    known = [limit for limit in (definition.model.max_output_tokens, candidate.limits.max_output_tokens) if limit]
    return min(known) if known else None


def window_of(definition: Definition, candidate: Candidate) -> int | None:
    """The context window to plan with: the model's, or the harness's if that is smaller."""
    harness = definition.harness
    known = [candidate.limits.context_window, harness.max_context_window_tokens if harness else None]
    return min((limit for limit in known if limit), default=None)


def _bound_thinking(settings: dict[str, Any], model: Model) -> None:
    """Anthropic's older models take a thinking budget, which must be at least 1024 and below `max_tokens`."""
    ceiling = settings.get("max_tokens")
    if ceiling is None or model.profile.get("anthropic_supports_adaptive_thinking", False):
        return
    budget = {"low": 2048, "medium": 10_000, "high": 16_384}[settings["thinking"]]
    if budget < ceiling:
        return
    if ceiling < 2048:
        settings["thinking"] = False
    else:
        del settings["thinking"]
        settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": max(1024, ceiling // 2)}


def without_reasoning(settings: ModelSettings, candidate: Candidate, model: Model) -> None:
    """Anthropic's models with a thinking budget refuse a turn whose calls have lost the thinking before them."""
    is_adaptive = model.profile.get("anthropic_supports_adaptive_thinking", False)
    if candidate.provider.kind == "anthropic" and not is_adaptive:
        settings.pop("thinking", None)
        settings.pop("anthropic_thinking", None)


def _samples(model: Model, settings: Mapping[str, Any]) -> bool:
    """Whether the model takes temperature and top_p with these settings: reasoning models refuse or ignore them."""
    profile = model.profile
    thinking = settings.get("thinking", settings.get("anthropic_thinking"))
    if profile.get("anthropic_disallows_sampling_settings", False):
        return False
    if profile.get("openai_supports_reasoning", False):
        off = thinking is False or (thinking is None and not profile.get("thinking_enabled_by_default", False))
        return off and not profile.get("thinking_always_enabled", False)
    return not (thinking and "anthropic_supports_effort" in profile) and not (
        thinking and model.system == "anthropic"
    )


def parameters_of(
    definition: Definition, model: Model, instructions: str, tools: Sequence[Tool]
) -> ModelRequestParameters:
    """Instructions, tools and the form of the answer. A model that cannot be held to a form is told of it in words."""
    form = definition.response_format
    native: dict[str, Any] = {}
    if form.kind == "json_schema" and model.profile.get("supports_json_schema_output", False):
        native = {
            "output_mode": "native",
            "output_object": OutputObjectDefinition(json_schema=dict(form.json_schema or {}), name="answer"),
        }
    elif form.kind != "text":
        instructions = "\n\n".join(filter(None, [instructions, _in_words(form)]))
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
            for tool in tools
        ],
        instruction_parts=[InstructionPart(content=instructions)] if instructions else [],
        **native,
    )


def _in_words(form) -> str:
    if form.kind == "json":
        return "Answer with one JSON value and nothing else: no explanation, no code fence."
    schema = json.dumps(form.json_schema, ensure_ascii=False)
    return f"Answer with one JSON object that fits this JSON schema, and nothing else, no code fence:\n{schema}"


async def list_models(provider: ProviderConfig) -> list[str]:
    """Names of the models that the provider offers, at most 500. One cheap request, no tokens are spent."""
    if provider.kind == "demo":
        from sessions.engine import demo  # noqa: PLC0415 -- only when a definition names it

        return list(demo.MODELS)
    base, key = base_url_of(provider), provider.key or NO_KEY
    if provider.kind == "anthropic":
        sdk = _anthropic_client(provider)
        url, headers = f"{base}/v1/models?limit=500", {**sdk.default_headers, **sdk.auth_headers}
        headers = {name: value for name, value in headers.items() if isinstance(value, str)}
    elif provider.kind == "google":
        url, headers = f"{base}/v1beta/models?pageSize=500", {"x-goog-api-key": key}
    else:
        url, headers = f"{base}/models", {"authorization": f"Bearer {key}"}
    response = await client().get(url, headers=headers, timeout=15)
    response.raise_for_status()
    body = response.json()
    entries = body.get("data") or body.get("models") or []
    names = [str(entry.get("id") or entry.get("name", "")).removeprefix("models/") for entry in entries]
    return sorted(name for name in names if name)[:500]
