"""The way of a request through the pages: agreed to, extended, refused, put right, and its receipt."""

import json
import time
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from console import stepup
from governance.domain import clocks, erasure, previews, receipts, requests, rules
from governance.models import AuditEvent, RequestAlarm, SubjectIdentifier, SubjectRequest
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def person(tenant):
    subject = governance.subject(tenant, "customer-7")
    sessions.turns(sessions.session(sessions.agent(tenant, "research"), subject, key="case-1"), 2)
    return subject


@pytest.fixture
def officer(tenant, sign_in):
    return sign_in(tenant, "privacy_officer")


@pytest.fixture
def approver(tenant, sign_in):
    return sign_in(tenant, "privacy_approver")


@pytest.fixture
def careful(tenant):
    """A tenant in which two people must agree."""
    rules.change(tenant=tenant, four_eyes="always", by=governance.lethe(tenant))


def age(client, seconds):
    """As if the password had been entered so long ago."""
    session = client.session
    session[stepup.KEY] = time.time() - seconds
    session.save()


def ask(client, person, **changes):
    """Preview and confirm through the pages."""
    page = client.post(reverse("subject-preview", args=[person.display_ref]), {"profile": "gdpr"}, follow=True)
    data = {"token": page.context["erase_form"]["token"].value(), "reason": "subject_request", "confirm": person.display_ref}
    return client.post(reverse("request-erase", args=[page.context["item"].ref]), data | changes)


def stored():
    return SubjectRequest.objects.get()


# Two people


def test_erasure_waits_and_the_approver_sees_the_same_rows(careful, officer, approver, person):
    ask(officer, person)
    request = stored()

    page = approver.get(reverse("request", args=[request.ref]))
    form = approver.get(reverse("request-approve", args=[request.ref]))
    done = approver.post(reverse("request-approve", args=[request.ref]), {"digest": form.context["form"]["digest"].value()}, follow=True)

    assert request.state == "awaiting_approval"
    assert {entry["key"]: entry["rows"] for entry in page.context["entries"]} == {"items": 4, "sessions": 1, "subject_identifiers": 1}
    assert "Approve…" in page.content.decode()
    assert "was approved and is carried out now" in done.content.decode()
    assert (stored().state, stored().approver) == ("fencing", approver.actor.ref)


def test_export_waits_and_is_approved(careful, officer, approver, person):
    waits = officer.post(reverse("subject-export", args=[person.display_ref]), follow=True).content.decode()
    form = approver.get(reverse("request-approve", args=[stored().ref]))
    approver.post(reverse("request-approve", args=[stored().ref]), {"digest": form.context["form"]["digest"].value()})

    assert "A second person must agree before the archive is made." in waits
    assert "The archive is being made" not in waits
    assert "handed out" in form.content.decode()
    assert (stored().state, stored().approver) == ("executing", approver.actor.ref)


def test_whoever_asked_sees_why_they_cannot_approve(careful, tenant, sign_in, person):
    both = sign_in(tenant, "privacy_officer", "privacy_approver")
    ask(both, person)
    request = stored()

    page = both.get(reverse("request", args=[request.ref])).content.decode()
    refused = both.post(reverse("request-approve", args=[request.ref]), {"digest": request.digest})

    assert "somebody else must look at it" in page
    assert reverse("request-approve", args=[request.ref]) not in page
    assert refused.status_code == 422
    assert "Somebody else must look at it" in refused.content.decode()
    assert stored().state == "awaiting_approval"


def test_approver_sends_it_back(careful, officer, approver, person):
    ask(officer, person)

    approver.post(reverse("request-decline", args=[stored().ref]), {"reason": "too_much", "text": "Keep the invoices."})

    assert stored().state == "previewed"
    page = officer.get(reverse("request", args=[stored().ref])).content.decode()
    shown = officer.post(reverse("request-notes", args=[stored().ref])).content.decode()
    assert "Keep the invoices." not in page
    assert "Keep the invoices." in shown
    assert AuditEvent.objects.get(action="content.read").payload["what"] == "notes"


def test_approval_of_an_old_digest_is_said_at_the_form(careful, officer, approver, person):
    ask(officer, person)

    response = approver.post(reverse("request-approve", args=[stored().ref]), {"digest": "sha256:old"})

    assert response.status_code == 422
    assert "Look at the request again" in response.content.decode()


