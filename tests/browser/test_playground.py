"""Talking to an agent in a real browser: streaming, approvals in place, reloading, stopping and forking."""

import re

import pytest
from playwright.sync_api import expect

from agents.domain import definitions
from agents.domain.demo import seed_demo_agents
from agents.models import Agent
from governance.actors import system
from governance.ids import shown
from sessions.models import Approval, Run, Session
from tests.factories import governance, sessions

# A loaded machine takes its time to start a run.
expect.set_options(timeout=20_000)
LONG = "She wrote again about invoice 2026-118, which was charged twice in May. Nobody has called her back. " * 8


@pytest.fixture
def agents(tenant):
    by = system(tenant.id)
    seed_demo_agents(tenant_id=tenant.id, by=by)
    slow = {
        "name": "slow", "instructions": "Answer one word at a time.", "model": {"provider": "demo", "model": "demo-1-slow"},
        "compaction": {"strategy": "none"},
    }  # fmt: skip
    definitions.publish(agent=definitions.create_agent(tenant_id=tenant.id, document=slow, by=by), note="", by=by)


@pytest.fixture
def page(agents, signed_in_page):
    return signed_in_page


@pytest.fixture
def talkative(page, tenant):
    """A page of a session whose next answer takes many seconds: it quotes everything that was said."""
    session = sessions.session(Agent.objects.get(tenant=tenant, name="slow"), governance.subject(tenant))
    for number in range(8):
        sessions.item(session, content={"text": f"Number {number}. {LONG}"})
        sessions.item(session, role="assistant", content={"text": "I see."})
    page.goto(f"/playground?session={shown('ses', session.id)}")
    talk(page, "What did I ask you before?")
    expect(page.locator("[data-stream] .text")).to_contain_text("You wrote, oldest first")
    return page


def talk(page, message):
    page.get_by_role("textbox", name="Message").fill(message)
    page.keyboard.press("Enter")


def answers(page):
    """The agent's turns that are over and were run here."""
    return page.locator("#turns article:not(.user):not([data-stream])")


def test_chat_streams_and_the_second_answer_knows_the_first_message(page):
    page.goto("/playground?agent=research")

    talk(page, "My name is Ada. How many words are in: remember what you should?")
    expect(answers(page)).to_have_count(1)
    talk(page, "What is my name?")
    expect(answers(page)).to_have_count(2)

    first, second = answers(page).all()
    expect(first.locator(".call .tool")).to_contain_text("count_text")
    expect(first).to_contain_text("The text has")
    expect(first.locator(".who")).to_contain_text(re.compile(r"research · demo-1.*\d+ in · \d+ out"))
    expect(second).to_contain_text("Ada")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    expect(page.locator("#saw")).to_contain_text("History")
    assert "session=ses_" in page.url
    assert Session.objects.get().turns == 2


def test_tool_card_opens_to_arguments_and_result(page):
    page.goto("/playground?agent=research")
    talk(page, "How many words are in: one two three?")
    expect(answers(page)).to_have_count(1)

    page.locator(".call > summary").click()

    expect(page.locator(".call .payload")).to_contain_text("one two three")
    expect(page.locator(".call .payload")).to_contain_text("Result")


def test_approval_is_answered_in_place(page):
    page.goto("/playground?agent=careful")
    talk(page, "What is 12 * (3 + 4)?")

    page.get_by_role("button", name="Approve").click()

    expect(answers(page)).to_have_count(1)
    expect(answers(page)).to_contain_text("84")
    expect(answers(page)).to_contain_text("approved by ann")
    assert Approval.objects.get().status == "approved"


def test_approval_with_other_arguments_runs_those(page):
    page.goto("/playground?agent=careful")
    talk(page, "What is 12 * (3 + 4)?")
    page.get_by_text("Arguments, reason, remember").click()

    page.get_by_label("Arguments").fill("{")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".asks .err")).to_contain_text("This is not JSON")
    page.get_by_label("Arguments").fill('{"expression": "12 * 10"}')
    page.get_by_role("button", name="Approve").click()

    expect(answers(page)).to_contain_text("120")
    assert Approval.objects.get().edited_arguments == {"expression": "12 * 10"}


def test_rejection_gives_the_model_its_reason(page):
    page.goto("/playground?agent=careful")
    talk(page, "What is 12 * (3 + 4)?")
    page.get_by_text("Arguments, reason, remember").click()
    page.get_by_label("Reason").fill("Use a table instead.")

    page.get_by_role("button", name="Reject").click()

    expect(answers(page)).to_contain_text("rejected by ann")
    expect(answers(page)).to_contain_text("Use a table instead.")


def test_reload_in_the_middle_of_a_stream_resumes_it(talkative):
    page = talkative

    page.reload()

    live = page.locator("[data-stream]")
    expect(live.locator(".text")).to_contain_text("You wrote, oldest first")
    before = len(live.inner_text())
    expect(live.locator(".text")).to_contain_text("Number 1.")
    # It goes on, and what was streamed before the reload is there once.
    assert len(live.inner_text()) > before
    assert live.inner_text().count("You wrote, oldest first") == 1
    assert Run.objects.count() == 1
    page.get_by_role("button", name="Stop").click()
    expect(live).to_have_count(0)


def test_session_page_follows_a_run_too(talkative):
    page = talkative

    page.get_by_role("link", name="open its page").click()

    live = page.locator("article[data-stream]")
    expect(live.locator(".text")).to_contain_text("You wrote, oldest first")
    live.get_by_role("button", name="Stop").click()
    expect(live).to_have_count(0)
    expect(page.locator("article").last).to_contain_text("Stopped.")


