"""No path approves its own request: every address that touches one, every role, and every way to be the same person.

EX-05: documents promise two approvers, while any single member can approve.
"""

import json
import time
from dataclasses import replace

import pytest
from django.test import Client
from django.urls import NoReverseMatch, reverse

from console import stepup
from console.urls import govern
from governance.domain import keys, members, previews, requests, rules
from governance.models import AuditEvent, Member, SubjectRequest
from governance.permissions import PERMISSIONS, ROLES, SCOPES
from tests.console.api.conftest import Api, undone
from tests.console.api.routes import CALLS
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db
WAITING = SubjectRequest.State.AWAITING_APPROVAL
# Under way, or done: where only a second person can bring a request.
PAST = {"fencing", "executing", "verifying", "completed", "completed_with_exceptions"}
# What any of the forms and bodies asks for, apart from going on alone, which is a rule of its own.
SENT = {
    "reason": "other", "text": "words", "notice_ref": "M-1", "kind": "erase", "profile": "gdpr", "category": "items",
    "what": "title", "rows": 1, "recipient": "x", "value": "x", "ref": "x",
}  # fmt: skip


@pytest.fixture
def tenant(db):
    made = governance.tenant("northwind")
    rules.change(tenant=made, four_eyes="always", by=governance.lethe(made))
    return made


@pytest.fixture
def person(tenant):
    subject = governance.subject(tenant, "customer-7")
    sessions.conversation(sessions.agent(tenant, "research"), subject)
    return subject


def browser(member) -> Client:
    """Somebody who has just entered their password, with the session's token for the API."""
    client = Client()
    client.force_login(member)
    session = client.session
    session[stepup.KEY] = time.time()
    session.save()
    return client


def ask(person, by):
    _, token = previews.preview(subject=person, by=by)
    request = requests.erase(subject=person, token=token, confirm=person.display_ref, reason="subject_request", by=by)
    assert request.state == WAITING
    return request, token


def actor(tenant, *roles):
    member = governance.member(tenant, roles)
    return member, members.actor_of(membership=member.memberships.select_related("member").get())


def key_of(tenant, by):
    """A key that this person made while they were an administrator."""
    by = replace(by, permissions=frozenset(PERMISSIONS))
    _, secret = keys.create_key(tenant_id=tenant.id, name=f"key {by.label}", scopes=[scope for scope in SCOPES if scope != "subjects:assert"], by=by)
    return keys.authenticate(secret=secret), Api(secret)


def pages(request, person):
    """Every address of governance's pages, filled with this request or subject."""
    for pattern in govern:
        for values in ([request.ref], [person.display_ref], [request.ref, "items"], []):
            try:
                yield pattern.name, reverse(pattern.name, args=values)
            except NoReverseMatch:
                continue


def calls(request, person):
    """Every call of the API about a request or a subject."""
    for call in CALLS:
        if "subject" in call.path:
            path = call.path.format(request=f"req_{request.id.hex}", person=person.display_ref)
            yield call.method, path


def moved():
    return SubjectRequest.objects.filter(state__in=PAST).exists() or SubjectRequest.objects.exclude(approver="").exists()


def test_no_page_lets_whoever_asked_approve(tenant, person):
    member, by = actor(tenant, *ROLES)
    request, token = ask(person, by)
    client = browser(member)
    sent = SENT | {"digest": request.digest, "token": token, "confirm": person.display_ref}

    found, tried = {}, set()
    for name, address in pages(request, person):
        with undone():
            for method in (client.get, client.post):
                method(address, sent)
                if moved():
                    found[name] = address
        tried.add(name)

    assert {"request-approve", "request-decline", "request-erase", "request-preview"} <= tried
    assert found == {}


@pytest.mark.parametrize("how", ["session", "key"])
def test_no_call_lets_whoever_asked_approve(tenant, person, how):
    member, by = actor(tenant, *ROLES)
    key, api = key_of(tenant, by)
    request, token = ask(person, key)
    client = browser(member) if how == "session" else api
    sent = SENT | {"digest": request.digest, "preview_token": token, "confirm": person.display_ref}

    found = set()
    for method, path in calls(request, person):
        with undone():
            for body in (sent, {"digest": request.digest}, {"reason": "other"}, {"preview_token": token, "confirm": person.display_ref}, {}):
                if how == "session":
                    client.generic(method, f"/api{path}", json.dumps(body), content_type="application/json")
                else:
                    client.ask(method, path, body)
            if moved():
                found.add(path.rpartition("/")[2])

    assert found == set()


@pytest.mark.parametrize("role", ROLES)
def test_approval_by_role(tenant, person, role):
    """Somebody else approves with exactly one role, by the page and by the API; the one who asked with none."""
    _, officer = actor(tenant, "privacy_officer")
    request, _ = ask(person, officer)
    other, _ = actor(tenant, role)
    client = browser(other)
    ways = {
        "page": lambda: client.post(reverse("request-approve", args=[request.ref]), {"digest": request.digest}),
        "api": lambda: client.post(f"/api/subject-requests/{request.ref}/approve", {"digest": request.digest}, content_type="application/json"),
    }

    states = {}
    for name, way in ways.items():
        with undone():
            way()
            states[name] = SubjectRequest.objects.get().state

    expected = "fencing" if role == "privacy_approver" else WAITING
    assert states == {"page": expected, "api": expected}


@pytest.mark.parametrize("first", ["member", "key"])
@pytest.mark.parametrize("role", ROLES)
def test_self_approval_by_role(tenant, person, role, first):
    """The same person, whatever their other role, whether they asked by themselves or through a key of theirs."""
    member, by = actor(tenant, *{"privacy_officer", "privacy_approver", role})
    request, _ = ask(person, by if first == "member" else key_of(tenant, by)[0])
    client = browser(member)

    page = client.post(reverse("request-approve", args=[request.ref]), {"digest": request.digest})
    call = client.post(f"/api/subject-requests/{request.ref}/approve", {"digest": request.digest}, content_type="application/json")

    assert (page.status_code, call.status_code, call.json()["code"]) == (422, 403, "self_approval")
    assert SubjectRequest.objects.get().state == WAITING
    assert not AuditEvent.objects.filter(action="request.approved").exists()


def test_keys_of_another_person_do_not_make_two_of_one(tenant, person):
    """A key made through a key still belongs to whoever made the first."""
    member, by = actor(tenant, "tenant_admin", "privacy_approver")
    first, _ = key_of(tenant, by)
    _, secret = keys.create_key(tenant_id=tenant.id, name="second", scopes=["governance:write"], by=first)
    request, _ = ask(person, keys.authenticate(secret=secret))

    with pytest.raises(requests.SelfApproval):
        requests.approve(request=request, digest=request.digest, by=by)
    assert Member.objects.get(pk=member.pk).memberships.count() == 1
