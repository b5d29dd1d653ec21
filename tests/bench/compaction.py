"""Planning: every strategy over histories of growing length."""

import time

from agents.definition import Compaction
from sessions.context.compaction import plan
from tests.bench.figures import bar, table
from tests.sessions.context.histories import STRATEGIES, turns_of

SIZES = (1_000, 2_000, 4_000, 10_000)
# Planning 10,000 items; and ten times the items for at most this many times the seconds.
SECONDS, GROWTH = 0.3, 15


def run() -> int:
    return _planning()


def _planning() -> int:
    rows, missed = [], 0
    for strategy in STRATEGIES:
        chosen = Compaction(strategy=strategy, trigger_tokens=8_000, max_context_window_tokens=32_000, max_output_tokens=4_000)
        times = [_best(chosen, number) for number in SIZES]
        rows.append([strategy, *(f"{seconds * 1000:.1f}" for seconds in times)])
        missed += times[-1] > SECONDS or times[-1] > GROWTH * times[0]
    table(["strategy, ms for items:", *map(str, SIZES)], rows)
    return bar("strategies that plan 10,000 items too slowly, or not linearly", missed, 0)


def _best(chosen: Compaction, number: int) -> float:
    """Seconds for a plan of `number` items, a call with its result in every turn."""
    things = turns_of(*[40] * (number // 4), results=400)
    best = float("inf")
    for _ in range(7):
        started = time.process_time()
        plan(things, chosen)
        best = min(best, time.process_time() - started)
    return best
