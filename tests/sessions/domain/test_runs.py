"""Real runs on the demo model: the lease, the queue, cancelling, crashes, events."""

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper
from django.db.models.functions import Now
from psycopg.errors import DiskFull

from agents.domain import definitions as catalogue
from governance.actors import system
from governance.domain import subjects
from governance.errors import Invalid, MissingPermission, NotFound
from sessions.domain import events, executions, history, leases, runs, sweeping
from sessions.domain.run_store import RunStore
from sessions.domain.runs import RunRequest
from sessions.errors import (
    Draining,
    EmptyMessage,
    IdempotencyMismatch,
    InvalidSessionKey,
    MessageTooLong,
    RunFinished,
    SessionBusy,
    SessionClosed,
)
from sessions.models import Item, ModelCall, QuotaCounter, Run, RunEvent, Session
from tests.sessions.domain.conftest import finished

pytestmark = pytest.mark.django_db(transaction=True)


def texts(session):
    return [(item.role, item.content["text"]) for item in history.every(session=session) if item.kind == "message"]


def set_policy(agent, policy):
    """Publish `on_busy` for the agent, as its builder would."""
    by = system(agent.tenant_id)
    changed = catalogue.save_draft(agent=agent, document={**agent.draft, "sessions": {"on_busy": policy}}, expected=agent.draft_counter, by=by)
    catalogue.publish(agent=changed, note=policy, by=by)


def in_parallel(number, work):
    """Run `work(index)` in `number` threads that start together; returns results or exceptions in order."""
    results, barrier = [None] * number, threading.Barrier(number)

    def call(index):
        barrier.wait()
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=call, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def held(agent, actor, key="case-1"):
    """A session whose lease is held by a run that nobody executes."""
    from sessions.domain import sessions as session_verbs

    session, _ = session_verbs.get_or_create(agent=agent, key=key, subject=None, by=actor)
    run = Run.objects.create(
        tenant_id=actor.tenant_id, agent=agent, version=agent.published, session=session, status=Run.Status.RUNNING,
        started_by="test", actor_kind="system", actor_ref="x", lease_expires_at=Now() + timedelta(seconds=60),
    )  # fmt: skip
    leases.taking(session=session, run=run).run()
    return session, run


def test_second_turn_answers_from_the_first(say, agent):
    say("Summarize the customer request: the invoice 2026-118 was charged twice.")
    say("Now list the unresolved questions.")

    session = Session.objects.get(key="case-1")
    said = texts(session)
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert "2026-118" in said[3][1]
    assert (session.turns, session.lease_run_id) == (2, None)


def test_run_records_usage_cost_and_version(say, agent):
    run = say("How many words are in this sentence?")

    run = Run.objects.select_related("version").get(id=run.id)
    calls = list(ModelCall.objects.filter(run_id=run.id).order_by("number"))
    assert run.status == Run.Status.COMPLETED
    assert run.version == agent.published
    assert run.model_calls == len(calls) == 2
    assert run.tool_calls == 1
    assert run.input_tokens == sum(call.input_tokens for call in calls) > 0
    assert run.cost == 0
    assert [call.number for call in calls] == [1, 2]
    assert {layer["layer"] for layer in calls[0].context} >= {"instructions", "history"}


def test_items_are_gapless_and_a_call_shares_its_group_with_its_result(say):
    say("How many words are in this sentence?")

    items = list(Item.objects.order_by("seq"))
    assert [item.seq for item in items] == list(range(1, len(items) + 1))
    assert [item.kind for item in items] == ["message", "tool_call", "tool_result", "message"]
    assert items[1].group == items[2].group
    assert {item.turn for item in items} == {1}
    assert all(item.tokens > 0 for item in items if item.kind == "message")


def test_events_of_a_finished_run_read_like_the_live_ones(say):
    run = say("How many words are in this sentence?")

    read = events.read(run=run)
    kinds = [event.type for event in read]
    assert kinds[0] == "run.started"
    assert kinds[-1] == "run.completed"
    assert [event.seq for event in read] == list(range(1, len(read) + 1))
    answer = Item.objects.filter(kind="message", role="assistant").latest("seq").content["text"]
    assert "".join(event.data["text"] for event in read if event.type == "message.delta").endswith(answer)
    assert [event.data["text"] for event in read if event.type == "message.completed"][-1] == answer
    called = next(event for event in read if event.type == "tool.called")
    assert called.data["name"] == "count_text"
    assert next(event for event in read if event.type == "tool.completed").data["call_id"] == called.data["call_id"]


