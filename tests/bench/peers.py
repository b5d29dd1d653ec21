"""Compaction beside Microsoft Agent Framework's own: the same random histories through the same checker, and the times.

Its package does not belong into Lethe's environment. Make one for it and name its interpreter:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install agent-framework-core==1.23.0
    AGENT_FRAMEWORK_PYTHON=/tmp/peer/bin/python python -m tests.bench peers
"""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as example_settings

from agents.definition import Compaction
from sessions.context.compaction import plan
from tests.bench.figures import bar, table
from tests.sessions.context.histories import STRATEGIES, Thing, histories, provider_problems, turns_of

WORKER = Path(__file__).with_name("peer_worker.py")
HISTORIES = 300
SIZES = (250, 500, 1_000, 2_000)
PATIENCE = 120.0
# Like the worker's: more than about 8,000 tokens or 20 messages are too much.
OURS = {
    strategy: Compaction(strategy=strategy, trigger_tokens=8_000, trigger_messages=20, max_context_window_tokens=16_000, max_output_tokens=4_000)
    for strategy in STRATEGIES
    if strategy != "none"
}


def run() -> int:
    things = _histories()
    rows = [_ours(strategy, things) for strategy in OURS]
    missed = sum(row[1] for row in rows)
    python = os.environ.get("AGENT_FRAMEWORK_PYTHON", "")
    if python:
        asked = _ask(python, None, [])
        print(f"  beside agent-framework-core {asked['version']}, CPU seconds")
        rows += [_theirs(python, strategy, things) for strategy in asked["strategies"]]
    else:
        print("  Only ours: AGENT_FRAMEWORK_PYTHON names no interpreter. The head of tests/bench/peers.py says how to make one.")
    table(["strategy", "broken views", "of", *(f"s for {size:,} items" for size in SIZES), "most frequent"], rows)
    return bar("views of ours that break a rule", missed, 0)


def _histories() -> list[list[Thing]]:
    """The same histories in every run: turns with answers, parallel calls, reasoning."""
    found: list[list[Thing]] = []

    @example_settings(
        max_examples=HISTORIES, derandomize=True, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(histories(longest=30))
    def collect(things):
        found.append(things)

    collect()
    return found


def _sized(items: int) -> list[Thing]:
    return turns_of(*[40] * (items // 4), results=400)


def _ours(strategy: str, things: Sequence[list[Thing]]) -> list:
    broken: Counter[str] = Counter()
    views = 0
    for history in things:
        made = plan(history, OURS[strategy])
        problems = problems_of(history, [([item], item.role) for item in made.kept], has_summary=bool(made.summary_tokens))
        broken.update(set(problems))
        views += bool(problems)
    seconds = []
    for size in SIZES:
        sized = _sized(size)
        started = time.process_time()
        plan(sized, OURS[strategy])
        seconds.append(f"{time.process_time() - started:.3f}")
    return [f"Lethe, {strategy}", views, len(things), *seconds, _most(broken)]


def _theirs(python: str, strategy: str, things: Sequence[list[Thing]]) -> list:
    answer = _ask(python, strategy, things)
    if answer is None:
        return [f"Agent Framework, {strategy}", "-", len(things), *["-"] * len(SIZES), f"nothing after {PATIENCE:.0f} s"]
    broken: Counter[str] = Counter()
    views = 0
    for history, kept in zip(things, answer["kept"], strict=True):
        by_seq = {thing.seq: thing for thing in history}
        view = [([by_seq[seq] for seq in message["seqs"]], message["role"]) for message in kept]
        problems = problems_of(history, view)
        broken.update(set(problems))
        views += bool(problems)
    seconds = []
    for size in SIZES:
        timed = _ask(python, strategy, [_sized(size)]) if not seconds or seconds[-1] != "-" else None
        seconds.append(f"{timed['seconds'][0]:.3f}" if timed else "-")
    return [f"Agent Framework, {strategy}", views, len(things), *seconds, _most(broken)]


def _most(broken: Counter) -> str:
    return ", ".join(f"{number}x {problem}" for problem, number in broken.most_common(2)) or "nothing"


def problems_of(history: Sequence[Thing], view: Sequence[tuple[list[Thing], str]], *, has_summary: bool = False) -> list[str]:
    """The rules that a view of `history` breaks: (its items, role) of each message, no items for one that was written."""
    if not view:
        return ["nothing is shown"]
    shown, written = [], 0
    for things, role in view:
        if things:
            shown += things
        else:
            # A text of the strategy's own stands where it stands, as a message of its role.
            written += 1
            seq = shown[-1].seq if shown else 0
            shown.append(Thing(seq, "message", role, shown[-1].turn if shown else 0, -written, 1))
    found = []
    last = history[-1].turn
    if [thing for thing in history if thing.turn == last] != [thing for thing in shown if thing.turn == last and thing.group > 0]:
        found.append("the current turn is not whole")
    if not has_summary and (shown[0].kind != "message" or shown[0].role != "user"):
        found.append("does not begin with a subject's message")
    kept = {thing.seq for thing in shown}
    groups: dict[int, set[bool]] = {}
    for thing in history:
        groups.setdefault(thing.group, set()).add(thing.seq in kept)
    if any(len(fates) > 1 for fates in groups.values()):
        found.append("a call and what belongs to it were parted")
    # One group of ours is one answer: what was written by a strategy has a group to itself.
    own = [replace(thing, group=10**6 - thing.group) if thing.group < 0 else thing for thing in shown]
    return found + [problem.partition(":")[0] + " would refuse it" for problem in provider_problems(own, has_summary=has_summary)]


def _ask(python: str, strategy: str | None, things: Sequence[list[Thing]]) -> dict | None:
    question = {"strategy": strategy, "histories": [[asdict(thing) for thing in history] for history in things]}
    try:
        done = subprocess.run(
            [python, str(WORKER)], input=json.dumps(question), capture_output=True, text=True, timeout=PATIENCE, check=True, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)
