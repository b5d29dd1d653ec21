"""The editor's pages: saving, checking, acts on the form, publishing, two people at one draft, trying."""

import json
import re

import pytest
from django.urls import reverse

from agents.domain import definitions
from agents.models import Agent, AgentVersion
from governance.models import AuditEvent
from sessions.engine import runner
from sessions.models import Run
from tests.console.pages.definitions import Browser
from tests.factories import agents, governance

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent(tenant):
    return agents.published(tenant, "research", description="Finds things out.")


@pytest.fixture
def edit():
    return reverse("agent-edit", args=["research"])


@pytest.fixture
def check():
    return reverse("agent-check", args=["research"])


def text(response):
    return response.content.decode()


def messages_of(response):
    return [str(message) for message in response.context["messages"]]


def filled(client, url, **names):
    """What a browser would send of the page, with some names changed; None takes a name out."""
    found: dict = {}
    for name, value in Browser(text(client.get(url)), "editor").names:
        found.setdefault(name, []).append(value)
    found.pop("csrfmiddlewaretoken", None)
    for name, value in names.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    return found


def stored(agent):
    return Agent.objects.select_related("published").get(pk=agent.pk)


def slot(html, name):
    """What is said at a field: the text of its place for problems."""
    found = re.search(rf'<div class="said" id="p-f-{name}"[^>]*>(.*?)</div></div>|<div class="said" id="p-f-{name}"[^>]*></div>', html, re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split()) if found and found[1] else ""


# The page


def test_editor_shows_the_draft_field_by_field(owner, agent, edit):
    page = owner.get(edit)

    drawing = page.context["drawing"]
    shown = {name: drawing.control(name).value for name in ("name", "description", "model.provider", "model.model", "instructions")}
    assert shown == {"name": "research", "description": "Finds things out.", "model.provider": "demo", "model.model": "demo-1", "instructions": "Help."}
    assert drawing.control("name").is_fixed


def test_every_control_is_tied_to_its_help_and_its_place_for_problems(owner, agent, edit):
    page = text(owner.get(edit))

    ids = set(re.findall(r' id="([^"]+)"', page))
    pointed = {name for names in re.findall(r'aria-describedby="([^"]+)"', page) for name in names.split()}
    labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', page))
    assert pointed - ids == set()
    assert labelled - ids == set()
    assert len(re.findall(r' id="([^"]+)"', page)) == len(ids)


def test_page_has_no_inline_style_or_script(owner, agent, edit):
    page = text(owner.get(edit))

    assert re.findall(r'\sstyle="|\son[a-z]+="|<script>', page) == []


def test_page_is_compressed(owner, agent, edit):
    response = owner.get(edit, headers={"Accept-Encoding": "gzip"})

    assert response["Content-Encoding"] == "gzip"
    assert len(response.content) < 20_000


def test_editor_costs_the_same_with_many_settings(owner, tenant, agent, edit, queries_of):
    plain = queries_of(owner, edit)
    document = agent.draft | {"parameters": [{"name": f"p{number}"} for number in range(20)], "tools": ["calculate", "current_time"]}
    definitions.save_draft(agent=agent, document=document, expected=1, by=governance.lethe(tenant))

    assert queries_of(owner, edit) == plain


# Saving


def test_save_without_a_script(owner, agent, edit):
    response = owner.post(edit, filled(owner, edit, description="Finds more.", **{"model.temperature": "0.5"}), follow=True)

    agent = stored(agent)
    assert response.redirect_chain == [(edit, 302)]
    assert agent.draft["description"] == "Finds more."
    assert agent.draft["model"]["temperature"] == 0.5
    assert agent.draft_counter == 2
    assert messages_of(response) == ["The draft is saved."]


def test_save_of_an_untouched_form_changes_nothing(owner, agent, edit):
    owner.post(edit, filled(owner, edit))

    assert stored(agent).draft_counter == 1
    assert stored(agent).draft == agent.draft