def test_break_glass_is_told_to_every_approver_until_they_have_seen_it(careful, officer, approver, sign_in, tenant, person):
    other = sign_in(tenant, "privacy_approver")
    ask(officer, person, break_glass="on")
    board = reverse("requests")

    before = [client.get(board).content.decode() for client in (approver, other, officer)]
    approver.post(reverse("request-seen", args=[stored().ref]), {"kind": "break_glass"})
    after = [client.get(board).content.decode() for client in (approver, other)]

    words = "without a second person."
    assert [words in page for page in before] == [True, True, False]
    assert [words in page for page in after] == [False, True]
    assert stored().state == "fencing"


# The password once more


@pytest.mark.parametrize("seconds, allowed", [(200, True), (400, False)])
def test_erasure_needs_a_fresh_password(officer, person, seconds, allowed):
    age(officer, seconds)

    response = ask(officer, person)

    assert (response.status_code, stored().state) == ((302, "fencing") if allowed else (403, "previewed"))
    if not allowed:
        assert "Enter your password again" in response.content.decode()
        assert f'value="{reverse("request", args=[stored().ref])}#erase"' in response.content.decode()


def test_approval_needs_a_fresh_password(careful, officer, approver, person):
    ask(officer, person)
    age(approver, 400)

    response = approver.post(reverse("request-approve", args=[stored().ref]), {"digest": stored().digest})

    assert (response.status_code, stored().state) == (403, "awaiting_approval")


def test_password_is_entered_again_and_one_goes_on(officer, person):
    age(officer, 4000)
    where = reverse("subject", args=[person.display_ref])

    wrong = officer.post(reverse("prove"), {"password": "not it", "next": where})
    still = ask(officer, person).status_code
    right = officer.post(reverse("prove"), {"password": governance.PASSWORD, "next": where})

    assert (wrong.status_code, still) == (422, 403)
    assert (right.status_code, right.url) == (302, where)
    assert ask(officer, person).status_code == 302


def test_password_page_leads_nowhere_else(officer):
    response = officer.post(reverse("prove"), {"password": governance.PASSWORD, "next": "https://evil.example/"})

    assert response.url == "/"


def test_password_is_guessed_a_few_times_only(officer):
    statuses = [officer.post(reverse("prove"), {"password": f"guess {number}"}).status_code for number in range(6)]

    assert statuses == [422] * 5 + [429]


# Clocks


def receive(client, person, **values):
    return client.post(reverse("subject-receive", args=[person.display_ref]), {"kind": "erase", "profile": "gdpr", **values}, follow=True)


def test_request_is_received_before_anything_is_looked_at(officer, person):
    page = receive(officer, person, profile="ccpa")
    officer.post(reverse("request-first-answer", args=[stored().ref]))
    asked = officer.post(reverse("request-identity", args=[stored().ref]), follow=True)

    assert "nothing was looked at yet" in page.content.decode()
    assert "First answer given" in page.content.decode()
    assert stored().first_answered_at is not None
    assert stored().state == "identity_pending"
    assert "Identity shown: preview" in asked.content.decode()
    officer.post(reverse("request-preview", args=[stored().ref]))
    assert stored().state == "previewed"


def test_request_with_an_impossible_day_is_said_at_the_field(officer, person):
    response = receive(officer, person, received_on="2999-01-01")

    assert response.status_code == 422
    assert list(response.context["receive_form"].errors) == ["received_on"]


def test_request_is_extended_in_place_and_once(officer, person):
    receive(officer, person)
    where = reverse("request-extend", args=[stored().ref])

    row = officer.get(where, headers={"HX-Request": "true"})
    bad = officer.post(where, {"reason": "complex", "notice_ref": "Dear customer"})
    done = officer.post(where, {"reason": "complex", "notice_ref": "MAIL-118", "onward": "requests"})
    again = officer.post(where, {"reason": "complex", "notice_ref": "MAIL-119"})

    assert row.content.decode().strip().startswith("<tr")
    assert (bad.status_code, list(bad.context["form"].errors)) == (422, ["notice_ref"])
    assert done.url == reverse("requests")
    assert stored().extended_until == stored().due_at
    assert (again.status_code, "extended once" in again.content.decode()) == (422, True)
    assert "It was extended before." in officer.get(reverse("request", args=[stored().ref])).content.decode()


