"""Finding a person, previewing, exporting, erasing, and the requests that come of it."""

import asyncio
import io
import json
import zipfile

import pytest
from django.test import AsyncClient
from django.urls import reverse

from governance.domain import erasure, exports, fences, previews
from governance.models import AuditEvent, Subject, SubjectRequest
from sessions.models import Item
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def person(tenant):
    """A subject with a session of two turns."""
    subject = governance.subject(tenant, "customer-7")
    sessions.turns(sessions.session(sessions.agent(tenant, "research"), subject, key="case-1"), 2)
    return subject


@pytest.fixture
def officer(tenant, sign_in):
    return sign_in(tenant, "privacy_officer")


def preview(client, person):
    """Preview through the pages; returns the request and its page."""
    response = client.post(reverse("subject-preview", args=[person.display_ref]), {"profile": "gdpr"}, follow=True)
    return SubjectRequest.objects.get(subject=person, kind="erase", state="previewed"), response


# Finding


def test_subject_is_found_by_identifier_and_leaves_no_trace_of_it(officer, person):
    response = officer.post(reverse("subjects"), {"q": "customer-7"})

    assert response.url == reverse("subject", args=[person.display_ref])
    told = AuditEvent.objects.get(action="subject.searched")
    assert "customer-7" not in json.dumps(told.payload) + told.object_label


def test_subject_is_not_found_by_a_part_of_its_identifier(officer, person):
    response = officer.post(reverse("subjects"), {"q": "customer"})

    assert response.context["found"] == []
    assert "Nobody has this name here" in response.content.decode()


def test_subject_of_another_tenant_is_not_found(officer, stranger, person):
    other = governance.subject(stranger.membership.tenant, "customer-7")

    response = officer.post(reverse("subjects"), {"q": "customer-7"})

    assert response.url == reverse("subject", args=[person.display_ref])
    assert officer.get(reverse("subject", args=[other.display_ref])).status_code == 404


def test_subject_page_counts_what_is_held_and_starts_no_request(officer, person):
    response = officer.get(reverse("subject", args=[person.display_ref]))

    assert {category.key: rows for category, rows in response.context["held"]} == {"items": 4, "sessions": 1, "subject_identifiers": 1}
    assert not SubjectRequest.objects.exists()


def test_identifiers_are_shown_on_request_and_that_is_told(officer, person):
    page = officer.get(reverse("subject", args=[person.display_ref])).content.decode()
    shown = officer.post(reverse("subject-identifiers", args=[person.display_ref]), headers={"HX-Request": "true"}).content.decode()

    assert "customer-7" not in page
    assert "customer-7" in shown
    assert AuditEvent.objects.get(action="content.read").payload == {"what": "identifiers", "rows": 1}


@pytest.mark.parametrize("name", ["subject-identifiers", "subject-preview", "subject-export", "subject-restrict", "subject-lift", "subject-merge"])
def test_foreign_subject_is_not_found(stranger, person, name):
    assert stranger.post(reverse(name, args=[person.display_ref]), {"profile": "gdpr"}).status_code == 404


@pytest.mark.parametrize("name", ["subject-identifiers", "subject-preview", "subject-export", "subject-restrict", "subject-lift", "subject-merge"])
def test_subject_pages_need_their_roles(viewer, person, name):
    assert viewer.get(reverse("subjects")).status_code == 403
    assert viewer.get(reverse("subject", args=[person.display_ref])).status_code == 403
    assert viewer.post(reverse(name, args=[person.display_ref]), {"profile": "gdpr"}).status_code == 403


def test_approver_may_look_and_not_act(sign_in, tenant, person):
    approver = sign_in(tenant, "privacy_approver")

    assert approver.get(reverse("subject", args=[person.display_ref])).status_code == 200
    assert approver.post(reverse("subject-export", args=[person.display_ref])).status_code == 403
    assert approver.post(reverse("subject-restrict", args=[person.display_ref])).status_code == 403


def test_subject_is_restricted_and_opened_again(officer, person):
    officer.post(reverse("subject-restrict", args=[person.display_ref]))
    person.refresh_from_db()
    restricted = person.state
    officer.post(reverse("subject-lift", args=[person.display_ref]))
    person.refresh_from_db()

    assert (restricted, person.state) == (Subject.State.RESTRICTED, Subject.State.ACTIVE)


# Preview and erasure


