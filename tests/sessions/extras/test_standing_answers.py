"""Standing answers: what a person decided once for all, and for what it holds."""

from datetime import timedelta

import pytest
from django.utils import timezone

from governance.errors import Forbidden, MissingPermission, NotFound
from governance.ids import shown, uuid7
from governance.models import AuditEvent
from sessions.domain import approvals
from sessions.errors import InvalidRule
from sessions.models import ApprovalRule, Run
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.sessions.extras.conftest import key_for

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("started")]


def match(approval, arguments=None, **changes):
    values = {
        "tenant_id": approval.tenant_id, "agent_id": approval.agent_id, "session_id": approval.session_id,
        "tool": approval.tool, "origin": approval.origin, **changes,
    }  # fmt: skip
    return approvals.matching_rule(arguments=approval.arguments if arguments is None else arguments, **values)


def remember(approval, by, **values):
    decided = approvals.decide(approval=approval, decision="approve", remember=values, by=by)
    return ApprovalRule.objects.get(id=decided.rule_id)


def test_remember_for_the_session_goes_with_its_subject(approval, operator, subject):
    rule = remember(approval, operator)

    assert (rule.session_id, rule.subject_id, rule.condition, rule.expires_at) == (approval.session_id, subject.id, None, None)
    assert match(approval) == rule
    assert match(approval, {"to": "anyone"}) == rule
    assert match(approval, session_id=uuid7()) is None
    assert match(approval, session_id=None) is None
    event = AuditEvent.objects.get(action="approval_rule.created")
    assert (event.object_ref, event.object_label, event.payload["scope"]) == (shown("rul", rule.id), "send_mail", "session")


def test_remember_for_the_agent_holds_in_every_session(approval, operator):
    rule = remember(approval, operator, scope="agent")

    assert (rule.session_id, rule.subject_id) == (None, None)
    assert match(approval, session_id=uuid7()) == rule
    assert match(approval, session_id=None) == rule


def test_remember_the_same_arguments_only(approval, operator, subject):
    """What a rule repeats of a person's conversation goes with that person, also when it holds for everybody."""
    rule = remember(approval, operator, scope="agent", same_arguments=True)

    assert rule.subject_id == subject.id
    assert match(approval) == rule
    assert match(approval, {**approval.arguments, "urgent": True}) is None


def test_remember_a_condition(approval, operator):
    rule = remember(approval, operator, condition={"to": {"one_of": ["ada@example.com", "ben@example.com"]}})

    assert match(approval, {"to": "ben@example.com", "text": "Anything"}) == rule
    assert match(approval, {"to": "eve@example.com"}) is None


def test_a_rule_fits_one_tool_of_one_origin_of_one_agent_of_one_tenant(approval, operator):
    rule = remember(approval, operator, scope="agent")

    assert match(approval) == rule
    for change in (
        {"tool": "drop_table"}, {"origin": "mcp:crm"}, {"agent_id": uuid7()}, {"tenant_id": uuid7()},
    ):  # fmt: skip
        assert match(approval, **change) is None


def test_a_rule_ends_when_it_expires_or_is_revoked(approval, operator):
    rule = remember(approval, operator, expires_in_days=30)
    assert timedelta(days=29) < rule.expires_at - timezone.now() <= timedelta(days=30)
    assert match(approval) == rule

    ApprovalRule.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert match(approval) is None

    ApprovalRule.objects.update(expires_at=None)
    assert match(approval) == rule
    revoked = approvals.revoke_rule(rule=rule, by=operator)
    assert match(approval) is None
    assert approvals.revoke_rule(rule=rule, by=operator).revoked_at == revoked.revoked_at
    assert AuditEvent.objects.filter(action="approval_rule.revoked").count() == 1


def test_the_sessions_rule_comes_before_the_agents(approval, agent, session):
    made.rule(agent)
    own = made.rule(agent, session)
    made.rule(agent)

    assert match(approval) == own


def test_the_first_rule_that_fits_is_found_among_others(approval, agent):
    made.rule(agent, condition={"to": {"equals": "nobody"}})
    fitting = made.rule(agent, condition={"to": {"equals": "ada@example.com"}})
    made.rule(agent, condition={"to": {"equals": "somebody"}})

    assert match(approval) == fitting


@pytest.mark.parametrize(
    "wrong, path",
    [
        ([], "remember"),
        ({"scope": "tenant"}, "remember.scope"),
        ({"forever": True}, "remember"),
        ({"condition": {}}, "remember.condition"),
        ({"condition": {"to": {"like": "a"}}}, "remember.condition.to"),
        ({"condition": {"to": {"equals": "a"}}, "same_arguments": True}, "remember.condition"),
        ({"expires_in_days": 0}, "remember.expires_in_days"),
        ({"expires_in_days": "30"}, "remember.expires_in_days"),
        ({"expires_in_days": True}, "remember.expires_in_days"),
        ({"expires_in_days": 10**9}, "remember.expires_in_days"),
    ],
)
def test_remember_names_the_place_of_a_mistake_and_decides_nothing(approval, operator, wrong, path):
    with pytest.raises(InvalidRule) as caught:
        approvals.decide(approval=approval, decision="approve", remember=wrong, by=operator)

    assert list(caught.value.errors) == [path]
    approval.refresh_from_db()
    assert (approval.status, ApprovalRule.objects.count()) == ("pending", 0)


def test_remember_without_a_session_needs_the_agents_scope(agent, operator):
    approval = made.approval(made.run(agent, status=Run.Status.AWAITING_APPROVAL))

    with pytest.raises(InvalidRule):
        approvals.decide(approval=approval, decision="approve", remember={"scope": "session"}, by=operator)


def test_a_key_that_speaks_for_somebody_remembers_for_its_own_sessions_only(approval, subject, waiting):
    key = key_for(subject)
    with pytest.raises(Forbidden):
        approvals.decide(approval=approval, decision="approve", remember={"scope": "agent"}, by=key)

    rule = remember(approval, key)

    assert rule.session_id == approval.session_id
    approvals.revoke_rule(rule=rule, by=key)


def test_a_key_that_speaks_for_somebody_revokes_no_rule_of_all(agent, subject):
    with pytest.raises(NotFound):
        approvals.revoke_rule(rule=made.rule(agent), by=key_for(subject))


def test_rule_verbs_do_not_reach_another_tenant(agent, session, stranger, operator):
    other = people.actor(stranger, "operator")

    with pytest.raises(NotFound):
        approvals.create_rule(tenant_id=agent.tenant_id, agent=agent, tool="t", origin="o", by=other)
    with pytest.raises(NotFound):
        approvals.create_rule(tenant_id=stranger.id, agent=agent, tool="t", origin="o", by=other)
    with pytest.raises(NotFound):
        approvals.create_rule(
            tenant_id=agent.tenant_id, agent=made.agent(agent.tenant), session=session, tool="t", origin="o", by=operator
        )
    with pytest.raises(NotFound):
        approvals.revoke_rule(rule=made.rule(agent), by=other)


def test_rule_verbs_need_the_permission(agent, viewer):
    with pytest.raises(MissingPermission):
        approvals.create_rule(tenant_id=agent.tenant_id, agent=agent, tool="t", origin="o", by=viewer)
    with pytest.raises(MissingPermission):
        approvals.revoke_rule(rule=made.rule(agent), by=viewer)


def test_matching_rule_costs_one_query(approval, agent, django_assert_num_queries):
    for _ in range(5):
        made.rule(agent, condition={"to": {"equals": "nobody"}})

    with django_assert_num_queries(1):
        assert match(approval) is None
