"""How each provider writes an answer: server-sent events made from one script."""

import json
from collections.abc import Iterator
from typing import Any

from tests.wire.replies import Say
from tests.wire.rules import anthropic_problems, gemini_problems, openai_problems, responses_problems


def _event(data: dict[str, Any] | str, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


class Chat:
    """OpenAI chat completions, and every server compatible with them."""

    kind, api, model = "openai", "chat", "gpt-4o"

    def problems(self, path: str, body: dict[str, Any]) -> list[str]:
        return openai_problems(body["messages"])

    def stream(self, say: Say) -> Iterator[str]:
        def chunk(delta: dict, finish: str | None = None, **extra: Any) -> str:
            choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
            base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2026"}
            return _event({**base, "choices": choices, **extra})

        yield chunk({"role": "assistant", "content": ""})
        if say.thinking:
            yield chunk({"reasoning_content": say.thinking})
        if say.refusal:
            yield chunk({"refusal": say.refusal})
        for piece in say.text:
            yield chunk({"content": piece})
        for index, call in enumerate(say.calls):
            first = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield chunk({"tool_calls": [first]})
            for part in call.parts():
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        if say.end == "error":
            yield _event({"error": {"message": "secret: overloaded", "type": "server_error", "code": "server_error"}})
            return
        if say.end != "finish":
            return
        yield chunk({}, finish=say.finish)
        if say.usage:
            into, cached, out, thought = say.usage
            usage = {
                "prompt_tokens": into,
                "completion_tokens": out,
                "total_tokens": into + out,
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": thought},
            }
            base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2026"}
            yield _event({**base, "choices": [], "usage": usage})
        yield _event("[DONE]")


class Responses:
    kind, api, model = "openai", "responses", "gpt-5"

    def problems(self, path: str, body: dict[str, Any]) -> list[str]:
        found = responses_problems(body["input"])
        return found + ([] if body.get("store") is False else ["the provider would keep the conversation"])

    def stream(self, say: Say) -> Iterator[str]:
        number = iter(range(10_000))
        response = {"id": "r1", "object": "response", "created_at": 1, "model": "gpt-5-2026", "output": [],
                    "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip

        def event(kind: str, **data: Any) -> str:
            return _event({"type": kind, "sequence_number": next(number), **data}, kind)

        yield event("response.created", response={**response, "status": "in_progress"})
        at = 0
        if say.thinking:
            item = {"id": "rs_1", "type": "reasoning", "summary": []}
            yield event("response.output_item.added", output_index=at, item=item)
            part = {"type": "summary_text", "text": ""}
            yield event("response.reasoning_summary_part.added", item_id="rs_1", output_index=at, summary_index=0, part=part)
            yield event("response.reasoning_summary_text.delta", item_id="rs_1", output_index=at, summary_index=0, delta=say.thinking)
            done = {**item, "summary": [{"type": "summary_text", "text": say.thinking}], "encrypted_content": "sealed"}
            yield event("response.output_item.done", output_index=at, item=done)
            at += 1
        for number_of, query in enumerate(say.searches):
            item = {"id": f"ws_{number_of}", "type": "web_search_call", "status": "in_progress"}
            yield event("response.output_item.added", output_index=at, item=item)
            yield event("response.web_search_call.searching", output_index=at, item_id=item["id"])
            done = {**item, "status": "completed", "action": {"type": "search", "query": query}}
            yield event("response.output_item.done", output_index=at, item=done)
            at += 1
        if say.text:
            item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=at, item=item)
            part = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", item_id="msg_1", output_index=at, content_index=0, part=part)
            for piece in say.text:
                yield event("response.output_text.delta", item_id="msg_1", output_index=at, content_index=0, delta=piece, logprobs=[])
            done = {**item, "status": "completed", "content": [{**part, "text": "".join(say.text)}]}
            yield event("response.output_item.done", output_index=at, item=done)
            at += 1
        for call in say.calls:
            item = {"id": f"fc_{at}", "type": "function_call", "call_id": call.id, "name": call.name, "arguments": "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=at, item=item)
            for part in call.parts():
                yield event("response.function_call_arguments.delta", item_id=item["id"], output_index=at, delta=part)
            yield event("response.function_call_arguments.done", item_id=item["id"], output_index=at, arguments=call.arguments, name=call.name)
            yield event("response.output_item.done", output_index=at, item={**item, "arguments": call.arguments, "status": "completed"})
            at += 1
        if say.end == "error":
            error = {"code": "server_error", "message": "secret: overloaded"}
            yield event("response.failed", response={**response, "status": "failed", "error": error})
            return
        if say.end != "finish":
            return
        usage = None
        if say.usage:
            into, cached, out, thought = say.usage
            usage = {"input_tokens": into, "output_tokens": out, "total_tokens": into + out,
                     "input_tokens_details": {"cached_tokens": cached}, "output_tokens_details": {"reasoning_tokens": thought}}  # fmt: skip
        reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
        if reason := reasons.get(say.finish):
            details = {"status": "incomplete", "incomplete_details": {"reason": reason}, "usage": usage}
            yield event("response.incomplete", response={**response, **details})
            return
        searched = [
            {"id": f"ws_{at}", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": query}}
            for at, query in enumerate(say.searches)
        ]
        yield event("response.completed", response={**response, "status": "completed", "usage": usage, "output": searched})


class Anthropic:
    kind, api, model = "anthropic", "", "claude-sonnet-5"

    def problems(self, path: str, body: dict[str, Any]) -> list[str]:
        return anthropic_problems(body["messages"])

    def stream(self, say: Say) -> Iterator[str]:
        def event(kind: str, **data: Any) -> str:
            return _event({"type": kind, **data}, kind)

        into, cached, out, _ = say.usage or (0, 0, 0, 0)
        # On the wire the input excludes what was cached.
        usage = {"input_tokens": into - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
        message = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-2026", "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
        yield event("message_start", message=message)
        at = 0
        if say.thinking:
            yield event("content_block_start", index=at, content_block={"type": "thinking", "thinking": "", "signature": ""})
            yield event("content_block_delta", index=at, delta={"type": "thinking_delta", "thinking": say.thinking})
            yield event("content_block_delta", index=at, delta={"type": "signature_delta", "signature": "signed"})
            yield event("content_block_stop", index=at)
            at += 1
        for number_of, query in enumerate(say.searches):
            call = {"type": "server_tool_use", "id": f"srvtoolu_{number_of}", "name": "web_search", "input": {}}
            yield event("content_block_start", index=at, content_block=call)
            yield event("content_block_delta", index=at, delta={"type": "input_json_delta", "partial_json": json.dumps({"query": query})})
            yield event("content_block_stop", index=at)
            found = {"type": "web_search_result", "url": "https://example.com/", "title": "Example", "encrypted_content": "sealed", "page_age": None}
            block = {"type": "web_search_tool_result", "tool_use_id": call["id"], "content": [found]}
            yield event("content_block_start", index=at + 1, content_block=block)
            yield event("content_block_stop", index=at + 1)
            at += 2
        if say.text:
            yield event("content_block_start", index=at, content_block={"type": "text", "text": ""})
            for piece in say.text:
                yield event("content_block_delta", index=at, delta={"type": "text_delta", "text": piece})
            if say.end == "finish":
                yield event("content_block_stop", index=at)
            at += 1
        for call in say.calls:
            yield event("content_block_start", index=at, content_block={"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            for part in call.parts():
                yield event("content_block_delta", index=at, delta={"type": "input_json_delta", "partial_json": part})
            if say.end == "finish":
                yield event("content_block_stop", index=at)
            at += 1
        if say.end == "error":
            yield event("error", error={"type": "overloaded_error", "message": "secret: overloaded"})
            return
        if say.end != "finish":
            return
        stop = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}[say.finish]
        if say.paused:
            stop = "pause_turn"
        billed = {"server_tool_use": {"web_search_requests": len(say.searches), "web_fetch_requests": 0}} if say.searches else {}
        yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": out, **billed})
        yield event("message_stop")


class Gemini:
    kind, api, model = "google", "", "gemini-2.5-flash"

    def problems(self, path: str, body: dict[str, Any]) -> list[str]:
        return gemini_problems(body["contents"])

    def stream(self, say: Say) -> Iterator[str]:
        def chunk(parts: list[dict], **extra: Any) -> str:
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **extra.pop("candidate", {})}
            return _event({"candidates": [candidate], "modelVersion": "gemini-2026", "responseId": "g1", **extra})

        if say.thinking:
            yield chunk([{"text": say.thinking, "thought": True}])
        for piece in say.text:
            yield chunk([{"text": piece}])
        for call in say.calls:
            part = {"functionCall": {"name": call.name, "args": json.loads(call.arguments), "id": call.id}}
            yield chunk([{**part, "thoughtSignature": "c2lnbmVk"}])
        if say.end == "error":
            yield _event({"error": {"code": 503, "message": "secret: overloaded", "status": "UNAVAILABLE"}})
            return
        if say.end != "finish":
            return
        grounding: dict[str, Any] = {}
        if say.searches:
            source = {"web": {"uri": "https://example.com/", "title": "Example"}}
            grounding = {"groundingMetadata": {"webSearchQueries": say.searches, "groundingChunks": [source]}}
        finish = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(say.finish, "STOP")
        extra: dict[str, Any] = {}
        if say.usage:
            into, cached, out, thought = say.usage
            extra["usageMetadata"] = {
                "promptTokenCount": into,
                "cachedContentTokenCount": cached,
                "candidatesTokenCount": out - thought,
                "thoughtsTokenCount": thought,
                "totalTokenCount": into + out,
            }
        yield chunk([{"text": ""}], candidate={"finishReason": finish, **grounding}, **extra)


PROTOCOLS = {"chat": Chat(), "responses": Responses(), "anthropic": Anthropic(), "gemini": Gemini()}