def test_answers_are_stored_once(say):
    run = say("Tell me about yourself.")

    stored = RunEvent.objects.filter(run_id=run.id, type="message.completed").get()
    assert set(stored.data) == {"item_seq", "model"} or "text" not in stored.data


def test_folding_leaves_the_whole_text(say):
    run = say("Tell me about yourself.")
    before = [event.data["text"] for event in events.read(run=run) if event.type == "message.completed"]

    assert events.fold(older_than_seconds=0) > 0

    after = events.read(run=run)
    assert [event for event in after if event.type == "message.delta"] == []
    assert [event.data["text"] for event in after if event.type == "message.completed"] == before


def test_folding_leaves_the_report_of_what_the_model_saw_to_the_ledger(say):
    run = say("Tell me about yourself.")
    (before,) = [event.data for event in events.read(run=run) if event.type == "context.assembled"]

    events.fold(older_than_seconds=0)

    stored = RunEvent.objects.get(run_id=run.id, type="context.assembled")
    assert set(stored.data) == {"call", "window"}
    (after,) = [event.data for event in events.read(run=run) if event.type == "context.assembled"]
    assert after == before
    assert {"instructions", "history", "message"} <= {layer["layer"] for layer in after["layers"]}
    assert events.fold(older_than_seconds=0) == 0


def test_fifty_first_turns_on_one_key_run_once_and_refuse_the_rest_for_free(agent, actor):
    """google/adk-python#1733: the second turn is told; nothing is lost and nothing is spent."""
    results = in_parallel(
        50, lambda index: runs.start(agent_name="research", request=RunRequest(message=f"hello {index}", session_key="new"), by=actor)
    )

    started = [result for result in results if isinstance(result, Run)]
    refused = [result for result in results if isinstance(result, SessionBusy)]
    for run in started:
        finished(run)
    # Turns that arrive when an earlier one is over already may run; what matters is that none ran beside another.
    assert len(started) + len(refused) == 50
    assert Session.objects.count() == 1
    assert ModelCall.objects.values("run_id").distinct().count() == len(started)
    assert Item.objects.filter(role="user").count() == len(started)


def test_busy_session_refuses_before_anything_is_spent(agent, actor):
    held(agent, actor)

    with pytest.raises(SessionBusy):
        runs.start(agent_name="research", request=RunRequest(message="hello", session_key="case-1"), by=actor)
    assert ModelCall.objects.count() == 0
    assert Item.objects.count() == 0
    assert Run.objects.count() == 1
    assert not QuotaCounter.objects.exists()


def test_enqueue_runs_all_fifty_in_order(agent, actor):
    set_policy(agent, "enqueue")
    results = in_parallel(
        50, lambda index: runs.start(agent_name="research", request=RunRequest(message=f"message {index}", session_key="queue"), by=actor)
    )

    assert Counter(type(result).__name__ for result in results) == {"Run": 50}
    for run in results:
        assert finished(run, seconds=150).status == Run.Status.COMPLETED
    session = Session.objects.get(key="queue")
    assert (session.turns, session.lease_run_id) == (50, None)
    said = [role for role, _ in texts(session)]
    assert said == ["user", "assistant"] * 50
    by_arrival = list(Run.objects.order_by("created_at").values_list("id", flat=True))
    assert list(Item.objects.filter(role="user").order_by("seq").values_list("run_id", flat=True)) == by_arrival


def test_queued_turns_run_as_they_came_to_the_session_whoever_was_numbered_first(agent, actor):
    set_policy(agent, "enqueue")
    _, running = held(agent, actor)
    asked = [RunRequest(message=text, session_key="case-1") for text in ("first", "second")]
    first, second = (runs.start(agent_name="research", request=request, by=actor) for request in asked)
    # The first waited for the session's row while the second was stored.
    Run.objects.filter(id=first.id).update(created_at=Now())
    executions.finish(run=running, status=Run.Status.COMPLETED)

    assert finished(first).status == finished(second).status == Run.Status.COMPLETED
    assert [text for role, text in texts(Session.objects.get()) if role == "user"][-2:] == ["second", "first"]


