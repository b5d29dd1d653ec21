"""Working notes and summaries of conversations, in real runs on the demo model: when, into which file, and for how long."""

import time

import pytest
from django.db import connection

from agents.domain import definitions as catalogue
from agents.queries import agent_named, definition_of
from governance.domain import subjects
from sessions.domain import aggregations, events, quotas, remembered, upkeep
from sessions.domain import sessions as session_verbs
from sessions.domain.aggregations import EPISODE, EPISODES, WORKING, WORKING_PATH
from sessions.models import AgentFile, Aggregation, Item, ModelCall, QuotaCounter, Run, Session
from tests.sessions.domain.conftest import rested

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def writes(agent, actor):
    """Publish aggregates and assembly steps for the agent, as its builder would."""

    def publish(*aggregates, assembly=(), **more):
        current = agent_named(tenant_id=agent.tenant_id, name=agent.name)
        document = {**current.draft, "aggregation": list(aggregates), "assembly": list(assembly), **more}
        changed = catalogue.save_draft(agent=current, document=document, expected=current.draft_counter, by=actor)
        catalogue.publish(agent=changed, note="aggregation", by=actor)

    return publish


@pytest.fixture(autouse=True)
def nothing_left_running(db):
    yield
    rested()


def written(count, seconds=30.0):
    """The rows of aggregation, oldest first, once there are that many and nothing is under way."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rested()
        found = list(Aggregation.objects.order_by("created_at"))
        if len(found) >= count:
            assert len(found) == count
            return found
        connection.close()
        time.sleep(0.02)
    raise AssertionError(f"written down: {found}")


def told(run):
    return [event.data for event in events.read(run=run) if event.type == "aggregation.completed"]


def layers(run):
    call = ModelCall.objects.filter(run_id=run.id).order_by("number").first()
    return {layer["layer"]: layer for layer in call.context}


def saw(run):
    """The texts that the run's message came with, as the demo model was shown them."""
    return {name: layer["sources"] for name, layer in layers(run).items() if name in ("working_memory", "recall")}


def test_notes_are_written_every_n_turns_and_shown_in_other_sessions(writes, say, subject):
    writes({"kind": "working_memory", "every_n_turns": 2}, assembly=["working_memory"])

    say("The kettle with number 7 is blue.", subject=subject)
    assert not Aggregation.objects.exists()
    second = say("Ada wants it back by Friday.", subject=subject)
    (row,) = written(1)
    other = say("What do you know?", key="case-2", subject=subject)

    file = AgentFile.objects.get(path=WORKING_PATH)
    assert (row.kind, row.file_id, row.from_seq, row.to_seq, row.turn) == (WORKING, file.id, 1, 4, 2)
    assert "kettle" in file.content
    assert (file.subject_id, file.agent_id, file.run_id) == (subject.id, second.agent_id, second.id)
    (event,) = told(second)
    assert (event["kind"], event["path"], event["from_seq"], event["to_seq"]) == (WORKING, WORKING_PATH, 1, 4)
    assert saw(other) == {"working_memory": [WORKING_PATH]}


def test_notes_are_rewritten_from_where_they_ended(writes, say, subject):
    writes({"kind": "working_memory", "every_n_turns": 1})

    say("The kettle with number 7 is blue.", subject=subject)
    written(1)
    say("Ada wants it back by Friday.", subject=subject)
    (row,) = written(1)

    assert (row.from_seq, row.to_seq, row.turn) == (1, 4, 2)
    sources = [call.context[0]["sources"] for call in ModelCall.objects.order_by("at") if call.context[0]["layer"] == "written_down"]
    assert sources == [["1-2"], ["3-4"]]


def test_utility_model_writes_down_what_an_aggregate_names_no_model_for(writes, say, subject, utility_model):
    writes({"kind": "working_memory", "every_n_turns": 1})

    say("The kettle with number 7 is blue.", subject=subject)
    (row,) = written(1)

    assert row.model == "small/gpt-4o-2026"
    assert AgentFile.objects.get(path=WORKING_PATH).content == "They talked about kettles.\n"


