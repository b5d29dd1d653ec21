"""Calls that wait for a person: asking, deciding, expiring, remembering."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from governance.domain import fences
from governance.errors import MissingPermission, SubjectFenced
from governance.ids import shown, uuid7
from governance.models import AuditEvent
from sessions.domain import approvals
from sessions.engine.store import PendingCall
from sessions.errors import (
    AlreadyDecided,
    ApprovalUnknown,
    ArgumentsInvalid,
    DecisionConflict,
    InvalidDecision,
    RunFinished,
    ToolGone,
)
from sessions.models import Approval, Run
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.sessions.extras.conftest import key_for
from tests.sessions.extras.parallel import in_parallel

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("started", "send_mail")]
# What happens after a commit, or at the same time, needs real transactions.
committed = pytest.mark.django_db(transaction=True)


def status_of(run):
    return Run.objects.values_list("status", flat=True).get(id=run.id)


def overdue(approval):
    Approval.objects.filter(id=approval.id).update(expires_at=timezone.now() - timedelta(seconds=1))


# Asking


def test_request_stores_the_calls_in_order(waiting, session):
    calls = [
        PendingCall("c2", "send_mail", {"to": "a\x00"}, "code:tests", "external"),
        PendingCall("c1", "drop_table", {}, "mcp:crm", "destructive"),
    ]

    rows = approvals.request(run=waiting, calls=calls)

    assert [(row.call_id, row.tool, row.origin, row.arguments, row.status) for row in rows] == [
        ("c2", "send_mail", "code:tests", {"to": "a\ufffd"}, "pending"),
        ("c1", "drop_table", "mcp:crm", {}, "pending"),
    ]
    assert {(row.tenant_id, row.subject_id, row.session_id, row.agent_id) for row in rows} == {
        (waiting.tenant_id, waiting.subject_id, session.id, waiting.agent_id)
    }
    assert rows[0].expires_at - rows[0].created_at == timedelta(hours=settings.LETHE["approval_hours"])


def test_request_again_returns_what_is_stored(waiting, operator):
    call = PendingCall("c1", "send_mail", {"to": "a"}, "code:tests", "external")
    [first] = approvals.request(run=waiting, calls=[call])
    approvals.decide(approval=first, decision="reject", by=operator)

    [second] = approvals.request(run=waiting, calls=[call])

    assert (second.id, second.status) == (first.id, "rejected")


def test_as_event_tells_what_a_client_needs(approval):
    assert approvals.as_event(approval) == {
        "approval_id": shown("apr", approval.id), "call_id": approval.call_id, "tool": "send_mail",
        "arguments": {"to": "ada@example.com", "text": "Hello"}, "expires_at": approval.expires_at.isoformat(),
    }  # fmt: skip


@pytest.mark.parametrize(
    "values, decision",
    [
        ({"status": "approved"}, {"approve": True}),
        ({"status": "approved", "edited_arguments": {"to": "b"}}, {"approve": True, "arguments": {"to": "b"}}),
        ({"status": "approved", "edited_arguments": {}}, {"approve": True, "arguments": {}}),
        ({"status": "rejected", "reason": "Too early."}, {"approve": False, "reason": "Too early."}),
        ({"status": "rejected"}, {"approve": False}),
        ({"status": "expired"}, {"approve": False, "reason": "Nobody decided in time."}),
        ({"status": "withdrawn"}, {"approve": False, "reason": "The run went on without this call."}),
    ],
)
def test_as_decision(waiting, values, decision):
    assert approvals.as_decision(made.approval(waiting, **values)) == decision


# Deciding


@committed
def test_decide_approve_stores_records_and_continues(approval, waiting, operator, started):
    decided = approvals.decide(approval=approval, decision="approve", by=operator)

    assert (decided.status, decided.decided_by, decided.decided_ref) == ("approved", operator.label, operator.ref)
    assert decided.decided_at is not None
    assert (status_of(waiting), started) == ("running", [waiting.id])
    event = AuditEvent.objects.get(action="approval.approved")
    assert (event.object_ref, event.object_label, event.payload) == (
        shown("apr", approval.id), "send_mail", {"run": shown("run", waiting.id), "edited": False, "rule": None},
    )  # fmt: skip


def test_decide_reject_keeps_the_reason(approval, operator):
    decided = approvals.decide(approval=approval, decision="reject", reason="  Not to her.\x00 ", by=operator)

    assert (decided.status, decided.reason) == ("rejected", "Not to her.\ufffd")


@committed
def test_run_waits_until_all_its_calls_are_decided(waiting, operator, started):
    first, second = made.approval(waiting), made.approval(waiting)

    approvals.decide(approval=first, decision="approve", by=operator)
    assert (status_of(waiting), started) == ("awaiting_approval", [])

    approvals.decide(approval=second, decision="reject", by=operator)
    assert started == [waiting.id]


@committed
def test_last_two_decisions_at_once_continue_the_run_once(session, operator, started):
    for _ in range(5):
        started.clear()
        run = made.run(session=session, status=Run.Status.AWAITING_APPROVAL)
        rows = [made.approval(run) for _ in range(4)]

        results = in_parallel(4, lambda index, rows=rows: approvals.decide(approval=rows[index], decision="approve", by=operator))

        assert {row.status for row in results} == {"approved"}
        assert started == [run.id]
        Run.objects.filter(id=run.id).update(status="completed")
        session.refresh_from_db()
        type(session).objects.filter(id=session.id).update(lease_run_id=None, lease_expires_at=None)


@committed
def test_contradictory_decisions_at_once_leave_exactly_one(approval, operator, started):
    results = in_parallel(
        8, lambda index: approvals.decide(approval=approval, decision=["approve", "reject"][index % 2], by=operator)
    )

    approval.refresh_from_db()
    won = [result for result in results if isinstance(result, Approval)]
    lost = [result for result in results if isinstance(result, DecisionConflict)]
    assert (len(won), len(lost)) == (4, 4)
    assert {result.status for result in won} == {approval.status}
    assert len(started) == 1
    assert AuditEvent.objects.filter(object_type="approval").count() == 1


@committed
def test_same_decision_again_changes_nothing(approval, operator, started):
    first = approvals.decide(approval=approval, decision="reject", reason="No.", by=operator)

    second = approvals.decide(approval=approval, decision="reject", reason="Another reason.", by=operator)

    assert (second.reason, second.decided_at) == ("No.", first.decided_at)
    assert (len(started), AuditEvent.objects.filter(object_type="approval").count()) == (1, 1)


@committed
def test_same_decision_again_wakes_a_run_whose_wake_up_was_lost(approval, waiting, operator, started, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(approvals, "_resume", lambda run_id: None)
        approvals.decide(approval=approval, decision="approve", by=operator)
    assert started == []

    approvals.decide(approval=approval, decision="approve", by=operator)

    assert started == [waiting.id]


@pytest.mark.parametrize(
    "first, second",
    [
        ({"decision": "approve"}, {"decision": "reject"}),
        ({"decision": "reject"}, {"decision": "approve"}),
        ({"decision": "approve"}, {"decision": "approve", "arguments": {"to": "b", "text": "Hi"}}),
        ({"decision": "approve", "arguments": {"to": "b", "text": "Hi"}}, {"decision": "approve"}),
    ],
)
def test_another_decision_is_refused(approval, operator, first, second):
    approvals.decide(approval=approval, by=operator, **first)
    before = Approval.objects.filter(id=approval.id).values().get()

    with pytest.raises(DecisionConflict) as caught:
        approvals.decide(approval=approval, by=operator, **second)

    assert caught.value.extra == {"status": before["status"]}
    assert Approval.objects.filter(id=approval.id).values().get() == before


@pytest.mark.parametrize(
    "wrong, path",
    [
        ({"decision": "maybe"}, "decision"),
        ({"decision": ""}, "decision"),
        ({"decision": "reject", "arguments": {}}, "arguments"),
        ({"decision": "reject", "remember": {}}, "remember"),
        ({"decision": "approve", "arguments": []}, "arguments"),
        ({"decision": "approve", "reason": "x" * 2_001}, "reason"),
        ({"decision": "approve", "reason": 5}, "reason"),
    ],
)
def test_decide_names_the_place_of_a_mistake(approval, operator, wrong, path):
    with pytest.raises(InvalidDecision) as caught:
        approvals.decide(approval=approval, by=operator, **wrong)

    assert list(caught.value.errors) == [path]
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_decide_needs_the_permission(approval, viewer):
    with pytest.raises(MissingPermission):
        approvals.decide(approval=approval, decision="approve", by=viewer)


def test_decide_does_not_find_another_tenants_approval(approval, stranger):
    with pytest.raises(ApprovalUnknown):
        approvals.decide(approval=approval, decision="approve", by=people.actor(stranger, "operator"))

    approval.refresh_from_db()
    assert approval.status == "pending"


def test_decide_does_not_find_an_approval_that_is_gone(waiting, operator):
    forged = Approval(id=uuid7(), run_id=waiting.id, tenant_id=waiting.tenant_id)

    with pytest.raises(ApprovalUnknown):
        approvals.decide(approval=forged, decision="approve", by=operator)


def test_a_key_that_speaks_for_somebody_decides_for_nobody_else(approval, tenant, subject):
    with pytest.raises(ApprovalUnknown):
        approvals.decide(approval=approval, decision="approve", by=key_for(people.subject(tenant)))

    assert approvals.decide(approval=approval, decision="approve", by=key_for(subject)).status == "approved"


def test_decide_for_a_fenced_subject_is_refused(approval, subject, lethe, operator):
    fences.open_fence(subject=subject, mode="restrict", by=lethe)

    with pytest.raises(SubjectFenced):
        approvals.decide(approval=approval, decision="approve", by=operator)

    approval.refresh_from_db()
    assert approval.status == "pending"


def test_decide_after_the_run_has_ended_is_refused(session, operator):
    approval = made.approval(made.run(session=session, status=Run.Status.FAILED))

    with pytest.raises(RunFinished):
        approvals.decide(approval=approval, decision="approve", by=operator)


@committed
def test_decide_while_the_run_still_works_waits_for_its_pause(session, operator, started):
    run = made.run(session=session, status=Run.Status.RUNNING)
    approval = made.approval(run)

    assert approvals.decide(approval=approval, decision="approve", by=operator).status == "approved"
    assert (status_of(run), started) == ("running", [])


# Edited arguments


def test_edited_arguments_are_kept_beside_the_models(approval, operator):
    edited = {"to": "ben@example.com", "text": "Hello"}

    decided = approvals.decide(approval=approval, decision="approve", arguments=edited, by=operator)

    assert (decided.arguments["to"], decided.edited_arguments) == ("ada@example.com", edited)
    assert approvals.as_decision(decided) == {"approve": True, "arguments": edited}
    assert AuditEvent.objects.get(action="approval.approved").payload["edited"] is True


def test_the_same_arguments_are_no_edit(approval, operator):
    decided = approvals.decide(approval=approval, decision="approve", arguments=dict(approval.arguments), by=operator)

    assert decided.edited_arguments is None


@pytest.mark.parametrize(
    "arguments, paths",
    [
        ({"to": 5, "text": "Hi"}, ["arguments.to"]),
        ({"to": "b"}, ["arguments"]),
        ({"to": "b", "text": "Hi", "bcc": "c"}, ["arguments"]),
        ({"to": 5, "text": 6, "urgent": "yes"}, ["arguments.text", "arguments.to", "arguments.urgent"]),
    ],
)
def test_edited_arguments_must_fit_the_tool(approval, operator, arguments, paths):
    with pytest.raises(ArgumentsInvalid) as caught:
        approvals.decide(approval=approval, decision="approve", arguments=arguments, by=operator)

    assert sorted(caught.value.errors) == paths
    approval.refresh_from_db()
    assert approval.status == "pending"


@pytest.mark.parametrize("values", [{"tool": "gone"}, {"tool": "send_mail", "origin": "mcp:crm"}])
def test_arguments_of_a_tool_that_is_not_there_cannot_be_edited(waiting, operator, values):
    approval = made.approval(waiting, **values)

    with pytest.raises(ToolGone):
        approvals.decide(approval=approval, decision="approve", arguments={"to": "b", "text": "Hi"}, by=operator)

    assert approvals.decide(approval=approval, decision="approve", by=operator).status == "approved"


# Expiring and withdrawing


@committed
def test_expire_due_rejects_and_continues(approval, waiting, started, subject):
    overdue(approval)

    assert approvals.expire_due() == 1

    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("expired", "lethe")
    assert started == [waiting.id]
    assert AuditEvent.objects.get(action="approval.expired").actor_kind == "system"
    assert approvals.expire_due() == 0


@committed
def test_expire_due_leaves_what_still_has_time(waiting, started):
    late, early = made.approval(waiting), made.approval(waiting)
    overdue(late)

    assert approvals.expire_due() == 1

    early.refresh_from_db()
    assert (early.status, started) == ("pending", [])


@committed
def test_expire_due_leaves_fenced_subjects_and_reaches_the_others(approval, tenant, agent, subject, lethe, started):
    other = made.run(session=made.session(agent, people.subject(tenant)), status=Run.Status.AWAITING_APPROVAL)
    overdue(approval)
    overdue(made.approval(other))
    fences.open_fence(subject=subject, mode="restrict", by=lethe)

    assert approvals.expire_due() == 1

    approval.refresh_from_db()
    assert (approval.status, started) == ("pending", [other.id])


@committed
def test_expire_due_from_many_processes_expires_each_once(agent, tenant, started):
    runs = [made.run(session=made.session(agent), status=Run.Status.AWAITING_APPROVAL) for _ in range(6)]
    for run in runs:
        overdue(made.approval(run))

    in_parallel(4, lambda index: approvals.expire_due())
    approvals.expire_due()

    assert sorted(started) == sorted(run.id for run in runs)
    assert AuditEvent.objects.filter(action="approval.expired").count() == 6


@committed
def test_expire_due_wakes_runs_whose_wake_up_was_lost(waiting, operator, started):
    made.approval(waiting, status="approved", decided_by="operator")

    assert approvals.expire_due() == 0

    assert started == [waiting.id]


@committed
def test_a_late_decision_is_told_and_ends_the_wait(approval, waiting, operator, started):
    overdue(approval)

    with pytest.raises(AlreadyDecided) as caught:
        approvals.decide(approval=approval, decision="approve", by=operator)

    approval.refresh_from_db()
    assert (caught.value.extra, approval.status, started) == ({"status": "expired"}, "expired", [waiting.id])


def test_withdraw_ends_what_waits_and_nothing_else(waiting, operator):
    decided, open_one = made.approval(waiting), made.approval(waiting)
    approvals.decide(approval=decided, decision="approve", by=operator)

    with transaction.atomic():
        assert approvals.withdraw(run=waiting) == 1

    assert sorted(Approval.objects.values_list("status", flat=True)) == ["approved", "withdrawn"]
    with pytest.raises(AlreadyDecided) as caught:
        approvals.decide(approval=open_one, decision="approve", by=operator)
    assert caught.value.extra == {"status": "withdrawn"}