def test_interrupt_stops_the_running_turn_and_keeps_what_it_produced(agent, actor):
    set_policy(agent, "interrupt")
    session, running = held(agent, actor)
    queued = runs.start(agent_name="research", request=RunRequest(message="listen", session_key="case-1"), by=actor)

    running.refresh_from_db()
    assert (running.cancel_reason, queued.status) == ("interrupt", Run.Status.QUEUED)
    # The executor of the running turn notices and ends it:
    executions.finish(run=running, status=Run.Status.INTERRUPTED)

    assert finished(queued).status == Run.Status.COMPLETED
    assert [role for role, _ in texts(session)] or Item.objects.count() == 2


def test_rollback_hides_what_the_running_turn_wrote(agent, actor, say):
    say("first")
    set_policy(agent, "rollback")
    session, running = held(agent, actor)
    session.refresh_from_db()
    entry = history.NewItem(kind="message", role="user", content={"text": "second"}, turn=2, group=3, run_id=running.id)
    history.insert(session=session, first_seq=session.head_seq + 1, entries=[entry])
    Session.objects.filter(id=session.id).update(head_seq=session.head_seq + 1, turns=2, version=session.version + 1)
    Run.objects.filter(id=running.id).update(first_seq=session.head_seq + 1)
    queued = runs.start(agent_name="research", request=RunRequest(message="third", session_key="case-1"), by=actor)
    executions.finish(run=running, status=Run.Status.INTERRUPTED)
    finished(queued)

    assert [text for role, text in texts(session) if role == "user"] == ["first", "third"] or [
        text for role, text in texts(Session.objects.get(id=session.id)) if role == "user"
    ] == ["first", "third"]


def test_closed_session_takes_no_turn(agent, actor, say):
    from sessions.domain import sessions as session_verbs

    say("hello")
    session_verbs.close(session=Session.objects.get(), by=actor)

    with pytest.raises(SessionClosed):
        runs.start(agent_name="research", request=RunRequest(message="again", session_key="case-1"), by=actor)


def test_run_whose_executor_died_is_interrupted_and_the_next_turn_works(agent, actor, say):
    say("hello")
    session, run = held(agent, actor)
    Run.objects.filter(id=run.id).update(lease_expires_at=Now() - timedelta(seconds=1))
    Session.objects.filter(id=session.id).update(lease_expires_at=Now() - timedelta(seconds=1))

    assert sweeping.sweep()["interrupted"] == 1

    run.refresh_from_db()
    assert run.status == Run.Status.INTERRUPTED
    assert [event.type for event in events.read(run=run)][-1] == "run.interrupted"
    assert say("still there?").status == Run.Status.COMPLETED
    assert sweeping.sweep()["interrupted"] == 0


def test_next_turn_need_not_wait_for_the_sweeper(agent, actor, say):
    session, run = held(agent, actor)
    Session.objects.filter(id=session.id).update(lease_expires_at=Now() - timedelta(seconds=1))

    assert say("hello").status == Run.Status.COMPLETED
    run.refresh_from_db()
    assert run.status == Run.Status.INTERRUPTED


def test_queued_run_that_nobody_started_is_found(agent, actor):
    from sessions.domain import sessions as session_verbs

    session, _ = session_verbs.get_or_create(agent=agent, key="k", subject=None, by=actor)
    run = Run.objects.create(
        tenant_id=actor.tenant_id, agent=agent, version=agent.published, session=session, started_by="test",
        actor_kind="system", actor_ref="x", request={"message": "hello", "parameters": {}, "culture": None, "attachments": []},
    )  # fmt: skip
    Run.objects.filter(id=run.id).update(created_at=Now() - timedelta(seconds=10))

    assert sweeping.sweep()["started"] == 1
    assert finished(run).status == Run.Status.COMPLETED


def test_cancel_of_a_queued_run_is_immediate_and_idempotent(agent, actor):
    set_policy(agent, "enqueue")
    held(agent, actor)
    queued = runs.start(agent_name="research", request=RunRequest(message="hello", session_key="case-1"), by=actor)

    assert runs.cancel(run=queued, by=actor).status == Run.Status.CANCELLED
    assert runs.cancel(run=queued, by=actor).status == Run.Status.CANCELLED


