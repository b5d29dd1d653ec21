import pytest

from governance.errors import Invalid
from sessions.domain import history
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Session

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(agent, actor):
    return session_verbs.get_or_create(agent=agent, key="case-1", subject=None, by=actor)[0]


def filled(session, *, turns, tokens=10, run_id=None):
    """`turns` turns of a question and an answer."""
    entries = []
    for turn in range(session.turns + 1, session.turns + turns + 1):
        for role in ("user", "assistant"):
            seq = session.head_seq + len(entries) + 1
            entries.append(
                history.NewItem(kind="message", role=role, content={"text": f"{role} {turn}"}, turn=turn, group=seq, tokens=tokens, run_id=run_id)
            )
    history.insert(session=session, first_seq=session.head_seq + 1, entries=entries)
    session.head_seq += len(entries)
    session.turns += turns
    session.version += 1
    session.save()
    return session


def test_page_without_cursor_is_the_last_one(session):
    filled(session, turns=60)

    page = history.page(session=session, limit=50)

    assert [item.seq for item in page.items] == list(range(71, 121))
    assert (page.previous_cursor, page.next_cursor) == ("71", None)


def test_pages_backwards_and_forwards_cover_everything_once(session):
    filled(session, turns=60)
    backwards, cursor = [], None
    while True:
        page = history.page(session=session, before=cursor, limit=7)
        backwards = [item.seq for item in page.items] + backwards
        if (cursor := page.previous_cursor) is None:
            break
    forwards, cursor = [], "0"
    while cursor is not None:
        page = history.page(session=session, after=cursor, limit=7)
        forwards += [item.seq for item in page.items]
        cursor = page.next_cursor

    assert backwards == forwards == list(range(1, 121))


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1e3", "٣", "9" * 30])
def test_page_refuses_what_is_no_cursor(session, cursor):
    with pytest.raises(Invalid):
        history.page(session=session, before=cursor)


def test_load_tail_reads_whole_turns_up_to_the_budget(session):
    filled(session, turns=50, tokens=10)

    rows = history.load_tail(session=session, token_budget=100)

    assert rows[0][1:4] == ("message", "user", rows[0][3])
    assert [row[0] for row in rows] == list(range(rows[0][0], 101))
    assert 100 <= sum(row[5] for row in rows) <= 120


def test_load_tail_keeps_the_last_turn_whatever_it_costs(session):
    filled(session, turns=3, tokens=1000)

    rows = history.load_tail(session=session, token_budget=1)

    assert [row[0] for row in rows] == [5, 6]


def test_load_tail_costs_the_same_queries_at_any_length(session, django_assert_num_queries):
    filled(session, turns=20)
    with django_assert_num_queries(1):
        history.load_tail(session=session, token_budget=200)
    filled(session, turns=2000)
    with django_assert_num_queries(1):
        history.load_tail(session=session, token_budget=200)


def test_fork_reads_shared_items_and_its_own(session, actor):
    filled(session, turns=10)
    fork = session_verbs.fork(session=session, at_seq=6, key="fork", by=actor)
    filled(fork, turns=2)

    texts = [item.content["text"] for item in history.every(session=fork)]

    assert texts == ["user 1", "assistant 1", "user 2", "assistant 2", "user 3", "assistant 3", "user 4", "assistant 4", "user 5", "assistant 5"]
    assert Item.objects.filter(session_id=fork.id).count() == 4
    assert [row[0] for row in history.load_tail(session=fork, token_budget=10_000)] == list(range(1, 11))


def test_fork_of_a_fork_stays_flat(session, actor):
    filled(session, turns=5)
    child = filled(session_verbs.fork(session=session, at_seq=4, key="child", by=actor), turns=3)
    grandchild = session_verbs.fork(session=child, at_seq=7, key="grandchild", by=actor)

    assert grandchild.shared == [[str(session.id), 1, 4], [str(child.id), 5, 7]]
    assert [item.seq for item in history.every(session=grandchild)] == [1, 2, 3, 4, 5, 6, 7]


def test_deleting_the_parent_moves_shared_items_to_the_oldest_fork(session, actor):
    filled(session, turns=10)
    short = filled(session_verbs.fork(session=session, at_seq=4, key="short", by=actor), turns=1)
    long = filled(session_verbs.fork(session=session, at_seq=12, key="long", by=actor), turns=1)
    before = {fork.key: [(item.seq, item.content) for item in history.every(session=fork)] for fork in (short, long)}

    assert session_verbs.delete(session=session, by=actor) is True

    after = {fork.key: [(item.seq, item.content) for item in history.every(session=fork)] for fork in Session.objects.order_by("key")}
    assert after == before
    assert Item.objects.filter(session_id=session.id).count() == 0
    assert Item.objects.count() == 12 + 2 + 2


def test_hidden_items_are_in_no_view(session):
    filled(session, turns=3)
    Item.objects.filter(seq__in=[3, 4]).update(is_hidden=True)

    assert [item.seq for item in history.page(session=session).items] == [1, 2, 5, 6]
    assert [row[0] for row in history.load_tail(session=session, token_budget=1000)] == [1, 2, 5, 6]
