"""Observers of a run: what they notice in the current turn, as a pure function over its items and what was used.

An alert is told once, by its key. Its sentence does not change while it lasts, so that a model's prompt does not
either.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

BUDGET_NEAR, LOOP_SUSPECTED, TOOL_FAILING, GUARD_HIT = "budget_near", "loop_suspected", "tool_failing", "guard_hit"
# The share of a limit from which it is nearly spent.
NEAR = 0.8
# How often something happens before it is told, and before it is fatal.
REPEATED, HOPELESS = 3, 6


class Seen(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def content(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Alert:
    """`about` tells it from others of its code: a limit or a tool. A fatal one ends the run of an agent that listens."""

    code: str
    about: str
    message: str
    fatal: bool = False

    @property
    def key(self) -> tuple[str, str, bool]:
        return self.code, self.about, self.fatal

    def as_event(self) -> dict[str, Any]:
        return {"code": self.code, "about": self.about, "message": self.message, "fatal": self.fatal}


def watch(current: Sequence[Seen], used: Mapping[str, tuple[float, float | None]]) -> list[Alert]:
    """The alerts of a turn as it is, fatal ones last. `used` has (used, limit) by the name of the limit."""
    results = [item.content for item in current if item.kind == "tool_result"]
    found = [*_budgets(used), *_loops(current, results), *_failing(results), *_guards(results)]
    return sorted(found, key=lambda alert: alert.fatal)


def _budgets(used: Mapping[str, tuple[float, float | None]]) -> list[Alert]:
    return [
        Alert(BUDGET_NEAR, name, f"More than {NEAR:.0%} of the run's limit {name} ({limit:g}) is used. Come to an end.")
        for name, (value, limit) in used.items()
        if limit is not None and value >= NEAR * limit
    ]


def _loops(current: Sequence[Seen], results: Sequence[Mapping[str, Any]]) -> list[Alert]:
    """The same call with the same result: one that waits for something to change is none as long as answers change."""
    calls = {item.content["id"]: item.content for item in current if item.kind == "tool_call"}
    counts: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        call = calls.get(result["id"])
        if call is not None:
            arguments = json.dumps(call.get("arguments") or {}, sort_keys=True, default=str)
            counts[call["name"], arguments, str(result.get("text"))] += 1
    most: dict[str, int] = {}
    for (name, _, _), number in counts.items():
        most[name] = max(most.get(name, 0), number)
    return [
        alert
        for name, number in most.items()
        for alert in _graded(
            LOOP_SUSPECTED, name, number,
            f"{name} was called {{n}} times in this turn with the same arguments and gave the same result. Do something else.",
        )
    ]  # fmt: skip


def _failing(results: Sequence[Mapping[str, Any]]) -> list[Alert]:
    """A tool that failed several times in a row, whatever else was called meanwhile."""
    worst: dict[str, int] = {}
    for name in dict.fromkeys(result["name"] for result in results):
        outcomes = [result.get("outcome") == "failed" for result in results if result["name"] == name]
        worst[name] = max((len(list(run)) for failed, run in groupby(outcomes) if failed), default=0)
    text = "{name} failed {{n}} times in a row. Do without it, or say what is missing."
    return [alert for name, number in worst.items() for alert in _graded(TOOL_FAILING, name, number, text.format(name=name))]


def _guards(results: Sequence[Mapping[str, Any]]) -> list[Alert]:
    """Refusals: by the plan mode, by a person, or because nobody can be asked. The first one already says something."""
    refused = Counter(result["name"] for result in results if result.get("outcome") == "denied")
    found = [Alert(GUARD_HIT, name, f"A call of {name} was refused. Do not try to get round it.") for name in refused]
    worst = [(name, number) for name, number in refused.items() if number >= HOPELESS]
    return found + [Alert(GUARD_HIT, name, f"{name} was refused {HOPELESS} times in this turn.", fatal=True) for name, _ in worst]


def _graded(code: str, about: str, number: int, text: str) -> list[Alert]:
    return [
        Alert(code, about, text.format(n=least), fatal)
        for least, fatal in ((REPEATED, False), (HOPELESS, True))
        if number >= least
    ]