def test_model_of_an_aggregate_comes_before_the_utility_model(writes, say, subject, utility_model):
    writes({"kind": "working_memory", "every_n_turns": 1, "model": {"provider": "demo", "model": "demo-1"}})

    say("The kettle with number 7 is blue.", subject=subject)
    (row,) = written(1)

    assert (row.model, utility_model.bodies) == ("demo/demo-1", [])


def test_conversation_is_written_at_its_end_and_recalled_in_the_next(writes, say, actor, subject):
    writes({"kind": "conversation_summary", "on_end": True}, assembly=[{"kind": "episodic_memory", "transparent": True}])

    say("The kettle with number 7 is blue.", subject=subject)
    session = Session.objects.get()
    assert not Aggregation.objects.exists()
    session_verbs.close(session=session, by=actor)
    (row,) = written(1)
    following = say("What do you know?", key="case-2", subject=subject)

    file = AgentFile.objects.get()
    assert (row.kind, row.path, file.path) == (EPISODE, aggregations.path_of(EPISODE, session), row.path)
    assert file.path.startswith(EPISODES)
    assert file.content.startswith(f"Conversation of {session.created_at:%Y-%m-%d %H:%M} UTC\n\n")
    assert saw(following) == {"recall": [file.path]}


def test_idle_session_is_written_down_when_it_is_closed(writes, say, subject):
    writes({"kind": "conversation_summary", "on_end": True}, sessions={"idle_expiry_days": 1})
    say("The kettle with number 7 is blue.", subject=subject)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agent_sessions_session SET last_active_at = now() - interval '2 days'")

    assert upkeep.close_idle_sessions() == 1

    (row,) = written(1)
    assert row.kind == EPISODE


def test_closing_writes_nothing_that_is_written_already(writes, say, actor, subject):
    writes({"kind": "conversation_summary", "every_n_items": 2, "on_end": True})

    say("The kettle with number 7 is blue.", subject=subject)
    (row,) = written(1)
    session_verbs.close(session=Session.objects.get(), by=actor)

    assert written(1) == [row]


def test_own_conversation_is_not_recalled_in_itself(writes, say, subject):
    writes({"kind": "conversation_summary", "every_n_turns": 1}, assembly=["episodic_memory"])

    say("The kettle with number 7 is blue.", subject=subject)
    written(1)
    again = say("And now?", subject=subject)

    assert saw(again) == {}


def test_notes_of_one_person_are_never_shown_to_another(writes, say, tenant, subject):
    writes({"kind": "working_memory", "every_n_turns": 1}, assembly=["working_memory"])
    other = subjects.resolve(tenant_id=tenant.id, value="person-2")

    say("The kettle with number 7 is blue.", subject=subject)
    written(1)
    theirs = say("What do you know?", key="case-2", subject=other)
    nobodys = say("What do you know?", key="case-3")
    mine = say("What do you know?", key="case-4", subject=subject)

    assert [saw(theirs), saw(nobodys), saw(mine)] == [{}, {}, {"working_memory": [WORKING_PATH]}]


def test_without_a_person_nothing_is_written(writes, say):
    writes({"kind": "working_memory", "every_n_turns": 1})

    run = say("The kettle with number 7 is blue.")
    rested()

    assert not AgentFile.objects.exists()
    assert Run.objects.get(id=run.id).model_calls == 1


def test_writing_down_is_paid_like_any_other_call(writes, say, tenant, actor, subject):
    writes({"kind": "working_memory", "every_n_turns": 1})
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="tokens", period="day", limit=1_000_000, by=actor)

    run = say("The kettle with number 7 is blue.", subject=subject)
    written(1)

    calls = list(ModelCall.objects.filter(run_id=run.id).order_by("number"))
    run = Run.objects.get(id=run.id)
    assert [call.context[0]["layer"] for call in calls] == ["instructions", "written_down"]
    assert (run.model_calls, run.input_tokens) == (2, sum(call.input_tokens for call in calls))
    assert QuotaCounter.objects.get(quota=quota).used == sum(call.input_tokens + call.output_tokens for call in calls)


def test_quota_without_room_writes_nothing_down(writes, say, tenant, actor, subject, monkeypatch):
    writes({"kind": "working_memory", "every_n_turns": 1})
    quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="tokens", period="day", limit=1, by=actor)

    say("The kettle with number 7 is blue.", subject=subject)
    rested()

    assert list(Aggregation.objects.values("kind", "session_id", "failure")) == []


