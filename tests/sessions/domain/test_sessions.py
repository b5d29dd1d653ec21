import threading

import pytest
from django.db import connection

from governance.domain import subjects
from governance.errors import Invalid, MissingPermission, VersionConflict
from governance.models import AuditEvent
from sessions.domain import sessions as session_verbs
from sessions.errors import InvalidSessionKey, SessionConflict, SessionStateUnreadable
from sessions.models import Session
from sessions.queries import session_by

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(agent, actor):
    return session_verbs.get_or_create(agent=agent, key="case-1", subject=None, by=actor)[0]


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a\x00b", "a\nb", "a\ud800b", "\u202etxt", None, 7, f"ses_{'0' * 32}"])
def test_key_must_be_1_to_200_printable_characters(agent, actor, key):
    with pytest.raises(InvalidSessionKey):
        session_verbs.get_or_create(agent=agent, key=key, subject=None, by=actor)


@pytest.mark.parametrize("key", ["a", "x" * 200, "Fall 12/ä", "会話-1", "ses_1", f"ses_{'x' * 32}"])
def test_key_may_be_anything_printable(agent, actor, key):
    session, created = session_verbs.get_or_create(agent=agent, key=key, subject=None, by=actor)

    assert (session.key, created) == (key, True)


def test_same_key_of_two_subjects_is_two_sessions(agent, actor, tenant):
    one, two = (subjects.resolve(tenant_id=tenant.id, value=value) for value in ("one", "two"))
    first, _ = session_verbs.get_or_create(agent=agent, key="k", subject=one, by=actor)
    second, _ = session_verbs.get_or_create(agent=agent, key="k", subject=two, by=actor)

    assert first.id != second.id
    assert session_verbs.get_or_create(agent=agent, key="k", subject=one, by=actor) == (first, False)


@pytest.mark.django_db(transaction=True)
def test_fifty_creates_at_once_make_one_session(agent, actor):
    """google/adk-python#4954: creating in parallel must not fail."""
    results, barrier = [], threading.Barrier(50)

    def create():
        barrier.wait()
        try:
            results.append(session_verbs.get_or_create(agent=agent, key="new", subject=None, by=actor))
        finally:
            connection.close()

    threads = [threading.Thread(target=create) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({session.id for session, _ in results}) == 1
    assert [created for _, created in results].count(True) == 1
    assert len(results) == 50


def test_save_with_a_stale_version_changes_nothing(session):
    stale = Session.objects.get(id=session.id)
    session.title = "first"
    session_verbs.save(session=session, fields=["title"])
    stale.title = "second"

    with pytest.raises(SessionConflict):
        session_verbs.save(session=stale, fields=["title"])
    assert Session.objects.get(id=session.id).title == "first"


def test_metadata_leaves_the_history_version_alone(session, actor):
    """ag-ui-protocol/ag-ui#1732: a side write must not invalidate a running turn."""
    version = session.version
    session_verbs.rename(session=session, title="A case", by=actor)
    session_verbs.label(session=session, labels=["urgent", " urgent ", "vip"], by=actor)

    stored = Session.objects.get(id=session.id)
    assert (stored.version, stored.title, stored.labels) == (version, "A case", ["urgent", "vip"])


def test_every_change_is_audited_without_the_callers_key(session, actor):
    session_verbs.rename(session=session, title="x", by=actor)
    session_verbs.close(session=session, by=actor)
    session_verbs.reopen(session=session, by=actor)
    session_verbs.delete(session=session, by=actor)

    events = AuditEvent.objects.filter(object_type="session").order_by("id")
    assert [event.action for event in events] == ["session.renamed", "session.closed", "session.reopened", "session.deleted"]
    assert all(session.key not in f"{event.object_label}{event.payload}" for event in events)


def test_task_patch_merges_and_counts(session, actor):
    session_verbs.patch_task(session=session, patch={"cart": {"a": 1, "b": 2}}, expected=0, by=actor)
    changed = session_verbs.patch_task(session=session, patch={"cart": {"a": None, "c": 3}, "step": 2}, expected=1, by=actor)

    assert (changed.task, changed.task_version) == ({"cart": {"b": 2, "c": 3}, "step": 2}, 2)


def test_task_patch_refuses_a_lost_race_and_shows_what_is_stored(session, actor):
    session_verbs.patch_task(session=session, patch={"step": 1}, expected=0, by=actor)

    with pytest.raises(VersionConflict) as caught:
        session_verbs.patch_task(session=session, patch={"step": 9}, expected=0, by=actor)
    assert caught.value.extra["current"] == {"task": {"step": 1}, "version": 1}


def test_task_of_more_than_256_kib_is_refused(session, actor):
    with pytest.raises(Invalid):
        session_verbs.patch_task(session=session, patch={"x": "y" * 300_000}, by=actor)


def test_state_of_newer_software_names_both_versions(session):
    session.state = {"schema": 99, "software": "9.0.0"}

    with pytest.raises(SessionStateUnreadable) as caught:
        session_verbs.readable_state(session)
    assert "9.0.0" in caught.value.detail
    assert session_verbs.SOFTWARE in caught.value.detail


def test_reader_may_not_change(session, actor):
    from dataclasses import replace

    from governance.permissions import of_roles

    reader = replace(actor, kind="member", permissions=of_roles(["viewer"]))
    for verb in (
        lambda: session_verbs.rename(session=session, title="x", by=reader),
        lambda: session_verbs.close(session=session, by=reader),
        lambda: session_verbs.delete(session=session, by=reader),
        lambda: session_verbs.fork(session=session, key="f", by=reader),
        lambda: session_verbs.patch_task(session=session, patch={}, by=reader),
    ):
        with pytest.raises(MissingPermission):
            verb()


def test_session_of_another_tenant_is_not_found(session, stranger):
    from governance.errors import NotFound
    from governance.ids import shown

    with pytest.raises(NotFound):
        session_by(tenant_id=stranger.tenant_id, ref=shown("ses", session.id))
    with pytest.raises(NotFound):
        session_by(tenant_id=stranger.tenant_id, ref=session.key, agent="research")


def test_key_that_names_several_sessions_lists_their_ids(agent, actor, tenant):
    from governance.ids import shown
    from sessions.errors import SessionAmbiguous

    made = [
        session_verbs.get_or_create(agent=agent, key="k", subject=subjects.resolve(tenant_id=tenant.id, value=value), by=actor)[0]
        for value in ("one", "two")
    ]

    with pytest.raises(SessionAmbiguous) as caught:
        session_by(tenant_id=tenant.id, ref="k", agent=agent.name)
    assert sorted(caught.value.extra["ids"]) == sorted(shown("ses", session.id) for session in made)
