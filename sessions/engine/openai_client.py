"""OpenAI's client, sending messages as they are.

The library holds every message against every kind of message there may be, to rename fields and encode files that none
of ours has: 0.3 ms a message in which no other run of the process moves. Given as further fields of the body, messages
are sent as they stand. `tests/sessions/engine/test_openai_client.py` compares the bodies.
"""

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.responses import AsyncResponses


class _Completions(AsyncCompletions):
    async def create(self, *, messages: list[dict[str, Any]], extra_body: Any = None, **options: Any) -> Any:
        return await super().create(messages=[], extra_body={**(extra_body or {}), "messages": messages}, **options)


class _Responses(AsyncResponses):
    async def create(self, *, input: Any, extra_body: Any = None, **options: Any) -> Any:
        return await super().create(input=[], extra_body={**(extra_body or {}), "input": input}, **options)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> _Completions:
        return _Completions(self._client)


class Client(AsyncOpenAI):
    """`AsyncOpenAI` for chat completions and responses."""

    @cached_property
    def chat(self) -> _Chat:
        return _Chat(self)

    @cached_property
    def responses(self) -> _Responses:
        return _Responses(self)
