"""The inbox, decisions on calls, what was decided, and remembered answers."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from agents import tools
from governance.ids import shown
from sessions.models import Approval, ApprovalRule
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return sessions.agent(tenant, "careful")


@pytest.fixture
def session(agent, tenant):
    return sessions.session(agent, governance.subject(tenant), "case-1")


@pytest.fixture
def origin():
    return tools.get("calculate").origin


@pytest.fixture
def approval(session, origin):
    """A call that waits, of a tool that exists. A second call keeps the run from going on."""
    run = sessions.run(session=session, status="awaiting_approval")
    sessions.approval(run, "keep_waiting")
    return sessions.approval(run, "calculate", {"expression": "2 * 3"}, origin=origin)


@pytest.fixture
def operator(tenant, sign_in):
    return sign_in(tenant, "operator")


def address(name, approval):
    return reverse(name, args=[shown("apr", approval.id)])


def waiting(response):
    return [approval.tool for approval in response.context["listing"].results]


# The inbox


def test_inbox_shows_the_longest_wait_first_and_counts_in_the_title(operator, approval):
    response = operator.get(reverse("approvals"))

    text = response.content.decode()
    assert waiting(response) == ["keep_waiting", "calculate"]
    assert "<title>2 waiting – Approvals" in text
    assert "2 * 3" in text


def test_inbox_hides_other_tenants_calls(stranger, approval):
    response = stranger.get(reverse("approvals"))

    assert waiting(response) == []
    assert "Nothing waits" in response.content.decode()


def test_inbox_needs_a_role_that_reads(tenant, sign_in):
    assert sign_in(tenant, "auditor").get(reverse("approvals")).status_code == 403


def test_inbox_of_a_viewer_has_no_buttons(viewer, approval):
    text = viewer.get(reverse("approvals")).content.decode()

    assert "waits for an operator" in text
    assert address("approval-decide", approval) not in text


def test_inbox_is_filtered(operator, approval):
    assert waiting(operator.get(reverse("approvals"), {"tool": "calculate"})) == ["calculate"]
    assert waiting(operator.get(reverse("approvals"), {"agent": "careful", "tool": "nothing"})) == []
    assert operator.get(reverse("approvals"), {"agent": "nobody"}).status_code == 400


def test_inbox_costs_the_same_for_1_and_3_rows(operator, session, queries_of):
    run = sessions.run(session=session, status="awaiting_approval")
    sessions.approval(run)
    one = queries_of(operator, reverse("approvals"))
    sessions.approval(run)
    sessions.approval(run)

    assert queries_of(operator, reverse("approvals")) == one


# Deciding


def test_call_is_approved_and_the_page_that_asked_comes_back(operator, approval):
    response = operator.post(address("approval-decide", approval), {"decision": "approve", "next": "/approvals?agent=careful"})

    approval.refresh_from_db()
    assert response.url == "/approvals?agent=careful"
    assert (approval.status, approval.decided_by, approval.edited_arguments) == ("approved", operator.member.username, None)


def test_call_is_rejected_with_a_reason(operator, approval):
    operator.post(address("approval-decide", approval), {"decision": "reject", "reason": "Ask first.", "arguments": '{"expression": "1"}'})

    approval.refresh_from_db()
    assert (approval.status, approval.reason, approval.edited_arguments) == ("rejected", "Ask first.", None)


def test_call_is_approved_with_other_arguments(operator, approval):
    operator.post(address("approval-decide", approval), {"decision": "approve", "arguments": '{"expression": "2 * 4"}'})

    approval.refresh_from_db()
    assert (approval.arguments, approval.edited_arguments) == ({"expression": "2 * 3"}, {"expression": "2 * 4"})
    assert "What was changed" in operator.get(address("approval", approval)).content.decode()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [("{", "This is not JSON"), ("[1]", "A JSON object is expected"), ('{"expression": 7}', "is not of type")],
)
def test_arguments_that_do_not_fit_are_said_at_the_field(operator, approval, arguments, sentence):
    response = operator.post(address("approval-decide", approval), {"decision": "approve", "arguments": arguments})

    approval.refresh_from_db()
    assert (response.status_code, approval.status) == (422, "pending")
    assert list(response.context["form"].errors) == ["arguments"]
    assert sentence in response.context["form"].errors["arguments"][0]


@pytest.mark.parametrize(
    ("given", "session_rule", "condition", "days"),
    [
        ({"remember": "session", "condition_kind": "any", "days": ""}, True, None, None),
        ({"remember": "agent", "condition_kind": "same", "days": "7"}, False, {"": {"equals": {"expression": "2 * 3"}}}, 7),
        ({"remember": "agent", "condition_kind": "custom", "condition": '{"expression": {"prefix": "2 "}}', "days": "1"}, False, {"expression": {"prefix": "2 "}}, 1),
    ],
)  # fmt: skip
def test_approval_is_remembered(operator, approval, origin, given, session_rule, condition, days):
    operator.post(address("approval-decide", approval), {"decision": "approve", **given})

    rule = ApprovalRule.objects.get()
    assert (rule.tool, rule.origin, rule.session_id is not None, rule.condition) == ("calculate", origin, session_rule, condition)
    assert (rule.expires_at and (rule.expires_at - rule.created_at).days) == days
    approval.refresh_from_db()
    assert approval.rule_id == rule.id


def test_condition_that_cannot_hold_is_said_at_the_field(operator, approval):
    given = {"decision": "approve", "remember": "agent", "condition_kind": "custom", "condition": '{"expression": {"like": "2"}}'}

    response = operator.post(address("approval-decide", approval), given)

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["condition"]
    assert not ApprovalRule.objects.exists()


def test_decision_in_a_transcript_answers_with_the_card(operator, approval):
    response = operator.post(address("approval-decide", approval), {"decision": "approve"}, headers={"HX-Request": "true"})

    text = response.content.decode()
    assert response.status_code == 200
    assert "<html" not in text
    assert f"approved by {operator.member.username}" in text
    assert "<form" not in text


def test_refused_decision_in_a_transcript_keeps_the_form(operator, approval):
    response = operator.post(address("approval-decide", approval), {"decision": "approve", "arguments": "{"}, headers={"HX-Request": "true"})

    text = response.content.decode()
    assert response.status_code == 422
    assert "This is not JSON" in text
    assert address("approval-decide", approval) in text


def test_contradiction_is_told(operator, approval):
    operator.post(address("approval-decide", approval), {"decision": "reject"})

    response = operator.post(address("approval-decide", approval), {"decision": "approve"})

    assert response.status_code == 422
    assert "was already rejected" in response.content.decode()


def test_late_decision_is_told_that_it_expired(operator, approval):
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(minutes=1))

    response = operator.post(address("approval-decide", approval), {"decision": "approve"})

    approval.refresh_from_db()
    assert approval.status == "expired"
    assert "nobody decided in time" in response.content.decode()


def test_decision_does_not_lead_away(operator, approval):
    response = operator.post(address("approval-decide", approval), {"decision": "approve", "next": "https://evil.test/"})

    assert response.url == "/approvals"


def test_call_is_not_decided_by_strangers_and_viewers(viewer, stranger, approval):
    assert stranger.get(address("approval", approval)).status_code == 404
    assert stranger.post(address("approval-decide", approval), {"decision": "approve"}).status_code == 404
    assert viewer.post(address("approval-decide", approval), {"decision": "approve"}).status_code == 403
    approval.refresh_from_db()
    assert approval.status == "pending"


# What was decided


def test_history_shows_decisions_and_filters_them(operator, session, approval):
    run = sessions.run(session=session)
    sessions.approval(run, "send_mail", status="approved", decided_by="ada", decided_at=timezone.now())
    sessions.approval(run, "drop_table", status="rejected", decided_by="ada", decided_at=timezone.now())
    address = reverse("approval-history")

    assert waiting(operator.get(address)) == ["drop_table", "send_mail"]
    assert waiting(operator.get(address, {"status": "rejected"})) == ["drop_table"]
    assert waiting(operator.get(address, {"since": "2999-01-01"})) == []
    assert operator.get(address, {"status": "pending"}).status_code == 400


def test_history_hides_other_tenants_decisions(stranger, session):
    sessions.approval(sessions.run(session=session), status="approved")

    assert waiting(stranger.get(reverse("approval-history"))) == []


def test_history_costs_the_same_for_1_and_3_rows(operator, session, queries_of):
    run = sessions.run(session=session)
    sessions.approval(run, status="approved")
    one = queries_of(operator, reverse("approval-history"))
    sessions.approval(run, status="approved")
    sessions.approval(run, status="expired")

    assert queries_of(operator, reverse("approval-history")) == one


# Remembered answers


def test_rules_are_listed_and_revoked(operator, agent, session):
    rule = sessions.rule(agent, session, "calculate")
    sessions.rule(agent, None, "send_mail", revoked_at=timezone.now())

    page = operator.get(reverse("approval-rules"))
    response = operator.post(reverse("approval-rule-revoke", args=[shown("rul", rule.id)]), follow=True)

    rule.refresh_from_db()
    assert list(page.context["rules"]) == [rule]
    assert rule.revoked_at is not None
    assert list(response.context["rules"]) == []


def test_rules_are_not_revoked_by_strangers_and_viewers(viewer, stranger, agent):
    rule = sessions.rule(agent)
    address = reverse("approval-rule-revoke", args=[shown("rul", rule.id)])

    assert stranger.post(address).status_code == 404
    assert viewer.post(address).status_code == 403
    assert list(stranger.get(reverse("approval-rules")).context["rules"]) == []
    rule.refresh_from_db()
    assert rule.revoked_at is None


def test_rules_cost_the_same_for_1_and_3_rows(operator, agent, session, queries_of):
    sessions.rule(agent, session)
    one = queries_of(operator, reverse("approval-rules"))
    sessions.rule(agent, session)
    sessions.rule(agent)

    assert queries_of(operator, reverse("approval-rules")) == one
