"""Which model answers, and how."""

from typing import Literal

from pydantic import JsonValue

from agents.definition.base import Part, setting

Effort = Literal["none", "low", "medium", "high"]


class ModelRef(Part):
    """A model of one of the tenant's providers."""

    provider: str = setting(
        title="Provider",
        about="The provider that offers the model, by its name in this tenant.",
        choices_from="providers",
        min_length=1,
        max_length=64,
    )
    model: str = setting(
        title="Model",
        about="The model's name exactly as the provider spells it.",
        choices_from="models",
        min_length=1,
        max_length=200,
    )


class ModelBinding(ModelRef):
    """The model of an agent, its sampling, and what stands in for it."""

    temperature: float | None = setting(
        None,
        title="Temperature",
        about="How freely the model chooses its words: 0 stays close to the likeliest, higher values vary more.",
        placeholder="the provider's own",
        ge=0,
        le=2,
    )
    top_p: float | None = setting(
        None,
        title="Top p",
        about="Only the likeliest words that together reach this share are considered; change this or the temperature.",
        placeholder="the provider's own",
        gt=0,
        le=1,
    )
    max_output_tokens: int | None = setting(
        None,
        title="Longest answer",
        about="One answer of the model is cut after this many tokens, reasoning included.",
        unit="tokens",
        placeholder="the model's own limit",
        gt=0,
        le=10_000_000,
    )
    reasoning_effort: Effort | None = setting(
        None,
        title="Reasoning effort",
        about="How much the model thinks before it answers: more takes longer, costs more, and helps with hard questions.",
        labels={"none": "None", "low": "Low", "medium": "Medium", "high": "High"},
        placeholder="the model's own",
    )
    keep_reasoning: bool = setting(
        False,
        title="Keep reasoning",
        about="Stores the model's reasoning in the history, where people who may read the session can see it.",
    )
    fallbacks: list[ModelRef] = setting(
        list,
        title="Fallbacks",
        about="Models that are tried in this order when the first is unreachable, overloaded or failing.",
        max_length=5,
    )
    settings: dict[str, JsonValue] = setting(
        dict,
        title="Provider settings",
        about="Further settings that this kind of provider knows, such as a seed or stop sequences.",
        kind="json",
    )
