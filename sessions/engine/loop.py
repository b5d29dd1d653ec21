"""The loop of one turn: ask the model, run its tools, keep each step as it happens, until there is an answer.

State is what the store holds. A start, a decided approval, a continuation after a crash and a new message all enter
here and find what is to do next in the items of the current turn.
"""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

from pydantic_ai.models import Model

from agents.definition import Definition
from sessions.context import tokens, working_memory
from sessions.context.assemble import assemble, input_limit
from sessions.context.compaction import compaction_of
from sessions.context.policies import NOTHING, Texts, added
from sessions.context.view import WORKING_MEMORY, Layer, Note, View
from sessions.engine import providers, web_search
from sessions.engine.budget import Budget
from sessions.engine.calls import Answer, Asking, DeadlinePassed, Prepared
from sessions.engine.compacting import Compactor
from sessions.engine.errors import CONTENT_FILTERED, CONTEXT_TOO_LONG, PROVIDER_BAD_RESPONSE, ModelFailed
from sessions.engine.execute import Execution
from sessions.engine.going_on import GoingOn
from sessions.engine.keeping import completed
from sessions.engine.messages import Call, Thought, show
from sessions.engine.models import Candidate, ModelSource
from sessions.engine.store import CallRecord, Entry, ItemView, RunStopped, Store
from sessions.engine.system import SystemText, to_keep
from sessions.engine.toolbox import ToolBox
from sessions.engine.watching import Watcher

