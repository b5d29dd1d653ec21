"""Archives of exports: parts, and addresses that work once for somebody without an account."""

import asyncio
import io
import os
import re
import zipfile

import pytest
from django.test import AsyncClient, Client
from django.urls import reverse

from governance.domain import exports, requests
from governance.models import Export
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def officer(tenant, sign_in):
    return sign_in(tenant, "privacy_officer")


@pytest.fixture
def request_made(tenant):
    """An export of a person with two files, each in a part of its own."""
    person = governance.subject(tenant, "customer-7")
    session = sessions.session(sessions.agent(tenant, "research"), person, key="case-1")
    for name in ("a.bin", "b.bin"):
        sessions.blob(session, os.urandom(150_000), name=name)
    return exports.work(request_id=requests.export(subject=person, by=governance.lethe(tenant)).id)


@pytest.fixture
def in_parts(settings):
    settings.LETHE = {**settings.LETHE, "export_part_bytes": 200_000}


def post(address):
    """The bytes and headers of a streamed answer to a POST."""

    async def read():
        browser = AsyncClient(enforce_csrf_checks=True)
        response = await browser.post(address)
        return response, b"".join([piece async for piece in response]) if response.streaming else response.content

    return asyncio.run(read())


def links(client, found):
    page = client.post(reverse("request-links", args=[found.ref])).content.decode()
    return re.findall(r"http://testserver(/archives/[^<]+)<", page)


def test_link_is_looked_at_and_then_used_once_without_signing_in(officer, request_made):
    [address] = links(officer, request_made)

    for _scanner in range(2):
        page = Client().get(address)
        assert (page.status_code, page["Cache-Control"]) == (200, "max-age=0, no-cache, no-store, must-revalidate, private")
        assert "what it keeps about you" in page.content.decode()
    response, data = post(address)

    assert response["Content-Disposition"] == f'attachment; filename="export-{request_made.ref}.zip"'
    assert zipfile.ZipFile(io.BytesIO(data)).testzip() is None
    again, _ = post(address)
    assert again.status_code == 404
    assert "was used already" in Client().get(address).content.decode()


def test_request_page_offers_every_part_and_says_what_is_missing(in_parts, officer, request_made):
    stored = Export.objects.get()
    Export.objects.update(omissions=[{"category": "approvals", "rows": 3, "reason": "handler_failed"}])

    page = officer.get(reverse("request", args=[request_made.ref])).content.decode()

    assert len(stored.parts) > 2
    assert page.count("SHA-256") == len(stored.parts)
    assert reverse("request-archive-part", args=[request_made.ref, 2]) in page
    assert "Tool calls that asked for approval: 3 (handler failed)" in page
    assert len(links(officer, request_made)) == len(stored.parts)


def test_links_are_for_those_who_may_export(request_made, sign_in, tenant, stranger):
    auditor = sign_in(tenant, "auditor")

    assert auditor.post(reverse("request-links", args=[request_made.ref])).status_code == 403
    assert stranger.post(reverse("request-links", args=[request_made.ref])).status_code == 404
    assert Client().get(reverse("archive-link", args=["made-up"])).status_code == 404
