"""Trying a provider: what models it offers, and whether one of them answers."""

import time
from dataclasses import dataclass, field
from uuid import uuid4

import httpx2
from pydantic_ai.models import Model

from agents.definition import Definition
from sessions.context.assemble import assemble
from sessions.engine import errors, providers
from sessions.engine.calls import Answer, Asking, Prepared, logger
from sessions.engine.errors import ModelFailed
from sessions.engine.failures import classify
from sessions.engine.messages import show
from sessions.engine.models import Candidate, ModelSource, ProviderConfig, Retries
from sessions.engine.store import ItemView

SECONDS = 20.0
_QUESTION = "Answer with the single word: ready"


@dataclass(frozen=True, slots=True)
class Ping:
    """`latency_ms` is of the answer, or of the list of models when no model was asked. `models` is what it offers."""

    ok: bool
    latency_ms: int | None = None
    code: str | None = None
    message: str = ""
    models: list[str] = field(default_factory=list)


async def ping(provider: ProviderConfig, model: str | None) -> Ping:
    """List the provider's models, then ask `model` (or the first one known) for a single word.

    A provider that lists nothing may still answer. The provider's own words go to the log.
    """
    started = time.monotonic()
    try:
        offered, listed = await _offered(provider), None
    except ModelFailed as error:
        if error.code in (errors.PROVIDER_AUTH, errors.PROVIDER_UNREACHABLE, errors.PROVIDER_TIMEOUT):
            return Ping(False, None, error.code, error.message)
        offered, listed = [], error
    model = model or next(iter(provider.limits), None) or (offered[0] if provider.kind == "demo" else None)
    if model is None:
        if listed is not None:
            return Ping(False, None, listed.code, listed.message)
        message = "The provider is reached and accepts the key. Name a model to have it answer."
        return Ping(True, _since(started), None, message, offered)
    started = time.monotonic()
    try:
        answer = await _asked(provider, model)
    except ModelFailed as error:
        return Ping(False, None, error.code, error.message, offered)
    return Ping(True, _since(started), None, f"{answer.model} answered.", offered)


async def _offered(provider: ProviderConfig) -> list[str]:
    try:
        await providers.ready(provider.kind)
        return await providers.list_models(provider)
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        code, sentence = _meaning(status)
        raise _failed(code, f"The provider “{provider.name}” {sentence}.", f"HTTP {status}") from None
    except Exception as error:
        failure = classify(error, Candidate(provider, ""))
        raise _failed(failure.code, failure.message, failure.detail) from None


def _meaning(status: int) -> tuple[str, str]:
    """What an HTTP status of the list of models says."""
    if status in (401, 403):
        return errors.PROVIDER_AUTH, "refused the key"
    if status == 429:
        return errors.PROVIDER_RATE_LIMITED, "is limiting its requests"
    if status >= 500:
        return errors.PROVIDER_OVERLOADED, "is failing at the moment"
    return errors.PROVIDER_REJECTED, "does not list its models there; check the address"


def _failed(code: str, message: str, detail: str) -> ModelFailed:
    reference = uuid4().hex[:12]
    logger.warning("provider test failed: code=%s reference=%s detail=%s", code, reference, detail)
    return ModelFailed(code, message, detail=detail, reference=reference)


async def _asked(provider: ProviderConfig, name: str) -> Answer:
    binding = {"provider": provider.name, "model": name, "max_output_tokens": 64}
    definition = Definition.model_validate({"name": "test", "model": binding})
    item = ItemView(1, "message", "user", 1, 1, 10, {"text": _QUESTION})

    async def prepare(candidate: Candidate, model: Model) -> Prepared:
        view = assemble([item])
        settings = providers.settings_of(definition, candidate, model)
        parameters = providers.parameters_of(definition, model, "", [])
        return Prepared(show(view, candidate=candidate).messages, settings, parameters, view.tokens)

    candidate = Candidate(provider, name)
    source = ModelSource((candidate,), retries=Retries(attempts=1), first_event_timeout=SECONDS, request_timeout=SECONDS)
    return await Asking(source, prepare=prepare, listener=_Nobody()).answer()


class _Nobody:
    """Hears nothing."""

    async def text(self, piece: str) -> None: ...

    async def thought(self, piece: str) -> None: ...

    async def fallback(self, old: Candidate, new: Candidate, reason: str) -> None: ...

    async def waiting(self, candidate: Candidate, seconds: float) -> None: ...

    async def paid(self, answer: Answer) -> None: ...

    async def check(self) -> None: ...


def _since(started: float) -> int:
    return max(1, int((time.monotonic() - started) * 1000))
