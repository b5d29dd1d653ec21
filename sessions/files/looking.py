"""Finding lines in files: by a pattern, and ranked by words. PostgreSQL does both, so no pattern can run away here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DataError, OperationalError, connection, transaction

from governance.domain import fences
from sessions.errors import EditRefused
from sessions.files.rows import RowFiles

MOST_LINES = 100
MOST_FILES = 50
# What one search reads of files whose words are not in the database's own index.
MOST_BYTES = 8 * 1024 * 1024
_MILLISECONDS = 3000
_CANCELED = "57014"
_WORD = re.compile(r"\w+")
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    number: int
    text: str
    score: float = 0.0


def grep(files: Sequence[tuple[str, str]], pattern: str, *, ignore_case: bool = False) -> list[Line]:
    """Lines that match a regular expression (PostgreSQL's), at most MOST_LINES. Raises EditRefused for a bad or slow one."""
    operator = "~*" if ignore_case else "~"
    rows = _asked(
        f"""
        SELECT file.path, line.number, left(line.text, {_SHOWN}) FROM unnest(%s::text[], %s::text[]) AS file(path, text),
            LATERAL unnest(string_to_array(file.text, E'\\n')) WITH ORDINALITY AS line(text, number)
        WHERE line.text {operator} %s ORDER BY 1, 2 LIMIT {MOST_LINES}
        """,
        [[path for path, _ in files], [text for _, text in files], pattern],
    )
    return [Line(path, number, text) for path, number, text in rows]


def search(files: RowFiles, query: str, *, folder: str = "/", limit: int = 10) -> list[Line]:
    """The lines that fit the query's words best, best first; a word also finds longer ones that begin with it.

    A line's score is its rank by PostgreSQL's full text search (ts_rank_cd, normalised to 0..1), raised by how well its file
    fits as a whole.
    """
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:20]
    if not words:
        raise EditRefused("Give words to look for.")
    wanted = " | ".join(f"'{word}':*" for word in words)
    texts = files.matching(wanted, folder=folder, limit=MOST_FILES, most=MOST_BYTES)
    rows = _asked(
        f"""
        WITH wanted AS (SELECT to_tsquery('simple', %s) AS query),
             file AS (SELECT path, text, ts_rank(to_tsvector('simple', left(text, 262144)), wanted.query, 32) AS rank
                      FROM unnest(%s::text[], %s::text[]) AS file(path, text), wanted)
        SELECT file.path, line.number, left(line.text, {_SHOWN}),
            (ts_rank(to_tsvector('simple', line.text), wanted.query, 32) + file.rank) / 2 AS score
        FROM file, wanted, LATERAL unnest(string_to_array(file.text, E'\\n')) WITH ORDINALITY AS line(text, number)
        WHERE to_tsvector('simple', line.text) @@ wanted.query ORDER BY score DESC, 1, 2 LIMIT %s
        """,
        [wanted, [path for path, _ in texts], [text for _, text in texts], limit],
    )
    return [Line(path, number, text, round(score, 4)) for path, number, text, score in rows]


def _asked(statement: str, values: list) -> list[tuple]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {_MILLISECONDS}")
            cursor.execute(statement, values)
            return cursor.fetchall()
    except DataError as error:
        raise EditRefused(f"This is no regular expression: {str(error).splitlines()[0]}.") from error
    except OperationalError as error:
        if fences.sqlstate(error) != _CANCELED:
            raise
        raise EditRefused("The search took too long. Use a simpler pattern, or look in one folder.") from error
