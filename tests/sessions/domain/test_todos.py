"""Todos that a person changes: numbers stay, lost races and running turns are told, and the agent sees the list."""

from datetime import timedelta

import pytest
from django.utils import timezone

from governance.errors import Invalid, MissingPermission, VersionConflict
from governance.models import AuditEvent
from sessions.domain import todos
from sessions.errors import SessionBusy
from sessions.models import Session
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db
KEPT = [{"id": 1, "title": "Find the invoice", "done": False}, {"id": 4, "title": "Call the supplier", "done": True}]


@pytest.fixture
def session(tenant):
    return sessions.session(sessions.agent(tenant, "research"), state={"mode": "plan", "todos": KEPT, "schema": 1})


@pytest.fixture
def change(session, actor):
    """`change(changed, added)`: by somebody who sees the list as it is."""

    def do(changed=None, added=(), seen=None, by=actor):
        return todos.change(session=session, changed=changed or {}, added=added, seen=seen or todos.digest(KEPT), by=by)

    return do


def test_titles_marks_and_new_ones_are_kept_and_numbers_stay(session, change):
    after = change({1: ("Find  both\tinvoices", True), 4: ("Call the supplier", False)}, [" Write it down ", "", "Then rest"])

    assert after == [
        {"id": 1, "title": "Find both invoices", "done": True},
        {"id": 4, "title": "Call the supplier", "done": False},
        {"id": 5, "title": "Write it down", "done": False},
        {"id": 6, "title": "Then rest", "done": False},
    ]
    session.refresh_from_db()
    assert session.state == {"mode": "plan", "todos": after, "schema": 1}
    [event] = AuditEvent.objects.filter(action="session.todos_changed")
    assert event.payload == {"todos": 4, "done": 1}


def test_todo_without_a_title_goes_and_its_number_is_not_given_again(change):
    assert change({4: ("  ", True)}, ["Next"]) == [KEPT[0], {"id": 5, "title": "Next", "done": False}]


def test_nothing_changed_is_nothing_told(change):
    assert change({1: (KEPT[0]["title"], False)}) == KEPT
    assert not AuditEvent.objects.filter(action="session.todos_changed").exists()


def test_list_that_changed_meanwhile_is_a_lost_race(session, change):
    Session.objects.filter(id=session.id).update(state={"todos": KEPT[:1]})

    with pytest.raises(VersionConflict) as lost:
        change({1: ("Mine", False)})

    assert lost.value.extra["current"] == {"todos": KEPT[:1]}


def test_running_turn_holds_the_list(session, change):
    until = timezone.now() + timedelta(minutes=1)
    Session.objects.filter(id=session.id).update(lease_run_id=sessions.run(session=session).id, lease_expires_at=until)

    with pytest.raises(SessionBusy):
        change({}, ["Now"])


@pytest.mark.parametrize(
    ("changed", "added", "field"),
    [({1: ("x" * 501, False)}, [], "title-1"), ({}, ["x" * 501], "new"), ({}, ["more"] * 199, "new")],
)
def test_list_is_bounded(session, change, changed, added, field):
    with pytest.raises(Invalid) as refused:
        change(changed, added)

    assert list(refused.value.errors) == [field]
    session.refresh_from_db()
    assert session.state["todos"] == KEPT


def test_what_no_database_keeps_is_cleaned_out_of_titles(change):
    assert change({}, ["Ring\x00 Bert"])[-1]["title"] == "Ring\ufffd Bert"


def test_whoever_may_only_read_changes_nothing(change, tenant):
    with pytest.raises(MissingPermission):
        change({}, ["Now"], by=governance.actor(tenant, "auditor"))


@pytest.mark.parametrize(("harness", "kept"), [({}, True), ({"disable_todo_provider": True}, False), (None, False)])
def test_agent_keeps_a_list_or_not(tenant, harness, kept):
    document = {"name": "listed", "model": {"provider": "demo", "model": "demo-1-fast"}, **({"harness": harness} if harness is not None else {})}

    assert todos.are_kept(sessions.session(sessions.agent(tenant, "listed", document=document))) is kept
