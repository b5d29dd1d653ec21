"""People's pasts of any length in a minute: rows as the product leaves them, made by the database, with every guard on.

A session has `TURNS` turns. Each is two messages, a run with its events and its model call, and a vector for each message,
in a table of the bench's own: Lethe keeps no vectors yet, and an erasure of what it will keep is measured all the same.
"""

import random
from dataclasses import dataclass
from datetime import date

from django.apps.registry import Apps
from django.db import connection, models, transaction

from governance import database_roles, triggers
from governance.domain.category import NoLimit, Processing
from governance.domain.tables import TableCategory

TURNS = 50
EVENTS = ("run.started", "context.assembled", "message.completed", "run.completed")
DIMENSIONS = 384
# The session itself; per turn two messages with their vectors, the run, its events and its model call.
ROWS = 1 + TURNS * (2 + 2 + 1 + len(EVENTS) + 1)
_AT_ONCE = 50
_TABLES = ("bench_embedding", *(f"agent_sessions_{name}" for name in ("session", "item", "run", "runevent", "modelcall")))


class Embedding(models.Model):
    """A vector for each message. Of no app: only the bench that makes its table knows it."""

    id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    session_id = models.UUIDField()

    class Meta:
        apps, app_label, db_table = Apps(), "bench", "bench_embedding"

    def __str__(self):
        return str(self.id)


EMBEDDINGS = TableCategory(
    key="embeddings",
    title="Vectors of messages",
    model=Embedding,
    order=("id",),
    group_of=("sessions", "session_id"),
    about=Processing(purposes=("find earlier messages",), legal_basis="contract"),
    limit=NoLimit("they follow their sessions", date(2099, 1, 1)),
)


@dataclass(frozen=True)
class Person:
    """Whose past it is: rows of one subject with one agent."""

    agent: object
    subject: object


