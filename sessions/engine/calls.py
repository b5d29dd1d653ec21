"""One answer of a model: retries, fallbacks, timeouts, the breaker, and what is kept when it is cut.

The SDKs' own retries are off: ours know the deadline, the breaker, the next model, and whether the client has already
seen a part of the answer.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from governance.text import clean
from sessions.context import tokens
from sessions.engine import providers, web_search
from sessions.engine.errors import ModelFailed
from sessions.engine.failures import Failure, classify, ended_early, switched_off
from sessions.engine.messages import Said, read
from sessions.engine.models import Candidate, ModelSource, gate_of

logger = logging.getLogger("lethe.engine")

# More than any model writes; a server that never stops must not fill the memory.
MAX_ANSWER_CHARACTERS = 4_000_000


class DeadlinePassed(Exception):
    """The run's time was up in the middle of a call. What was said so far is in `Asking.partial`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What goes into one call. `input_tokens` is our own count."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    input_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Normalised: `input` includes what was cached, `output` includes reasoning; `searches` are the provider's own."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    is_estimated: bool = False
    searches: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """`cut`: it did not come to its end; `paused`: the provider wants to go on with it. `model` is what the provider says
    answered."""

    said: Said
    candidate: Candidate
    model: str
    finish_reason: str | None
    usage: Usage
    duration_ms: int
    cut: bool = False
    paused: bool = False


class Listener(Protocol):
    """Who is told while it happens."""

    async def text(self, piece: str) -> None: ...

    async def thought(self, piece: str) -> None: ...

    async def fallback(self, old: Candidate, new: Candidate, reason: str) -> None: ...

    async def waiting(self, candidate: Candidate, seconds: float) -> None: ...

    async def paid(self, answer: Answer) -> None:
        """An attempt that was given up had already cost something."""
        ...

    async def check(self) -> None: ...


class _GivenUp(Exception):
    def __init__(self, failure: Failure):
        super().__init__(failure.code)
        self.failure = failure


