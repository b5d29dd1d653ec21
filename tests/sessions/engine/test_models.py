import asyncio
import threading

import pytest

from sessions.engine.errors import ModelFailed
from sessions.engine.models import Gate, Limits, ModelSource, ProviderConfig
from sessions.engine.providers import output_limit, window_of
from tests.sessions.engine.scenes import definition

BINDING = {"provider": "main", "model": "big", "fallbacks": [{"provider": "spare", "model": "small"}]}


def test_models_of_a_definition_in_order():
    main, spare = ProviderConfig(None, "main", "openai"), ProviderConfig(None, "spare", "anthropic")

    source = ModelSource.from_definition(definition(model=BINDING), [spare, main], request_timeout=7)

    assert [(candidate.label, candidate.family) for candidate in source.candidates] == [
        ("main/big", "openai"),
        ("spare/small", "anthropic"),
    ]
    assert source.request_timeout == 7
    assert source.first.provider is main


def test_a_provider_that_is_gone_is_passed_over():
    spare = ProviderConfig(None, "spare", "anthropic")

    assert [c.label for c in ModelSource.from_definition(definition(model=BINDING), [spare]).candidates] == ["spare/small"]
    with pytest.raises(ModelFailed) as failure:
        ModelSource.from_definition(definition(model=BINDING), [])
    assert (failure.value.code, failure.value.kind) == ("model_not_found", "configuration")


def test_limits_are_the_smaller_of_definition_and_model():
    provider = ProviderConfig(None, "main", "openai", limits={"big": Limits(10_000, 2_000)})
    harness = {"max_context_window_tokens": 5_000}
    first = ModelSource.from_definition(definition(model=BINDING), [provider]).first

    assert (window_of(definition(), first), output_limit(definition(), first)) == (10_000, 2_000)
    assert window_of(definition(harness=harness), first) == 5_000
    assert output_limit(definition(model={**BINDING, "max_output_tokens": 300}), first) == 300
    unknown = ModelSource.from_definition(definition(model=BINDING), [ProviderConfig(None, "main", "openai")]).first
    assert (window_of(definition(), unknown), output_limit(definition(), unknown)) == (None, None)


def test_keys_are_not_shown():
    assert "secret" not in repr(ProviderConfig(None, "main", "openai", key="secret"))


def test_a_gate_holds_over_event_loops():
    gate, running, most, lock = Gate(), 0, 0, threading.Lock()

    async def one():
        nonlocal running, most
        async with gate.enter(3):
            with lock:
                running += 1
                most = max(most, running)
            await asyncio.sleep(0.005)
            with lock:
                running -= 1

    async def many():
        await asyncio.gather(*(one() for _ in range(10)))

    threads = [threading.Thread(target=asyncio.run, args=[many()]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert (most, running, gate._running) == (3, 0, 0)


async def test_a_cancelled_wait_at_a_gate_loses_no_place():
    gate = Gate()
    inside, leave = asyncio.Event(), asyncio.Event()

    async def hold():
        async with gate.enter(1):
            inside.set()
            await leave.wait()

    async def wait():
        async with gate.enter(1):
            pass

    holder = asyncio.create_task(hold())
    await inside.wait()
    waiters = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    leave.set()
    await holder
    # The place was just given to the second: it gives it on although it is cancelled.
    waiters[1].cancel()

    await asyncio.gather(*waiters, return_exceptions=True)

    assert gate._running == 0
    await asyncio.wait_for(wait(), 1)
