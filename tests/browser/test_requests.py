"""An erasure that takes two people, in two browsers, and its receipt checked elsewhere."""

import re
import threading

import pytest
from django.core.management import call_command
from django.db import connection
from playwright.sync_api import expect

from governance import signing
from governance.domain import erasure, rules
from governance.models import SubjectRequest
from sessions.models import Item
from tests.browser.conftest import sign_in
from tests.factories import governance, sessions


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def person(tenant):
    subject = governance.subject(tenant, "customer-7")
    sessions.turns(sessions.session(sessions.agent(tenant, "research"), subject, key="case-1"), 2)
    rules.change(tenant=tenant, four_eyes="always", by=governance.lethe(tenant))
    return subject


def in_thread(act):
    """The worker and the command want a connection of their own."""
    failed = []

    def run():
        try:
            act()
        except BaseException as error:  # noqa: BLE001 -- handed to the test
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failed == []


def test_two_people_erase_and_the_receipt_holds(new_page, tenant, person, enter, check_accessibility, tmp_path):
    officer, approver = new_page(), new_page()
    governance.member(tenant, ("privacy_officer",), username="olga")
    sign_in(officer, "olga")
    enter(approver, governance.member(tenant, ("privacy_approver",), username="paul"))

    # The officer previews and confirms.
    officer.goto(f"/subjects/{person.display_ref}")
    officer.get_by_role("button", name="Preview an erasure…").click()
    officer.get_by_role("dialog").get_by_role("button", name="Preview").click()
    officer.get_by_role("button", name=re.compile("^Erase .* rows…")).click()
    dialog = officer.get_by_role("dialog")
    expect(dialog.get_by_text("A second person is asked before anything is erased.")).to_be_visible()
    dialog.get_by_label("Reference of the subject").fill(person.display_ref)
    check_accessibility(officer)
    dialog.get_by_role("button", name="Erase for good").click()
    expect(officer.get_by_role("heading", level=1)).to_contain_text("waiting for approval")
    assert Item.objects.count() == 4

    # The second person finds it on the board, looks at the rows, and approves in place.
    request = SubjectRequest.objects.get()
    approver.goto("/requests")
    row = approver.get_by_role("row", name=re.compile(request.ref))
    row.get_by_role("link", name=request.ref).click()
    expect(approver.get_by_role("heading", level=1)).to_contain_text("Erase this?")
    check_accessibility(approver)
    approver.goto("/requests")
    row.get_by_role("link", name="Approve").click()
    approve = approver.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_visible()
    check_accessibility(approver)
    approve.click()
    expect(approver.get_by_text("was approved and is carried out now")).to_be_visible()
    in_thread(lambda: erasure.work(request_id=request.pk))

    # The officer reads the receipt, records that a recipient was told, and takes it elsewhere.
    officer.goto(f"/requests/{request.ref}")
    expect(officer.get_by_text("signature holds")).to_be_visible()
    expect(officer.get_by_text("paul")).to_be_visible()
    check_accessibility(officer)
    # Nothing of it is wider than a telephone.
    officer.set_viewport_size({"width": 360, "height": 740})
    assert officer.evaluate("document.documentElement.scrollWidth") <= 360
    officer.set_viewport_size({"width": 1360, "height": 920})
    officer.get_by_role("button", name="They were told").first.click()
    expect(officer.get_by_role("button", name="They answered").first).to_be_visible()
    with officer.expect_download() as download:
        officer.get_by_role("link", name="Receipt", exact=True).click()
    file = tmp_path / "receipt.json"
    download.value.save_as(file)
    in_thread(lambda: call_command("verify_receipt", str(file), "--key", signing.public_key()))
    assert not Item.objects.exists()


def test_act_in_place_works_on_a_narrow_window_and_by_keyboard(new_page, tenant, person, enter, check_accessibility):
    page = new_page(viewport={"width": 360, "height": 740})
    enter(page, governance.member(tenant, ("privacy_officer",), username="olga"))
    # Above a short page, too, the bar is as high as its button.
    page.goto("/subjects")
    assert page.locator(".topbar").bounding_box()["height"] < 60
    page.goto(f"/subjects/{person.display_ref}")
    page.get_by_role("button", name="Record a request…").click()
    page.get_by_role("dialog").get_by_role("button", name="Record").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("received")
    check_accessibility(page)
    page.goto("/requests")

    link = page.get_by_role("link", name="Extend")
    link.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Notice to the person").fill("MAIL-118")
    page.keyboard.press("Enter")

    expect(page.get_by_text("has more time now")).to_be_visible()
    expect(page.get_by_text("extended")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    check_accessibility(page)