def test_refusal_needs_its_words_and_keeps_them_covered(officer, person):
    receive(officer, person)
    where = reverse("request-cancel", args=[stored().ref])

    bare = officer.post(where, {"reason": "unfounded"})
    officer.post(where, {"reason": "unfounded", "text": "Three times this week."})
    page = officer.get(reverse("request", args=[stored().ref])).content.decode()

    assert (bare.status_code, list(bare.context["form"].errors)) == (422, ["text"])
    assert stored().state == "cancelled"
    assert "Three times" not in page
    assert "Three times" in officer.post(reverse("request-notes", args=[stored().ref])).content.decode()


# The board


def test_board_shows_the_most_urgent_first_with_its_clock(officer, tenant):
    now = timezone.now()
    for name, days in (("soon", 2), ("late", -3), ("far", 20)):
        made = requests.receive(subject=governance.subject(tenant, name), kind="erase", by=officer.actor)
        SubjectRequest.objects.filter(pk=made.pk).update(due_at=now + timedelta(days=days), received_at=now - timedelta(days=10))
    for name in ("old", "new"):
        ended = requests.receive(subject=governance.subject(tenant, name), kind="export", by=officer.actor)
        requests.cancel(request=ended, reason="withdrawn", by=officer.actor)

    page = officer.get(reverse("requests"))

    rows = page.context["listing"].results
    assert [row.clock["percent"] for row in rows] == [143, 83, 33, None, None]
    assert [row.clock["kind"] for row in rows] == ["bad", "warn", "", "", ""]
    assert [row.ref[-1] for row in rows] == ["2", "1", "3", "5", "4"]
    assert page.content.decode().count(">overdue<") == 1
    assert "1 overdue" in page.content.decode()


def test_board_tells_the_alarms_that_were_raised(officer, tenant):
    made = requests.receive(subject=governance.subject(tenant, "a"), kind="erase", profile="ccpa", by=officer.actor)
    now = timezone.now()
    SubjectRequest.objects.filter(pk=made.pk).update(received_at=now - timedelta(days=8), due_at=now + timedelta(days=2), first_due_at=now - timedelta(days=1))
    clocks.raise_alarms()

    page = officer.get(reverse("requests")).content.decode()

    assert "the first answer is overdue, half of the time is used, three quarters are used" in page
    assert ">first answer overdue<" in page


def test_board_pages_through_both_halves(officer, tenant, monkeypatch):
    monkeypatch.setattr("console.listing.ROWS", 2)
    for number in range(5):
        made = requests.receive(subject=governance.subject(tenant, f"p{number}"), kind="erase", by=officer.actor)
        if number < 3:
            requests.cancel(request=made, reason="withdrawn", by=officer.actor)

    seen, cursor = [], ""
    while cursor is not None:
        listing = officer.get(reverse("requests"), {"before": cursor} if cursor else {}).context["listing"]
        seen += [row.ref[-1] for row in listing.results]
        cursor = listing.page.next_cursor

    assert seen == ["4", "5", "3", "2", "1"]


def test_board_offers_each_act_to_whom_it_belongs(careful, officer, approver, sign_in, tenant, person):
    ask(officer, person)
    ref = stored().ref

    found = {
        name: [act for act in ("approve", "extend", "cancel") if f'href="{reverse(f"request-{act}", args=[ref])}"' in client.get(reverse("requests")).content.decode()]
        for name, client in (("officer", officer), ("approver", approver), ("auditor", sign_in(tenant, "auditor")))
    }

    assert found == {"officer": ["extend", "cancel"], "approver": ["approve"], "auditor": []}


def test_board_costs_the_same_for_more_rows(officer, tenant, queries_of):
    requests.receive(subject=governance.subject(tenant, "a"), kind="erase", by=officer.actor)
    one = queries_of(officer, reverse("requests"))
    for name in ("b", "c"):
        made = requests.receive(subject=governance.subject(tenant, name), kind="erase", by=officer.actor)
        RequestAlarm.objects.create(request=made, tenant_id=tenant.id, kind="used_50")

    assert queries_of(officer, reverse("requests")) == one


# Putting right


def test_correction_is_made_recorded_and_completed(officer, person):
    page = receive(officer, person, kind="rectify")
    ref, identifier = stored().ref, SubjectIdentifier.objects.get()

    officer.post(reverse("request-identifier", args=[ref]), {"identifier_id": identifier.pk, "value": "customer-8"})
    officer.post(reverse("request-correction", args=[ref]), {"category": "items", "what": "title", "rows": 2})
    bad = officer.post(reverse("request-correction", args=[ref]), {"category": "items", "what": "Mr. Smith", "rows": 2})
    officer.post(reverse("request-complete", args=[ref]))
    done = officer.get(reverse("request", args=[ref]))

    assert "Correct an identifier" in page.content.decode()
    assert (bad.status_code, list(bad.context["correction_form"].errors)) == (422, ["what"])
    assert [entry["what"] for entry in stored().corrections] == ["external", "title"]
    assert stored().state == "completed"
    assert "signature holds" in done.content.decode()
    assert "customer-8" not in done.content.decode()


