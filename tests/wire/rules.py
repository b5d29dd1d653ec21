"""The rules that providers hold a conversation to, checked on the bodies that went over the wire."""

from typing import Any


def openai_problems(messages: list[dict[str, Any]]) -> list[str]:
    """Chat completions: each call is answered before anything else is said; system only in front."""
    found: list[str] = []
    waiting: set[str] = set()
    in_front = True
    for message in messages:
        if message["role"] in ("system", "developer"):
            found += [] if in_front else ["system in the middle"]
            continue
        in_front = False
        if message["role"] == "tool":
            found += [] if message["tool_call_id"] in waiting else ["result without call"]
            waiting.discard(message["tool_call_id"])
            continue
        found += ["call without result"] if waiting else []
        waiting = {call["id"] for call in message.get("tool_calls") or []}
        if message["role"] == "assistant" and not message.get("content") and not waiting:
            found.append("empty answer")
    return found + (["call without result"] if waiting else [])


def responses_problems(items: list[dict[str, Any]]) -> list[str]:
    """The Responses API: every function call has its output after it, every output its call before it."""
    found: list[str] = []
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            found += ["doubled call"] if item["call_id"] in called else []
            called.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            found += [] if item["call_id"] in called else ["result without call"]
            answered.add(item["call_id"])
        elif item.get("role") == "user" and called - answered:
            found.append("call without result")
    return found + (["call without result"] if called - answered else [])


def anthropic_problems(messages: list[dict[str, Any]]) -> list[str]:
    """Anthropic: the first is the user's; all results of an answer come in the next message, first in it."""
    found = [] if messages and messages[0]["role"] == "user" else ["first is not user"]
    if messages and messages[-1]["role"] == "assistant":
        found.append("last is assistant")
    waiting: set[str] = set()
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        found += ["system in the middle"] if message["role"] == "system" else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        found += ["call without result"] if waiting - set(results) else []
        found += ["result without call"] if set(results) - waiting or len(set(results)) < len(results) else []
        types = [block["type"] for block in blocks]
        if "tool_result" in types and "tool_result" in types[types.count("tool_result") :]:
            found.append("results are not first")
        found += ["empty text"] if any(b["type"] == "text" and not b["text"].strip() for b in blocks) else []
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    return found + (["call without result"] if waiting else [])


def gemini_problems(contents: list[dict[str, Any]]) -> list[str]:
    """Gemini: begins with the user; a turn of calls is followed by as many responses, by name and in order."""
    found = [] if contents and contents[0]["role"] == "user" else ["first is not user"]
    waiting: list[str] = []
    for content in contents:
        parts = content["parts"]
        responses = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if waiting and responses != waiting:
            found.append("call without result")
        if responses and not waiting:
            found.append("result without call")
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    return found + (["call without result"] if waiting else [])
