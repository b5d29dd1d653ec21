"""What a purge leaves of a search by meaning: half the vectors of a table go at once, as an erased person's would.

Lethe keeps no vectors of its own yet; the table is the bench's, and is cleaned by what cleans every table of an erasure.
LETHE_BENCH_VECTORS sets how many there are.
"""

import os
import time

from django.db import connection

from governance import database_roles
from governance.domain import purge
from tests.bench.figures import bar, table

ROWS = int(os.environ.get("LETHE_BENCH_VECTORS", "20000"))
DIMENSIONS, CLUSTERS, QUERIES, TOP = 64, 200, 100, 10
# Texts of one matter lie together, as embeddings do: each vector is near the middle of one of the clusters.
_MAKE = f"""
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE bench_vector (id bigint PRIMARY KEY, of_erased boolean NOT NULL, embedding vector({DIMENSIONS}) NOT NULL);
CREATE FUNCTION bench_point(spread float8) RETURNS float8[] LANGUAGE sql VOLATILE
  AS $$ SELECT array_agg(spread * random_normal()) FROM generate_series(1, {DIMENSIONS}) $$;
CREATE TEMPORARY TABLE middle AS SELECT number, bench_point(1) AS point FROM generate_series(1, {CLUSTERS}) AS number;
INSERT INTO bench_vector
  SELECT row, row %% 2 = 0, (SELECT array_agg(a + b) FROM unnest(middle.point, bench_point(0.35 + 0 * row)) AS pair(a, b))::vector
  FROM generate_series(1, %s) AS row JOIN middle ON middle.number = 1 + row %% {CLUSTERS};
CREATE INDEX bench_vector_hnsw ON bench_vector USING hnsw (embedding vector_cosine_ops);
"""
_NEAREST = "SELECT id FROM bench_vector ORDER BY embedding <=> %s::vector LIMIT %s"


def run() -> int:
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute("SELECT setseed(0.5)")
        cursor.execute(_MAKE, [ROWS])
    # Before anything is gone: half of the questions are near what will be.
    questions = _rows("SELECT embedding::text FROM bench_vector ORDER BY id LIMIT %s", [QUERIES])
    before = _measure(questions)
    _rows("DELETE FROM bench_vector WHERE of_erased RETURNING 1", [])
    deleted = _measure(questions)
    started = time.perf_counter()
    purge.clean_table("bench_vector")
    took = time.perf_counter() - started
    purged = _measure(questions)
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute("DROP INDEX bench_vector_hnsw")
        cursor.execute("CREATE INDEX bench_vector_hnsw ON bench_vector USING hnsw (embedding vector_cosine_ops)")
    fresh = _measure(questions)
    with database_roles.as_owner(), connection.cursor() as cursor:
        cursor.execute("DROP TABLE bench_vector; DROP FUNCTION bench_point")
    found = {"before": before, "half deleted": deleted, "purged": purged, "fresh index": fresh}
    table([f"{ROWS} vectors", "fewest of 10", "recall"], [[name, *figures] for name, figures in found.items()])
    print(f"  cleaned in {took:.1f} s")
    return bar("fewest answers after a purge", purged[0], TOP, at_least=True) + bar(
        "recall after a purge, of a fresh index's", purged[1] / fresh[1], 0.95, at_least=True
    )


def _measure(questions) -> tuple[int, float]:
    """The fewest answers to a question, and the share of the nearest that are among them."""
    counts, hits = [], 0
    for (question,) in questions:
        near = {row for (row,) in _rows(_NEAREST, [question, TOP])}
        exact = {row for (row,) in _exactly(question)}
        counts.append(len(near))
        hits += len(near & exact)
    return min(counts), hits / (TOP * len(questions))


def _exactly(question):
    with connection.cursor() as cursor:
        cursor.execute("SET enable_indexscan = off")
        try:
            cursor.execute(_NEAREST, [question, TOP])
            return cursor.fetchall()
        finally:
            cursor.execute("RESET enable_indexscan")


def _rows(statement, values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()