def test_correction_that_names_somebody_else_is_said_at_the_form(officer, person, tenant):
    governance.subject(tenant, "customer-9")
    receive(officer, person, kind="rectify")

    response = officer.post(
        reverse("request-identifier", args=[stored().ref]),
        {"identifier_id": SubjectIdentifier.objects.get(subject=person).pk, "value": "customer-9"},
    )

    assert response.status_code == 422
    assert "more than one subject" in response.content.decode()


# Receipts


def test_receipt_is_read_checked_and_told_to_recipients(officer, person):
    ask(officer, person)
    erasure.work(request_id=stored().pk)
    ref = stored().ref
    name = stored().receipt["recipients"][0]["ref"]

    page = officer.get(reverse("request", args=[ref])).content.decode()
    officer.post(reverse("request-recipient", args=[ref]), {"recipient": name})
    officer.post(reverse("request-recipient", args=[ref]), {"recipient": name, "acknowledged": "1"})
    documents = [json.loads(officer.get(reverse("request-receipt", args=[ref]) + query).content) for query in ("", "?version=1")]

    assert "signature holds" in page
    assert "They were told" in page
    assert [document["version"] for document in documents] == [3, 1]
    assert [receipts.problems(document) for document in documents] == [[], []]
    for query in ("?version=4", "?version=x", "?version=99999999999"):
        assert officer.get(reverse("request-receipt", args=[ref]) + query).status_code == 404


def test_receipt_that_was_changed_says_so(officer, person):
    ask(officer, person)
    erasure.work(request_id=stored().pk)
    SubjectRequest.objects.update(receipt={**stored().receipt, "due_at": None})

    page = officer.get(reverse("request", args=[stored().ref])).content.decode()

    assert "signature does not hold" in page


# Rules


def test_rules_are_set_by_the_administrator(sign_in, tenant, viewer):
    admin = sign_in(tenant, "tenant_admin")
    data = {"four_eyes": "above", "four_eyes_rows": "100", "accept_added_rows": "3", "pause_for_identity": "on", "holidays": "2026-12-25\n2027-01-01"}

    saved = admin.post(reverse("tenant-rules"), data, follow=True)
    bad = admin.post(reverse("tenant-rules"), {**data, "holidays": "Christmas"})

    tenant.refresh_from_db()
    assert rules.of(tenant) == rules.Rules("above", 100, True, 3, ("2026-12-25", "2027-01-01"))
    assert "The rules hold from now on" in saved.content.decode()
    assert (bad.status_code, list(bad.context["rules_form"].errors)) == (422, ["holidays"])
    assert viewer.post(reverse("tenant-rules"), data).status_code == 403


# Who may, and for whom it is not there

POSTS = {
    "request-approve": {"digest": "x"}, "request-decline": {"reason": "other"}, "request-extend": {"reason": "complex", "notice_ref": "M-1"},
    "request-cancel": {"reason": "withdrawn"}, "request-identity": {}, "request-first-answer": {}, "request-recipient": {"recipient": "x"},
    "request-correction": {"category": "items", "what": "title", "rows": 1}, "request-identifier": {"value": "x"}, "request-complete": {},
    "request-notes": {},
}  # fmt: skip


@pytest.mark.parametrize("name", POSTS)
def test_acts_need_their_role_and_tenant(name, officer, viewer, stranger, person):
    request, _token = previews.preview(subject=person, by=officer.actor)
    where = reverse(name, args=[request.ref])

    assert viewer.post(where, POSTS[name]).status_code == 403
    assert stranger.post(where, POSTS[name]).status_code == 404
    assert stored().state == "previewed"


def test_seen_and_receive_stay_in_the_tenant(officer, viewer, stranger, person):
    request, _token = previews.preview(subject=person, by=officer.actor)
    for name, ref in (("request-seen", request.ref), ("subject-receive", person.display_ref)):
        assert stranger.post(reverse(name, args=[ref])).status_code == 404
        assert viewer.post(reverse(name, args=[ref])).status_code == 403