def test_a_cancellation_that_nobody_heard_at_the_beginning_is_found_soon(agent, actor, monkeypatch):
    document = {"name": "patient", "model": {"provider": "demo", "model": "demo-1-slow"}}
    catalogue.publish(agent=catalogue.create_agent(tenant_id=agent.tenant_id, document=document, by=actor), note="", by=actor)
    monkeypatch.setattr(runs.notify, "send", lambda channel, run_id: None)
    request = RunRequest(message="Tell me about yourself.", session_key="case-1")
    started = runs.start(agent_name="patient", request=request, by=actor)
    runs.cancel(run=started, by=actor)

    assert settings.LETHE["heartbeat_seconds"] >= 8
    assert finished(started, seconds=5).status == Run.Status.CANCELLED


def test_turn_begins_with_the_state_that_is_there_when_it_takes_the_session(agent, actor, say, monkeypatch):
    say("hello")
    begin, seen, changed = runs._begun_at_once, [], {"todos": [{"id": 1, "title": "Written meanwhile", "done": False}]}

    def late(run, session, definition):
        Session.objects.filter(id=session.id).update(state=changed)
        fresh = begin(run, session, definition)
        seen.append(fresh.run.session.state)
        return fresh

    monkeypatch.setattr(runs, "_begun_at_once", late)

    assert say("again").status == Run.Status.COMPLETED
    assert seen == [changed]


def test_cancel_of_a_finished_run_says_so(say, actor):
    run = say("hello")

    with pytest.raises(RunFinished):
        runs.cancel(run=run, by=actor)


def test_same_idempotency_key_and_body_give_the_same_run(agent, actor):
    request = RunRequest(message="once", session_key="idem")
    first = runs.start(agent_name="research", request=request, by=actor, idempotency_key="k1")
    finished(first)
    second = runs.start(agent_name="research", request=request, by=actor, idempotency_key="k1")

    assert second.id == first.id
    assert Item.objects.filter(role="user").count() == 1
    with pytest.raises(IdempotencyMismatch):
        runs.start(agent_name="research", request=RunRequest(message="other"), by=actor, idempotency_key="k1")


def test_same_idempotency_key_twenty_times_at_once_makes_one_run(agent, actor):
    request = RunRequest(message="once", session_key="idem")
    results = in_parallel(20, lambda _: runs.start(agent_name="research", request=request, by=actor, idempotency_key="k"))

    made = {result.id for result in results if isinstance(result, Run)}
    assert len(made) == 1
    assert Run.objects.count() == 1
    assert {type(result).__name__ for result in results} <= {"Run", "IdempotencyBusy"}
    finished(Run.objects.get())


def test_refused_request_gives_its_idempotency_key_back(agent, actor):
    session, running = held(agent, actor)
    request = RunRequest(message="x", session_key="case-1")
    with pytest.raises(SessionBusy):
        runs.start(agent_name="research", request=request, by=actor, idempotency_key="k")
    executions.finish(run=running, status=Run.Status.INTERRUPTED)

    assert finished(runs.start(agent_name="research", request=request, by=actor, idempotency_key="k")).status == Run.Status.COMPLETED


@pytest.mark.parametrize(
    "request_, error",
    [
        (RunRequest(message=""), EmptyMessage),
        (RunRequest(message="  \n"), EmptyMessage),
        (RunRequest(message="x" * 200_001), MessageTooLong),
        (RunRequest(message="x", session_key=""), InvalidSessionKey),
        (RunRequest(message="x", session_key="y" * 201), InvalidSessionKey),
        (RunRequest(message="x", parameters={"unknown": 1}), Invalid),
        (RunRequest(message="x", approvals=[{"id": "apr_1"}]), Invalid),
        (RunRequest(approvals=[{"id": "apr_00000000000000000000000000000000"}]), NotFound),
        (RunRequest(approvals=[{"id": 7}]), Invalid),
        (RunRequest(message="x", attachments=[{"name": "a"}]), Invalid),
        (RunRequest(message="x", session_key="a", metadata={"a": "x" * 16_384}), Invalid),
    ],
)
def test_bad_request_is_refused_and_stores_nothing(agent, actor, request_, error):
    with pytest.raises(error):
        runs.start(agent_name="research", request=request_, by=actor)
    assert not Run.objects.exists()
    assert not Session.objects.exists()


