"""Four eyes, clocks, corrections and receipts over the API."""

import pytest
from django.test import Client

from governance import signing
from governance.domain import erasure, receipts, rules, subjects
from governance.models import SubjectRequest
from tests.console.api.conftest import Api, browser, problem
from tests.factories import governance, sessions


@pytest.fixture
def person(world):
    made = subjects.resolve(tenant_id=world.tenant.id, value="ada@example.com")
    sessions.conversation(world.agent, made)
    return made


@pytest.fixture
def waiting(world, api, person):
    """A request that waits for somebody to agree, asked for by a key without an owner."""
    rules.change(tenant=world.tenant, four_eyes="always", by=governance.lethe(world.tenant))
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    answer = api.post(f"/subjects/{person.display_ref}/erase", {"preview_token": preview["preview_token"], "confirm": person.display_ref})
    assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval"), answer.content
    assert answer.json()["approval_expires_at"].endswith("Z")
    return preview


def path(preview, verb):
    return f"/subject-requests/{preview['request_id']}/{verb}"


def test_approve_by_a_person_with_a_session(world, waiting):
    answer = browser(world.tenant, "privacy_approver").post(path(waiting, "approve"), {"digest": waiting["digest"]})

    assert (answer.status_code, answer.json()["state"]) == (200, "fencing"), answer.content
    assert answer.json()["approved_at"].endswith("Z")


def test_approve_needs_the_csrf_token_a_fresh_password_and_the_role(world, waiting):
    body = {"digest": waiting["digest"]}
    cases = {
        "no token": browser(world.tenant, "privacy_approver", csrf=False),
        "old sign-in": browser(world.tenant, "privacy_approver", proven=False),
        "officer": browser(world.tenant, "privacy_officer"),
        "nobody": Api(),
    }

    answers = {name: client.post(path(waiting, "approve"), body) for name, client in cases.items()}

    assert {name: (answer.status_code, problem(answer)["code"]) for name, answer in answers.items()} == {
        "no token": (403, "forbidden"), "old sign-in": (403, "step_up_required"), "officer": (403, "missing_permission"),
        "nobody": (401, "unauthenticated"),
    }  # fmt: skip
    assert SubjectRequest.objects.get(ref=waiting["request_ref"]).state == "awaiting_approval"


def test_approve_of_another_digest_or_state_is_refused(world, waiting):
    approver = browser(world.tenant, "privacy_approver")

    stale = approver.post(path(waiting, "approve"), {"digest": "sha256:" + "0" * 64})
    first = approver.post(path(waiting, "decline"), {"reason": "too_much", "text": "Not the invoices."})
    late = approver.post(path(waiting, "approve"), {"digest": waiting["digest"]})

    assert (stale.status_code, problem(stale)["code"]) == (409, "preview_stale")
    assert (first.status_code, first.json()["state"]) == (200, "previewed")
    assert (late.status_code, problem(late)["code"]) == (409, "not_awaiting_approval")


def test_approve_by_a_key_of_any_scope_is_refused(api, waiting):
    for verb, body in (("approve", {"digest": waiting["digest"]}), ("decline", {"reason": "other"})):
        answer = api.post(path(waiting, verb), body)
        assert (answer.status_code, problem(answer)["code"]) == (403, "missing_permission")


def test_session_of_a_browser_opens_no_other_address(world, waiting):
    approver = browser(world.tenant, "privacy_approver", "privacy_officer")

    assert Client.get(approver, f"/api{path(waiting, 'receipt')}").status_code == 401
    assert approver.post(path(waiting, "extend"), {"reason": "complex", "notice_ref": "M-1"}).status_code == 401


# Clocks


def test_request_is_received_and_goes_its_way(api, person):
    first = api.post("/subject-requests", {"subject": "ada@example.com", "profile": "ccpa"})
    again = api.post("/subject-requests", {"subject": person.display_ref})

    assert (first.status_code, first.json()["state"], again.json()["id"]) == (201, "received", first.json()["id"])
    assert first["Location"] == f"/api/subject-requests/{first.json()['id']}"
    assert first.json()["first_due_at"].endswith("Z")
    answered = api.post(f"/subject-requests/{first.json()['id']}/first-answer")
    assert answered.json()["first_answered_at"].endswith("Z")
    asked = api.post(f"/subject-requests/{first.json()['id']}/identity")
    assert (asked.status_code, asked.json()["state"]) == (200, "identity_pending")


