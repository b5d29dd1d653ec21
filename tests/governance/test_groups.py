"""Rows that go together, go together; and nothing else."""

import pytest
from django.db import connection

from governance.domain import groups
from sessions.models import Approval, Blob, Item, ModelCall, Run, RunEvent, Session
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


def test_members_are_found_through_others_and_leaf_first():
    order = [category.key for category in groups.members_of("sessions")]

    assert set(order) == {"items", "summaries", "blobs", "approvals", "approval_rules", "runs", "run_events", "model_calls", "session_workspace"}
    assert order.index("run_events") < order.index("runs")
    assert {category.key for category in groups.members_of("runs")} == {"run_events", "model_calls", "approvals"}
    assert groups.members_of("items") == []


def test_delete_takes_the_whole_group_and_counts_it(agent, subject, tenant):
    going, staying = talk.conversation(agent, subject), talk.conversation(agent, subject)

    done = groups.delete(category="sessions", tenant_id=tenant.id, ids=[going.id])

    connection.check_constraints()
    assert {key: rows for key, (rows, _) in done.items()} == {
        "items": 4, "summaries": 1, "blobs": 1, "approvals": 1, "approval_rules": 1, "run_events": 2, "model_calls": 1, "runs": 1,
        "session_workspace": 1, "sessions": 1,
    }  # fmt: skip
    assert all(size > 0 for _, size in done.values())
    assert [Session.objects.get(), Run.objects.get().session] == [staying, staying]
    for model in (Item, Blob, Approval, RunEvent, ModelCall):
        assert model.objects.exists()


def test_delete_of_runs_leaves_the_session(conversation, tenant):
    run = Run.objects.get()

    groups.delete(category="runs", tenant_id=tenant.id, ids=[run.id])

    connection.check_constraints()
    assert (Session.objects.count(), Item.objects.count(), Run.objects.count(), RunEvent.objects.count()) == (1, 4, 0, 0)


def test_delete_never_reaches_another_tenant(conversation, stranger_tenant):
    done = groups.delete(category="sessions", tenant_id=stranger_tenant.id, ids=[conversation.id])

    assert {rows for rows, _ in done.values()} == {0}
    assert Session.objects.count() == 1


def test_anonymise_clears_the_person_and_keeps_totals(conversation, tenant):
    run = Run.objects.get()
    Run.objects.update(request={"message": "secret"}, output={"text": "secret"})

    done = groups.anonymise(category="runs", tenant_id=tenant.id, ids=[run.id])

    run.refresh_from_db()
    assert (run.subject_id, run.request, run.output, run.input_tokens) == (None, {}, None, 120)
    assert ModelCall.objects.get().subject_id is None
    assert (RunEvent.objects.count(), Approval.objects.count()) == (0, 0)
    assert done["runs"][0] == done["model_calls"][0] == 1


def test_anonymise_of_what_cannot_be_is_refused(conversation, tenant):
    with pytest.raises(ValueError, match="cannot be anonymised"):
        groups.anonymise(category="sessions", tenant_id=tenant.id, ids=[conversation.id])


def test_delete_of_nothing_deletes_nothing(conversation, tenant):
    assert {rows for rows, _ in groups.delete(category="sessions", tenant_id=tenant.id, ids=[]).values()} == {0}
    assert make.subject(tenant, "anna") == conversation.subject
