"""The todos of a session, changed on its page, without a script."""

import pytest
from django.urls import reverse

from governance.ids import shown
from sessions.domain import todos
from sessions.models import Session
from tests.factories import sessions

pytestmark = pytest.mark.django_db
KEPT = [{"id": 1, "title": "Find the invoice", "done": False}, {"id": 2, "title": "Call <Bert>", "done": True}]
AGENT = {"name": "listed", "model": {"provider": "demo", "model": "demo-1-fast"}, "harness": {}}


@pytest.fixture
def session(tenant):
    return sessions.session(sessions.agent(tenant, "listed", document=AGENT), state={"todos": KEPT})


def page(session):
    return reverse("session", args=[shown("ses", session.id)])


def send(client, session, **fields):
    """The form as the page has it, with `fields` changed; a field that is None is left out."""
    fields = {"seen": todos.digest(KEPT), "title-1": "Find the invoice", "title-2": "Call <Bert>", "done-2": "on", "new": "", **fields}
    sent = {name: value for name, value in fields.items() if value is not None}
    return client.post(reverse("session-todos", args=[shown("ses", session.id)]), sent)


def kept(session):
    session.refresh_from_db()
    return [(todo["id"], todo["title"], todo["done"]) for todo in session.state["todos"]]


def test_todos_are_changed_ticked_removed_and_added(owner, session):
    response = send(owner, session, **{"title-1": "Find both", "done-1": "on", "title-2": "", "new": "Write it down\r\n\r\nRest"})

    assert response.status_code == 302
    assert kept(session) == [(1, "Find both", True), (3, "Write it down", False), (4, "Rest", False)]
    assert "The agent sees it in its next turn." in owner.get(response.url).content.decode()


def test_page_has_the_form_with_what_is_there(owner, session):
    text = owner.get(page(session)).content.decode()

    assert "Edit todos…" in text
    assert 'value="Call &lt;Bert&gt;"' in text
    assert 'aria-label="Done: Find the invoice"' in text


def test_a_turn_that_ends_on_the_page_leads_to_the_form_of_then(owner, session):
    run = sessions.run(session=session, status="completed")

    turn = owner.get(reverse("run-turn", args=[shown("run", run.id)]), headers={"HX-Request": "true"}).content.decode()

    # A fragment alone would open the form that was loaded before the turn.
    assert f'href="{page(session)}?run={shown("run", run.id)}#todos"' in turn
    assert 'id="todos"' in owner.get(f"{page(session)}?run={shown('run', run.id)}").content.decode()


def test_list_that_changed_meanwhile_is_shown_as_it_is(owner, session):
    Session.objects.filter(id=session.id).update(state={"todos": [*KEPT, {"id": 3, "title": "The agent's own", "done": False}]})

    response = send(owner, session, new="Mine")

    assert kept(session)[-1] == (3, "The agent's own", False)
    text = owner.get(response.url).content.decode()
    assert "The list changed after you opened it." in text
    assert "The agent&#x27;s own" in text


def test_todo_that_is_too_long_is_told_at_its_line_with_the_rest_as_it_was_typed(owner, session):
    response = send(owner, session, **{"title-1": "x" * 501, "new": "Kept in the form"})

    text = response.content.decode()
    assert response.status_code == 422
    assert "A todo has at most 500 characters." in text
    assert "Kept in the form" in text
    assert kept(session) == [(1, "Find the invoice", False), (2, "Call <Bert>", True)]


def test_form_without_what_was_seen_is_refused(owner, session):
    assert send(owner, session, seen=None, new="Blind").status_code == 422
    assert len(kept(session)) == 2


def test_nobody_edits_what_the_agent_does_not_keep_or_may_not_change(owner, viewer, tenant, session):
    plain = sessions.session(sessions.agent(tenant, "plain"))

    assert "Edit todos…" not in owner.get(page(plain)).content.decode()
    assert "Edit todos…" not in viewer.get(page(session)).content.decode()
