"""The harness's loop: an answer is looked at, and the agent goes on until nothing is open or the rounds are used up.

State is only rows: a round is a note of the system in the current turn, so a continued run counts on where it was.
"""

from collections.abc import Sequence
from typing import Any

from agents.definition import Definition
from sessions.context import tokens
from sessions.engine.judge import Judge
from sessions.engine.models import ModelSource
from sessions.engine.store import Entry, ItemView, Store
from sessions.engine.system import SystemText
from sessions.engine.toolbox import ToolBox

MARKER = "[DONE]"
NOTE = "loop"
# What a round without a past is told of the one before it.
_MOST_PROGRESS = 4_000
_MARKER_RULE = f"When everything you were asked for is done, and only then, end your answer with {MARKER}."


class GoingOn:
    """Whether an agent goes on after an answer. Without a loop it never does, and costs nothing."""

    def __init__(self, definition: Definition, store: Store, models: ModelSource, tools: ToolBox):
        self.settings = definition.harness.loop if definition.harness else None
        self.store, self.tools = store, tools
        self.judge = Judge(models, store) if self.settings and "judge" in self.settings.criteria else None

    @property
    def system(self) -> tuple[SystemText, ...]:
        """What the model must know beforehand."""
        has_marker = self.settings is not None and "completion_marker" in self.settings.criteria
        return (SystemText("loop", _MARKER_RULE, ("definition",)),) if has_marker else ()

    async def goes_on(self, answer: str, current: Sequence[ItemView]) -> bool:
        """Look at an answer. When something is open, the next round has begun: its note is stored."""
        # In plan mode the agent has proposed something, and a person is to agree.
        if self.settings is None or self.tools.mode(self.store.state) == "plan":
            return False
        rounds = 1 + sum(_is_round(item) for item in current)
        reasons = await self._open(answer, current)
        if not reasons or rounds >= self.settings.max_iterations:
            if rounds > 1 or reasons:
                await self.store.emit("loop.ended", {"rounds": rounds, "open": [criterion for criterion, _ in reasons]})
            return False
        told = {"round": rounds + 1, "of": self.settings.max_iterations, "open": [criterion for criterion, _ in reasons]}
        content = {"code": NOTE, "text": self._text(told, reasons, answer)}
        entry = Entry("message", "system", content, tokens.count_item("message", content))
        await self.store.add([entry], events=[("loop.continued", told)])
        return True

    def shown(self, items: Sequence[ItemView]) -> Sequence[ItemView]:
        """The items that a round sees: with a fresh context, of the current turn only the request and what this round did."""
        if self.settings is None or not self.settings.fresh_context or not items:
            return items
        last = next((item for item in reversed(items) if _is_round(item)), None)
        if last is None or last.turn != items[-1].turn:
            return items
        first = next(item.seq for item in items if item.turn == last.turn)
        return [item for item in items if item.turn != last.turn or item.seq == first or item.seq >= last.seq]

    def finished(self, text: str) -> str:
        """The answer without the marker, which is for us."""
        return text.replace(MARKER, "").rstrip() if self.system else text

    async def _open(self, answer: str, current: Sequence[ItemView]) -> list[tuple[str, str]]:
        """(criterion, sentence for the model) of what is not settled. The judge is asked last: it costs something."""
        found = []
        for criterion in sorted(self.settings.criteria, key=lambda name: name == "judge"):
            if criterion == "todos_remaining":
                if numbers := [str(todo["id"]) for todo in self.store.state.get("todos", []) if not todo["done"]]:
                    found.append((criterion, f"These todos are open: {', '.join(numbers)}."))
            elif criterion == "completion_marker":
                if MARKER not in answer:
                    found.append((criterion, f"Your answer does not end with {MARKER}."))
            elif not found and (missing := await self.judge.missing(current, answer)):
                found.append((criterion, f"Somebody who looked at your answer says: {missing}"))
        return found

    def _text(self, told: dict[str, Any], reasons: list[tuple[str, str]], answer: str) -> str:
        lines = [f"Round {told['round']} of {told['of']}. It is not done yet.", *(sentence for _, sentence in reasons)]
        if self.settings.fresh_context:
            lines += ["You begin this round anew. Your answer of the round before was:", answer[-_MOST_PROGRESS:] or "(nothing)"]
        lines.append("Go on with the task. If something is impossible, say so, and settle what was open.")
        return "\n".join(lines)


def _is_round(item: ItemView) -> bool:
    return item.kind == "message" and item.role == "system" and item.content.get("code") == NOTE