def test_run_is_stopped_and_keeps_what_it_said(talkative):
    page = talkative

    page.get_by_role("button", name="Stop").click()

    expect(page.locator("[data-stream]")).to_have_count(0)
    expect(answers(page).last).to_contain_text("Stopped. What it had said is kept.")
    expect(answers(page).last).to_contain_text("You wrote, oldest first")
    assert Run.objects.get().status == "cancelled"


def test_refused_message_is_kept_with_its_reason(talkative):
    page = talkative

    talk(page, "And another thing")

    expect(page.locator("#composer-problem")).to_contain_text("Another turn of this session is running.")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("And another thing")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-stream]")).to_have_count(0)
    talk(page, "And another thing")
    expect(page.locator("#composer-problem")).to_be_hidden()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-stream]")).to_have_count(0)


def test_conversation_is_forked_from_a_turn(page):
    page.goto("/playground?agent=research")
    for number, message in enumerate(("Remember the number 7.", "Remember the number 8."), start=1):
        talk(page, message)
        expect(answers(page)).to_have_count(number)

    page.get_by_role("button", name="Fork from here").first.click()

    expect(page.get_by_text("This is the fork.")).to_be_visible()
    expect(answers(page)).to_have_count(1)
    talk(page, "What did I ask you before?")
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last).to_contain_text("number 7")
    expect(answers(page).last).not_to_contain_text("number 8")


def test_attachment_is_named_before_and_after_sending(page):
    page.goto("/playground?agent=research")
    page.locator("#attachments").set_input_files({"name": "note.md", "mimeType": "text/markdown", "buffer": b"# A note"})
    expect(page.locator("[data-files]")).to_have_text("note.md")

    talk(page, "What is in it?")

    expect(page.locator(".msg.user")).to_contain_text("note.md")
    expect(page.locator("[data-files]")).to_have_text("")
    expect(answers(page)).to_have_count(1)


def test_what_an_answer_saw_is_shown_beside_it(page):
    page.goto("/playground?agent=research")
    for number, message in enumerate(("First.", "Second."), start=1):
        talk(page, message)
        expect(answers(page)).to_have_count(number)
    expect(page.locator("#saw")).to_contain_text("History")

    answers(page).first.get_by_role("link", name="What did it see").click()

    expect(page.locator("#saw")).not_to_contain_text("History")
    expect(page.locator("#saw")).to_contain_text("Instructions")


def test_choosing_another_agent_opens_it(page):
    page.goto("/playground?agent=research")

    page.get_by_label("Agent", exact=True).select_option("careful")

    expect(page.get_by_role("textbox", name="Message")).to_have_attribute("placeholder", "Message to careful")


def test_playground_works_without_a_script(agents, new_page, member, enter):
    page = new_page(java_script_enabled=False)
    enter(page, member)
    page.goto("/playground?agent=slow")
    page.get_by_role("textbox", name="Message").fill(LONG)
    page.get_by_role("button", name="Send").click()

    # The page of the session loads itself again until the run is over.
    expect(page.locator("article .after")).to_be_visible()
    expect(page.locator("article").last).to_contain_text("2026-118")


def test_older_turns_come_above_the_newest(page, tenant):
    agent = Agent.objects.get(tenant=tenant, name="research")
    session = sessions.session(agent, governance.subject(tenant))
    sessions.turns(session, 60)
    page.goto(f"/sessions/{shown('ses', session.id)}")
    expect(page.locator("article")).to_have_count(60)

    page.get_by_role("link", name="Older").click()

    expect(page.locator("article")).to_have_count(120)
    expect(page.locator("article").first).to_contain_text("user says 1")
    expect(page.get_by_role("link", name="Older")).to_have_count(0)


def test_list_of_sessions_filters_while_one_types(page, tenant):
    agent = Agent.objects.get(tenant=tenant, name="research")
    sessions.session(agent, key="invoice-7")
    sessions.session(agent, key="contract-8")
    page.goto("/sessions")

    page.get_by_label("Title or key contains").fill("contract")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("contract-8")
    page.wait_for_url("**/sessions?q=contract")
    page.get_by_role("link", name="Remove the filter").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_session_is_deleted_from_its_dialog(page, tenant):
    session = sessions.conversation(Agent.objects.get(tenant=tenant, name="research"), governance.subject(tenant), title="To go")
    page.goto(f"/sessions/{shown('ses', session.id)}")

    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete To go?")
    expect(dialog).to_contain_text("4 items of history")
    dialog.get_by_role("button", name="Delete", exact=True).click()

    expect(page.get_by_text("Session To go is deleted.")).to_be_visible()
    assert not Session.objects.filter(pk=session.pk).exists()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_conversation_has_no_barrier(page, check_accessibility, theme):
    page.emulate_media(color_scheme=theme)
    page.goto("/playground?agent=careful")
    talk(page, "What is 12 * (3 + 4)?")
    page.get_by_text("Arguments, reason, remember").click()
    check_accessibility(page)
    page.get_by_role("button", name="Approve").click()
    expect(answers(page)).to_have_count(1)
    page.locator(".call > summary").click()

    check_accessibility(page)


def test_conversation_fits_a_narrow_window(agents, new_page, member, enter):
    page = new_page(viewport={"width": 360, "height": 740})
    enter(page, member)
    page.goto("/playground?agent=careful")
    talk(page, "What is 12 * (3 + 4)?")
    expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Approve").click()
    expect(answers(page)).to_have_count(1)
