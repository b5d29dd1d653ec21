"""Our OpenAI client sends what the library's own client sends."""

import json

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from sessions.engine.openai_client import Client

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "auto"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"what": "kéttle"}'}}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, PICTURE]},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL], "reasoning_content": "hm"},
    {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
    {"role": "user", "content": "And now?"},
]
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "abc"},
    {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
]  # fmt: skip


async def body_of(kind, ask):
    """The body that a client of this kind sends."""
    sent = []

    def refuse(request):
        sent.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "seen"}})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as http:
        client = kind(base_url="http://127.0.0.1:9", api_key="k", http_client=http, max_retries=0)
        with pytest.raises(openai.BadRequestError):
            await ask(client)
        with pytest.raises(openai.BadRequestError):
            await ask(client.with_options(max_retries=0))
    assert sent[0] == sent[1]
    return sent[0]


@pytest.mark.parametrize("extra", [None, {"top_k": 4}])
async def test_chat_completions(extra):
    async def ask(client):
        await client.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, max_tokens=5, extra_body=extra
        )

    assert await body_of(Client, ask) == await body_of(AsyncOpenAI, ask)


@pytest.mark.parametrize("extra", [None, {"top_k": 4}])
async def test_responses(extra):
    async def ask(client):
        await client.responses.create(model="m", input=ITEMS, instructions="Be brief.", stream=True, store=False, extra_body=extra)

    assert await body_of(Client, ask) == await body_of(AsyncOpenAI, ask)
