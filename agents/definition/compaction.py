"""How a long conversation is made to fit."""

from typing import Literal

from agents.definition.base import Part, setting
from agents.definition.model import ModelRef

Strategy = Literal[
    "none", "sliding_window", "truncation", "tool_result", "summarization", "context_window", "pipeline"
]
NEEDS_TRIGGER = ("sliding_window", "truncation", "tool_result", "summarization", "pipeline")
SUMMARISES = ("summarization", "pipeline")


class Compaction(Part):
    """What the model sees of a long history. The history itself is never changed."""

    strategy: Strategy = setting(
        "none",
        title="Strategy",
        about="How older parts of a conversation give way when it grows long.",
        labels={
            "none": "None: send the history whole",
            "sliding_window": "Sliding window: keep the newest turns",
            "truncation": "Truncation: drop the oldest entries",
            "tool_result": "Tool results: shorten old results",
            "summarization": "Summary: replace old parts by a summary",
            "context_window": "Context window: by how full the window is",
            "pipeline": "Pipeline: tool results, then window, then summary",
        },
    )
    trigger_tokens: int | None = setting(
        None, title="Start at", about="Begins once the history has this many tokens.", unit="tokens", gt=0, le=10_000_000
    )
    trigger_messages: int | None = setting(
        None, title="Start at", about="Begins once the history has this many messages.", unit="messages", gt=0, le=1_000_000
    )
    trigger_turns: int | None = setting(
        None, title="Start at", about="Begins once the conversation has this many turns.", unit="turns", gt=0, le=1_000_000
    )
    minimum_preserved_turns: int = setting(
        2, title="Keep turns", about="The newest turns that always stay as they are.", unit="turns", gt=0, le=10_000
    )
    minimum_preserved_groups: int = setting(
        4,
        title="Keep entries",
        about="The newest entries that always stay; a tool call and its results count as one.",
        unit="entries",
        gt=0,
        le=10_000,
    )
    max_context_window_tokens: int | None = setting(
        None,
        title="Context window",
        about="The window that the context window strategy fills.",
        unit="tokens",
        gt=0,
        le=10_000_000,
    )
    max_output_tokens: int | None = setting(
        None,
        title="Room for the answer",
        about="What the context window strategy keeps free for the answer.",
        unit="tokens",
        placeholder="the model's limit, otherwise 4096",
        gt=0,
        le=10_000_000,
    )
    tool_eviction_threshold: float = setting(
        0.5,
        title="Shorten tool results above",
        about="From this share of the usable window on, old tool results are shortened.",
        unit="of the window",
        gt=0,
        le=1,
    )
    truncation_threshold: float = setting(
        0.8,
        title="Drop entries above",
        about="From this share of the usable window on, the oldest entries are left out.",
        unit="of the window",
        gt=0,
        le=1,
    )
    summarization_prompt: str | None = setting(
        None,
        title="Summary instructions",
        about="What a summary must keep, in your words.",
        kind="long_text",
        placeholder="Lethe's own instructions",
        max_length=20_000,
    )
    summarization_model: ModelRef | None = setting(
        None,
        title="Summary model",
        about="The model that writes summaries; if none is chosen, the tenant's utility model, and without one the agent's own.",
    )
    background: bool = setting(
        True,
        title="Summarise in the background",
        about="Summaries are written after a run, so that nobody waits for them unless nothing else fits.",
    )
    keep_dropped: bool = setting(
        True,
        title="Let the agent look back",
        about="The agent can look up what was left out, in the same session.",
    )
