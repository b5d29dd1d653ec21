"""Texts behind the instructions: fixed for a run, told apart in the context report."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agents.definition import Definition
from sessions.context import tokens
from sessions.context.view import INSTRUCTIONS, Layer
from sessions.domain import definitions


@dataclass(frozen=True, slots=True)
class SystemText:
    """`sources` are ids of what it was made from, `left_out` entries of a report for what is not in it."""

    layer: str
    text: str
    sources: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    def as_layer(self, family: str) -> Layer:
        count = tokens.count_again(self.text, family) if self.text else 0
        return Layer(self.layer, count, self.sources, self.left_out)


def to_keep(definition: Definition, instructions: str, system: Iterable[SystemText]) -> dict[str, str]:
    """The texts, by layer, that could be read nowhere else afterwards. Instructions that nothing was filled into are in
    the agent's version.
    """
    own = {INSTRUCTIONS: instructions} if instructions != definitions.as_written(definition) else {}
    return own | {text.layer: text.text for text in system if text.text}
