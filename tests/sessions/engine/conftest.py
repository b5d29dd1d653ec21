import pytest_asyncio

from sessions.engine import providers
from tests.sessions.engine.memory_store import MemoryStore
from tests.sessions.engine.scenes import source
from tests.wire.server import FakeProvider


@pytest_asyncio.fixture(autouse=True)
async def closed_clients():
    yield
    await providers.close_clients()


@pytest_asyncio.fixture
async def store():
    return MemoryStore()


@pytest_asyncio.fixture
async def serve():
    """`fake, models = await serve("anthropic", reply, ...)`: a provider on loopback and a source that asks it."""
    started = []

    async def start(protocol, *script, **options):
        fake = await FakeProvider(protocol, *script).__aenter__()
        started.append(fake)
        return fake, source((fake.config(), fake.protocol.model), **options)

    yield start
    for fake in started:
        await fake.__aexit__()
