"""The engine against a real server of the OpenAI protocol with a real, small model."""

import asyncio
import subprocess
import sys
import time

import pytest

from sessions.engine.models import Limits, ProviderConfig
from sessions.engine.ping import ping
from tests.sessions.engine.scenes import source, take_turn

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def address():
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.wire.local_model"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


@pytest.fixture
def provider(address):
    return ProviderConfig(
        None, "local", "openai_compatible", f"{address}/v1", api="chat", limits={"smollm2": Limits(2048, 256)}
    )


async def test_local_model_streams_and_reports_usage(store, provider):
    store.says("Write one short sentence about the sea.")

    outcome = await take_turn(
        store, source((provider, "smollm2")), model={"provider": "main", "model": "m", "max_output_tokens": 40, "temperature": 0.0}
    )

    assert outcome.status == "completed"
    assert outcome.text
    assert store.streamed() == outcome.text
    assert len(store.told("message.delta")) > 3
    (call,) = store.calls
    assert not call.is_estimated
    assert call.input_tokens > 10
    assert 0 < call.output_tokens <= 40


async def test_local_model_is_cancelled_within_two_seconds_and_answers_again(store, provider):
    store.says("Count from one to one thousand in words, and leave nothing out.")
    models = source((provider, "smollm2"))
    task = asyncio.create_task(
        take_turn(store, models, model={"provider": "main", "model": "m", "max_output_tokens": 1500})
    )
    while not store.streamed():
        await asyncio.sleep(0.01)
    at = time.monotonic()
    task.cancel("cancelled")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - at < 2

    store.says("Say yes.")
    outcome = await take_turn(store, models, model={"provider": "main", "model": "m", "max_output_tokens": 5})

    assert outcome.status == "completed"
    assert store.rows[1].content["cut"] is True
    assert store.calls[0].is_estimated


async def test_local_model_is_listed_and_answers_a_ping(provider, monkeypatch):
    # Beside other tests the small model takes its time.
    monkeypatch.setattr("sessions.engine.ping.SECONDS", 120.0)

    found = await ping(provider, None)

    assert found.ok
    assert found.latency_ms > 0
    assert found.models
