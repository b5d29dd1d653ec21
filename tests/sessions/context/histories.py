"""Random histories as sessions store them, and what every plan must keep to, under each provider's message rules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from agents.definition import Compaction
from sessions.context.compaction import SHORTENED_TOKENS, Plan
from tests.wire import rules

STRATEGIES = ["none", "sliding_window", "truncation", "tool_result", "summarization", "context_window", "pipeline"]


@dataclass(frozen=True, slots=True)
class Thing:
    """An item as planners see it, and the id of its call for the rules."""

    seq: int
    kind: str
    role: str
    turn: int
    group: int
    tokens: int
    call: str = ""


@dataclass
class _Builder:
    things: list[Thing]
    turn: int

    def put(self, kind: str, role: str, tokens: int, group: int | None = None, call: str = "") -> Thing:
        seq = (self.things[-1].seq if self.things else 0) + 1
        self.things.append(Thing(seq, kind, role, self.turn, group or seq, tokens, call))
        return self.things[-1]


def turns_of(*sizes: int, results: int = 0) -> list[Thing]:
    """Plain turns: a question and an answer of the given size, with a tool result of `results` tokens if asked for."""
    built = _Builder([], 0)
    for size in sizes:
        built.turn += 1
        built.put("message", "user", size)
        if results:
            call = built.put("tool_call", "assistant", 10, call=f"call_{built.turn}")
            built.put("tool_result", "tool", results, call.group, call.call)
        built.put("message", "assistant", size)
    return built.things


@st.composite
def histories(draw, *, longest: int = 14) -> list[Thing]:
    """Turns with answers, parallel calls, reasoning; the last one may be unfinished."""
    built = _Builder([], draw(st.sampled_from([0, 0, 0, 7, 100])))
    size = st.integers(1, 300)
    number = draw(st.integers(1, longest))
    for index in range(number):
        built.turn += 1
        built.put("message", "user", draw(size))
        for _ in range(draw(st.integers(0, 3))):
            _step(draw, built, size)
        if index < number - 1 or draw(st.booleans()):
            built.put("message", "assistant", draw(size))
    return built.things


def _step(draw, built: _Builder, size) -> None:
    """An answer with calls, and their results in any order."""
    group = None
    if draw(st.booleans()):
        group = built.put("message" if draw(st.booleans()) else "reasoning", "assistant", draw(size)).group
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        call = built.put("tool_call", "assistant", draw(size), group, f"call_{len(built.things)}")
        group = call.group
        calls.append(call)
    for call in draw(st.permutations(calls)):
        built.put("tool_result", "tool", draw(st.integers(1, 2000)), group, call.call)


def opened(draw, things: list[Thing]) -> tuple[list[Thing], frozenset[int]]:
    """The same history with calls that wait for a person: their results are not there yet."""
    calls = [thing for thing in things if thing.kind == "tool_call"]
    waiting = draw(st.sets(st.sampled_from([call.group for call in calls]), max_size=2)) if calls else set()
    left = [thing for thing in things if not (thing.kind == "tool_result" and thing.group in waiting)]
    return left, frozenset(waiting)


limits = st.none() | st.integers(1, 4000)
settings = st.builds(
    Compaction,
    strategy=st.sampled_from(STRATEGIES),
    trigger_tokens=limits,
    trigger_messages=st.none() | st.integers(1, 30),
    trigger_turns=st.none() | st.integers(1, 12),
    minimum_preserved_turns=st.integers(1, 6),
    minimum_preserved_groups=st.integers(1, 10),
    max_context_window_tokens=st.integers(600, 9000),
    max_output_tokens=st.none() | st.integers(1, 500),
    tool_eviction_threshold=st.floats(0.1, 1),
    truncation_threshold=st.floats(0.1, 1),
)


# What must hold


def broken(plan: Plan[Thing], things: Sequence[Thing], *, waiting: frozenset[int] = frozenset()) -> list[str]:
    """The invariants that a plan for `things` does not keep."""
    kept = plan.kept
    found = _accounts(plan, things)
    last = things[-1].turn
    if [thing for thing in things if thing.turn == last] != [thing for thing in kept if thing.turn == last]:
        found.append("the current turn is not whole")
    if any(thing.group in waiting for thing in (*plan.dropped, *plan.summarised)):
        found.append("an open call was touched")
    groups = [{thing.group for thing in part} for part in (kept, plan.dropped, plan.summarised)]
    if groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2]:
        found.append("a group was split")
    if kept[0].kind != "message" or kept[0].role != "user":
        found.append("the view does not begin with a subject's message")
    if plan.summarised and not waiting and any(thing.seq < plan.summarised[-1].seq for thing in kept):
        found.append("something is kept from before the summary")
    return found + provider_problems(kept, waiting=waiting, has_summary=bool(plan.summary_tokens))


def _accounts(plan: Plan[Thing], things: Sequence[Thing]) -> list[str]:
    found = []
    together = sorted((*plan.kept, *plan.dropped, *plan.summarised), key=lambda thing: thing.seq)
    if together != list(things):
        found.append("an item is lost or doubled")
    if [thing.seq for thing in plan.kept] != sorted(thing.seq for thing in plan.kept):
        found.append("the order changed")
    if plan.after != plan.summary_tokens + sum(thing.tokens for thing in shown(plan)):
        found.append("the tokens after are not what is there")
    if plan.after > plan.before:
        found.append("there are more tokens than before")
    for thing in plan.kept:
        if thing.seq in plan.shortened and (thing.kind != "tool_result" or thing.tokens <= SHORTENED_TOKENS):
            found.append("something else than a long tool result was shortened")
    return found


def shown(plan: Plan[Thing]) -> list[Thing]:
    """The items that stay, with the size that they have then."""
    return [replace(thing, tokens=SHORTENED_TOKENS) if thing.seq in plan.shortened else thing for thing in plan.kept]


# Providers' rules


def provider_problems(things: Sequence[Thing], *, waiting: frozenset[int] = frozenset(), has_summary: bool = False) -> list[str]:
    """What OpenAI, Anthropic and Google would refuse. A call that waits has a stand-in result, as in live calls."""
    messages = [("user", [], []) for _ in range(has_summary)]
    for group in _groups(things):
        calls = [thing.call for thing in group if thing.kind == "tool_call"]
        results = [thing.call for thing in group if thing.kind == "tool_result"]
        if group[0].role == "user":
            messages.append(("user", [], []))
        else:
            messages.append(("assistant", calls, []))
        if group[0].group in waiting:
            results = calls
        if results:
            messages.append(("results", [], results))
    if messages[-1][0] == "assistant":
        # The next thing that happens: the subject writes again.
        messages.append(("user", [], []))
    return [
        *(f"openai: {problem}" for problem in rules.openai_problems(_openai(messages))),
        *(f"anthropic: {problem}" for problem in rules.anthropic_problems(_anthropic(messages))),
        *(f"gemini: {problem}" for problem in rules.gemini_problems(_gemini(messages))),
    ]


def _groups(things: Sequence[Thing]) -> list[list[Thing]]:
    found: dict[int, list[Thing]] = {}
    for thing in things:
        found.setdefault(thing.group, []).append(thing)
    return list(found.values())


def _openai(messages) -> list[dict]:
    found = []
    for kind, calls, results in messages:
        if kind == "results":
            found += [{"role": "tool", "tool_call_id": call, "content": "x"} for call in results]
        else:
            found.append({"role": kind, "content": "x", "tool_calls": [{"id": call} for call in calls]})
    return found


def _anthropic(messages) -> list[dict]:
    found: list[dict] = []
    for kind, calls, results in messages:
        blocks = [{"type": "tool_result", "tool_use_id": call} for call in results] or [{"type": "text", "text": "x"}]
        blocks += [{"type": "tool_use", "id": call} for call in calls]
        role = "assistant" if kind == "assistant" else "user"
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        else:
            found.append({"role": role, "content": blocks})
    return found


def _gemini(messages) -> list[dict]:
    found: list[dict] = []
    order: list[str] = []
    for kind, calls, results in messages:
        if kind == "results":
            # By name and in the order of the calls: what is written for a call that has none would be missing here.
            parts = [{"functionResponse": {"name": call}} for call in order if call in results]
            parts += [{"functionResponse": {"name": call}} for call in results if call not in order]
        else:
            parts = [{"text": "x"}, *({"functionCall": {"name": call}} for call in calls)]
        order = calls or order
        role = "model" if kind == "assistant" else "user"
        if found and found[-1]["role"] == role:
            found[-1]["parts"] += parts
        else:
            found.append({"role": role, "parts": parts})
    return found