def test_preview_shows_rows_by_category_and_the_deadline(officer, person):
    request, response = preview(officer, person)

    assert response.redirect_chain == [(reverse("request", args=[request.ref]), 302)]
    assert {entry["key"]: entry["rows"] for entry in response.context["entries"]} == {"items": 4, "sessions": 1, "subject_identifiers": 1}
    assert "Erase 6 rows…" in response.content.decode()
    assert request.due_at is not None


def test_preview_with_an_impossible_date_is_said_at_the_field(officer, person):
    response = officer.post(reverse("subject-preview", args=[person.display_ref]), {"profile": "gdpr", "received_on": "2999-01-01"})

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["received_on"]


def test_preview_of_somebody_else_cannot_be_confirmed_but_made_again(officer, sign_in, tenant, person):
    request, _page = preview(officer, person)
    colleague = sign_in(tenant, "privacy_officer")

    response = colleague.get(reverse("request", args=[request.ref]))

    assert response.context["is_usable"] is False
    assert "Preview again" in response.content.decode()


def test_samples_are_shown_on_request_and_that_is_told(officer, person):
    request, response = preview(officer, person)
    shown = officer.get(reverse("request-samples", args=[request.ref, "items"]), headers={"HX-Request": "true"}).content.decode()

    assert "user says 1" not in response.content.decode()
    assert "user says 1" in shown
    assert AuditEvent.objects.get(action="content.read").payload["category"] == "items"


def test_samples_of_an_unknown_category_are_not_found(officer, person):
    request, _page = preview(officer, person)

    assert officer.get(reverse("request-samples", args=[request.ref, "nothing"])).status_code == 404


def confirm(client, page, person, **changes):
    form = page.context["erase_form"]
    data = {"token": form["token"].value(), "reason": "subject_request", "confirm": person.display_ref}
    return client.post(reverse("request-erase", args=[page.context["item"].ref]), data | changes)


def test_erasure_needs_the_typed_reference(officer, person):
    _request, page = preview(officer, person)

    response = confirm(officer, page, person, confirm="S-WRONG")

    assert response.status_code == 422
    assert '<dialog id="erase" aria-labelledby="erase-title" data-open>' in response.content.decode()
    assert Item.objects.count() == 4


def test_erasure_runs_and_leaves_a_receipt(officer, person):
    request, page = preview(officer, person)

    started = confirm(officer, page, person)
    under_way = officer.get(reverse("request-progress", args=[request.ref]))
    erasure.work(request_id=request.pk)
    over = officer.get(reverse("request-progress", args=[request.ref]))
    receipt = officer.get(reverse("request", args=[request.ref])).content.decode()
    document = json.loads(officer.get(reverse("request-receipt", args=[request.ref])).content)

    assert started.url == reverse("request", args=[request.ref])
    assert 'hx-trigger="every 2s"' in under_way.content.decode()
    assert over["HX-Refresh"] == "true"
    assert "verified: nothing is left" in receipt
    assert document["verification"]["hits"] == 0
    assert not Item.objects.exists()
    assert officer.get(reverse("subject", args=[person.display_ref])).context["is_erased"]


def test_erasure_stops_and_shows_what_was_added(officer, person):
    request, page = preview(officer, person)
    sessions.item(sessions.session(sessions.agent(person.tenant, "late"), person))
    confirm(officer, page, person)

    erasure.work(request_id=request.pk)

    response = officer.get(reverse("request", args=[request.ref]))
    assert [(entry["key"], entry["added"]) for entry in response.context["drift"]] == [("items", 1), ("sessions", 1)]
    assert "nothing was erased" in response.content.decode()
    assert Item.objects.count() == 5


def test_receipt_before_the_end_is_not_found(officer, person):
    request, _page = preview(officer, person)

    assert officer.get(reverse("request-receipt", args=[request.ref])).status_code == 404


def test_request_is_cancelled(officer, person):
    request, _page = preview(officer, person)

    officer.post(reverse("request-cancel", args=[request.ref]), {"reason": "withdrawn"})

    request.refresh_from_db()
    assert request.state == SubjectRequest.State.CANCELLED
    assert "Nothing was erased" in officer.get(reverse("request", args=[request.ref])).content.decode()


def test_request_that_ended_is_not_cancelled(officer, person):
    request, _page = preview(officer, person)
    officer.post(reverse("request-cancel", args=[request.ref]), {"reason": "withdrawn"})

    response = officer.post(reverse("request-cancel", args=[request.ref]), {"reason": "mistake"}, follow=True)

    assert "The request has ended or is being carried out" in response.content.decode()
    request.refresh_from_db()
    assert request.reason == "withdrawn"


