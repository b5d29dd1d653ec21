"""Plans of any size: their fingerprints wait outside memory, and a difference is found as both plans are read."""

import pytest
from django.db import connection

from governance import sql
from governance.domain import plans, previews, registry
from sessions.models import Item, Session
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


def take(subject):
    return previews.take_plan(registry.Scope(subject.tenant_id, subject.id), sparing=False)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("governance.domain.tables.CHUNK_ROWS", 3)


@pytest.mark.parametrize("in_memory", [16, 1024 * 1024])
def test_stored_chunks_are_those_that_were_read(subject, conversation, officer, small_chunks, monkeypatch, in_memory):
    monkeypatch.setattr(plans, "_IN_MEMORY", in_memory)
    talk.turns(conversation, 10)
    items = list(registry.get("items").plan(scope=registry.Scope(subject.tenant_id, subject.id)))

    request, _ = previews.preview(subject=subject, by=officer)

    stored = request.chunks.filter(category="items").order_by("number")
    assert [(chunk.low, chunk.high, chunk.sha256, bytes(chunk.fingerprints)) for chunk in stored] == [
        (chunk.low, chunk.high, chunk.sha256, chunk.fingerprints) for chunk in items
    ]
    assert len(items) == 8


def test_difference_counts_what_came_and_what_changed_and_not_what_went(subject, agent, officer, small_chunks):
    """Rows ahead of all others, so that no chunk has the rows that it had."""
    first, second, third = (talk.session(agent, subject) for _ in range(3))
    for session in (second, third):
        talk.turns(session, 5)
    request, _ = previews.preview(subject=subject, by=officer)
    talk.turns(first, 2)
    Item.objects.filter(session=second, seq__in=(1, 4)).delete()

    found = {entry["key"]: (entry["added"], entry["changed"]) for entry in plans.difference(request, take(subject))}

    # The session of this register changes with its history's version.
    assert found == {"items": (4, 0), "sessions": (0, 1)}


def test_difference_of_the_same_rows_is_none(subject, conversation, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    assert plans.difference(request, take(subject)) == []


def test_row_waits_for_its_like_only_as_long_as_the_plans_are_apart():
    key = [number.to_bytes(8, "big") for number in range(50)]
    before = [key[number] + b"version1" for number in range(40)]
    after = [key[number] + (b"version2" if number == 20 else b"version1") for number in (*range(45, 50), *range(3, 43))]

    new, changed = plans._apart([b"".join(before[:10]), b"".join(before[10:])], [b"".join(after)])

    assert list(new) == [key[number] for number in (*range(45, 50), *range(40, 43))]
    assert changed == 1


@pytest.mark.parametrize("key", ["plain", 'a "quote" and a \\', "é, ümlaut, 漢字", "line\nbreak\ttab", "</script>"])
def test_bounds_are_the_json_that_the_database_would_make(agent, subject, key):
    talk.session(agent, subject, key)
    fields = [Session._meta.get_field(name) for name in ("id", "agent", "key", "head_seq")]

    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {sql.texts_in_json(fields)}, json_build_array(t.id::text, t.agent_id::text, t.key::text, t.head_seq::text)::text"
            " FROM agent_sessions_session t"
        )
        made, expected = cursor.fetchone()

    assert made == expected