def test_draft_with_errors_is_saved_and_says_so(owner, agent, edit):
    response = owner.post(edit, filled(owner, edit, **{"model.temperature": "5"}), follow=True)

    assert stored(agent).draft["model"]["temperature"] == 5
    assert messages_of(response) == ["The draft is saved. It cannot be published yet: 1 problem."]
    assert slot(text(response), "model-temperature") == "Problem: This must be at most 2."


def test_number_that_cannot_be_read_is_refused_and_kept_in_the_form(owner, agent, edit):
    response = owner.post(edit, filled(owner, edit, description="New", **{"model.temperature": "warm"}))

    assert response.status_code == 422
    assert stored(agent).draft == agent.draft
    assert response.context["drawing"].control("model.temperature").value == "warm"
    assert response.context["drawing"].control("description").value == "New"
    assert slot(text(response), "model-temperature") == "Problem: Write a number, such as 0.5."


def test_section_that_is_off_is_left_out_when_saved(owner, agent, edit):
    with_harness = filled(owner, edit, harness="on", **{"harness.max_output_tokens": "2048"})
    owner.post(edit, with_harness)
    assert stored(agent).draft["harness"] == {"max_output_tokens": 2048}

    owner.post(edit, filled(owner, edit, harness=None))

    assert "harness" not in stored(agent).draft


def test_unknown_settings_stay_until_they_are_removed(owner, tenant, agent, edit):
    definitions.save_draft(agent=agent, document=agent.draft | {"color": "red"}, expected=1, by=governance.lethe(tenant))

    page = owner.get(edit)
    owner.post(edit, filled(owner, edit, description="New"))

    assert slot(text(page), "_extra").startswith("Problem: There is no setting named color here.")
    assert stored(agent).draft["color"] == "red"
    owner.post(edit, filled(owner, edit, _extra=""))
    assert "color" not in stored(agent).draft


def test_name_cannot_be_changed(owner, agent, edit):
    response = owner.post(edit, filled(owner, edit, name="other"))

    assert response.status_code == 422
    assert stored(agent).draft["name"] == "research"
    assert "its name cannot change" in text(response)


def test_save_is_recorded_without_what_was_written(owner, agent, edit):
    owner.post(edit, filled(owner, edit, description="Secret plan"))

    event = AuditEvent.objects.filter(action="agent.saved").get()
    assert (event.object_label, event.actor_label) == ("research", owner.member.username)
    assert "Secret" not in json.dumps(event.payload)


def test_save_by_htmx_puts_the_new_counter_in_place(owner, agent, edit):
    response = owner.post(edit, filled(owner, edit, description="New", act="save"), headers=HTMX)

    assert response.status_code == 200
    assert '<input type="hidden" name="counter" id="counter" value="2" hx-swap-oob="true">' in text(response)
    assert "lethe:saved" in response["HX-Trigger"]
    assert "<html" not in text(response)


# Checking


def test_check_says_what_is_wrong_where_it_is(owner, agent, edit, check):
    data = filled(owner, edit, harness="on", memory="on", **{"harness.disable_todo_provider": "on", "memory.enable_todo": "on"})

    html = text(owner.post(check, data, headers=HTMX))

    said = slot(html, "memory-enable_todo")
    assert said.startswith("Problem: The todo list is on here and disabled in the harness.")
    assert "Switch off &#x27;Disable todos&#x27;" in said
    assert '<span id="s-memory-count" hx-swap-oob="true"><span class="badge bad">1 problem</span></span>' in html
    assert '<a href="#f-memory-enable_todo" data-focus' in html
    assert 'data-tip="First solve 1 problem."' in html
    assert stored(agent).draft_counter == 1


def test_check_empties_what_was_said_before(owner, agent, edit, check):
    html = text(owner.post(check, filled(owner, edit, shown="f-memory-enable_todo f-nothing"), headers=HTMX))

    assert '<div class="said" id="p-f-memory-enable_todo" hx-swap-oob="true"></div>' in html


