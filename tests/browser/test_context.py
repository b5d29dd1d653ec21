"""A conversation that outgrows what its agent is shown: from the setting to the summary, in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from agents.models import Agent
from sessions.models import Summary
from tests.browser.test_editor import checked
from tests.browser.test_playground import LONG, answers, talk
from tests.factories import agents, governance, sessions
from tests.sessions.domain.conftest import rested

expect.set_options(timeout=20_000)


@pytest.fixture
def session(tenant):
    """A conversation with the agent, long enough to be worth a summary."""
    made = sessions.session(agents.published(tenant, "research"), governance.subject(tenant), title="The blue parcel")
    for _ in range(4):
        sessions.item(made, content={"text": LONG}, tokens=250)
        sessions.item(made, role="assistant", content={"text": "I see."})
    return made


def test_compaction_from_the_editor_to_the_summary(signed_in_page, session):
    page = signed_in_page
    page.goto("/agents/research/edit")
    page.locator("#f-compaction").check()
    page.get_by_label("Strategy").select_option("summarization")
    page.locator("#f-compaction-trigger_turns").fill("4")
    with checked(page):
        page.locator("#f-compaction-minimum_preserved_turns").fill("1")

    # What would be seen of a stored conversation, before anything is saved.
    page.get_by_role("tab", name="What it sees").click()
    panel = page.locator("#whatif")
    expect(panel).to_contain_text("The blue parcel")
    expect(panel).to_contain_text(re.compile("summarised|summary", re.I))
    page.get_by_role("button", name="Publish…").click()
    page.get_by_label("Note").fill("Summaries")
    page.get_by_role("button", name=re.compile("^Publish version")).click()
    expect(page.locator("#messages")).to_contain_text("is published.")

    # Past the trigger: a summary is written after the answer, and stands for the beginning in the next one.
    page.goto(f"/playground?session=ses_{session.id.hex}")
    talk(page, "Tell me about yourself.")
    expect(answers(page)).to_have_count(5)
    rested()
    assert Summary.objects.filter(session=session, is_stale=False).exists()
    talk(page, "And once more, please.")
    expect(answers(page)).to_have_count(6)

    expect(page.locator("#saw")).to_contain_text("Summary")
    page.locator("#turns article").last.get_by_role("link", name="Run").click()
    expect(page.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(page.locator(".waterfall")).to_contain_text(re.compile(r"History compacted [\d,]+ tokens shown as [\d,]+; items 1–\d+ by a summary"))

    # From the part of the context to the mark in the transcript, and from there to what it stands for.
    page.get_by_text("Where each part comes from").first.click()
    page.get_by_role("link", name=re.compile(r"items 1-\d+")).first.click()
    mark = page.locator(".stands")
    expect(mark).to_have_count(1)
    expect(mark).to_be_in_viewport()
    expect(mark.locator("summary")).to_have_text(re.compile(r"\d+ messages summarised here, \d+ tokens instead of [\d,]+\s*current"))
    expect(mark.locator(".answer")).to_be_hidden()
    mark.locator("summary").click()
    expect(mark.locator(".answer")).to_contain_text("Summary of your")
    mark.get_by_role("link", name=re.compile(r"The original, items 1 to \d+")).click()
    expect(page).to_have_url(re.compile("#item-1$"))
    expect(page.locator("#item-1")).to_be_in_viewport()
    page.goto(f"/sessions/ses_{session.id.hex}")
    expect(page.locator("#summaries")).to_contain_text(re.compile(r"Items 1 to \d+: \d+ tokens instead of [\d,]+"))
    assert Agent.objects.get(name="research").versions.count() == 2


@pytest.fixture
def long_session(tenant):
    """A conversation of four pages with a summary that ends on the second, one that it replaced, and a stale one."""
    made = sessions.session(agents.published(tenant, "research"), governance.subject(tenant), title="The long way")
    sessions.turns(made, 110)
    sessions.summary(made, 20, text="", is_stale=True, tokens=0)
    sessions.summary(made, 40, text="They agreed on **blue**.", tokens=61, source_tokens=1_480)
    sessions.summary(made, 90, text="They agreed on **blue**:\n\n- the parcel is blue\n- it comes on Friday", tokens=118, source_tokens=3_310)
    return made


def test_original_of_a_summary_on_another_page_is_found_without_a_script(new_page, member, enter, long_session):
    page = new_page(java_script_enabled=False)
    enter(page, member)
    page.goto(f"/sessions/ses_{long_session.id.hex}")
    expect(page.locator(".stands")).to_have_count(0)

    page.get_by_role("link", name="Summarised up to item 90").click()
    mark = page.locator("#summary-90")
    expect(mark).to_be_in_viewport()
    mark.locator("summary").click()
    expect(mark.get_by_role("listitem").first).to_have_text("the parcel is blue")
    mark.get_by_role("link", name="The original, items 1 to 90").click()

    expect(page.locator("#item-1")).to_be_in_viewport()
    expect(page.locator(".stands > summary")).to_have_text(
        [re.compile("20 messages were summarised here, and one changed since.*stale", re.S), re.compile("40 messages summarised here.*replaced", re.S)]
    )
    page.get_by_role("link", name="Newer").click()
    expect(page.locator("article").first).to_contain_text("user says 61")
    expect(page.locator("#summary-90")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_of_summaries_have_no_barrier_and_fit_a_narrow_window(new_page, member, enter, long_session, check_accessibility, theme):
    page = new_page(viewport={"width": 360, "height": 740}, color_scheme=theme)
    enter(page, member)

    for address in (f"/sessions/ses_{long_session.id.hex}?after=0", f"/sessions/ses_{long_session.id.hex}?before=91"):
        page.goto(address)
        for mark in page.locator(".stands > summary").all():
            mark.click()
        check_accessibility(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_todos_are_changed_on_the_page_of_their_session(new_page, member, enter, tenant, check_accessibility, theme):
    kept = [{"id": 1, "title": "Find the invoice", "done": False}, {"id": 2, "title": "Call the supplier", "done": True}]
    agent = agents.published(tenant, "lister", harness={})
    session = sessions.session(agent, state={"todos": kept})
    page = new_page(viewport={"width": 360, "height": 740}, color_scheme=theme)
    enter(page, member)
    page.goto(f"/sessions/ses_{session.id.hex}")

    page.get_by_role("button", name="Edit todos…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("checkbox", name="Done: Find the invoice").check()
    dialog.get_by_role("textbox", name="Todo 2").fill("")
    dialog.get_by_label("Add").fill("Write it down")
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dialog.get_by_role("button", name="Save").click()

    expect(page.locator("#work li")).to_have_text([re.compile("Find the invoice"), re.compile("Write it down")])
    session.refresh_from_db()
    assert session.state["todos"] == [
        {"id": 1, "title": "Find the invoice", "done": True}, {"id": 3, "title": "Write it down", "done": False}
    ]