@pytest.mark.parametrize("body, status, where", [
    ({}, 400, "subject"), ({"subject": "ada@example.com", "kind": "forget"}, 400, "kind"),
    ({"subject": "ada@example.com", "profile": "mars"}, 400, "profile"), ({"subject": "nobody"}, 404, None),
    ({"subject": "ada@example.com", "received_at": "2999-01-01T00:00:00Z"}, 400, "received_at"),
])  # fmt: skip
def test_request_that_makes_no_sense_is_not_received(api, person, body, status, where):
    answer = api.post("/subject-requests", body)

    assert answer.status_code == status
    assert list(problem(answer)["errors"]) == ([where] if where else [])


def test_extension_is_given_once(api, world):
    where = f"/subject-requests/req_{world.request.id.hex}/extend"

    bad = api.post(where, {"reason": "complex", "notice_ref": "Dear Ada"})
    first = api.post(where, {"reason": "complex", "noticeRef": "MAIL-118"})
    second = api.post(where, {"reason": "complex", "notice_ref": "MAIL-119"})

    assert (bad.status_code, list(problem(bad)["errors"])) == (400, ["notice_ref"])
    assert (first.status_code, first.json()["due_at"]) == (200, first.json()["extended_until"]), first.content
    assert (second.status_code, problem(second)["code"]) == (409, "already_extended")


def test_refusal_needs_its_words(api, world):
    where = f"/subject-requests/req_{world.request.id.hex}/cancel"

    bare = api.post(where, {"reason": "unfounded"})
    full = api.post(where, {"reason": "unfounded", "text": "You asked three times this week."})

    assert (bare.status_code, list(problem(bare)["errors"])) == (400, ["text"])
    assert (full.status_code, full.json()["state"]) == (200, "cancelled")
    assert "three times" not in full.content.decode()


# Corrections, recipients, receipts


def test_correction_is_recorded_completed_and_told(api, world, person):
    made = api.post("/subject-requests", {"subject": person.display_ref, "kind": "rectify"}).json()
    where = f"/subject-requests/{made['id']}"

    early = api.post(f"{where}/complete")
    api.post(f"{where}/corrections", {"category": "items", "what": "title", "rows": 2})
    done = api.post(f"{where}/complete")
    name = api.get(where).json()["recipients"][0]["ref"]
    soon = api.post(f"{where}/recipients", {"ref": name, "acknowledged": True})
    told = api.post(f"{where}/recipients", {"ref": name})

    assert early.status_code == 409
    assert (done.status_code, done.json()["state"]) == (200, "completed")
    assert (soon.status_code, told.status_code) == (409, 200)
    versions = [api.get(f"{where}/receipt?version={number}").json()["receipt"] for number in (1, 2)]
    latest = api.get(f"{where}/receipt").json()["receipt"]
    assert [version["version"] for version in versions] == [1, 2]
    assert latest == versions[1]
    assert latest["corrections"] == [{"category": "items", "what": "title", "rows": 2}]
    assert api.get(f"{where}/receipt?version=3").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_receipt_of_an_erasure_holds_under_the_public_key(world, api, person, settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    preview = api.post(f"/subjects/{person.display_ref}/preview").json()
    api.post(f"/subjects/{person.display_ref}/erase", {"preview_token": preview["preview_token"], "confirm": person.display_ref})
    erasure.work(request_id=SubjectRequest.objects.get(ref=preview["request_ref"]).id)

    receipt = api.get(path(preview, "receipt")).json()["receipt"]
    key = Api().get("/signing-key").json()

    assert receipts.problems(receipt, key=key["public_key"]) == []
    assert (key["alg"], key["key_id"]) == ("Ed25519", signing.key_id()) == ("Ed25519", receipt["signature"]["key_id"])
