"""Turns of a person whose content is under a key of their own: everything works, and SQL sees ciphertext."""

import io

import pytest
from django.core.management import call_command
from django.db import connection

from governance import sealing, subject_keys
from governance.domain import shredding
from sessions import queries
from sessions.domain import blobs, events, history, sessions, transcripts, workspace
from sessions.files.rows import Writer
from sessions.models import Item, Run, Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _known_at_once(monkeypatch):
    monkeypatch.setattr(sealing.PROTECTED, "seconds", 0.0)


@pytest.fixture
def keys(settings, tmp_path, tenant, actor):
    settings.SUBJECT_KEY_DIR = tmp_path / "keys"
    subject_keys.forget()
    shredding.switch(tenant=tenant, on=True, by=actor)
    yield settings.SUBJECT_KEY_DIR
    subject_keys.forget()


@pytest.fixture
def talk(say, subject):
    def send(message, **more):
        run = say(message, subject=subject, **more)
        assert run.status == Run.Status.COMPLETED, run.error
        return run

    return send


def in_database(table):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT string_agg(t::text, ' ') FROM {table} t")
        return cursor.fetchone()[0] or ""


def test_conversation_is_sealed_and_goes_on(keys, talk, subject):
    first = talk("Where is the blue door?")
    second = talk("Tell me more of the blue door.")

    session = Session.objects.get(subject_id=subject.id)
    assert "blue door" not in in_database("agent_sessions_item")
    assert [item.content["text"] for item in history.page(session=session).items if item.role == "user"] == [
        "Where is the blue door?", "Tell me more of the blue door.",
    ]  # fmt: skip
    assert queries.answer_of(first)
    assert queries.answer_of(second)
    completed = [event.data["text"] for event in events.read(run=first) if event.type == "message.completed"]
    assert completed == [queries.answer_of(first)]
    assert "blue door" in "".join(transcripts.as_markdown(session=session))
    assert [item.seq for item in history.mentioning(session=session, words="BLUE door", limit=1)][0] > 1


def test_fork_and_attachments_are_read(keys, talk, subject, actor):
    talk("Look at this.")
    session = Session.objects.get(subject_id=subject.id)
    fork = sessions.fork(session=session, key="fork", by=actor)
    sessions.delete(session=session, by=actor)

    # Its items moved to the fork; what is sealed is not bound to the session it was written in.
    assert Item.objects.filter(session_id=fork.id).first().content["text"] == "Look at this."
    assert blobs.load(session=fork, hashes=["0" * 64]) == {}


def test_workspace_is_sealed_and_changed(keys, talk, subject):
    talk("Hello there.")
    session = Session.objects.get(subject_id=subject.id)

    workspace.write(session=session, path="plan.md", text="The blue door.", writer=Writer("tests"))
    workspace.write(session=session, path="plan.md", text="The blue door is open.", writer=Writer("tests"))

    assert workspace.read(session=session, path="plan.md").content == "The blue door is open."
    assert dict(workspace.texts(session=session)) == {"plan.md": "The blue door is open."}
    assert "blue door" not in in_database("agent_sessions_workspacefile")


def test_turn_without_the_store_of_keys_is_refused_and_nothing_is_stored(keys, talk, say, subject):
    talk("Hello there.")
    items = Item.objects.count()
    subject_keys.forget()
    away = keys.rename(keys.with_name("away"))

    with pytest.raises(subject_keys.KeyStoreUnreachable):
        say("Are you there?", subject=subject)

    assert Item.objects.count() == items
    away.rename(keys)
    talk("And now?")


def test_conversation_from_before_is_brought_in_line(settings, tmp_path, talk, tenant, actor, subject):
    talk("Where is the blue door?")
    settings.SUBJECT_KEY_DIR = tmp_path / "keys"
    shredding.switch(tenant=tenant, on=True, by=actor)

    call_command("rotate_keys", stdout=io.StringIO())

    assert "blue door" not in in_database("agent_sessions_item")
    talk("And what is behind it?")
    subject_keys.forget()
