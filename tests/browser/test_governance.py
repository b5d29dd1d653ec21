"""A person is found, previewed and erased, and retention is tried out: in a real browser, as an officer would."""

import re
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from playwright.sync_api import expect

from governance.domain import erasure, exports, requests
from governance.models import SubjectRequest
from sessions.models import Item, Session
from tests.factories import governance, sessions


@pytest.fixture
def person(tenant):
    subject = governance.subject(tenant, "customer-7")
    sessions.turns(sessions.session(sessions.agent(tenant, "research"), subject, key="case-1"), 3)
    return subject


def work():
    """What the worker does, in a thread: it wants its own connection."""

    def run():
        try:
            erasure.work(request_id=SubjectRequest.objects.get().pk)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_subject_is_previewed_and_erased(signed_in_page, person, check_accessibility):
    page = signed_in_page
    page.goto("/subjects")
    page.get_by_label("Identifier").fill("customer-7")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(person.display_ref)
    assert "customer-7" not in page.url

    page.get_by_role("button", name="Preview an erasure…").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("What would be erased")
    expect(page.locator("[data-until]")).to_have_text(re.compile(r"^(30|29):\d\d$"))
    page.get_by_role("link", name="6 samples").click()
    expect(page.get_by_text("user says 1", exact=True)).to_be_visible()
    check_accessibility(page)

    page.get_by_role("button", name=re.compile(r"Erase 8 rows…")).click()
    erase = page.get_by_role("button", name="Erase for good")
    expect(erase).to_be_disabled()
    page.get_by_label("Reference of the subject").fill(person.display_ref)
    check_accessibility(page)
    erase.click()
    expect(page.locator("#progress progress").first).to_be_visible()
    work()

    # The page asks every 2 s and finds the end by itself.
    expect(page.get_by_text("verified: nothing is left")).to_be_visible(timeout=10_000)
    expect(page.locator("#progress[hx-get]")).to_have_count(0)
    check_accessibility(page)
    assert not Item.objects.exists()
    with page.expect_download() as download:
        page.get_by_role("link", name="Receipt").click()
    assert download.value.suggested_filename == f"receipt-{SubjectRequest.objects.get().ref}.json"


def test_retention_is_tried_out(signed_in_page, person, check_accessibility):
    Session.objects.update(last_active_at=timezone.now() - timedelta(days=40))
    page = signed_in_page
    page.goto("/retention")
    page.get_by_role("row", name=re.compile("^Sessions")).get_by_role("link", name="Set a limit").click()
    page.get_by_label(re.compile("^Keep for")).fill("30")
    page.get_by_label("Counted from").select_option("last_activity")
    page.get_by_role("button", name="Make the policy").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("counting only")

    page.get_by_role("button", name="Dry run").click()

    expect(page.get_by_role("img", name=re.compile("^Rows by day"))).to_be_visible()
    expect(page.locator("#preview .stat b").first).to_have_text("1")
    check_accessibility(page)
    assert Session.objects.count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_links_for_the_person_are_read_on_a_small_screen(new_page, member, enter, person, check_accessibility, theme):
    found = exports.work(request_id=requests.export(subject=person, by=governance.lethe(person.tenant)).id)
    page = new_page(viewport={"width": 360, "height": 740}, color_scheme=theme)
    enter(page, member)
    page.goto(f"/requests/{found.ref}")

    page.get_by_role("button", name="Links for the person").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Download links")
    expect(page.get_by_role("listitem").filter(has_text="/archives/")).to_be_visible()
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