def test_check_finds_a_row_by_its_place_in_the_form(owner, agent, edit, check):
    rows = {"parameters.0.name": "", "parameters.0.kind": "text", "parameters.4.name": "b c", "parameters.4.kind": "text"}

    html = text(owner.post(check, filled(owner, edit, **rows), headers=HTMX))

    assert slot(html, "parameters-4-name").startswith("Problem:")


def test_check_finds_the_entry_of_a_map(owner, agent, edit, check):
    rows = {"tool_settings.2._key": "calculate", "tool_settings.2.timeout_s": "-1"}

    html = text(owner.post(check, filled(owner, edit, tools=["calculate"], **rows), headers=HTMX))

    assert slot(html, "tool_settings-2-timeout_s") == "Problem: This must be more than 0."


def test_check_offers_to_publish_what_has_changed(owner, agent, edit, check):
    same = text(owner.post(check, filled(owner, edit), headers=HTMX))
    changed = text(owner.post(check, filled(owner, edit, description="New"), headers=HTMX))

    assert 'data-tip="Nothing has changed since version 1."' in same
    assert '<button class="btn primary" form="editor" name="act" value="publish">' in changed


def test_preview_is_the_document_and_the_request_that_saves_it(owner, agent, edit, check):
    html = text(owner.post(check, filled(owner, edit, description="It's new", panel="preview"), headers=HTMX))

    assert "&quot;description&quot;: &quot;It&#x27;s new&quot;" in html
    assert "curl -X PUT http://testserver/api/agents/research" in html
    # The quote is closed, escaped and opened again, so that a shell reads one text.
    assert "&quot;It&#x27;\\&#x27;&#x27;s new&quot;" in html


def test_preview_shows_a_number_that_cannot_be_read(owner, agent, edit, check):
    html = text(owner.post(check, filled(owner, edit, panel="preview", **{"model.temperature": "warm"}), headers=HTMX))

    assert "&quot;temperature&quot;: &quot;warm&quot;" in html


def test_panel_changes_without_a_script(owner, agent, edit):
    page = owner.post(edit, filled(owner, edit, description="New", act="panel:preview"))

    assert page.status_code == 200
    assert page.context["panel"] == "preview"
    assert page.context["drawing"].control("description").value == "New"
    assert "&quot;description&quot;: &quot;New&quot;" in text(page)


# Acts


def test_fix_without_a_script_draws_the_page_again(owner, agent, edit):
    data = filled(owner, edit, harness="on", **{"harness.disable_todo_provider": "on", "description": "New"})

    page = owner.post(edit, data | {"act": 'fix:{"harness.disable_todo_provider": false}'})

    assert page.status_code == 200
    drawing = page.context["drawing"]
    assert (drawing.control("harness.disable_todo_provider").is_on, drawing.control("description").value) == (False, "New")
    assert stored(agent).draft_counter == 1


def test_fix_by_htmx_redraws_its_section_and_moves_the_focus(owner, agent, edit):
    data = filled(owner, edit, harness="on", **{"harness.disable_todo_provider": "on"})

    response = owner.post(edit, data | {"act": 'fix:{"harness.disable_todo_provider": false}'}, headers=HTMX)

    assert re.findall(r'<section class="card part" id="(s-[a-z]+)"', text(response)) == ["s-harness"]
    assert json.loads(response["HX-Trigger-After-Settle"]) == {"lethe:changed": {"id": "f-harness-disable_todo_provider"}}


@pytest.mark.parametrize("act", ["fix:", "fix:[]", "fix:{}", "fix:{", 'fix:{"parameters.9.name": "x"}', "remove:x", "up:"])
def test_act_that_makes_no_sense_is_refused(owner, agent, edit, act):
    response = owner.post(edit, filled(owner, edit, act=act), headers=HTMX)

    assert response.status_code == 422
    assert stored(agent).draft_counter == 1