COMPLETED, AWAITING_APPROVAL, BUDGET_EXCEEDED = "completed", "awaiting_approval", "budget_exceeded"
MODEL_CALLS = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. `output` is the answer as JSON where the definition asks for that.

    `reason` names the limit of a turn that ended as budget_exceeded: max_tokens_per_run, max_cost_per_run,
    max_seconds_per_run, max_tool_calls or maximum_iterations_per_request.
    """

    status: str
    text: str = ""
    output: Any = None
    reason: str | None = None


async def run_turn(
    *,
    definition: Definition,
    instructions: str,
    store: Store,
    models: ModelSource,
    tools: ToolBox,
    deadline: float | None = None,
    notes: tuple[Note, ...] = (),
    system: tuple[SystemText, ...] = (),
    texts: Texts = NOTHING,
    compactor: Compactor | None = None,
    budget: Budget | None = None,
) -> Outcome:
    """Carry the current turn on until it is answered, waits for a person, or its budget is spent.

    `instructions` are final. `deadline` is a time of `time.monotonic()`. `notes` are fenced texts for this turn, such
    as recall, `system` what stands behind the instructions, `texts` what assembly policies may add. Without a `compactor`
    the definition's strategy holds, with no summaries; without a `budget` its limits. Raises ModelFailed, RunStopped, and
    CancelledError after keeping what was paid for.
    """
    compactor, budget = compactor or Compactor(compaction_of(definition)), budget or Budget(definition.limits, store)
    turn = _Turn(definition, instructions, store, models, tools, deadline, notes, system, texts, compactor, budget)
    await turn.prepare_once()
    return await turn.run()


class _Turn:
    def __init__(self, definition, instructions, store, models, tools, deadline, notes, system, texts, compactor, budget):
        self.definition: Definition = definition
        self.instructions: str = instructions
        self.store: Store = store
        self.models: ModelSource = models
        self.tools: ToolBox = tools
        self.notes: tuple[Note, ...] = notes
        self.going_on = GoingOn(definition, store, models, tools)
        self.system: tuple[SystemText, ...] = (*system, *self.going_on.system)
        self.prompt = "\n\n".join(filter(None, [instructions, *(text.text for text in self.system)]))
        # The same in every call from here on, so it is kept with the first: a run may make many, and texts may be long.
        self.unkept: dict[str, str] = to_keep(definition, instructions, self.system)
        self.compactor: Compactor = compactor
        self.deadline = _sooner(deadline, definition, store)
        self.texts: Texts = texts
        self.budget: Budget = budget
        self.watcher = Watcher(store, definition, budget, most_calls=_most_calls(definition))
        self.budget.deadline = self.deadline
        self.execution = Execution(store=store, tools=tools, budget=budget)
        # Answers of this run in the library's own parts, by their group: they go back to their author unchanged.
        self.verbatim: dict[int, tuple[Candidate, list[Any]]] = {}
        self.blobs: dict[str, bytes] = {}
        # How far our counts were from what a model reported.
        self.factors: dict[Candidate, float] = {}
        self.fixed: dict[str, tuple[int, int, list[Layer]]] = {}
        self.views: dict[Candidate, View[ItemView]] = {}
        self.definitions = [
            providers.Tool(spec.name, spec.description, spec.schema) for spec in tools.specs.values()
        ]

    async def prepare_once(self) -> None:
        """What needs doing before the first step: the mode of a new session, tokenizers, complaints."""
        if self.tools.initial_mode is not None:
            self.store.state.setdefault("mode", self.tools.initial_mode)
        for candidate in self.models.candidates:
            if not tokens.is_loaded(candidate.family):
                await asyncio.to_thread(tokens.load, candidate.family)
        self.notes = (*self.notes, *self._working_memory())
        if self.tools.missing and not self.store.spent().model_calls:
            names = ", ".join(self.tools.missing)
            await self.store.emit("alert", {"code": "tool_missing", "message": f"Not available any more: {names}."})

    def _working_memory(self) -> list[Note]:
        # As the turn begins: what changes during the turn is in the tools' results, and the prefix stays the same.
        mode = self.tools.mode(self.store.state)
        todos = self.store.state.get("todos", []) if self.tools.has_todos else None
        text = working_memory.text(mode=mode, todos=todos)
        if not text:
            return []
        count = tokens.count(text, self.models.first.family) + 12
        return [Note(WORKING_MEMORY, "Working memory when this turn began", text, count, ("session state",), own=True)]

    def _added(self, family: str) -> list[Note]:
        """What assembly policies add. Alerts are as they are now, everything else as the turn began."""
        policies = self.definition.assembly
        if not policies:
            return []
        return added(policies, replace(self.texts, alerts=self.watcher.texts()), count=partial(tokens.count_again, family=family))

    async def run(self) -> Outcome:
        while True:
            await self.store.check()
            calls = self._open_calls()
            await self.watcher.look(self._current())
            if not calls and (answer := self._answered()) is not None:
                if await self.going_on.goes_on(answer, self._current()):
                    continue
                return await self._completed(self.going_on.finished(answer))
            await self.watcher.halt_if_fatal()
            if (limit := self._spent_limit()) is not None:
                return Outcome(BUDGET_EXCEEDED, self._last_text(), reason=limit)
            if calls:
                ended = await self.execution.run(calls)
                if ended is not None:
                    reason = "max_tool_calls" if ended == BUDGET_EXCEEDED else None
                    return Outcome(ended, self._last_text(), reason=reason)
                continue
            try:
                await self._ask()
            except DeadlinePassed:
                return Outcome(BUDGET_EXCEEDED, self._last_text(), reason="max_seconds_per_run")

    # What the items say

    def _current(self) -> list[ItemView]:
        items = self.store.items()
        turn = items[-1].turn if items else None
        return list(takewhile(lambda item: item.turn == turn, reversed(items)))[::-1]

    def _open_calls(self) -> list[dict[str, Any]]:
        current = self._current()
        answered = {item.content["id"] for item in current if item.kind == "tool_result"}
        return [item.content for item in current if item.kind == "tool_call" and item.content["id"] not in answered]

    def _answered(self) -> str | None:
        """The text of the answer that ends the turn; None while there is none."""
        for item in reversed(self._current()):
            if item.kind in ("tool_call", "tool_result") or (item.kind == "message" and item.role != "assistant"):
                return None
            if item.kind == "message":
                return None if item.content.get("cut") or item.content.get("paused") else item.content.get("text", "")
        return None

    def _last_text(self) -> str:
        for item in reversed(self._current()):
            if item.kind == "message" and item.role == "assistant" and item.content.get("text"):
                return item.content["text"]
        return ""

    def _spent_limit(self) -> str | None:
        """The limit that leaves no room for another model or tool call."""
        if self.store.spent().model_calls >= self.watcher.most_calls:
            return "maximum_iterations_per_request"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "max_seconds_per_run"
        return self.budget.reached()

    async def _completed(self, text: str) -> Outcome:
        if self.definition.response_format.kind == "text":
            return Outcome(COMPLETED, text)
        output, problem = _as_json(text)
        if problem:
            await self.store.emit("alert", {"code": "answer_is_not_json", "message": problem})
        return Outcome(COMPLETED, text, output)

    # Asking the model

    async def _ask(self) -> None:
        self.views.clear()
        prepared: dict[Candidate, Prepared] = {}

        async def prepare(candidate: Candidate, model: Model) -> Prepared:
            if candidate not in prepared:
                prepared[candidate] = await self._prepared(candidate, model)
            return prepared[candidate]

        taken = frozenset(item.content["id"] for item in self.store.items() if item.kind == "tool_call")
        asking = Asking(self.models, prepare=prepare, listener=self, taken=taken, deadline=self.deadline)
        try:
            answer = await asking.answer()
        except BaseException:
            if asking.partial is not None:
                with contextlib.suppress(RunStopped):
                    await completed(self._keep(asking.partial))
            raise
        await completed(self._keep(answer))
        self._learn(answer, prepared[answer.candidate])
        if answer.cut:
            raise ModelFailed(
                PROVIDER_BAD_RESPONSE, "The model's answer was cut off before its end; what arrived is kept."
            )
        if answer.finish_reason == "length":
            message = "The model reached the limit of its output: its answer may be incomplete."
            await self.store.emit("alert", {"code": "output_limit", "message": message})
        if answer.finish_reason == "content_filter" and not answer.said.text and not answer.said.calls:
            raise ModelFailed(CONTENT_FILTERED, "The provider withheld the answer because of its content rules.")

    async def _prepared(self, candidate: Candidate, model: Model) -> Prepared:
        """The messages for one model: layers, repair, settings. Raises ModelFailed when they cannot fit."""
        instructions, tools, system = self._fixed(candidate.family)
        output = providers.output_limit(self.definition, candidate)
        limit = input_limit(providers.window_of(self.definition, candidate), output)
        items, waiting = self.going_on.shown(self.store.items()), self._waiting()
        assembled = partial(
            assemble,
            items,
            instructions=instructions,
            tools=tools,
            tool_names=tuple(self.tools.specs),
            system=system,
            notes=(*self.notes, *self._added(candidate.family)),
            limit=limit,
            output=output,
            policies=self.definition.assembly,
            caps=self.definition.layer_caps,
            open_groups=frozenset(
                item.group for item in items if item.kind == "tool_call" and item.content["id"] in waiting
            ),
        )
        view = await self.compactor.view(self.store, assembled, factor=self.factors.get(candidate, 1.0))
        self.views[candidate] = view
        if not view.fits:
            message = (
                f"The message and what belongs to it need about {view.tokens} tokens; the model “{candidate.model}” "
                f"has room for {limit}."
            )
            raise ModelFailed(CONTEXT_TOO_LONG, message)
        await self._load_blobs(view)
        shown = show(
            view,
            candidate=candidate,
            verbatim=self.verbatim,
            waiting=waiting,
            blobs=self.blobs,
        )
        settings = providers.settings_of(self.definition, candidate, model)
        if shown.bare_calls:
            providers.without_reasoning(settings, candidate, model)
        await self.store.emit(
            "context.assembled",
            {
                "call": self.store.spent().model_calls + 1,
                "tokens": view.tokens,
                "window": providers.window_of(self.definition, candidate),
                "layers": view.report(),
            },
        )
        parameters = providers.parameters_of(self.definition, model, self.prompt, self.definitions)
        parameters = web_search.offered(self.definition, candidate, parameters)
        return Prepared(shown.messages, settings, parameters, view.tokens)

    def _waiting(self) -> frozenset[str]:
        """Ids of calls that a person has not decided on."""
        return frozenset(self.execution.asked() - self.store.decisions().keys())

    def _fixed(self, family: str) -> tuple[int, int, list[Layer]]:
        if family not in self.fixed:
            layers = [text.as_layer(family) for text in self.system]
            self.fixed[family] = (tokens.count_again(self.instructions, family), self.tools.tokens(family), layers)
        return self.fixed[family]

    async def _load_blobs(self, view: View[ItemView]) -> None:
        for item in (*view.history, *view.current):
            for attachment in item.content.get("attachments") or () if item.kind == "message" else ():
                sha256 = attachment["sha256"]
                if sha256 not in self.blobs and (data := await self.store.blob(sha256)) is not None:
                    self.blobs[sha256] = data

    async def _keep(self, answer: Answer) -> None:
        """Store what was said and what it cost, in one step."""
        entries = self._entries(answer)
        events = web_search.events_of(answer.said.searches)
        if any(entry.kind == "message" for entry in entries):
            completed_event = {"text": answer.said.text, "model": answer.model}
            events.append(("message.completed", {**completed_event, "cut": True} if answer.cut else completed_event))
        ends = not (answer.cut or answer.paused or answer.said.calls or self.going_on.settings)
        added = await self.store.add(entries, events=events, call=self._record(answer), last=ends)
        if added and not answer.cut:
            self.verbatim[added[0].group] = (answer.candidate, answer.said.parts)

    def _entries(self, answer: Answer) -> list[Entry]:
        said, candidate = answer.said, answer.candidate
        if answer.cut and not said.text:
            return []
        keeps = self.definition.model.keep_reasoning and not answer.cut
        contents: list[tuple[str, dict[str, Any]]] = []
        for piece in said.pieces:
            if isinstance(piece, Thought) and keeps:
                author = {"provider": candidate.provider.name, "model": candidate.model}
                contents.append(("reasoning", {"text": piece.text, **author, "raw": piece.raw}))
            elif isinstance(piece, str) and piece:
                contents.append(("message", _message(answer)))
        if not said.text and not said.calls:
            contents.append(("message", _message(answer)))
        contents += [("tool_call", _call_content(call, candidate)) for call in said.calls]
        return [
            Entry(kind, "assistant", content, tokens.count_item(kind, content, candidate.family), joins=index > 0)
            for index, (kind, content) in enumerate(contents)
        ]

    def _report(self, view: View[ItemView]) -> list[dict[str, Any]]:
        report = view.report(texts=True)
        for layer in report:
            if text := self.unkept.get(layer["layer"]):
                layer["text"] = text
        self.unkept = {}
        return report

    def _record(self, answer: Answer) -> CallRecord:
        usage, provider = answer.usage, answer.candidate.provider
        view = self.views.get(answer.candidate)
        return CallRecord(
            provider=provider.name,
            model=answer.model,
            input_tokens=usage.input,
            cached_tokens=usage.cached,
            output_tokens=usage.output,
            reasoning_tokens=usage.reasoning,
            is_estimated=usage.is_estimated,
            duration_ms=answer.duration_ms,
            context=self._report(view) if view is not None else [],
            price=provider.price,
            searches=usage.searches,
            asked=answer.candidate.model,
        )

    def _learn(self, answer: Answer, prepared: Prepared) -> None:
        if not answer.usage.is_estimated and prepared.input_tokens >= 500:
            self.factors[answer.candidate] = min(2.0, max(1.0, answer.usage.input / prepared.input_tokens))

    # Being told while the model speaks

    async def text(self, piece: str) -> None:
        await self.store.delta("message.delta", piece)

    async def thought(self, piece: str) -> None:
        await self.store.delta("reasoning.delta", piece)

    async def fallback(self, old: Candidate, new: Candidate, reason: str) -> None:
        await self.store.emit("model.fallback_used", {"from": old.label, "to": new.label, "reason": reason})

    async def waiting(self, candidate: Candidate, seconds: float) -> None:
        if seconds >= 2:
            message = f"{candidate.label} is asked again in {seconds:.0f} seconds."
            await self.store.emit("alert", {"code": "model_retry", "message": message})

    async def paid(self, answer: Answer) -> None:
        await self.store.add([], call=self._record(answer))

    async def check(self) -> None:
        await self.store.check()


def _most_calls(definition: Definition) -> int:
    harness = definition.harness
    return (harness and harness.maximum_iterations_per_request) or MODEL_CALLS


def _sooner(deadline: float | None, definition: Definition, store: Store) -> float | None:
    limits = definition.limits
    if limits is None or limits.max_seconds_per_run is None:
        return deadline
    own = time.monotonic() + limits.max_seconds_per_run - store.spent().seconds
    return own if deadline is None else min(own, deadline)


def _message(answer: Answer) -> dict[str, Any]:
    content = {
        "text": answer.said.text,
        "model": answer.model,
        "provider": answer.candidate.provider.name,
    }
    if answer.finish_reason:
        content["finish_reason"] = answer.finish_reason
    if answer.paused:
        content["paused"] = True
    return {**content, "cut": True} if answer.cut else content


def _call_content(call: Call, candidate: Candidate) -> dict[str, Any]:
    content: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": call.arguments or {}}
    if call.arguments_text is not None:
        content["arguments_text"] = call.arguments_text
    if call.raw:
        content["raw"] = {**call.raw, "author": [candidate.provider.name, candidate.model]}
    return content


def _as_json(text: str) -> tuple[Any, str | None]:
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        bare = bare.split("\n", 1)[1].removesuffix("```")
    try:
        value = json.loads(bare)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None, "The answer was to be JSON and is not."
    return value, None
