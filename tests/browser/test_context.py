"""A conversation that outgrows what its agent is shown: from the setting to the summary, in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from agents.models import Agent
from sessions.domain import definitions as compiled
from sessions.engine import background, runner
from sessions.models import Summary
from tests.browser.test_editor import checked
from tests.browser.test_playground import LONG, answers, talk
from tests.factories import agents, governance, sessions

expect.set_options(timeout=20_000)


@pytest.fixture(autouse=True)
def fresh_definitions():
    compiled.forget()
    yield
    compiled.forget()


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
    runner.runner().call(background.finished()).result(60)
    assert Summary.objects.filter(session=session, is_stale=False).exists()
    talk(page, "And once more, please.")
    expect(answers(page)).to_have_count(6)

    expect(page.locator("#saw")).to_contain_text("Summary")
    page.locator("#turns article").last.get_by_role("link", name="Run").click()
    expect(page.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Summary")
    page.goto(f"/sessions/ses_{session.id.hex}")
    expect(page.locator("#summaries")).to_contain_text(re.compile(r"Items 1 to \d+: \d+ tokens instead of [\d,]+"))
    assert Agent.objects.get(name="research").versions.count() == 2
