"""Stored summaries: which one a turn begins with, what makes them stale, and what of the history is still read."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from agents.definition import Compaction
from governance.domain.registry import Scope, get
from sessions.domain import history, summaries
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Session, Summary
from tests.factories import sessions as factory

SETTINGS = Compaction(strategy="summarization", trigger_tokens=1000)


@pytest.fixture
def session(tenant, agent, subject):
    return conversation(agent, 6, subject)


def conversation(agent, turns, subject=None):
    made = factory.session(agent, subject)
    factory.turns(made, turns)
    return made


def keep(session, to_seq, *, parent=None, text="They talked about kettles."):
    after = parent.to_seq if parent else 0
    return summaries.keep(
        session=session, run_id=None, parent=parent, to_seq=to_seq, items=to_seq - after, text=text, tokens=8,
        source_tokens=100, model="demo/demo-1", settings=SETTINGS,
    )  # fmt: skip


def test_newest_is_the_usable_one_that_reaches_furthest(session):
    first = keep(session, 4)
    second = keep(session, 8, parent=first)
    summaries.keep_failure(session=session, run_id=None, to_seq=10, reason="empty", settings=SETTINGS)

    assert summaries.newest(session) == second
    assert (second.from_seq, second.to_seq, second.parent_id) == (1, 8, first.id)


def test_summary_of_another_session_is_not_used(session, agent, tenant):
    keep(session, 4)

    assert summaries.newest(conversation(agent, 6)) is None


@pytest.mark.parametrize("change", ["hide", "edit", "delete"])
def test_change_of_an_item_makes_summaries_over_it_stale_and_takes_their_text(session, change):
    early = keep(session, 2, text="Early.")
    late = keep(session, 8, parent=early, text="Late.")
    row = Item.objects.filter(session_id=session.id, seq=5)

    if change == "hide":
        row.update(is_hidden=True)
    elif change == "edit":
        row.update(content={"text": "something else"})
    else:
        row.delete()

    late.refresh_from_db()
    assert (late.is_stale, late.text, late.tokens) == (True, "", 0)
    assert summaries.newest(session) == early


def test_new_items_leave_summaries_alone(session):
    kept = keep(session, 4)
    entry = history.NewItem("message", "user", {"text": "more"}, turn=7, group=13)
    history.insert(session=session, first_seq=13, entries=[entry])

    assert summaries.newest(session) == kept


def test_fork_uses_what_it_shares_and_follows_its_parents_items(session, actor):
    kept = keep(session, 4)
    later = keep(session, 8, parent=kept)
    child = session_verbs.fork(session=session, at_seq=6, key="child", by=actor)
    own = keep(child, 6, parent=kept)

    assert summaries.newest(child) == own
    assert summaries.newest(session) == later
    Item.objects.filter(session_id=session.id, seq=6).delete()
    own.refresh_from_db()
    assert own.is_stale
    assert summaries.newest(child) == kept


def test_summary_of_items_that_changed_meanwhile_is_not_kept(session):
    Item.objects.filter(session_id=session.id, seq=3).update(is_hidden=True)

    with pytest.raises(summaries.SourceChanged):
        keep(session, 4)

    assert not Summary.objects.exists()


def test_summary_whose_parent_went_stale_is_not_kept(session):
    parent = keep(session, 4)
    Item.objects.filter(session_id=session.id, seq=1).update(content={})

    with pytest.raises(summaries.SourceChanged):
        keep(session, 8, parent=parent)


@pytest.mark.parametrize("values", [{"text": ""}, {"text": "x", "is_stale": True}, {"text": "x", "failure": "empty"}])
def test_row_has_a_text_exactly_when_it_is_usable(session, values):
    kept = keep(session, 4)

    with pytest.raises(IntegrityError), transaction.atomic():
        Summary.objects.filter(id=kept.id).update(**values)


def test_failures_make_the_summariser_rest_longer_each_time(session):
    assert summaries.may_try(session)
    summaries.keep_failure(session=session, run_id=None, to_seq=4, reason="empty", settings=SETTINGS)
    assert not summaries.may_try(session)
    Summary.objects.update(created_at=F("created_at") - timedelta(seconds=70))
    assert summaries.may_try(session)
    summaries.keep_failure(session=session, run_id=None, to_seq=4, reason="empty", settings=SETTINGS)
    Summary.objects.update(created_at=F("created_at") - timedelta(seconds=70))
    assert not summaries.may_try(session)


def test_success_ends_the_rest(session):
    summaries.keep_failure(session=session, run_id=None, to_seq=4, reason="empty", settings=SETTINGS)
    keep(session, 4)

    assert summaries.may_try(session)


def test_load_with_a_summary_reads_the_tail_only(agent):
    long = conversation(agent, 2000)
    kept = keep(long, 3980)

    with CaptureQueriesContext(connection) as queries:
        found = summaries.newest(long)
        rows = history.load_tail(session=long, token_budget=200_000, after_seq=found.to_seq)

    assert found == kept
    assert [row[0] for row in rows] == list(range(3981, 4001))
    assert len(queries) == 2
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + queries[1]["sql"])
        plan = cursor.fetchone()[0][0]["Plan"]
    assert _rows_read(plan) == 20


def _rows_read(plan) -> int:
    """Rows that the plan's scans touched."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if "Scan" in plan["Node Type"] else 0
    return int(own + sum(_rows_read(below) for below in plan.get("Plans", [])))


def test_turns_after_are_whole_and_at_least_one(session):
    def turns(budget):
        rows = history.turns_after(session=session, after_seq=2, until_seq=10, token_budget=budget)
        return sorted({row[3] for row in rows}), len(rows)

    size = sum(row[5] for row in history.turns_after(session=session, after_seq=2, until_seq=4, token_budget=10_000))
    assert turns(1) == ([2], 2)
    assert turns(2 * size) == ([2, 3], 4)
    assert turns(2 * size + 1) == ([2, 3], 4)
    assert turns(10_000) == ([2, 3, 4, 5], 8)


def test_outline_has_no_content(session):
    rows = list(history.outline(session=session, after_seq=9))

    assert [row[:5] for row in rows] == [
        (10, "message", "assistant", 5, 10), (11, "message", "user", 6, 11), (12, "message", "assistant", 6, 12),
    ]  # fmt: skip


def test_deleting_a_session_takes_its_summaries(session, actor):
    keep(session, 4)

    session_verbs.delete(session=session, by=actor)

    assert not Summary.objects.exists()


def test_summaries_of_a_subject_are_planned_before_their_items(session, tenant, subject):
    keep(session, 4)
    category = get("summaries")
    scope = Scope(tenant_id=tenant.id, subject_id=subject.id)

    assert category.count(plan=list(category.plan(scope=scope))).rows == 1
    assert "summaries" in get("items").erase_after
    assert Session.objects.get(id=session.id).summaries.count() == 1