def test_nul_and_lone_surrogates_are_cleaned_and_spelled_escapes_are_not(say):
    """ayunis-core/ayunis-core-1613 and certtools/intelmq#2652."""
    say("a\x00b\ud800c \\u0000 \U0001f600")

    assert texts(Session.objects.get())[0] == ("user", "a\ufffdb\ufffdc \\u0000 \U0001f600")


def test_sessionless_run_keeps_no_history(agent, actor):
    run = finished(runs.start(agent_name="research", request=RunRequest(message="How many words are in this sentence?"), by=actor))

    assert run.status == Run.Status.COMPLETED
    assert (Session.objects.count(), Item.objects.count()) == (0, 0)
    assert run.output["text"]
    assert events.read(run=run)[-1].data["output"] == run.output
    assert run.request == {}


def test_draining_process_takes_no_run(agent, actor, monkeypatch):
    from sessions import dispatch

    monkeypatch.setattr(dispatch.draining, "is_set", lambda: True)

    with pytest.raises(Draining):
        runs.start(agent_name="research", request=RunRequest(message="x"), by=actor)


def test_unknown_agent_and_missing_permission(agent, actor, stranger):
    from dataclasses import replace

    with pytest.raises(NotFound):
        runs.start(agent_name="nobody", request=RunRequest(message="x"), by=actor)
    with pytest.raises(NotFound):
        runs.start(agent_name="research", request=RunRequest(message="x"), by=stranger)
    with pytest.raises(MissingPermission):
        runs.start(agent_name="research", request=RunRequest(message="x"), by=replace(actor, kind="api_key", permissions=frozenset()))


def test_two_tenants_with_one_key_and_one_subject_never_meet(agent, actor, stranger, say, tenant):
    """getzep/graphiti#1676: tenants at work in parallel must not read each other."""
    from agents.domain.demo import seed_demo_agents

    seed_demo_agents(tenant_id=stranger.tenant_id, by=stranger)
    for by, word in ((actor, "apricot"), (stranger, "blueberry")):
        person = subjects.resolve(tenant_id=by.tenant_id, value="person-1")
        say(f"Remember {word}.", by=by, subject=person)
        say("Now list the unresolved questions and what I said.", by=by, subject=person)

    told = {session.tenant_id: " ".join(text for _, text in texts(session)) for session in Session.objects.all()}
    assert "blueberry" not in told[actor.tenant_id]
    assert "apricot" not in told[stranger.tenant_id]
    assert len(told) == 2


def test_a_turn_adds_the_same_rows_at_any_length(say):
    def rows():
        return Counter(Item=Item.objects.count(), Run=Run.objects.count(), Call=ModelCall.objects.count(), Session=Session.objects.count())

    added = []
    for number in range(6):
        before = rows()
        say(f"Tell me something, number {number}.")
        added.append(rows() - before)

    assert added[1:] == [added[1]] * 5


# What runs on a busy server in plain view: one more statement a turn is a decision.
STATEMENTS = 3


def test_a_turn_is_this_many_statements(say, monkeypatch):
    for number in range(2):
        say(f"Tell me something, number {number}.")
    statements, execute = [], CursorWrapper.execute

    def counted(cursor, sql, params=None):
        statements.append(str(sql))
        return execute(cursor, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", counted)
    run = say("Tell me something more.")

    # Deltas and what is known of quotas go by the clock, and the test itself looks how far the run is.
    by_the_clock = ("insert_agent_sessions_runevent", 'FROM "agent_sessions_run"', 'FROM "agent_sessions_quota"')
    mine = [sql for sql in statements if not any(part in sql for part in by_the_clock)]
    assert run.status == Run.Status.COMPLETED
    assert len(mine) == STATEMENTS, "\n".join(mine)


def test_a_full_disk_ends_the_run_with_its_name(say, monkeypatch):
    def full(*args):
        raise OperationalError("no space") from DiskFull("no space")

    monkeypatch.setattr(RunStore, "_ledger", full)

    run = say("Tell me about yourself.")

    assert (run.status, run.error["code"]) == (Run.Status.FAILED, "storage_full")