def test_preview_again_replaces_the_first(officer, person):
    request, page = preview(officer, person)
    officer.post(reverse("request-preview", args=[request.ref]))

    response = confirm(officer, page, person)

    assert response.status_code == 422
    assert "newer preview" in response.content.decode()


# One person, two subjects


def test_subjects_are_merged_by_reference(officer, tenant, person):
    other = governance.subject(tenant, "customer-7@work")
    sessions.session(sessions.agent(tenant, "sales"), other)

    page = officer.post(reverse("subject-merge", args=[person.display_ref]), {"other": other.display_ref.lower()}, follow=True)

    assert "now has everything of both" in page.content.decode()
    assert Subject.objects.get(pk=other.pk).state == "merged"
    assert "was merged into another one" in officer.get(reverse("subject", args=[other.display_ref])).content.decode()
    missing = officer.post(reverse("subject-merge", args=[person.display_ref]), {"other": "S-0000-0000"}, follow=True)
    assert "no subject with this reference" in missing.content.decode()


# Export


def download(client, url):
    """The bytes of an answer that is streamed asynchronously, as the server streams it."""
    browser = AsyncClient()
    browser.cookies = client.cookies

    async def read():
        response = await browser.get(url)
        return b"".join([piece async for piece in response.streaming_content])

    return asyncio.run(read())


def test_export_is_made_and_downloaded(officer, person):
    response = officer.post(reverse("subject-export", args=[person.display_ref]))
    request = SubjectRequest.objects.get(kind="export")
    exports.work(request_id=request.pk)
    page = officer.get(response.url).content.decode()
    archive = download(officer, reverse("request-archive", args=[request.ref]))

    assert "Archive, " in page
    assert "data/items.jsonl" in zipfile.ZipFile(io.BytesIO(archive)).namelist()
    assert AuditEvent.objects.filter(action="export.downloaded").count() == 1


def test_archive_before_it_is_made_is_not_found(officer, person):
    officer.post(reverse("subject-export", args=[person.display_ref]))

    assert officer.get(reverse("request-archive", args=[SubjectRequest.objects.get().ref])).status_code == 404


# Requests


@pytest.mark.parametrize(
    "name, method",
    [("request", "get"), ("request-progress", "get"), ("request-receipt", "get"), ("request-archive", "get"), ("request-preview", "post"), ("request-erase", "post"), ("request-cancel", "post")],
)
def test_foreign_request_is_not_found(stranger, officer, person, name, method):
    request, _page = preview(officer, person)

    assert getattr(stranger, method)(reverse(name, args=[request.ref]), {"reason": "withdrawn"}).status_code == 404


def test_request_pages_need_their_roles(viewer, sign_in, tenant, officer, person):
    request, _page = preview(officer, person)
    auditor = sign_in(tenant, "auditor")

    assert viewer.get(reverse("requests")).status_code == 403
    assert auditor.get(reverse("requests")).status_code == 200
    assert auditor.get(reverse("request", args=[request.ref])).status_code == 200
    assert auditor.get(reverse("request-samples", args=[request.ref, "items"])).status_code == 403
    assert auditor.post(reverse("request-erase", args=[request.ref])).status_code == 403
    assert auditor.post(reverse("request-cancel", args=[request.ref]), {"reason": "mistake"}).status_code == 403
    assert auditor.get(reverse("request-archive", args=[request.ref])).status_code == 403


def test_request_list_filters_and_costs_the_same_for_more_rows(officer, tenant, person, queries_of):
    preview(officer, person)
    one = queries_of(officer, reverse("requests"))
    for name in ("a", "b"):
        previews.preview(subject=governance.subject(tenant, name), by=officer.actor)

    assert queries_of(officer, reverse("requests")) == one
    assert len(officer.get(reverse("requests"), {"state": "previewed"}).context["listing"].results) == 3
    assert officer.get(reverse("requests"), {"state": "completed"}).context["listing"].results == []
    assert officer.get(reverse("requests"), {"state": "nonsense"}).status_code == 400


def test_restricted_subject_cannot_be_erased(officer, person):
    _request, page = preview(officer, person)
    fences.restrict(subject=person, by=officer.actor)

    response = confirm(officer, page, person)

    assert response.status_code == 422
    assert "restricted" in response.content.decode()
