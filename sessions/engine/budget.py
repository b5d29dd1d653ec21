"""What a run may still use, together with the runs it has called and those that called it.

A called run spends from the purse of its caller: its own limits hold, and so does what is left above it. All runs of
such a family live in one event loop, so that counting needs no lock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from agents.definition import Limits
from sessions.engine.store import Spent, Store


@dataclass(eq=False)
class Budget:
    """`earlier` is what called runs spent before this process took the run on; `deadline` a time of `time.monotonic()`.

    `depth` is how many calls of agents lie above.
    """

    limits: Limits | None
    store: Store
    above: "Budget | None" = None
    earlier: Spent = Spent()
    deadline: float | None = None
    below: list["Budget"] = field(default_factory=list)
    running: int = 0

    def __post_init__(self):
        if self.above is not None:
            self.above.below.append(self)

    @property
    def depth(self) -> int:
        return 0 if self.above is None else self.above.depth + 1

    def spent(self) -> Spent:
        """Tokens, cost and tool calls of this run and of all below it."""
        parts = [self.store.spent(), self.earlier, *(child.spent() for child in self.below)]
        return Spent(
            tokens=sum(part.tokens for part in parts),
            cost=sum((part.cost for part in parts), Decimal(0)),
            tool_calls=sum(part.tool_calls for part in parts),
        )

    def reached(self) -> str | None:
        """The first limit of tokens or cost that is spent, here or above."""
        for budget in self._chain():
            limits = budget.limits
            if limits is None or (limits.max_tokens_per_run is None and limits.cost is None):
                continue
            spent = budget.spent()
            if limits.max_tokens_per_run is not None and spent.tokens >= limits.max_tokens_per_run:
                return "max_tokens_per_run"
            if limits.cost is not None and spent.cost >= limits.cost:
                return "max_cost_per_run"
        return None

    def take(self, calls: int) -> int:
        """How many of these tool calls may start; they count as running until they are given back."""
        granted = calls
        for budget in self._chain():
            most = budget.limits.max_tool_calls if budget.limits else None
            if most is not None:
                granted = min(granted, max(0, most - budget.spent().tool_calls - budget._in_flight()))
        self.running += granted
        return granted

    def give_back(self, calls: int) -> None:
        """They have ended: the store counts them now."""
        self.running -= calls

    @property
    def most_tool_calls(self) -> int | None:
        """The smallest limit of tool calls, here and above."""
        return min((budget.limits.max_tool_calls for budget in self._chain() if budget.limits and budget.limits.max_tool_calls), default=None)

    def left(self) -> tuple[int | None, Decimal | None]:
        """Tokens and US dollars that are left, here and above; None where nothing limits them."""
        tokens: list[int] = []
        costs: list[Decimal] = []
        for budget in self._chain():
            limits, spent = budget.limits, budget.spent()
            if limits and limits.max_tokens_per_run is not None:
                tokens.append(max(0, limits.max_tokens_per_run - spent.tokens))
            if limits and limits.cost is not None:
                costs.append(max(Decimal(0), limits.cost - spent.cost))
        return min(tokens, default=None), min(costs, default=None)

    def _in_flight(self) -> int:
        return self.running + sum(child._in_flight() for child in self.below)

    def _chain(self) -> Iterator["Budget"]:
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.above