class Asking:
    """Asks the models of a source for one answer. `partial` has what was said when it ends with an exception."""

    def __init__(
        self,
        source: ModelSource,
        *,
        prepare: Callable[[Candidate, Model], Awaitable[Prepared]],
        listener: Listener,
        taken: frozenset[str] = frozenset(),
        deadline: float | None = None,
    ):
        self.source, self.prepare, self.listener = source, prepare, listener
        self.taken, self.deadline = taken, deadline
        self.partial: Answer | None = None
        self._shown = False
        self._own_error: BaseException | None = None
        self._failed: set[str] = set()

    async def answer(self) -> Answer:
        """Raises ModelFailed, DeadlinePassed, and whatever the listener raises."""
        failure: Failure | None = None
        asked: Candidate | None = None
        for candidate in self.source.candidates:
            if asked is not None and failure is not None:
                await self.listener.fallback(asked, candidate, failure.code)
            asked = candidate
            if await candidate.provider.is_open():
                failure = switched_off(candidate)
                continue
            try:
                return await self._persistently(candidate)
            except _GivenUp as error:
                failure = error.failure
            if self._shown or not failure.fall_back:
                break
        assert failure is not None
        raise self._final(failure)

    def _final(self, failure: Failure) -> ModelFailed:
        reference = uuid4().hex[:12]
        logger.warning("model call failed: code=%s reference=%s detail=%s", failure.code, reference, failure.detail)
        return ModelFailed(failure.code, failure.message, detail=failure.detail, reference=reference)

    async def _persistently(self, candidate: Candidate) -> Answer:
        """The same model again while it may recover. Fewer attempts when another one could answer."""
        retries, last = self.source.retries, candidate is self.source.candidates[-1]
        attempts = retries.attempts if last else min(2, retries.attempts)
        for attempt in range(1, attempts + 1):
            try:
                answer = await self._attempt(candidate)
            except _GivenUp as error:
                failure = error.failure
                await self._tell_breaker(candidate, failure)
                if self._shown or not failure.retry or attempt == attempts:
                    raise
                delay = self._delay(attempt, failure)
                if delay is None:
                    raise
                logger.info("model call repeated: model=%s code=%s", candidate.label, failure.code)
                await self.listener.waiting(candidate, delay)
                await asyncio.sleep(delay)
                await self.listener.check()
            else:
                await self._tell_breaker(candidate, None)
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _delay(self, attempt: int, failure: Failure) -> float | None:
        """Seconds before the next attempt; None when it is not worth the wait."""
        retries = self.source.retries
        delay = retries.base_delay * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
        if failure.retry_after is not None:
            delay = max(delay, failure.retry_after)
        if delay > retries.longest_delay or (self.deadline is not None and time.monotonic() + delay >= self.deadline):
            return None
        return delay

    async def _tell_breaker(self, candidate: Candidate, failure: Failure | None) -> None:
        provider = candidate.provider
        if failure is not None and failure.trips:
            self._failed.add(provider.name)
            await provider.record(False)
        elif failure is None and (provider.failures or provider.name in self._failed):
            self._failed.discard(provider.name)
            await provider.record(True)

    async def _attempt(self, candidate: Candidate) -> Answer:
        try:
            await providers.ready(candidate.provider.kind)
            model = providers.build(candidate)
        except Exception as error:
            raise _GivenUp(classify(error, candidate)) from error
        prepared = await self.prepare(candidate, model)
        attempt = _Attempt(self, candidate, model, prepared)
        try:
            answer = await attempt.run()
        except BaseException as error:
            self.partial = attempt.so_far()
            if isinstance(error, _GivenUp) or not isinstance(error, Exception) or error is self._own_error:
                raise
            if isinstance(error, TimeoutError) and attempt.out_of_time:
                raise DeadlinePassed from None
            failure = classify(error, candidate)
            await self._write_off()
            raise _GivenUp(failure) from error
        if answer.cut and not self._shown:
            self.partial = answer
            await self._write_off()
            raise _GivenUp(ended_early(candidate))
        return answer

    async def _write_off(self) -> None:
        """An attempt that will be repeated leaves its bill behind; one that was seen is kept by the loop."""
        if self.partial is not None and not self._shown:
            await self.listener.paid(self.partial)
            self.partial = None

    async def tell(self, heard: Callable[[str], Awaitable[None]], piece: str) -> None:
        if not piece:
            return
        self._shown = True
        try:
            await heard(clean(piece))
        except BaseException as error:
            self._own_error = error
            raise


