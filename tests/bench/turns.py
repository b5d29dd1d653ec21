"""What a turn costs beside the bare model call, at 10, 100, 1,000 and 10,000 turns; and what it adds to the database.

Both sides ask the same model through the same client on the same event loop: a server of the OpenAI protocol on
loopback that answers at once. "Bare" sends the messages that the turn's view contains and reads the answer; "turn" is
everything from the request to the stored end. The view is bounded by the agent's window, as in any long session.
"""

import time

from django.db import connection

from agents.domain import definitions, providers
from governance.actors import system
from governance.domain import subjects, tenants
from sessions.domain import history, runs
from sessions.domain import sessions as session_verbs
from sessions.domain.runs import RunRequest
from sessions.engine import runner
from sessions.models import Item, ModelCall, Run, RunEvent, Session
from tests.bench import bare
from tests.bench.figures import bar, median, percentile, table
from tests.wire.replies import Say
from tests.wire.threaded import serving

LENGTHS = (10, 100, 1_000, 10_000)
# Bare calls and turns take each other's place every so often: the machine's moods meet both, and each is as warm as in a row.
ROUNDS, IN_A_ROW = 60, 10
WINDOW = 4096
_TABLES = ("agent_sessions_item", "agent_sessions_run", "agent_sessions_runevent", "agent_sessions_modelcall", "agent_sessions_session")
QUESTION = "What is the state of the delivery that was promised for this week, and who was told about it?"
ANSWER = "The delivery left on Tuesday and arrives on Friday. The customer was told by mail on the same day."


class Answers(list):
    """A script without end: every request gets the same answer, in one piece."""

    def pop(self, index=-1):
        return Say([ANSWER], usage=(400, 0, 22, 0))

    def __bool__(self):
        return True


def run() -> int:
    tenant = tenants.create_tenant(slug="bench", name="Bench")
    by = system(tenant.id)
    answers = Answers()
    with serving("chat") as provider:
        provider.script = answers
        agent = _agent(tenant, by, provider.base_url)
        subject = subjects.resolve(tenant_id=tenant.id, value="bench")
        figures = {length: _measure(agent, subject, by, length) for length in LENGTHS}
    return _report(figures)


def _agent(tenant, by, url):
    providers.create_provider(tenant_id=tenant.id, by=by, name="local", kind="openai_compatible", base_url=url, models=[{"name": "m", "context_window": WINDOW, "max_output_tokens": 256}])
    document = {
        "name": "bench", "instructions": "You answer briefly.",
        "model": {"provider": "local", "model": "m", "max_output_tokens": 256},
    }  # fmt: skip
    agent = definitions.create_agent(tenant_id=tenant.id, document=document, by=by)
    definitions.publish(agent=agent, note="bench", by=by)
    return agent


def _measure(agent, subject, by, length: int) -> dict:
    key = f"length-{length}"
    session, _ = session_verbs.get_or_create(agent=agent, key=key, subject=subject, by=by)
    _fill(session, length - 1)
    for _ in range(5):
        _turn(agent, key, subject, by)
    _vacuum()
    before, turns, bares = _sizes(), [], []
    for _ in range(ROUNDS // IN_A_ROW):
        bares += [bare.call(agent, session) for _ in range(IN_A_ROW)]
        turns += [_turn(agent, key, subject, by) for _ in range(IN_A_ROW)]
    after = _sizes()
    return {
        "bare": bares, "turn": turns,
        "rows": {name: (after[name][0] - before[name][0]) / ROUNDS for name in _TABLES},
        "bytes": sum(after[name][1] - before[name][1] for name in _TABLES) / ROUNDS,
        "load": _load(session),
    }  # fmt: skip


def _fill(session: Session, turns: int) -> None:
    """History as that many turns would have left it."""
    tokens = {"user": 20, "assistant": 22}
    for start in range(0, turns, 500):
        entries = []
        for turn in range(start + 1, min(start + 500, turns) + 1):
            for role, text in (("user", QUESTION), ("assistant", ANSWER)):
                entries.append(history.NewItem(kind="message", role=role, content={"text": text}, turn=turn, group=2 * turn - (role == "user"), tokens=tokens[role]))
        history.insert(session=session, first_seq=2 * start + 1, entries=entries)
    Session.objects.filter(id=session.id).update(head_seq=2 * turns, turns=turns, version=turns)


def _turn(agent, key, subject, by) -> float:
    started = time.perf_counter()
    run_ = runs.start(agent_name=agent.name, request=RunRequest(message=QUESTION, session_key=key), by=by, subject=subject)
    runner.runner().wait(run_.id)
    took = (time.perf_counter() - started) * 1000
    status = Run.objects.values_list("status", flat=True).get(id=run_.id)
    assert status == Run.Status.COMPLETED, status
    return took


def _load(session: Session) -> float:
    session.refresh_from_db()
    times = []
    for _ in range(20):
        started = time.perf_counter()
        history.load_tail(session=session, token_budget=WINDOW)
        times.append((time.perf_counter() - started) * 1000)
    return median(times)


def _sizes() -> dict[str, tuple[int, int]]:
    """Rows, and bytes of live rows with their index entries, by table. Deltas are folded first, as the sweeper does."""
    from sessions.domain import events

    while events.fold(older_than_seconds=-5):
        pass
    counts = {"agent_sessions_item": Item, "agent_sessions_run": Run, "agent_sessions_runevent": RunEvent, "agent_sessions_modelcall": ModelCall, "agent_sessions_session": Session}
    found = {}
    with connection.cursor() as cursor:
        for name in _TABLES:
            cursor.execute(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {name} t")
            heap = cursor.fetchone()[0]
            cursor.execute("SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass", [name])
            rows = counts[name].objects.count()
            # An entry of a B-tree on UUIDs takes about 40 bytes.
            found[name] = (rows, int(heap) + rows * cursor.fetchone()[0] * 40)
    return found


def _vacuum() -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _report(figures: dict) -> int:
    payload = len((QUESTION + ANSWER).encode())
    rows = []
    for length, found in figures.items():
        overhead = median(found["turn"]) - median(found["bare"])
        rows.append([length, median(found["bare"]), median(found["turn"]), overhead, percentile(found["turn"], 0.95), found["load"], sum(found["rows"].values()), found["bytes"] - payload])
    table(["turns", "bare ms", "turn ms", "overhead ms", "turn p95", "load ms", "rows/turn", "bytes/turn - payload"], rows)
    by_length = {row[0]: row for row in rows}
    missed = sum(bar(f"overhead at {length} turns", row[3], 12, " ms") for length, row in by_length.items())
    missed += bar("whole turn, 10,000 against 100 turns", by_length[10_000][2] / by_length[100][2], 1.3, "x")
    missed += bar("bytes per turn, 10,000 against 100 turns", by_length[10_000][7] / by_length[100][7], 1.1, "x")
    missed += bar("bytes per turn beside the payload", by_length[10_000][7], 1536, " B")
    missed += bar("rows per turn, most against least", max(row[6] for row in rows) / min(row[6] for row in rows), 1.0001, "x")
    return missed


