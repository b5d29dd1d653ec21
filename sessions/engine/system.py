"""Texts behind the instructions: fixed for a run, told apart in the context report."""

from dataclasses import dataclass
from typing import Any

from sessions.context import tokens
from sessions.context.view import Layer


@dataclass(frozen=True, slots=True)
class SystemText:
    """`sources` are ids of what it was made from, `left_out` entries of a report for what is not in it."""

    layer: str
    text: str
    sources: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    def as_layer(self, family: str) -> Layer:
        return Layer(self.layer, tokens.count_again(self.text, family) if self.text else 0, self.sources, self.left_out)
