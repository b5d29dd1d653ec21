"""Observers in a run: alerts as events, to the model where its agent listens, and the end of a run that goes nowhere."""

from collections.abc import Sequence

from agents.definition import Definition
from sessions.context.observers import Alert, watch
from sessions.context.policies import Text
from sessions.engine.budget import Budget
from sessions.engine.errors import HALTED, ModelFailed
from sessions.engine.store import ItemView, Store


class Watcher:
    """Tells each alert of a run once. State is only rows: what the items of a continued run show was told before."""

    def __init__(self, store: Store, definition: Definition, budget: Budget, *, most_calls: int):
        self.store, self.budget, self.most_calls = store, budget, most_calls
        # The assembly policy `alert` delivers to the model, and makes fatal alerts end the run.
        self.delivers = any(policy.kind == "alert" for policy in definition.assembly)
        self.alerts: list[Alert] = []
        self._told: set[tuple] = set()
        self._is_fresh = not store.spent().model_calls

    async def look(self, current: Sequence[ItemView]) -> None:
        """Notice what there is by now, and tell what is new."""
        self.alerts = watch(current, self._used())
        if not self._is_fresh:
            self._is_fresh = True
            self._told = {alert.key for alert in self.alerts}
        for alert in self.alerts:
            if alert.key not in self._told:
                self._told.add(alert.key)
                await self.store.emit("alert", alert.as_event())

    async def halt_if_fatal(self) -> None:
        """Raises ModelFailed for a fatal alert that the agent listens to, after its event."""
        fatal = next((alert for alert in self.alerts if alert.fatal), None)
        if fatal is None or not self.delivers:
            return
        await self.store.emit("halt", {"code": fatal.code, "about": fatal.about, "message": fatal.message})
        raise ModelFailed(HALTED, f"The run was halted: {fatal.message}")

    def texts(self) -> tuple[Text, ...]:
        """What the model is to read."""
        return tuple(Text(alert.code, f"[{alert.code}] {alert.message}") for alert in self.alerts) if self.delivers else ()

    def _used(self) -> dict[str, tuple[float, float | None]]:
        own, spent, limits = self.store.spent(), self.budget.spent(), self.budget.limits
        used: dict[str, tuple[float, float | None]] = {"maximum_iterations_per_request": (own.model_calls, self.most_calls)}
        if limits is not None:
            used |= {
                "max_tokens_per_run": (spent.tokens, limits.max_tokens_per_run),
                "max_cost_per_run": (float(spent.cost), limits.max_cost_per_run),
                "max_seconds_per_run": (own.seconds, limits.max_seconds_per_run),
                "max_tool_calls": (spent.tool_calls, limits.max_tool_calls),
            }
        return used
