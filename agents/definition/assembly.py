"""What is put before the model, in which order, and what is written down afterwards."""

from typing import Any, Literal

from agents.definition.base import Part, setting, tidy_object
from agents.definition.model import ModelRef

INJECTIONS = ("working_memory", "episodic_memory")
REDUCTIONS = ("sliding_window", "token_budget")


class LayerCaps(Part):
    """How many tokens single layers of a model call may use, whatever room the model has."""

    recall: int | None = setting(
        None,
        title="Recall",
        about="What is found again of earlier conversations; what is beyond it is left out whole, the last found first.",
        unit="tokens",
        placeholder="no limit of its own",
        gt=0,
        le=10_000_000,
    )
    working_memory: int | None = setting(
        None,
        title="Working memory",
        about="Todos, mode and working notes; notes go before todos.",
        unit="tokens",
        placeholder="no limit of its own",
        gt=0,
        le=10_000_000,
    )
    history: int | None = setting(
        None,
        title="History",
        about="The turns before the current one; the oldest are left out.",
        unit="tokens",
        placeholder="no limit of its own",
        gt=0,
        le=10_000_000,
    )
    summary: int | None = setting(
        None,
        title="Summary",
        about="The summary of what is long past; it is written to this size.",
        unit="tokens",
        placeholder="1000",
        gt=0,
        le=10_000_000,
    )


class Policy(Part):
    """One step that adds to what the model sees, or takes away from it."""

    kind: Literal[
        "working_memory", "episodic_memory", "alert", "conversation", "sliding_window", "token_budget"
    ] = setting(
        title="Policy",
        about="What this step does.",
        labels={
            "working_memory": "Add the working notes",
            "episodic_memory": "Add recent conversations",
            "alert": "Deliver alerts",
            "conversation": "Keep only the conversation",
            "sliding_window": "Keep the newest entries",
            "token_budget": "Keep to a number of tokens",
        },
        aliases=("type", "policy"),
    )
    max_episodes: int = setting(
        5, title="Conversations", about="How many recent conversations are added.", gt=0, le=100
    )
    max_items: int | None = setting(
        None, title="Entries", about="How many of the newest entries are kept.", gt=0, le=100_000
    )
    max_tokens: int | None = setting(
        None,
        title="Tokens",
        about="How many tokens the conversation and what was added before this step may use.",
        unit="tokens",
        gt=0,
        le=10_000_000,
    )
    transparent: bool = setting(
        False, title="Say so", about="Tells the model how much of the whole it is being shown."
    )

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return tidy_kind(cls, value)


class Aggregate(Part):
    """Something the agent writes down about a conversation, in the background."""

    kind: Literal["working_memory", "conversation_summary"] = setting(
        title="Writes",
        about="Working notes that are kept up to date, or one summary for each conversation.",
        labels={"working_memory": "Working notes", "conversation_summary": "A summary of the conversation"},
        aliases=("type", "aggregate"),
    )
    model: ModelRef | None = setting(
        None,
        title="Model",
        about="The model that writes it; if none is chosen, the tenant's utility model, and without one the agent's own.",
    )
    every_n_turns: int | None = setting(
        None, title="Every", about="Written after this many turns.", unit="turns", gt=0, le=10_000
    )
    every_n_items: int | None = setting(
        None, title="Every", about="Written after this many entries.", unit="entries", gt=0, le=100_000
    )
    on_end: bool = setting(False, title="At the end", about="Written when the session is closed or has gone idle.")

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return tidy_kind(cls, value)


def tidy_kind(part: type[Part], value: Any) -> Any:
    """A plain name stands for an object of that kind."""
    return tidy_object(part, {"kind": value}) if isinstance(value, str) else value