def test_failure_is_told_and_rests_before_the_next_try(writes, say, subject, monkeypatch):
    writes({"kind": "working_memory", "every_n_turns": 1})
    monkeypatch.setattr("sessions.engine.demo_text._summary", lambda message, earlier: "Error: overloaded")

    first = say("The kettle with number 7 is blue.", subject=subject)
    (failed,) = written(1)
    say("And now?", subject=subject)

    assert (failed.failure, failed.file_id) == ("error_text", None)
    assert [event["failure"] for event in told(first)] == ["error_text"]
    assert written(1) == [failed]
    assert not AgentFile.objects.exists()


def test_agent_without_aggregates_asks_nothing_more(say, subject):
    run = say("The kettle with number 7 is blue.", subject=subject)
    rested()

    assert Run.objects.get(id=run.id).model_calls == 1


# What was written down follows what it was made of


@pytest.fixture
def remembered_session(writes, say, subject):
    writes({"kind": "working_memory", "every_n_turns": 1}, {"kind": "conversation_summary", "every_n_turns": 1},
           assembly=["working_memory", "episodic_memory"])  # fmt: skip
    say("The kettle with number 7 is blue.", subject=subject)
    written(2)
    return Session.objects.get()


def texts(session, subject, agent):
    definition = definition_of(agent_named(tenant_id=agent.tenant_id, name=agent.name).published)
    return remembered.texts_for(
        tenant_id=session.tenant_id, agent_id=session.agent_id, subject_id=subject.id, session_id=None, definition=definition
    )


def test_deleting_a_session_takes_what_was_written_of_it(remembered_session, subject, agent, actor):
    before = texts(remembered_session, subject, agent)
    assert (before.working is not None, len(before.episodes)) == (True, 1)

    session_verbs.delete(session=remembered_session, by=actor)

    # Not read from the same moment on, and gone with the next look of the sweeper.
    hidden = texts(remembered_session, subject, agent)
    assert (hidden.working, hidden.episodes) == (None, ())
    assert aggregations.follow() == 2
    assert not AgentFile.objects.exists()
    assert not Aggregation.objects.exists()


@pytest.mark.parametrize("change", ["hide", "edit"])
def test_change_of_an_item_takes_what_was_written_of_it(remembered_session, subject, agent, change):
    row = Item.objects.filter(session_id=remembered_session.id, seq=1)

    if change == "hide":
        row.update(is_hidden=True)
    else:
        row.update(content={"text": "The kettle is red."})

    assert texts(remembered_session, subject, agent).working is None
    aggregations.follow()
    assert not AgentFile.objects.exists()


def test_notes_are_written_anew_from_what_is_still_there(remembered_session, subject, agent, actor, say):
    say("Bring the ladder to Ada.", key="case-2", subject=subject)
    written(4)
    session_verbs.delete(session=remembered_session, by=actor)
    aggregations.follow()
    assert not AgentFile.objects.filter(path=WORKING_PATH).exists()

    say("And the rope.", key="case-2", subject=subject)
    written(2)

    notes = AgentFile.objects.get(path=WORKING_PATH).content
    assert "ladder" in notes
    assert "kettle" not in notes


def test_bytes_in_another_store_go_along(writes, say, actor, subject, settings, tmp_path):
    settings.LETHE = {**settings.LETHE, "file_store": f"disk:{tmp_path / 'files'}"}
    writes({"kind": "working_memory", "every_n_turns": 1})
    say("The kettle with number 7 is blue.", subject=subject)
    written(1)
    kept = [path for path in (tmp_path / "files").rglob("f-*") if "kettle" in path.read_text()]
    assert len(kept) == 1

    session_verbs.delete(session=Session.objects.get(), by=actor)
    aggregations.follow()

    assert not kept[0].exists()


def test_file_of_another_session_stays(remembered_session, subject, agent, actor, say):
    say("Bring the ladder to Ada.", key="case-2", subject=subject)
    written(4)
    kept = Session.objects.get(key="case-2")

    session_verbs.delete(session=remembered_session, by=actor)
    aggregations.follow()

    assert [file.path for file in AgentFile.objects.filter(path__startswith=EPISODES)] == [aggregations.path_of(EPISODE, kept)]