class _Attempt:
    """One request to one model."""

    def __init__(self, asking: Asking, candidate: Candidate, model: Model, prepared: Prepared):
        self.asking, self.candidate, self.model, self.prepared = asking, candidate, model, prepared
        self.stream: Any = None
        self.started = time.monotonic()
        self.characters = 0
        self.out_of_time = False

    async def run(self) -> Answer:
        source, provider = self.asking.source, self.candidate.provider
        async with AsyncExitStack() as stack:
            timer = await stack.enter_async_context(asyncio.timeout(None))
            self._expect(timer, source.request_timeout)
            if provider.max_concurrency:
                await stack.enter_async_context(gate_of(provider).enter(provider.max_concurrency))
            self.started = time.monotonic()
            self._expect(timer, source.first_event_timeout)
            self.stream = await stack.enter_async_context(
                model_request_stream(
                    self.model,
                    self.prepared.messages,
                    model_settings=self.prepared.settings,
                    model_request_parameters=self.prepared.parameters,
                    instrument=False,
                )
            )
            async for event in self.stream:
                self._expect(timer, source.idle_timeout)
                await self._heard(event)
        response = self.stream.get()
        return self._answer(response, cut=self._was_cut(response))

    def _expect(self, timer: asyncio.Timeout, seconds: float) -> None:
        """Wait at most `seconds` for what comes next, within the limits of the call and of the run."""
        now = time.monotonic()
        call = self.started + self.asking.source.request_timeout
        run = self.asking.deadline
        until = min(now + seconds, call)
        self.out_of_time = run is not None and run <= until
        if self.out_of_time:
            until = run
        timer.reschedule(asyncio.get_running_loop().time() + max(0.0, until - now))

    async def _heard(self, event: Any) -> None:
        listener, tell = self.asking.listener, self.asking.tell
        if isinstance(event, PartDeltaEvent):
            if isinstance(event.delta, TextPartDelta):
                await self._bounded(event.delta.content_delta)
                await tell(listener.text, event.delta.content_delta)
            elif isinstance(event.delta, ThinkingPartDelta):
                await self._bounded(event.delta.content_delta or "")
                await tell(listener.thought, event.delta.content_delta or "")
        elif isinstance(event, PartStartEvent):
            if isinstance(event.part, TextPart):
                await tell(listener.text, event.part.content)
            elif isinstance(event.part, ThinkingPart):
                await tell(listener.thought, event.part.content)

    async def _bounded(self, piece: str) -> None:
        self.characters += len(piece)
        if self.characters > MAX_ANSWER_CHARACTERS:
            raise ValueError("the answer does not end")

    def so_far(self) -> Answer | None:
        """What a call that did not end has cost and said; None before the provider took the request."""
        if self.stream is None:
            return None
        return self._answer(self.stream.get(), cut=True)

    def _answer(self, response: ModelResponse, *, cut: bool) -> Answer:
        said = read(response.parts, taken=self.asking.taken)
        refusal = (response.provider_details or {}).get("refusal")
        if refusal and not said.text:
            said = Said([clean(str(refusal)), *said.pieces], said.parts)
        finish = response.finish_reason
        return Answer(
            said=said.only_text() if cut else said,
            candidate=self.candidate,
            model=response.model_name or self.candidate.model,
            finish_reason=finish if not cut else None,
            usage=self._usage(response, said, cut=cut),
            duration_ms=int((time.monotonic() - self.started) * 1000),
            cut=cut,
            paused=web_search.is_paused(response) and not cut,
        )

    def _was_cut(self, response: ModelResponse) -> bool:
        kind = self.candidate.provider.kind
        if kind == "demo" or web_search.is_paused(response):
            return False
        if response.state == "incomplete":
            return True
        if kind in ("openai", "openai_compatible") and self.candidate.provider.api == "chat" or kind == "openai_compatible":
            # The library calls a stream without a finish reason a normal end. Some servers never send one; usage
            # comes last, so an answer with usage has come to its end.
            told = "finish_reason" in (response.provider_details or {}) or "refusal" in (response.provider_details or {})
            return not told and bool(response.usage.unmeasured_requests)
        return response.finish_reason is None

    def _usage(self, response: ModelResponse, said: Said, *, cut: bool) -> Usage:
        reported, family = response.usage, self.candidate.family
        measured = not cut and self.candidate.provider.kind != "demo" and not reported.unmeasured_requests
        if measured and (reported.input_tokens or reported.output_tokens):
            details = reported.details or {}
            return Usage(
                reported.input_tokens,
                reported.cache_read_tokens,
                reported.output_tokens,
                reported.output_reasoning_tokens or details.get("reasoning_tokens", 0),
                searches=web_search.billed(reported),
            )
        thought = sum(tokens.count(thought.text, family) for thought in said.thoughts)
        written = tokens.count(said.text, family) + thought
        written += sum(
            tokens.count_item("tool_call", _content(call), family) for call in said.calls
        )
        is_demo = self.candidate.provider.kind == "demo"
        return Usage(
            input=(0 if is_demo else reported.input_tokens) or self.prepared.input_tokens,
            cached=reported.cache_read_tokens,
            output=written if is_demo else max(written, reported.output_tokens),
            reasoning=thought,
            is_estimated=True,
            searches=web_search.billed(reported),
        )


def _content(call) -> dict[str, Any]:
    found = {"name": call.name, "arguments": call.arguments or {}}
    return found if call.arguments_text is None else {**found, "arguments_text": call.arguments_text}
