"""Agents as tools of other agents: a call is a run of its own, sessionless, that spends from its caller's purse."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from agents import tools as registry
from agents.definition import Definition
from agents.mcp.naming import server_of
from agents.models import Agent
from agents.tools import ToolFailed
from governance.errors import LetheError
from governance.ids import shown
from sessions.domain import children
from sessions.engine.budget import Budget
from sessions.engine.store import Spent, Store
from sessions.engine.toolbox import ToolSpec, asks
from sessions.models import Run
from sessions.threads import in_thread

MAX_TASK = 100_000
_TYPES = {"text": "string", "number": "number", "boolean": "boolean"}

# Whose purse a run spends from and until when, until the run is taken on; both happen in this process.
_purses: dict[UUID, tuple[Budget, float]] = {}


def budget_for(run: Run, definition: Definition, store: Store, *, is_fresh: bool) -> Budget:
    """The run's budget: below its caller's, where it has one. A run that goes on counts what it has called before."""
    above, deadline = _purses.pop(run.id, (None, None))
    earlier = Spent()
    if definition.callable_agents and not is_fresh:
        tokens, cost, tool_calls = children.spent_below(run)
        earlier = Spent(tokens=tokens, cost=cost, tool_calls=tool_calls)
    return Budget(definition.limits, store, above, earlier, deadline)


def build(run: Run, definition: Definition, store: Store, budget: Budget, default_cap: int) -> list[ToolSpec]:
    """A tool for each agent that this one may call. One query, and none for an agent that calls nobody."""
    if not definition.callable_agents:
        return []
    rows = Agent.objects.of(run.tenant_id).listed().filter(name__in=definition.callable_agents).exclude(published=None)
    found = {agent.name: agent for agent in rows.select_related("published").defer("draft")}
    callers = [_Caller(run, found[name], store, budget) for name in definition.callable_agents if name in found]
    return [_tool(caller, definition, default_cap) for caller in callers]


def _tool(caller: "_Caller", definition: Definition, default_cap: int) -> ToolSpec:
    agent, name = caller.agent, registry.agent_tool_name(caller.agent.name)
    document = agent.published.document
    setting = definition.tool_settings.get(name)
    caller.seconds = (setting.timeout_s if setting else None) or float(settings.LETHE["agent_seconds"])
    effect = "write" if _changes_something(document) else "read"
    about = agent.description or f"Hand a task to the agent {agent}."
    return ToolSpec(
        name=name,
        description=f"{about}\nIt works by itself and sees nothing of this conversation: say all that it needs. Returns its answer.",
        schema=_schema(document),
        run=caller.call,
        effect=effect,
        origin=f"agent:{agent.name}",
        asks=asks(definition, name, effect),
        # The called run ends by its own deadline, a moment earlier, with what it has.
        timeout=caller.seconds + 5,
        cap=(setting.max_output_chars if setting else None) or default_cap,
    )


def _schema(document: dict) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "task": {"type": "string", "minLength": 1, "maxLength": MAX_TASK, "description": "The task, with everything that it needs"}
    }
    required = ["task"]
    if declared := document.get("parameters"):
        inner = {entry["name"]: {"type": _TYPES[entry.get("kind", "text")]} for entry in declared}
        needed = [entry["name"] for entry in declared if entry.get("required") and entry.get("default") is None]
        properties["parameters"] = {"type": "object", "properties": inner, "required": needed, "additionalProperties": False}
        required += ["parameters"] if needed else []
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _changes_something(document: dict) -> bool:
    """Whether a called agent can do more than read: then its caller cannot call it in plan mode, nor twice after a crash."""
    if document.get("callable_agents") or (document.get("memory") or {}).get("enable_file_memory"):
        return True
    for name in document.get("tools", []):
        tool = registry.get(name)
        if tool is None and server_of(name) or tool is not None and not tool.is_read_only:
            return True
    return False


@dataclass
class _Caller:
    """One agent that a run may call."""

    run: Run
    agent: Agent
    store: Store
    budget: Budget
    seconds: float = 0.0

    async def call(self, arguments: dict[str, Any]) -> str:
        """The answer of the called agent. Raises ToolFailed with a sentence for the model."""
        if self.budget.depth >= settings.LETHE["agent_depth"]:
            raise ToolFailed(f"{self.agent.name} was not called: agents call each other at most {settings.LETHE['agent_depth']} deep.")
        tokens, cost = self.budget.left()
        try:
            child = await in_thread(
                children.begin, parent=self.run, agent_name=self.agent.name, task=arguments["task"],
                parameters=arguments.get("parameters") or {}, tokens=tokens, cost=cost,
            )  # fmt: skip
        except LetheError as error:
            raise ToolFailed(f"{self.agent.name} was not called: {error.detail}") from None
        return await self._executed(child)

    async def _executed(self, child: Run) -> str:
        from sessions.engine import runner  # noqa: PLC0415 -- it executes what is built here

        about = {"run_id": shown("run", child.id), "agent": self.agent.name}
        deadline = time.monotonic() + self.seconds
        known = [limit for limit in (deadline, self.budget.deadline) if limit is not None]
        _purses[child.id] = self.budget, min(known)
        task = asyncio.create_task(runner.execute_child(child.id))
        try:
            await self.store.emit("child_run.started", about)
            await asyncio.shield(task)
        except BaseException:
            # Whoever stopped this run stops those it called: cancelled by a person, or interrupted by anything else.
            reason = "cancelled" if getattr(self.store, "stop_reason", None) == "cancelled" else "interrupted"
            task.cancel(reason)
            await asyncio.wait({task}, timeout=10)
            raise
        finally:
            _purses.pop(child.id, None)
        ended = await in_thread(children.ended, child.id)
        await self.store.emit("child_run.completed", {**about, "status": ended.status})
        return self._told(ended)

    def _told(self, ended: children.Ended) -> str:
        name = self.agent.name
        if ended.status == Run.Status.COMPLETED:
            return ended.text or "(no answer)"
        if ended.status == Run.Status.BUDGET_EXCEEDED:
            raise ToolFailed(f"{name} reached a limit before it was done. So far: {ended.text or 'nothing'}")
        reason = (ended.error or {}).get("message") or {"cancelled": "It was cancelled."}.get(ended.status, "It was interrupted.")
        raise ToolFailed(f"{name} did not finish. {reason}")

