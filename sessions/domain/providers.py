"""Trying a provider of models from the console or the API."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from django.utils import timezone

from agents.domain import providers as catalogue
from agents.errors import AddressUnknown, EgressRefused, KeyUnavailable
from agents.models import Provider
from governance.actors import Actor


def test_provider(*, provider: Provider, model: str | None, by: Actor) -> dict[str, Any]:
    """Ask the provider for its models and one of them (`model`, else the first that is known) for a word.

    Audited, and kept as the provider's last test.

    Returns {"ok", "latency_ms", "code", "message", "models", "model", "at"}. What is wrong with the provider is in the
    result: nothing is raised but MissingPermission. Takes up to a minute.
    """
    by.require("providers.write")
    result = {**_outcome(provider, model or None), "model": model or "", "at": timezone.now().isoformat()}
    catalogue.record_test(provider=provider, result={**result, "models": result["models"][:100]}, by=by)
    return result


# pytest must not take it for a test.
test_provider.__test__ = False


def _outcome(provider: Provider, model: str | None) -> dict[str, Any]:
    from sessions.engine import wiring  # noqa: PLC0415 -- brings the model library, which only this call needs

    try:
        config = wiring.config_of(provider)
    except (AddressUnknown, EgressRefused, KeyUnavailable) as error:
        return {"ok": False, "latency_ms": None, "code": error.code, "message": error.detail, "models": []}
    # A loop of its own, in a thread of its own: the caller may be inside one.
    with ThreadPoolExecutor(1, thread_name_prefix="lethe-ping") as thread:
        return asdict(thread.submit(asyncio.run, _ping(config, model)).result())


async def _ping(config, model: str | None):
    from sessions.engine.ping import ping  # noqa: PLC0415 -- the model library
    from sessions.engine.providers import close_clients  # noqa: PLC0415 -- the model library

    try:
        return await ping(config, model)
    finally:
        await close_clients()
