"""The editor in a real browser: from a new agent to a published version, by keyboard alone, and nothing lost by accident."""

import re

import pytest
from playwright.sync_api import expect

from agents.models import Agent
from tests.browser.conftest import sign_in
from tests.factories import agents

EDIT = "/agents/research/edit"


@pytest.fixture
def agent(tenant):
    return agents.published(tenant, "research")


def checked(page):
    """Waits for the report on what was just done."""
    return page.expect_response(lambda answer: answer.url.endswith("/edit/check"))


def test_create_break_read_fix_publish(signed_in_page, tenant):
    page = signed_in_page
    agents.provider(tenant)

    page.goto("/agents/~new")
    page.get_by_label("Name", exact=True).fill("helper")
    page.get_by_label("Model", exact=True).fill("demo-1")
    page.get_by_role("button", name="Create the draft").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Edit draft")
    page.locator("#f-harness").check()
    page.locator("#f-harness-disable_file_memory").check()
    page.locator("#f-memory").check()
    with checked(page):
        page.locator("#f-memory-enable_file_memory").check()
    said = page.locator("#p-f-memory-enable_file_memory")
    expect(said).to_contain_text("File memory is on here and disabled in the harness.")
    expect(page.locator("#f-memory-enable_file_memory")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("button", name=re.compile("^Publish"))).to_have_attribute("aria-disabled", "true")

    said.get_by_role("button", name="Switch this off").click()
    expect(page.locator("#f-memory-enable_file_memory")).not_to_be_checked()
    expect(said).to_be_empty()
    page.get_by_role("button", name="Publish…").click()
    page.get_by_label("Note").fill("The first one")
    page.get_by_role("button", name="Publish version 1").click()

    expect(page.locator("#messages")).to_contain_text("Version 1 is published.")
    page.get_by_role("link", name="Version 1", exact=True).click()
    expect(page.get_by_text("The first one")).to_be_visible()


def test_keyboard_alone(signed_in_page, agent):
    page = signed_in_page
    page.goto(EDIT)
    temperature = page.locator("#f-model-temperature")

    temperature.focus()
    with checked(page):
        page.keyboard.type("warm")
    expect(page.locator("#p-f-model-temperature")).to_contain_text("Write a number, such as 0.5.")
    go = page.get_by_role("link", name="Go to model.temperature")
    go.focus()
    page.keyboard.press("Enter")
    expect(temperature).to_be_focused()
    page.keyboard.press("Control+a")
    with checked(page):
        page.keyboard.type("0.5")
    expect(page.locator("#p-f-model-temperature")).to_be_empty()
    page.keyboard.press("Control+s")

    expect(page.locator("#messages")).to_contain_text("The draft is saved.")
    expect(page.locator("#counter")).to_have_value("2")
    assert Agent.objects.get(pk=agent.pk).draft["model"]["temperature"] == 0.5


def test_arrow_keys_walk_the_panels(signed_in_page, agent):
    page = signed_in_page
    page.goto(EDIT)

    page.get_by_role("tab", name=re.compile("^Problems")).focus()
    with checked(page):
        page.keyboard.press("ArrowRight")

    expect(page.get_by_role("tab", name="Preview")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Preview")).to_contain_text("curl -X PUT")


def test_unsaved_changes_are_asked_about(signed_in_page, agent):
    page = signed_in_page
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.goto(EDIT)
    expect(page.get_by_text("unsaved changes")).to_be_hidden()

    page.get_by_label("Description").fill("Something new")
    expect(page.get_by_text("unsaved changes")).to_be_visible()
    page.get_by_role("link", name="Agents", exact=True).first.click()
    page.wait_for_url("**/agents")

    assert asked == ["beforeunload"]
    page.goto(EDIT)
    page.get_by_label("Description").fill("Something new")
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator("#messages")).to_contain_text("The draft is saved.")
    page.goto("/agents")
    assert asked == ["beforeunload"]


def test_row_is_added_and_removed_in_place(signed_in_page, agent):
    page = signed_in_page
    page.goto(EDIT)
    parameters = page.get_by_role("group", name="Parameters", exact=True)

    parameters.get_by_role("button", name="One more").click()
    name = parameters.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    with checked(page):
        page.keyboard.type("customer")
    page.keyboard.press("Control+s")
    expect(page.locator("#messages")).to_contain_text("The draft is saved.")
    assert Agent.objects.get(pk=agent.pk).draft["parameters"] == [{"name": "customer"}]

    page.goto(EDIT)
    parameters.get_by_role("button", name="Remove Parameters 1").click()
    expect(parameters.get_by_label("Name", exact=True).locator("visible=true")).to_have_count(0)


def test_lost_race_lets_the_person_choose(signed_in_page, new_page, member, agent):
    page, other = signed_in_page, new_page()
    sign_in(other, member.username)
    page.goto(EDIT)
    other.goto(EDIT)
    other.get_by_label("Description").fill("Theirs")
    other.get_by_role("button", name="Save draft").click()
    expect(other.locator("#messages")).to_contain_text("The draft is saved.")

    page.get_by_label("Description").fill("Mine")
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Somebody else saved first")
    page.get_by_role("button", name="Save what I chose").click()

    expect(page.locator("#messages")).to_contain_text("The draft is saved with what you chose.")
    assert Agent.objects.get(pk=agent.pk).draft["description"] == "Mine"


def test_draft_is_tried_beside_the_form(signed_in_page, agent):
    page = signed_in_page
    page.goto(EDIT)

    page.get_by_role("tab", name="Try").click()
    page.get_by_label("Message", exact=True).fill("How many words are in this sentence?")
    page.get_by_role("button", name="Send").click()

    answer = page.locator("#turns article").last
    expect(answer).not_to_have_attribute("aria-busy", "true")
    expect(answer).to_contain_text("draft")
    expect(page).to_have_url(re.compile(EDIT))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_editor_with_problems_has_no_barrier(signed_in_page, tenant, check_accessibility, theme):
    page = signed_in_page
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    agents.draft(tenant, "research", color="red", tools=["gone"], harness={"disable_todo_provider": True}, memory={"enable_todo": True})

    page.goto(EDIT)

    check_accessibility(page)


def test_editor_works_without_a_script(new_page, member, agent):
    page = new_page(java_script_enabled=False)
    sign_in(page, member.username)
    page.goto(EDIT)

    page.locator("#f-model-temperature").fill("warm")
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator("#p-f-model-temperature")).to_contain_text("Write a number, such as 0.5.")
    page.locator("#f-model-temperature").fill("0.5")
    page.get_by_role("button", name="Save draft").click()

    expect(page.locator("#messages")).to_contain_text("The draft is saved.")
    assert Agent.objects.get(pk=agent.pk).draft["model"]["temperature"] == 0.5
