"""Which models a run may ask, in which order. Values only: rows, keys and breakers come from whoever builds it."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agents.definition import Definition, ModelRef
from sessions.context import tokens
from sessions.engine.errors import MODEL_NOT_FOUND, ModelFailed


async def _never_open() -> bool:
    return False


async def _ignore(succeeded: bool) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Limits:
    """What is known of one model of a provider; None where nothing is."""

    context_window: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ProviderConfig:
    """One provider of the tenant as the engine needs it.

    `kind` is demo, openai, openai_compatible, anthropic or google. `key` is the secret itself. `limits` are by model
    name. `price` gives the cost of a ledger line, None where nobody knows. `is_open` asks the shared circuit breaker; `record` tells it how a call went: failures always, a success
    only when `failures` says that there were some, so that a healthy provider costs no write.
    """

    id: UUID | None
    name: str
    kind: str
    base_url: str = ""
    api: str = "responses"
    key: str | None = field(default=None, repr=False)
    limits: dict[str, Limits] = field(default_factory=dict)
    max_concurrency: int | None = None
    failures: int = 0
    price: Callable[[Any], Any] | None = None
    is_open: Callable[[], Awaitable[bool]] = _never_open
    record: Callable[[bool], Awaitable[None]] = _ignore


@dataclass(frozen=True, slots=True)
class Retries:
    """How often one provider is asked before the next one, and how long is waited: seconds, doubled, with jitter."""

    attempts: int = 3
    base_delay: float = 0.5
    longest_delay: float = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A model that may answer."""

    provider: ProviderConfig
    model: str

    @property
    def label(self) -> str:
        return f"{self.provider.name}/{self.model}"

    @property
    def family(self) -> str:
        return tokens.family(self.provider.kind, self.model)

    @property
    def limits(self) -> Limits:
        return self.provider.limits.get(self.model) or Limits()


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The models of a definition: the first, then its fallbacks. Timeouts in seconds.

    `first_event_timeout` is how long a model may stay silent before it says anything, `idle_timeout` how long in the
    middle of an answer, `request_timeout` how long one answer may take in all.
    """

    candidates: tuple[Candidate, ...]
    retries: Retries = Retries()
    first_event_timeout: float = 120.0
    idle_timeout: float = 120.0
    request_timeout: float = 900.0

    @classmethod
    def from_definition(
        cls, definition: Definition, providers: Iterable[ProviderConfig], **overrides: Any
    ) -> "ModelSource":
        """The binding of `definition` over the tenant's `providers` (enabled ones only)."""
        return cls.of([definition.model, *definition.model.fallbacks], providers, **overrides)

    @classmethod
    def of(cls, wanted: Sequence[ModelRef], providers: Iterable[ProviderConfig], **overrides: Any) -> "ModelSource":
        """The models that are `wanted`, in their order, over the tenant's `providers` (enabled ones only).

        A model whose provider is gone or switched off is passed over; when none is left this raises ModelFailed.
        """
        by_name = {provider.name: provider for provider in providers}
        found = [Candidate(by_name[ref.provider], ref.model) for ref in wanted if ref.provider in by_name]
        if not found:
            raise ModelFailed(MODEL_NOT_FOUND, f"The provider “{wanted[0].provider}” does not exist or is switched off.")
        return cls(candidates=tuple(found), **overrides)

    @property
    def first(self) -> Candidate:
        return self.candidates[0]


class Gate:
    """At most `limit` calls of one provider at a time in this process, whatever event loops they run on."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future]] = deque()

    @asynccontextmanager
    async def enter(self, limit: int):
        await self._acquire(limit)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, limit: int) -> None:
        with self._lock:
            if self._running < limit:
                self._running += 1
                return
            loop = asyncio.get_running_loop()
            place = loop.create_future()
            self._waiting.append((loop, place))
        try:
            await place
        except asyncio.CancelledError:
            with self._lock:
                given = (loop, place) not in self._waiting
                if not given:
                    self._waiting.remove((loop, place))
            if given:
                self._release()
            raise

    def _release(self) -> None:
        """Hand the place to the next that waits; it stays counted as running."""
        with self._lock:
            while self._waiting:
                loop, place = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_give, place)
                except RuntimeError:  # that loop is closed: its call is gone
                    continue
                return
            self._running -= 1


def _give(place: asyncio.Future) -> None:
    if not place.done():
        place.set_result(None)


_gates: dict[UUID | str, Gate] = {}


def gate_of(provider: ProviderConfig) -> Gate:
    return _gates.setdefault(provider.id or provider.name, Gate())
