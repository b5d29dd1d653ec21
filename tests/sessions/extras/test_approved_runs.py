"""Approvals with the real loop and the demo model: the decision is what the run then does."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.domain.demo import seed_demo_agents
from sessions.domain import approvals, blobs, definitions, history, quotas, runs
from sessions.domain.runs import RunRequest
from sessions.errors import AttachmentInvalid, QuotaExceeded
from sessions.models import Approval, Blob, ModelCall, QuotaCounter, QuotaReservation, Run, Session
from tests.sessions.domain.conftest import finished

pytestmark = pytest.mark.django_db(transaction=True)
WAITING = ("awaiting_approval",)


@pytest.fixture(autouse=True)
def demo(tenant, lethe):
    definitions.forget()
    seed_demo_agents(tenant_id=tenant.id, by=lethe)
    yield
    definitions.forget()


@pytest.fixture
def ask(lethe):
    """Ask the careful calculator; returns the run and its waiting approval."""

    def send(message="Calculate 6 * 7", key="case-1"):
        run = runs.start(agent_name="careful", request=RunRequest(message=message, session_key=key), by=lethe)
        run = finished(run, statuses=WAITING)
        return run, Approval.objects.get(run=run, status="pending")

    return send


def results(run):
    items = history.every(session=Session.objects.get(id=run.session_id))
    return [(item.content["outcome"], item.content["text"]) for item in items if item.kind == "tool_result" and item.run_id == run.id]


def test_an_approved_call_runs_and_the_run_ends(ask, lethe):
    run, approval = ask()
    assert (approval.tool, approval.arguments) == ("calculate", {"expression": "6 * 7"})

    approvals.decide(approval=approval, decision="approve", by=lethe)

    assert finished(run).status == "completed"
    assert results(run) == [("success", "42")]


def test_edited_arguments_run_instead_of_the_models(ask, lethe):
    run, approval = ask()

    approvals.decide(approval=approval, decision="approve", arguments={"expression": "6 * 8"}, by=lethe)

    assert finished(run).status == "completed"
    assert results(run) == [("success", "48")]


def test_a_rejected_call_does_not_run_and_the_model_reads_why(ask, lethe):
    run, approval = ask()

    approvals.decide(approval=approval, decision="reject", reason="Not today.", by=lethe)

    assert finished(run).status == "completed"
    [(outcome, text)] = results(run)
    assert (outcome, "Not today." in text) == ("denied", True)


def test_an_expired_call_counts_as_rejected(ask):
    run, approval = ask()
    Approval.objects.filter(id=approval.id).update(expires_at=timezone.now() - timedelta(seconds=1))

    assert approvals.expire_due() == 1

    assert finished(run).status == "completed"
    assert [outcome for outcome, _ in results(run)] == ["denied"]


def test_what_was_remembered_is_not_asked_again(ask, lethe):
    run, approval = ask()
    approvals.decide(approval=approval, decision="approve", remember={"scope": "session", "same_arguments": True}, by=lethe)
    finished(run)

    same = runs.start(agent_name="careful", request=RunRequest(message="Calculate 6 * 7", session_key="case-1"), by=lethe)

    assert finished(same).status == "completed"
    assert results(same) == [("success", "42")]
    _, other = ask("Calculate 6 * 9")
    assert other.arguments == {"expression": "6 * 9"}


def test_a_new_message_withdraws_what_waits(ask, lethe):
    first, approval = ask()

    second, _ = ask("Calculate 1 + 1")

    approval.refresh_from_db()
    assert (approval.status, Run.objects.get(id=first.id).status, second.status) == ("withdrawn", "interrupted", "awaiting_approval")


def test_a_run_that_waits_keeps_its_share_of_the_limits(ask, lethe, tenant):
    quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=1, by=lethe)
    quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="tokens", period="day", limit=100_000, by=lethe)
    run, approval = ask()
    assert quotas.release_stale() == 0

    with pytest.raises(QuotaExceeded):
        runs.start(agent_name="careful", request=RunRequest(message="Calculate 1 + 1", session_key="case-2"), by=lethe)
    approvals.decide(approval=approval, decision="approve", by=lethe)
    run = finished(run)

    used = dict(QuotaCounter.objects.values_list("quota__measure", "used"))
    spent = sum(call.input_tokens + call.output_tokens for call in ModelCall.objects.filter(run=run))
    assert (used, spent > 0) == ({"runs": 1, "tokens": spent}, True)
    assert (QuotaReservation.objects.count(), set(QuotaCounter.objects.values_list("reserved", flat=True))) == (0, {0})


def test_a_refused_start_takes_no_share_and_leaves_no_session(lethe, tenant):
    quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=5, by=lethe)
    bad = [{"name": "x.png", "media_type": "image/png", "data": "bm90IGEgcG5n"}]

    with pytest.raises(AttachmentInvalid):
        runs.start(agent_name="research", request=RunRequest(message="See", session_key="case-1", attachments=bad), by=lethe)

    assert (Session.objects.count(), QuotaCounter.objects.count()) == (0, 0)


def test_attachments_of_a_message_are_kept_and_named(lethe, tenant):
    data = "SGVsbG8="
    run = runs.start(
        agent_name="research", by=lethe,
        request=RunRequest(
            message="See", session_key="case-1", attachments=[{"name": "a.txt", "media_type": "text/plain", "data": data}]
        ),
    )  # fmt: skip

    assert finished(run).status == "completed"
    session = Session.objects.get()
    [reference] = next(iter(history.every(session=session))).content["attachments"]
    assert bytes(blobs.load(session=session, hashes=[reference["sha256"]])[reference["sha256"]].data) == b"Hello"
    assert list(Blob.objects.values_list("name", "session_id")) == [("a.txt", session.id)]
