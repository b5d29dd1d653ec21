"""History: appending items, loading what a run needs of them, and paging through them.

Items are append-only. A session reads its own items and, after a fork, ranges of its ancestors' (`Session.shared`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from psycopg.types.json import Jsonb

from governance import sealing, sql, subject_keys
from governance.errors import Invalid
from sessions.models import Item, Session

_PAGE = 256
# After every seq.
_LAST = 2**62
_OUTLINE_ROWS = 5_000
_READ_THROUGH = 5_000
_CONTENT = Item._meta.get_field("content")
_COLUMNS = ("seq", "kind", "role", "turn", "group", "tokens", "content")


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be appended. `turn` and `group` are final; `seq` is given by `append`."""

    kind: str
    role: str
    content: dict
    turn: int
    group: int
    tokens: int = 0
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Items in order, oldest first, and the cursors of what lies before and after."""

    items: list[Item]
    next_cursor: str | None
    previous_cursor: str | None


def segments(session: Session) -> list[tuple[UUID, int, int]]:
    """Where the session's items are: (session id, first seq, last seq), oldest first, its own last."""
    shared = [(UUID(owner), first, last) for owner, first, last in session.shared]
    start = shared[-1][2] + 1 if shared else 1
    return [*shared, (session.id, start, session.head_seq)]


def insertion(*, session: Session, first_seq: int, entries: list[NewItem]) -> sql.Write:
    """Writes items with the seqs from `first_seq` on. The caller holds the session's row."""
    rows = [
        (
            session.id, first_seq + offset, session.tenant_id, session.subject_id, entry.run_id, entry.kind,
            entry.role, entry.turn, entry.group, entry.tokens, Jsonb(_CONTENT.sealed(entry.content, session)),
        )
        for offset, entry in enumerate(entries)
    ]  # fmt: skip
    return sql.Write(
        'INSERT INTO agent_sessions_item (session_id, seq, tenant_id, subject_id, run_id, kind, role, turn, "group", '
        "tokens, content, is_hidden) VALUES " + ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, false)"] * len(rows)),
        [value for row in rows for value in row],
    )


def insert(*, session: Session, first_seq: int, entries: list[NewItem]) -> None:
    """`insertion`, done."""
    insertion(session=session, first_seq=first_seq, entries=entries).run()


def newest(*, session: Session, after_seq: int = 0) -> sql.Write:
    """Reads the first page of `load_tail`, for a batch with other reads or the writes that append to it."""
    owner, first, _ = segments(session)[-1]
    return sql.Write(_NEWEST, [owner, max(first, after_seq + 1), _LAST, _PAGE])


def load_tail(*, session: Session, token_budget: int, after_seq: int = 0, page: list[tuple] | None = None) -> list[tuple]:
    """The newest items that fit `token_budget`, whole turns only, oldest first, as tuples of `_COLUMNS`. `page` has the
    rows of `newest`, if they are there already.

    Reads newest first and stops at the budget, or at `after_seq` where a summary ends, so the cost does not depend on
    the length of the session. The last turn is always complete, whatever it costs.
    """
    newest_first = _newest_within(session, token_budget, after_seq, page)
    # One text for all: the parser's start costs more than a message.
    contents = json.loads(f"[{','.join([row[-1] for row in newest_first])}]")
    if subject_keys.is_configured():
        contents = map(_CONTENT.opened, contents)
    return [(*row[:-1], content) for row, content in zip(newest_first, contents, strict=True)][::-1]


def _newest_within(session: Session, token_budget: int, after_seq: int, page: list[tuple] | None) -> list[tuple]:
    """Rows of `_COLUMNS`, newest first, their contents still texts."""
    chosen: list[tuple] = []
    spent = 0
    for owner, first, last in reversed(segments(session)):
        for row in _descending(owner, max(first, after_seq + 1), last, page):
            if chosen and spent > token_budget and row[3] != chosen[-1][3]:
                return chosen
            chosen.append(row)
            spent += row[5]
        page = None
    return chosen


def _descending(owner: UUID, first: int, last: int, page: list[tuple] | None) -> Iterator[tuple]:
    while last >= first:
        rows = sql.rows(_NEWEST, [owner, first, last, _PAGE]) if page is None else page
        page = None
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1][0] - 1


_NEWEST = (
    "SELECT " + ", ".join(f'"{name}"' for name in _COLUMNS) + " FROM agent_sessions_item"
    " WHERE session_id = %s AND seq BETWEEN %s AND %s AND NOT is_hidden ORDER BY seq DESC LIMIT %s"
)


