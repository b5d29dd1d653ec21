"""Runs Microsoft Agent Framework's compaction strategies for `tests.bench.peers`, inside an interpreter that has them.

Reads one JSON object from standard input: {"strategy": name, "histories": [[thing, ...], ...]}, a thing being
{"seq", "kind", "role", "group", "tokens", "call"}. Prints {"version", "kept": [[message, ...], ...], "seconds": [...]}:
a message is {"role", "seqs"}, without seqs when the strategy wrote it. Imports nothing of Lethe.
"""

import asyncio
import importlib.metadata
import json
import sys
import time

import agent_framework as peer


class Summariser:
    """A client that writes a summary of one sentence."""

    async def get_response(self, messages, **options):
        return peer.ChatResponse(messages=[peer.Message("assistant", [peer.Content.from_text("They talked about kettles.")])])


def strategies():
    tokenizer = peer.CharacterEstimatorTokenizer()
    return {
        "truncation by tokens": peer.TruncationStrategy(max_n=8_000, compact_to=6_000, tokenizer=tokenizer),
        "truncation by messages": peer.TruncationStrategy(max_n=20, compact_to=10),
        "sliding window": peer.SlidingWindowStrategy(keep_last_groups=8),
        "tool results": peer.ToolResultCompactionStrategy(keep_last_tool_call_groups=2),
        "tool calls": peer.SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=2),
        "summarization": peer.SummarizationStrategy(client=Summariser(), target_count=8, threshold=2),
        "context window": peer.ContextWindowCompactionStrategy(
            max_context_window_tokens=16_000, max_output_tokens=4_000, tokenizer=tokenizer
        ),
    }


def messages_of(things):
    """One message for each question and each result, one for everything that an answer said and called."""
    found, answers = [], {}
    for thing in things:
        if thing["kind"] == "tool_result":
            found.append(("tool", [peer.Content.from_function_result(call_id=thing["call"], result="x" * 4 * thing["tokens"])], [thing["seq"]]))
        elif thing["role"] == "user":
            found.append(("user", [peer.Content.from_text("x" * 4 * thing["tokens"])], [thing["seq"]]))
        else:
            entry = answers.get(thing["group"])
            if entry is None:
                entry = answers[thing["group"]] = ("assistant", [], [])
                found.append(entry)
            entry[1].append(content_of(thing))
            entry[2].append(thing["seq"])
    return [peer.Message(role, contents, additional_properties={"seqs": seqs}) for role, contents, seqs in found]


def content_of(thing):
    if thing["kind"] == "tool_call":
        return peer.Content.from_function_call(call_id=thing["call"], name="look", arguments={"q": "x" * 4 * thing["tokens"]})
    if thing["kind"] == "reasoning":
        return peer.Content.from_text_reasoning(text="x" * 4 * thing["tokens"])
    return peer.Content.from_text("x" * 4 * thing["tokens"])


async def compacted(strategy, things):
    messages = messages_of(things)
    started = time.process_time()
    left = await peer.apply_compaction(messages, strategy=strategy, tokenizer=getattr(strategy, "tokenizer", None))
    seconds = time.process_time() - started
    return [{"role": str(message.role), "seqs": message.additional_properties.get("seqs") or []} for message in left], seconds


async def main():
    asked = json.load(sys.stdin)
    known = strategies()
    if asked.get("strategy") is None:
        json.dump({"version": importlib.metadata.version("agent-framework-core"), "strategies": list(known)}, sys.stdout)
        return
    kept, seconds = [], []
    for things in asked["histories"]:
        left, took = await compacted(known[asked["strategy"]], things)
        kept.append(left)
        seconds.append(took)
    json.dump({"kept": kept, "seconds": seconds}, sys.stdout)


asyncio.run(main())