def make_vectors() -> None:
    """The table of vectors, guarded as those of the product are. Idempotent."""
    with database_roles.as_owner(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('bench_embedding')")
        if cursor.fetchone()[0]:
            return
        cursor.execute(_VECTORS)
        cursor.execute(triggers.guard("bench_embedding").sql)
        hold = triggers.hold_guard(
            "bench_embedding", category="embeddings", root="'sessions'", content=("embedding",), roots="ARRAY[OLD.id, OLD.session_id]"
        )
        cursor.execute(hold.sql)


def fill(person: Person, *, rows: int, days_ago: int = 0, ended: bool = False) -> int:
    """Give a person at least so many rows; returns how many. The newest is `days_ago` days old, the oldest a year more."""
    make_vectors()
    sessions = -(-rows // ROWS)
    values = {
        "tenant": person.agent.tenant_id, "agent": person.agent.id, "version": person.agent.published_id,
        "subject": person.subject.id, "turns": TURNS, "events": list(EVENTS), "book": _book(), "count": sessions,
        "days_ago": days_ago, "ended": ended,
    }  # fmt: skip
    for start in range(0, sessions, _AT_ONCE):
        numbers = {"first": start + 1, "last": min(start + _AT_ONCE, sessions)}
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in (_SESSIONS, _RUNS, _ITEMS, _VECTORS_OF, _EVENTS_OF, _CALLS):
                cursor.execute(statement, {**values, **numbers})
    with connection.cursor() as cursor:
        # As it was long ago for most of a past: nobody reads rows for the first time.
        cursor.execute(f"VACUUM (ANALYZE) {', '.join(_TABLES)}")
        # Nor is any page as it was written ahead a moment ago: the first change of each is written whole.
        cursor.execute("CHECKPOINT")
    return sessions * ROWS


def _book() -> str:
    """Prose of invented words, of which each message quotes another passage."""
    chance = random.Random(5)
    syllables = ("lo", "rem", "ip", "sum", "do", "lor", "sit", "am", "et", "con", "sec", "te", "tur", "vel", "na")
    words = ("".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(900))
    return " ".join(words)


_VECTORS = f"""
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE bench_embedding (
  id uuid PRIMARY KEY DEFAULT uuidv7(), tenant_id uuid NOT NULL, subject_id uuid, session_id uuid NOT NULL,
  embedding vector({DIMENSIONS}) NOT NULL);
CREATE INDEX bench_embedding_of_subject ON bench_embedding (tenant_id, subject_id);
CREATE INDEX bench_embedding_of_session ON bench_embedding (session_id);
CREATE TABLE bench_point AS
  SELECT number, (SELECT array_agg(random_normal() + 0 * (number + d)) FROM generate_series(1, {DIMENSIONS}) AS d)::vector AS point
  FROM generate_series(1, 500) AS number;
"""
_TEXT = "substr(%(book)s, 1 + abs(hashtext(s.id::text || {n})) %% 3000, 20 + abs(hashtext({n} || s.key)) %% 400)"
_AT = "s.created_at + n * interval '40 s'"
# Of this round, by key.
_ROUND = (
    "agent_sessions_session s CROSS JOIN generate_series(1, %(turns)s) AS n"
    " WHERE s.tenant_id = %(tenant)s AND s.agent_id = %(agent)s AND s.subject_id = %(subject)s"
    " AND s.key = ANY(SELECT 'past-' || number FROM generate_series(%(first)s, %(last)s) AS number)"
)
_SESSIONS = """
INSERT INTO agent_sessions_session (id, tenant_id, agent_id, subject_id, key, title, labels, status, created_at, last_active_at,
  ended_at, version, head_seq, turns, shared, state, task, task_version)
SELECT uuidv7(), %(tenant)s, %(agent)s, %(subject)s, 'past-' || number, left(%(book)s, 20 + number %% 60), '{}',
  CASE WHEN %(ended)s THEN 'closed' ELSE 'open' END, at, at + interval '1 hour', CASE WHEN %(ended)s THEN at + interval '1 hour' END,
  2 * %(turns)s, 2 * %(turns)s, %(turns)s, '[]', '{"schema": 1}', '{}', 0
FROM (SELECT number, now() - interval '2 hours' - make_interval(days => %(days_ago)s)
             - (%(count)s - number) * interval '365 days' / %(count)s AS at
      FROM generate_series(%(first)s, %(last)s) AS number) AS planned
"""
_RUNS = f"""
INSERT INTO agent_sessions_run (id, tenant_id, subject_id, epoch, agent_id, version_id, session_id, status, first_seq, request,
  started_by, actor_kind, actor_ref, labels, metadata, created_at, started_at, ended_at, attempts, cancel_reason, effects, priority,
  model_name, model_calls, tool_calls, input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost)
SELECT uuidv7(), s.tenant_id, s.subject_id, 0, s.agent_id, %(version)s, s.id, 'completed', 2 * n - 1, '{{}}', 'an application', 'key',
  'key_' || s.agent_id, '{{}}', jsonb_build_object('request', n), {_AT}, {_AT}, {_AT} + interval '3 s', 1, '', '[]', 0,
  'demo', 1, 0, 400 + n * 30, n * 20, 80, 0, 0.0012
FROM {_ROUND} ORDER BY s.id, n
"""
_OF_RUN = "JOIN agent_sessions_run r ON r.session_id = s.id AND r.first_seq = 2 * n - 1"
_ROUND_WITH_RUNS = _ROUND.replace(" WHERE", f" {_OF_RUN} WHERE", 1)
_ITEMS = f"""
INSERT INTO agent_sessions_item (session_id, seq, tenant_id, subject_id, run_id, kind, role, turn, "group", tokens, content, is_hidden,
  created_at)
SELECT s.id, 2 * n - 1 + side, s.tenant_id, s.subject_id, r.id, 'message', CASE side WHEN 0 THEN 'user' ELSE 'assistant' END, n,
  2 * n - 1 + side, 40 + n %% 60, jsonb_build_object('text', {_TEXT.format(n="(2 * n + side)")}), false, {_AT} + side * interval '3 s'
FROM {_ROUND_WITH_RUNS.replace(" WHERE", " CROSS JOIN generate_series(0, 1) AS side WHERE", 1)} ORDER BY s.id, n, side
"""
_VECTORS_OF = f"""
INSERT INTO bench_embedding (tenant_id, subject_id, session_id, embedding)
SELECT s.tenant_id, s.subject_id, s.id, p.point
FROM {_ROUND.replace(" WHERE", " CROSS JOIN generate_series(0, 1) AS side JOIN bench_point p ON p.number = 1 + abs(hashtext(s.id::text || (2 * n + side))) %% 500 WHERE", 1)}
ORDER BY s.id, n, side
"""
_EVENTS_OF = f"""
INSERT INTO agent_sessions_runevent (run_id, seq, tenant_id, subject_id, type, data, at)
SELECT r.id, seq, s.tenant_id, s.subject_id, type,
  jsonb_build_object('call', 1, 'item_seq', 2 * n, 'session_key', s.key, 'tokens', 400 + n * 30), {_AT} + seq * interval '0.7 s'
FROM {_ROUND_WITH_RUNS.replace(" WHERE", " CROSS JOIN unnest(%(events)s::text[]) WITH ORDINALITY AS told(type, seq) WHERE", 1)}
ORDER BY r.id, seq
"""
_CALLS = f"""
INSERT INTO agent_sessions_modelcall (id, tenant_id, subject_id, run_id, agent_id, number, provider, model, input_tokens,
  cached_tokens, output_tokens, reasoning_tokens, is_estimated, cost, prices, context, duration_ms, at)
SELECT uuidv7(), s.tenant_id, s.subject_id, r.id, s.agent_id, 1, 'demo', 'demo', 400 + n * 30, n * 20, 80, 0, false, 0.0012,
  '{{"source": "operator", "input": "0.25", "output": "2.00"}}',
  jsonb_build_array(jsonb_build_object('layer', 'history', 'tokens', n * 30, 'sources', jsonb_build_array(1, 2 * n - 1))), 2900, {_AT}
FROM {_ROUND_WITH_RUNS} ORDER BY r.id
"""
