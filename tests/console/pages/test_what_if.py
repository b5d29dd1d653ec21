"""The editor's panel that shows what the model would see of a stored session."""

import pytest
from django.urls import reverse

from sessions.models import Session
from tests.console.pages.test_editor import filled
from tests.factories import agents, governance, sessions


@pytest.fixture
def agent(tenant):
    return agents.published(tenant, "research", description="Finds things out.")


@pytest.fixture
def edit():
    return reverse("agent-edit", args=["research"])


@pytest.fixture
def session(agent, tenant):
    made = sessions.session(agent, governance.subject(tenant), title="A long talk")
    sessions.turns(made, 8)
    return made


def look(client, edit, ref="", **fields):
    return client.post(edit, filled(client, edit, act="whatif", what_if_session=ref, **fields))


COMPACTED = {"compaction": "on", "compaction.strategy": "sliding_window", "compaction.trigger_turns": "3"}


def parts(response):
    return [(part.fate, part.from_seq, part.to_seq) for part in response.context["what_if"]["preview"].parts]


def test_panel_shows_the_newest_session_under_the_settings_of_the_form(owner, edit, session):
    before = look(owner, edit)
    after = look(owner, edit, f"ses_{session.id.hex}", **COMPACTED)

    assert parts(before) == [("kept", 1, 16)]
    assert parts(after) == [("dropped", 1, 12), ("kept", 13, 16)]
    assert "80 tokens of conversation become 20" in after.content.decode()
    assert session.agent.draft == Session.objects.get().agent.draft


def test_panel_shows_what_each_assembly_step_left(owner, edit, session):
    response = look(owner, edit, **{"assembly.0.kind": "sliding_window", "assembly.0.max_items": "4", "layer_caps.history": "9"})

    page = response.content.decode()
    assert parts(response) == [("dropped", 1, 14), ("kept", 15, 16)]
    assert "sliding window: 4 of 16 entries" in page
    assert "left out by the step sliding_window" in page
    assert "beyond the layer&#x27;s limit of 9 tokens" in page


def test_panel_answers_htmx_with_itself_only(owner, edit, session):
    data = filled(owner, edit, act="whatif", what_if_session=f"ses_{session.id.hex}")

    page = owner.post(edit, data, headers={"HX-Request": "true"}).content.decode()

    assert page.strip().startswith('<div class="stack" id="whatif"')
    assert "A long talk" in page


def test_panel_is_looked_at_again_while_one_types(owner, edit, session):
    data = filled(owner, edit, panel="whatif", **COMPACTED)

    page = owner.post(reverse("agent-check", args=["research"]), data, headers={"HX-Request": "true"}).content.decode()

    assert 'id="whatif" aria-live="polite" hx-swap-oob="true"' in page
    assert "dropped" in page


def test_panel_opens_without_javascript(owner, edit, session):
    response = owner.post(edit, filled(owner, edit, act="panel:whatif"))

    assert parts(response) == [("kept", 1, 16)]


def test_settings_with_problems_show_no_preview(owner, edit, session):
    response = look(owner, edit, **{"compaction": "on", "compaction.strategy": "sliding_window"})

    assert "First solve the problems of the definition." in response.content.decode()
    assert "preview" not in response.context["what_if"]


def test_session_of_another_tenant_is_not_looked_at(owner, edit, session, other_session):
    response = look(owner, edit, f"ses_{other_session.id.hex}")

    assert "Choose a session." in response.content.decode()


@pytest.fixture
def other_session(db):
    tenant = governance.tenant("elsewhere")
    made = sessions.session(sessions.agent(tenant), title="Not yours")
    sessions.turns(made, 2)
    return made


def test_agent_without_sessions_says_what_to_do(owner, edit, agent):
    page = look(owner, edit).content.decode()

    assert "No session to look at" in page
