"""What a model saw in one call: its layers with names and colours, ready to draw.

The report itself is made by `sessions.context`; here it gets the words of a page.
"""

from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.templatetags.ui import number
from sessions.models import ModelCall

# Name and colour of each layer, the same on every page.
LAYERS = {
    "instructions": (gettext_lazy("Instructions"), "l1"),
    "skills": (gettext_lazy("Skills"), "l2"),
    "resources": (gettext_lazy("Texts of MCP servers"), "l5"),
    "tools": (gettext_lazy("Tools"), "l7"),
    "facts": (gettext_lazy("Facts about the subject"), "l2"),
    "playbooks": (gettext_lazy("Playbooks"), "l2"),
    "summary": (gettext_lazy("Summary"), "l8"),
    "history": (gettext_lazy("History"), "l4"),
    "recall": (gettext_lazy("Recall"), "l5"),
    "workspace": (gettext_lazy("Files of the session"), "l8"),
    "working_memory": (gettext_lazy("Working memory"), "l6"),
    "alerts": (gettext_lazy("Alerts"), "l5"),
    "assembly": (gettext_lazy("What is shown"), "l6"),
    "message": (gettext_lazy("This turn"), "l3"),
    "summarised": (gettext_lazy("Read for a summary"), "l4"),
    "written_down": (gettext_lazy("Read to be written down"), "l4"),
}
_IN_ITEMS = ("history", "message", "summary", "summarised", "written_down")


@dataclass(frozen=True, slots=True)
class Layer:
    name: str
    label: str
    css: str
    tokens: int
    # Ranges of item seqs for what comes from the history, names for everything else.
    sources: tuple[str, ...]
    left_out: tuple[dict, ...]

    @property
    def is_there(self) -> bool:
        return bool(self.tokens)

    @property
    def has_items(self) -> bool:
        return self.name in _IN_ITEMS

    @property
    def note(self) -> str:
        """Where it comes from, in a few letters for the legend."""
        if not self.sources:
            return ""
        if self.has_items:
            first, last = self.sources[0].split("-")[0], self.sources[-1].split("-")[-1]
            return _("item %(n)s") % {"n": first} if first == last else _("items %(a)s–%(b)s") % {"a": first, "b": last}
        return "" if self.name == "instructions" else str(len(self.sources))


@dataclass(frozen=True, slots=True)
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
        layers = _layers(data.get("layers"))
        return cls(data.get("call") or 1, data.get("tokens") or _sum(layers), data.get("window"), layers, run_ref)

    @classmethod
    def of_call(cls, call: ModelCall, *, run_ref: str = "", window: int | None = None) -> "Report":
        """From the ledger."""
        layers = _layers(call.context)
        return cls(call.number, _sum(layers), window, layers, run_ref)

    @property
    def heading(self) -> str:
        if self.window:
            return _("%(tokens)s of %(window)s tokens") % {"tokens": number(self.tokens), "window": number(self.window)}
        return _("%(tokens)s tokens") % {"tokens": number(self.tokens)}

    @property
    def parts(self) -> list[dict]:
        """For the component that draws stacked bars."""
        return [{"label": layer.label, "value": layer.tokens, "css": layer.css, "note": layer.note} for layer in self.layers]

    @property
    def left_out(self) -> list[tuple[Layer, dict]]:
        return [(layer, entry) for layer in self.layers for entry in layer.left_out]


def layer_label(name: str) -> str:
    known = LAYERS.get(name)
    return str(known[0]) if known else name.replace("_", " ").capitalize()


def _sum(layers: list[Layer]) -> int:
    return sum(layer.tokens for layer in layers)


def _layers(raw: list[dict] | None) -> list[Layer]:
    found = []
    for entry in raw or []:
        name = entry.get("layer", "")
        css = LAYERS.get(name, ("", "l6"))[1]
        sources, left_out = entry.get("sources") or (), entry.get("left_out") or ()
        found.append(Layer(name, layer_label(name), css, entry.get("tokens") or 0, tuple(map(str, sources)), tuple(left_out)))
    return found
