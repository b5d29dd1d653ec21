"""Compaction: planning histories of growing length, loading a long session, and living one."""

import gc
import time

from django.db import connection

from agents.definition import Compaction
from agents.domain.demo import seed_demo_agents
from agents.queries import agent_named
from governance.actors import system
from governance.domain import tenants
from sessions.context.compaction import plan
from sessions.domain import history, summaries
from tests.bench.figures import bar, median, table
from tests.factories import sessions
from tests.sessions.context.histories import STRATEGIES, turns_of
from tests.sessions.context.long_session import SETTINGS, live

SIZES = (1_000, 2_000, 4_000, 10_000)
# Planning 10,000 items; and ten times the items for at most this many times the seconds.
SECONDS, GROWTH = 0.3, 15
TURNS = 10_000


def run() -> int:
    return _planning() + _loading() + _living()


def _planning() -> int:
    # What was loaded before is not looked through again while a plan is made: it would be timed with the larger ones only.
    gc.collect()
    gc.freeze()
    rows, missed = [], 0
    for strategy in STRATEGIES:
        chosen = Compaction(strategy=strategy, trigger_tokens=8_000, max_context_window_tokens=32_000, max_output_tokens=4_000)
        times = [_best(chosen, number) for number in SIZES]
        rows.append([strategy, *(f"{seconds * 1000:.1f}" for seconds in times)])
        missed += times[-1] > SECONDS or times[-1] > GROWTH * times[0]
    table(["strategy, ms for items:", *map(str, SIZES)], rows)
    return bar("strategies that plan 10,000 items too slowly, or not linearly", missed, 0)


def _loading() -> int:
    """The newest summary and the items after it, at the end of a short and of a long session."""
    tenant = tenants.create_tenant(slug="compaction", name="Compaction")
    seed_demo_agents(tenant_id=tenant.id, by=system(tenant.id))
    agent = agent_named(tenant_id=tenant.id, name="research")
    rows = []
    for turns in (100, TURNS):
        session = sessions.session(agent)
        sessions.turns(session, turns)
        sessions.summary(session, session.head_seq - 20)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE agent_sessions_item")
        times = []
        for _ in range(200):
            started = time.perf_counter()
            stored = summaries.newest(session)
            loaded = history.load_tail(session=session, token_budget=200_000, after_seq=stored.to_seq)
            times.append((time.perf_counter() - started) * 1000)
        rows.append([turns, len(loaded), median(times), min(times)])
    table(["turns", "items read", "load ms", "fastest"], rows)
    return bar("load with a summary at 10,000 turns", rows[-1][2], 5, " ms")


def _living() -> int:
    """A session of 10,000 turns on a window of 16,000 tokens."""
    lived = live(TURNS)
    table(
        ["turns", "tokens said", "summaries", "largest view", "room"],
        [[lived.turns, lived.said, lived.summaries, lived.most, lived.limit]],
    )
    windows = lived.said / SETTINGS.trigger_tokens
    return bar("views that did not fit", lived.misfits, 0) + bar("summaries for each trigger's worth of tokens", lived.summaries / windows, 2)


def _best(chosen: Compaction, number: int) -> float:
    """Seconds for a plan of `number` items, a call with its result in every turn."""
    things = turns_of(*[40] * (number // 4), results=400)
    best = float("inf")
    for _ in range(7):
        started = time.process_time()
        plan(things, chosen)
        best = min(best, time.process_time() - started)
    return best