def page(*, session: Session, before: str | None = None, after: str | None = None, limit: int = 50) -> Page:
    """One page of the visible history. Without a cursor: the last page. Cursors are seqs as text."""
    if before is not None and after is not None:
        raise Invalid("Send either `before` or `after`, not both.", errors={"before": ["Not together with `after`."]})
    low = _cursor(after, "after") + 1 if after is not None else 1
    high = _cursor(before, "before") - 1 if before is not None else session.head_seq
    items = _ascending(session, low, limit + 1) if after is not None else _newest(session, high, limit + 1)
    has_more = len(items) > limit
    if after is not None:
        items = items[:limit]
        older, newer = bool(items) and items[0].seq > 1, has_more
    else:
        items = items[-limit:] if has_more else items
        older, newer = has_more, bool(items) and items[-1].seq < session.head_seq
    return Page(
        items=items,
        previous_cursor=str(items[0].seq) if items and older else None,
        next_cursor=str(items[-1].seq) if items and newer else None,
    )


def every(*, session: Session) -> Iterator[Item]:
    """All visible items in order, read in pages: flat memory for a session of any length."""
    after = 0
    while items := _ascending(session, after + 1, _PAGE):
        yield from items
        after = items[-1].seq


def look_back(*, session: Session, first_seq: int, last_seq: int, limit: int) -> list[Item]:
    """Visible items of a range, oldest first."""
    found: list[Item] = []
    for owner, first, last in segments(session):
        found += _visible(owner, max(first, first_seq), min(last, last_seq)).order_by("seq")[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


def mentioning(*, session: Session, words: str, limit: int) -> list[Item]:
    """The newest visible items whose text has `words` in it, oldest first; capitals do not matter."""
    found: list[Item] = []
    for owner, first, last in reversed(segments(session)):
        rows = _visible(owner, first, last).order_by("-seq")
        in_database = rows.filter(content__text__icontains=words)
        found += (_read_through(rows, words) if sealing.protects(session.tenant_id) else in_database)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found[::-1]


def messages_in(*, session: Session, ranges: list[tuple[int, int]]) -> list[int]:
    """How many messages of either side can be seen in each of the ranges of seqs."""
    if not ranges:
        return []
    parts = Q()
    for owner, first, last in segments(session):
        parts |= Q(session_id=owner, seq__gte=first, seq__lte=last)
    reach = {"seq__gte": min(first for first, _ in ranges), "seq__lte": max(last for _, last in ranges)}
    said = Item.objects.filter(parts, kind=Item.Kind.MESSAGE, role__in=("user", "assistant"), is_hidden=False, **reach)
    counts = [Count("seq", filter=Q(seq__gte=first, seq__lte=last)) for first, last in ranges]
    found = said.aggregate(**{f"range_{index}": count for index, count in enumerate(counts)})
    return [found[f"range_{index}"] for index in range(len(ranges))]


def _read_through(rows: QuerySet[Item], words: str) -> list[Item]:
    """The same where the database cannot look into the texts: the newest ones are read."""
    return [item for item in rows[:_READ_THROUGH] if words.lower() in str(item.content.get("text", "")).lower()]


def outline(*, session: Session, after_seq: int = 0) -> Iterator[tuple]:
    """(seq, kind, role, turn, group, tokens) of the visible items after `after_seq`: what planners need, no content."""
    for owner, first, last in segments(session):
        rows = _visible(owner, max(first, after_seq + 1), last).order_by("seq").values_list(*_COLUMNS[:-1])
        yield from rows.iterator(_OUTLINE_ROWS)


def turns_after(*, session: Session, after_seq: int, until_seq: int, token_budget: int) -> list[tuple]:
    """The oldest whole turns after `after_seq` that fit `token_budget`, at least one, as tuples of `_COLUMNS`."""
    found: list[tuple] = []
    spent, whole = 0, 0
    for owner, first, last in segments(session):
        rows = _visible(owner, max(first, after_seq + 1), min(last, until_seq)).order_by("seq").values_list(*_COLUMNS)
        for row in rows.iterator(_PAGE):
            if found and row[3] != found[-1][3]:
                if spent >= token_budget:
                    return found
                whole = len(found)
            found.append(row)
            spent += row[5]
            if whole and spent > token_budget:
                return found[:whole]
    return found


def _cursor(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Invalid(f"`{name}` is not a cursor of this list.", errors={name: ["Not a cursor of this list."]})
    return int(text)


def _visible(owner, first, last):
    return Item.objects.filter(session_id=owner, seq__gte=first, seq__lte=last, is_hidden=False)


def _newest(session: Session, high: int, limit: int) -> list[Item]:
    found: list[Item] = []
    for owner, first, last in reversed(segments(session)):
        if len(found) >= limit:
            break
        found += _visible(owner, first, min(last, high)).order_by("-seq")[: limit - len(found)]
    return found[::-1]


def _ascending(session: Session, low: int, limit: int) -> list[Item]:
    found: list[Item] = []
    for owner, first, last in segments(session):
        if len(found) >= limit:
            break
        found += _visible(owner, max(first, low), last).order_by("seq")[: limit - len(found)]
    return found
