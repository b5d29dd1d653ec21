"""Texts behind the instructions: fixed for a run, told apart in the context report."""

from dataclasses import dataclass
from typing import Any

from sessions.context import tokens
from sessions.context.view import Layer

# A text that is longer is not kept with each call: a run may make many, and texts of servers may be long.
KEPT_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class SystemText:
    """`sources` are ids of what it was made from, `left_out` entries of a report for what is not in it."""

    layer: str
    text: str
    sources: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    def as_layer(self, family: str) -> Layer:
        count = tokens.count_again(self.text, family) if self.text else 0
        return Layer(self.layer, count, self.sources, self.left_out, self.text if len(self.text) <= KEPT_CHARACTERS else "")
