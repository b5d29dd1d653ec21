"""What a model saw in one call: layers with their share, ready to draw.

The report itself is made by `sessions.context`; here it gets colours, words and widths.
"""

from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sessions.models import ModelCall

# The colour class of a layer. One colour for one question, whatever page draws it.
COLOURS = {
    "instructions": 1, "tools": 6, "facts": 2, "playbooks": 2, "summary": 3, "history": 4, "message": 5, "recall": 5,
    "working_memory": 6, "resources": 1, "workspace": 6, "skills": 2,
}  # fmt: skip
LABELS = {
    "instructions": gettext_lazy("Instructions"),
    "tools": gettext_lazy("Tools"),
    "facts": gettext_lazy("Facts about the subject"),
    "playbooks": gettext_lazy("Playbooks"),
    "skills": gettext_lazy("Skills"),
    "summary": gettext_lazy("Summary"),
    "history": gettext_lazy("History"),
    "message": gettext_lazy("This turn"),
    "recall": gettext_lazy("Recall"),
    "working_memory": gettext_lazy("Todos, mode, files"),
    "resources": gettext_lazy("MCP resources"),
    "workspace": gettext_lazy("Workspace"),
}


@dataclass(slots=True)
class Layer:
    name: str
    label: str
    colour: int
    tokens: int
    # Percent of all tokens: where its part of the bar starts and how wide it is.
    start: float
    width: float
    sources: list
    left_out: list


@dataclass(slots=True)
class Report:
    """One model call's context. `window` is None when the model's size is not known."""

    call: int
    tokens: int
    window: int | None
    layers: list[Layer] = field(default_factory=list)
    run_ref: str = ""

    @classmethod
    def of_event(cls, data: dict, *, run_ref: str = "") -> "Report":
        """From a `context.assembled` event."""
        layers = data.get("layers") or []
        return cls(data.get("call", 1), data.get("tokens") or _sum(layers), data.get("window"), _layers(layers), run_ref)

    @classmethod
    def of_call(cls, call: ModelCall, *, run_ref: str = "", window: int | None = None) -> "Report":
        """From the ledger."""
        return cls(call.number, _sum(call.context), window, _layers(call.context), run_ref)

    @property
    def heading(self) -> str:
        if self.window:
            return _("%(tokens)s of %(window)s tokens") % {"tokens": f"{self.tokens:,}", "window": f"{self.window:,}"}
        return _("%(tokens)s tokens") % {"tokens": f"{self.tokens:,}"}

    @property
    def left_out(self) -> list:
        return [(layer, entry) for layer in self.layers for entry in layer.left_out]


def _sum(layers: list[dict]) -> int:
    return sum(layer.get("tokens", 0) for layer in layers)


def _layers(raw: list[dict]) -> list[Layer]:
    total, start, result = _sum(raw) or 1, 0.0, []
    for entry in raw:
        name, tokens = entry.get("layer", ""), entry.get("tokens", 0)
        width = 100 * tokens / total
        label = LABELS.get(name, name.replace("_", " ").capitalize())
        result.append(
            Layer(name, str(label), COLOURS.get(name, 6), tokens, round(start, 2), round(width, 2), entry.get("sources") or [], entry.get("left_out") or [])
        )
        start += width
    return result