def test_rows_are_added_and_removed_without_a_script(owner, agent, edit):
    data = filled(owner, edit, **{"parameters.0.name": "a", "parameters.0.kind": "text", "act": "add:parameters"})

    page = owner.post(edit, data)
    assert [row.is_new for row in page.context["drawing"].control("parameters").rows] == [False, True]
    page = owner.post(edit, data | {"parameters.1.name": "", "parameters.1.kind": "text"})
    assert [row.is_new for row in page.context["drawing"].control("parameters").rows] == [False, True, True]
    page = owner.post(edit, data | {"act": "remove:parameters.0"})
    assert [row.is_new for row in page.context["drawing"].control("parameters").rows] == [True]


# Two people at one draft


def test_lost_race_shows_both_texts_and_saves_nothing(owner, agent, edit, tenant):
    mine = filled(owner, edit, description="Mine", **{"model.temperature": "0.5"})
    definitions.save_draft(agent=agent, document=agent.draft | {"description": "Theirs"}, expected=1, by=governance.lethe(tenant))

    response = owner.post(edit, mine)

    assert response.status_code == 409
    assert [(row["path"], row["mine"], row["theirs"]) for row in response.context["rows"]] == [
        ("description", "Mine", "Theirs"),
        ("model.temperature", "0.5", None),
    ]
    assert stored(agent).draft["description"] == "Theirs"


@pytest.fixture
def conflict(owner, agent, edit, tenant):
    """The fields of the page that a lost race ends on."""
    mine = filled(owner, edit, description="Mine", instructions="My way.")
    definitions.save_draft(agent=agent, document=agent.draft | {"description": "Theirs"}, expected=1, by=governance.lethe(tenant))
    page = owner.post(edit, mine)
    return {"mine": page.context["mine"], "counter": page.context["current"]["counter"]}


def test_conflict_is_resolved_setting_by_setting(owner, agent, conflict):
    response = owner.post(reverse("agent-resolve", args=["research"]), conflict | {"choice-0": "theirs", "choice-1": "mine"})

    assert response.url == reverse("agent-edit", args=["research"])
    assert (stored(agent).draft["description"], stored(agent).draft["instructions"]) == ("Theirs", "My way.")


def test_conflict_is_resolved_with_all_of_mine(owner, agent, conflict):
    owner.post(reverse("agent-resolve", args=["research"]), conflict | {"choice-0": "theirs", "all": "mine"})

    assert stored(agent).draft["description"] == "Mine"


def test_second_race_shows_the_conflict_again(owner, agent, conflict, tenant):
    current = stored(agent)
    definitions.save_draft(agent=current, document=current.draft | {"description": "Others"}, expected=2, by=governance.lethe(tenant))

    response = owner.post(reverse("agent-resolve", args=["research"]), conflict)

    assert response.status_code == 409
    assert [row["theirs"] for row in response.context["rows"]] == ["Others", "Help."]
    assert stored(agent).draft["description"] == "Others"


@pytest.mark.parametrize("mine", ["", "{", "[1]", "[" * 50_000])
def test_text_that_did_not_arrive_is_refused(owner, agent, conflict, mine):
    response = owner.post(reverse("agent-resolve", args=["research"]), conflict | {"mine": mine})

    assert response.status_code == 400
    assert stored(agent).draft["description"] == "Theirs"


# Publishing


@pytest.fixture
def publish():
    return reverse("agent-publish", args=["research"])


@pytest.fixture
def changed(agent, tenant):
    """The agent with an unpublished change."""
    return definitions.save_draft(agent=agent, document=agent.draft | {"instructions": "Help more."}, expected=1, by=governance.lethe(tenant))


def test_publish_button_saves_and_goes_on(owner, agent, edit, publish):
    response = owner.post(edit, filled(owner, edit, description="New", act="publish"))

    assert response.url == publish
    assert stored(agent).draft["description"] == "New"


