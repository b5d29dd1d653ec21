"""Two drafts that were written at the same time: where they differ, and one made of both."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agents.definition.reading import same
from console.forms.definition.codecs import ABSENT
from console.forms.definition.tree import Node, root


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that two documents say differently; ABSENT where one does not have it."""

    steps: tuple[str, ...]
    theirs: Any
    mine: Any

    @property
    def path(self) -> str:
        return ".".join(self.steps)


def differences(theirs: dict, mine: dict) -> list[Difference]:
    """By setting, as the editor has them: a list is one setting, and so is an object that only one of the two has."""
    return list(_between(root(), (), theirs, mine))


def merged(theirs: dict, mine: dict, take_theirs: set[int]) -> dict:
    """`mine`, with the differences of these numbers as `theirs` has them."""
    document = copy.deepcopy(mine)
    for number, difference in enumerate(differences(theirs, mine)):
        if number in take_theirs:
            _put(document, difference.steps, difference.theirs)
    return document


def _between(node: Node, steps: tuple[str, ...], theirs: dict, mine: dict) -> Iterator[Difference]:
    known = [key for key in node.entries if key in theirs or key in mine]
    for key in dict.fromkeys([*known, *mine, *theirs]):
        one, other, inner = theirs.get(key, ABSENT), mine.get(key, ABSENT), node.entries.get(key)
        if isinstance(inner, Node) and isinstance(one, dict) and isinstance(other, dict):
            yield from _between(inner, (*steps, key), one, other)
        elif one is ABSENT or other is ABSENT or not same(one, other):
            yield Difference((*steps, key), one, other)


def _put(document: dict, steps: tuple[str, ...], value: Any) -> None:
    *way, last = steps
    for step in way:
        document = document.setdefault(step, {})
    if value is ABSENT:
        document.pop(last, None)
    else:
        document[last] = copy.deepcopy(value)
