"""Running the tool calls of an answer: which may run, which wait for a person, and what the model reads of each."""

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import Any

from agents.tools import BadArguments, ToolFailed
from governance.text import clean, clean_json
from sessions.context import tokens
from sessions.engine import keeping
from sessions.engine.budget import Budget
from sessions.engine.store import Entry, PendingCall, Store
from sessions.engine.toolbox import EFFECTS, ToolBox, ToolSpec

logger = logging.getLogger("lethe.engine")

AT_ONCE = 16

SUCCESS, FAILED, DENIED, INTERRUPTED = "success", "failed", "denied", "interrupted"


@dataclass(frozen=True, slots=True)
class Result:
    """What the model reads of a call."""

    outcome: str
    text: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may run, with its checked arguments."""

    id: str
    spec: ToolSpec
    shown: dict[str, Any]
    arguments: dict[str, Any]


class Execution:
    """The calls of one run. `run` may be entered again at any time: what is done is in the store."""

    def __init__(self, *, store: Store, tools: ToolBox, budget: Budget):
        self.store, self.tools, self.budget, self.deadline = store, tools, budget, budget.deadline
        self._places = asyncio.Semaphore(AT_ONCE)

    def asked(self) -> set[str]:
        """Ids of calls that a person was asked about."""
        return {item.content["call_id"] for item in self.store.items() if item.kind == "approval_request"}

    async def run(self, calls: list[dict[str, Any]]) -> str | None:
        """Run what may run, ask for the rest. Returns "awaiting_approval", "budget_exceeded", or None to go on."""
        ready: list[Ready] = []
        pending: list[PendingCall] = []
        waiting = 0
        asked, decisions = self.asked(), self.store.decisions()
        for call in calls:
            sorted_out = await self._sort(call, asked, decisions)
            if isinstance(sorted_out, Result):
                await self._refuse(call, sorted_out)
            elif isinstance(sorted_out, Ready):
                ready.append(sorted_out)
            elif sorted_out is not None:
                pending.append(sorted_out)
            else:
                waiting += 1
        granted = self.budget.take(len(ready))
        ready, over = ready[:granted], ready[granted:]
        try:
            await self._run_all(ready)
        finally:
            self.budget.give_back(granted)
        for late in over:
            text = f"[not run] The limit of {self.budget.most_tool_calls} tool calls in one run is reached."
            await self._keep(late.id, late.spec, Result(INTERRUPTED, text), 0)
        if over:
            return "budget_exceeded"
        if pending:
            await self.store.ask(pending)
        return "awaiting_approval" if pending or waiting else None

    async def _sort(self, call: dict[str, Any], asked: set[str], decisions: dict[str, dict[str, Any]]) -> Any:
        """A Result (refused), Ready, a PendingCall (ask now), or None (somebody is being asked)."""
        call_id, spec, decision = call["id"], self.tools.specs.get(call["name"]), decisions.get(call["id"])
        if call_id in self.store.effects_started():
            return Result(
                INTERRUPTED,
                "[interrupted] This call was started before an interruption and is not repeated. It may or may not "
                "have taken effect: find out before you call it again.",
            )
        if spec is None:
            names = ", ".join(self.tools.specs) or "none"
            return Result(FAILED, f"Unknown tool {call['name']!r}. Available: {names}")
        mode = self.tools.mode(self.store.state)
        if mode == "plan" and spec.effect in EFFECTS:
            return Result(
                DENIED,
                f"Refused: the mode is plan, and {spec.name} changes something. Finish the plan and have it agreed, "
                "then switch to execute.",
            )
        if decision is not None and not decision["approve"]:
            reason = decision.get("reason") or "no reason was given"
            return Result(DENIED, f"Rejected by a person: {reason}")
        edited = decision is not None and decision.get("arguments") is not None
        if "arguments_text" in call and not edited:
            return Result(FAILED, "Invalid arguments: not a JSON object. If the call was cut off, write a shorter one.")
        shown = decision["arguments"] if edited else call["arguments"]
        try:
            arguments = spec.arguments(shown)
        except BadArguments as error:
            return Result(FAILED, f"The arguments that a person edited do not fit. {error}" if edited else str(error))
        if not spec.asks or decision is not None:
            return Ready(call_id, spec, shown, arguments)
        return await self._approval(PendingCall(call_id, spec.name, shown, spec.origin, spec.effect), spec, arguments, asked)

    async def _approval(self, call: PendingCall, spec: ToolSpec, arguments: dict[str, Any], asked: set[str]) -> Any:
        if not self.store.has_session:
            return Result(
                DENIED,
                f"Refused: {spec.name} needs a person's approval, and a run without a session has nobody to ask.",
            )
        if call.call_id in asked:
            return None
        if await self.store.standing_answer(call) is not None:
            return Ready(call.call_id, spec, call.arguments, arguments)
        return call

    async def _run_all(self, ready: list[Ready]) -> None:
        """All at once, each result stored when it ends. The first error that is not a tool's own stops the others."""
        if len(ready) == 1:
            await self._one(ready[0])
            return
        try:
            async with asyncio.TaskGroup() as group:
                for call in ready:
                    group.create_task(self._one(call))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _one(self, call: Ready) -> None:
        async with self._places:
            await self.store.check()
            await self.store.emit("tool.called", {"call_id": call.id, "name": call.spec.name, "arguments": call.shown})
            if call.spec.effect in EFFECTS:
                await self.store.effect_started(call.id)
            started = time.monotonic()
            result = await self._attempt(call)
            await self._keep(call.id, call.spec, result, int((time.monotonic() - started) * 1000))

    async def _attempt(self, call: Ready) -> Result:
        spec = call.spec
        timeout = spec.timeout
        if self.deadline is not None:
            timeout = min(timeout, max(0.0, self.deadline - time.monotonic()))
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(timeout) as timer:
                value = await spec.run(call.arguments)
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            # The tool cancelled itself; nobody cancelled the run.
            return Result(FAILED, f"{spec.name} gave up.")
        except ToolFailed as error:
            return Result(FAILED, str(error) or f"{spec.name} failed.")
        except Exception as error:
            if isinstance(error, TimeoutError) and timer.expired():
                if timeout < spec.timeout:
                    return Result(INTERRUPTED, "[interrupted] The time of the run was up.")
                return Result(FAILED, f"Timed out after {spec.timeout:g} s.")
            # Its details may hold anything: they go to the log, never to the model.
            logger.warning("tool failed: %s: %s", spec.name, type(error).__name__, exc_info=error)
            return Result(FAILED, f"{type(error).__name__}: the tool failed.")
        try:
            return Result(SUCCESS, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        except (TypeError, ValueError, RecursionError):
            return Result(FAILED, f"{spec.name} returned something that is no text.")

    async def _refuse(self, call: dict[str, Any], result: Result) -> None:
        name = call["name"]
        await self.store.emit("tool.called", {"call_id": call["id"], "name": name, "arguments": call["arguments"]})
        await self._keep(call["id"], self.tools.specs.get(name) or name, result, 0)

    async def _keep(self, call_id: str, tool: ToolSpec | str, result: Result, duration_ms: int) -> None:
        name, cap = (tool, None) if isinstance(tool, str) else (tool.name, tool.cap)
        text, events = clean(result.text), []
        content: dict[str, Any] = {"id": call_id, "name": name, "text": text, "outcome": result.outcome}
        if cap is not None and len(text) > cap:
            content["text"] = f"{text[:cap]}\n[truncated: the result has {len(text)} characters, {cap} are shown]"
            content["truncated"] = {"characters": len(text)}
            events.append(("tool.output_truncated", {"call_id": call_id, "characters": len(text), "kept": cap}))
        content["duration_ms"] = duration_ms
        told = {"call_id": call_id, "name": name, "text": content["text"], "outcome": result.outcome}
        kind = "tool.completed" if result.outcome == SUCCESS else "tool.failed"
        events.append((kind, {**told, "duration_ms": duration_ms}))
        entry = Entry("tool_result", "tool", clean_json(content), tokens.count_item("tool_result", content))
        await keeping.completed(self.store.add([entry], events=events))