def test_publish_page_shows_what_changes(owner, changed, publish):
    page = owner.get(publish)

    assert [(change.path, [(piece.kind, piece.text) for piece in change.pieces]) for change in page.context["changes"]] == [
        ("instructions", [("same", "Help"), ("added", " more"), ("same", ".")])
    ]


def test_publish_makes_a_version(owner, changed, publish):
    response = owner.post(publish, {"counter": 2, "note": "More help"}, follow=True)

    published = stored(changed).published
    assert (published.number, published.note, published.published_by) == (2, "More help", owner.member.username)
    assert messages_of(response) == ["Version 2 is published. New runs use it."]


@pytest.mark.parametrize("note", ["", "   "])
def test_publish_needs_a_note(owner, changed, publish, note):
    response = owner.post(publish, {"counter": 2, "note": note})

    assert response.status_code == 422
    assert response.context["form"].errors == {"note": ["This field is required."]}
    assert stored(changed).published.number == 1


def test_publish_of_a_draft_with_problems_is_refused_with_the_report(owner, agent, tenant, publish):
    definitions.save_draft(agent=agent, document=agent.draft | {"tools": ["gone"]}, expected=1, by=governance.lethe(tenant))

    response = owner.post(publish, {"counter": 2, "note": "Try"})

    assert response.status_code == 422
    assert "There is no tool named gone." in text(response)
    assert AgentVersion.objects.filter(agent=agent).count() == 1


def test_publish_of_another_draft_than_was_shown_is_asked_again(owner, changed, tenant, publish):
    definitions.save_draft(agent=changed, document=changed.draft | {"description": "Faster"}, expected=2, by=governance.lethe(tenant))

    response = owner.post(publish, {"counter": 2, "note": "More help"})

    assert response.status_code == 409
    assert stored(changed).published.number == 1
    assert [change.path for change in response.context["changes"]] == ["description", "instructions"]
    assert 'value="3"' in str(response.context["form"]["counter"])
    assert "More help" in text(response)


def test_publish_of_what_is_published_is_not_offered(owner, agent, publish):
    page = text(owner.get(publish))

    assert "The draft says what is published." in page


# Trying


def tried(client, edit, **more):
    return client.post(reverse("agent-try", args=["research"]), filled(client, edit, **more), headers=HTMX)


@pytest.mark.django_db(transaction=True)
def test_try_saves_the_draft_and_talks_to_it(owner, agent, edit):
    response = tried(owner, edit, instructions="Help at once.", message="Hello", key="try-1")

    run = Run.objects.get()
    runner.runner().wait(run.pk)
    assert response.status_code == 200
    assert run.version_id is None
    assert run.document["instructions"] == "Help at once."
    assert stored(agent).draft["instructions"] == "Help at once."
    assert "HX-Push-Url" not in response
    assert f'data-stream="/runs/run_{run.pk.hex}/events"' in text(response)
    assert 'id="counter" value="2"' in text(response)


def test_try_of_a_form_that_cannot_be_read_saves_and_runs_nothing(owner, agent, edit):
    response = tried(owner, edit, message="Hello", **{"model.temperature": "warm"})

    assert response.status_code == 422
    assert response["HX-Retarget"] == "#composer-problem"
    assert (Run.objects.count(), stored(agent).draft_counter) == (0, 1)


def test_try_of_a_draft_with_problems_says_which(owner, agent, edit):
    response = tried(owner, edit, message="Hello", tools=["gone"])

    assert response.status_code == 422
    assert "There is no tool named gone." in text(response)
    assert stored(agent).draft_counter == 2


def test_try_loses_a_race_without_a_run(owner, agent, tenant, edit):
    data = filled(owner, edit, message="Hello", description="Mine")
    definitions.save_draft(agent=agent, document=agent.draft | {"description": "Theirs"}, expected=1, by=governance.lethe(tenant))

    response = owner.post(reverse("agent-try", args=["research"]), data, headers=HTMX)

    assert response.status_code == 409
    assert Run.objects.count() == 0
    assert stored(agent).draft["description"] == "Theirs"
