from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from governance.domain import previews
from governance.models import SubjectRequest
from sessions.models import Run
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return sessions.agent(tenant, "research")


def ended(agent, **values):
    run = sessions.run(agent, status=values.pop("status", "completed"))
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(seconds=2), ended_at=now, **values)
    return run


def test_overview_of_an_empty_tenant_says_what_to_do(owner):
    page = owner.get(reverse("overview")).content.decode()

    assert "No agents yet" in page
    assert "Nothing waits for a person." in page


def test_overview_sums_runs_errors_tokens_and_cost(owner, agent):
    ended(agent, input_tokens=900, output_tokens=100, cost="0.0300")
    ended(agent, input_tokens=1000, output_tokens=0, cost="0.0100", status="failed")

    stats = {label: value for label, value, _note, _kind in owner.get(reverse("overview")).context["stats"]}

    assert stats == {"Runs": "2", "Failed": "1", "Tokens": "2,000", "Cost": "$0.04", "Latency": "2.0 s"}


def test_overview_charts_have_a_table_with_the_same_numbers(owner, agent):
    ended(agent)
    ended(agent)

    page = owner.get(reverse("overview"), {"days": "7"}).content.decode()

    day = timezone.now()
    assert f'<th scope="row">{day.day} {day:%b}</th><td class="num">2</td><td class="num">0</td>' in page
    assert page.count('role="img"') == 4


def test_overview_shows_nothing_of_another_tenant(owner, stranger):
    foreign = sessions.agent(stranger.membership.tenant, "foreign")
    ended(foreign)
    sessions.approval(sessions.run(foreign, status="awaiting_approval"))

    response = owner.get(reverse("overview"))

    assert response.context["stats"][0][1] == "0"
    assert response.context["approvals"] == []
    assert response.context["runs"] == []


def test_overview_lists_what_waits_and_what_is_overdue(owner, agent, tenant):
    sessions.approval(sessions.run(agent, status="awaiting_approval"))
    request, _token = previews.preview(subject=governance.subject(tenant), by=owner.actor)
    SubjectRequest.objects.filter(pk=request.pk).update(due_at=timezone.now() - timedelta(days=1))

    response = owner.get(reverse("overview"))

    assert len(response.context["approvals"]) == 1
    assert [item.ref for item in response.context["overdue"]] == [request.ref]
    assert "<title>1 waiting – Overview · Lethe</title>" in response.content.decode()


def test_overview_leaves_out_what_a_role_may_not_see(sign_in, tenant, agent):
    ended(agent)

    response = sign_in(tenant, "auditor").get(reverse("overview"))

    assert response.status_code == 200
    assert "runs" not in response.context
    assert "Newest runs" not in response.content.decode()


def test_overview_needs_a_role(sign_in, tenant):
    assert sign_in(tenant, "privacy_officer").get(reverse("overview")).status_code == 403


def test_overview_costs_the_same_for_more_rows(owner, agent, queries_of):
    sessions.approval(sessions.run(agent, sessions.session(agent), status="awaiting_approval"))
    one = queries_of(owner, reverse("overview"))
    for _ in range(2):
        sessions.approval(sessions.run(agent, sessions.session(agent), status="awaiting_approval"))

    assert queries_of(owner, reverse("overview")) == one
