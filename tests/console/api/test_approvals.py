"""Approvals and standing answers over the API."""

import pytest

from sessions.models import Approval, ApprovalRule
from tests.console.api.conftest import problem
from tests.factories import sessions


@pytest.fixture
def path(world):
    return f"/approvals/apr_{world.approval.id.hex}"


def test_inbox_lists_what_waits(api, world):
    sessions.approval(world.waiting, status=Approval.Status.APPROVED, decided_by="operator")

    assert [row["id"] for row in api.get("/approvals?status=pending").json()["results"]] == [f"apr_{world.approval.id.hex}"]


@pytest.mark.parametrize("query, found", [("agent=support", 1), ("agent=other", 0), ("run={run}", 1), ("session={session}", 1), ("status=expired", 0)])
def test_list_filters(api, world, query, found):
    query = query.format(run=f"run_{world.waiting.id.hex}", session=f"ses_{world.personal.id.hex}")

    assert len(api.get(f"/approvals?{query}").json()["results"]) == found


def test_rejection_is_stored_with_its_reason(api, path, world):
    answer = api.post(f"{path}/decide", {"decision": "reject", "reason": "Not this one."})

    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["reason"], answer.json()["decided_by"]) == ("rejected", "Not this one.", "application")


def test_same_decision_again_changes_nothing_and_another_is_refused(api, path):
    first = api.post(f"{path}/decide", {"decision": "approve"})
    again = api.post(f"{path}/decide", {"decision": "approve"})
    other = api.post(f"{path}/decide", {"decision": "reject"})

    assert first.json() == again.json()
    assert (other.status_code, problem(other)["code"]) == (409, "decision_conflict")


def test_approval_can_be_remembered(api, path, world):
    api.post(f"{path}/decide", {"decision": "approve", "remember": {"scope": "agent", "same_arguments": True}})

    rule = ApprovalRule.objects.get(agent=world.agent, tool="send_mail")
    assert api.get(f"/approval-rules/rul_{rule.id.hex}").json()["condition"] == {"": {"equals": {"to": "blue"}}}


@pytest.mark.parametrize(
    "body, errors",
    [
        ({}, ["decision"]),
        ({"decision": "maybe"}, ["decision"]),
        ({"decision": "approve", "arguments": []}, ["arguments"]),
        ({"decision": "approve", "remember": {"scope": "world"}}, ["remember.scope"]),
        ({"decision": "approve", "reason": "x" * 2001}, ["reason"]),
    ],
)
def test_decision_that_makes_no_sense_is_refused(api, path, world, body, errors):
    answer = api.post(f"{path}/decide", body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == errors
    world.approval.refresh_from_db()
    assert world.approval.status == "pending"


def test_bound_key_sees_and_decides_its_own_only(world):
    other = world.key("runs:write", subject="person-2")
    own = world.key("runs:write", subject="person-1")
    path = f"/approvals/apr_{world.approval.id.hex}"

    assert (other.get(path).status_code, other.post(f"{path}/decide", {"decision": "approve"}).status_code) == (404, 404)
    assert other.get("/approvals").json()["results"] == []
    assert own.get(path).status_code == 200


def test_rule_is_created_listed_and_revoked(api, world):
    body = {"agent": "support", "tool": "find_order", "origin": "code:tests", "condition": {"id": {"equals": 7}}, "expiresInDays": 30}

    made = api.post("/approval-rules", body)
    listed = api.get("/approval-rules?tool=find_order").json()["results"]
    revoked = api.delete(made["Location"].removeprefix("/api"))

    assert made.status_code == 201
    assert listed == [made.json()]
    assert revoked.status_code == 204
    assert api.get("/approval-rules?tool=find_order").json()["results"] == []


@pytest.mark.parametrize(
    "change, status",
    [
        ({"agent": "nobody"}, 404),
        ({"session_id": "ses_" + "0" * 32}, 404),
        ({"session_id": "x"}, 400),
        ({"tool": ""}, 400),
        ({"condition": {"id": {"unknown": 1}}}, 400),
        ({"expires_in_days": 0}, 400),
    ],
)
def test_rule_that_makes_no_sense_is_refused(api, change, status):
    answer = api.post("/approval-rules", {"agent": "support", "tool": "find_order", "origin": "code:tests", **change})

    assert answer.status_code == status
    problem(answer)


def test_decision_that_comes_with_a_run_request_is_the_same(api, world):
    body = {"approvals": [{"id": f"apr_{world.approval.id.hex}", "decision": "reject"}]}

    answer = api.post("/agents/support/run", body, prefer="respond-async")

    assert answer.status_code == 202
    assert answer.json()["run_id"] == f"run_{world.waiting.id.hex}"
    world.approval.refresh_from_db()
    assert world.approval.status == "rejected"


def test_decision_of_a_foreign_approval_is_not_found(twin, world):
    body = {"approvals": [{"id": f"apr_{world.approval.id.hex}", "decision": "approve"}]}

    answer = twin.api.post("/agents/support/run", body)

    assert answer.status_code == 404
    world.approval.refresh_from_db()
    assert world.approval.status == "pending"


def test_decision_that_is_sent_to_another_agent_decides_nothing(api, world):
    sessions.agent(world.tenant, "other")
    body = {"approvals": [{"id": f"apr_{world.approval.id.hex}", "decision": "approve"}]}

    answer = api.post("/agents/other/run", body)

    assert answer.status_code == 404
    world.approval.refresh_from_db()
    assert world.approval.status == "pending"
