"""Runs over the API, without a model: what is stored, refused and shown."""

import json

import pytest
from django.test import AsyncClient

from governance.domain import subjects
from governance.models import AuditEvent, Subject
from sessions import dispatch
from sessions.models import Run, Session
from tests.console.api.conftest import problem
from tests.factories import sessions

ASYNC = {"prefer": "respond-async"}


@pytest.fixture
def path(world):
    return f"/runs/run_{world.run.id.hex}"


# Taking in


def test_run_is_stored_and_named_before_it_is_executed(api, world):
    answer = api.post("/agents/support/run", {"sessionId": "new", "message": "Hello"}, **ASYNC)

    run = Run.objects.get(session__key="new")
    assert answer.status_code == 202
    assert answer.json() == {
        "run_id": f"run_{run.id.hex}",
        "status": "queued",
        "session_id": f"ses_{run.session_id.hex}",
        "events_url": f"/api/runs/run_{run.id.hex}/events",
    }
    assert (answer["Location"], answer["Preference-Applied"]) == (f"/api/runs/run_{run.id.hex}", "respond-async")
    assert (answer["X-Lethe-Run"], answer["X-Lethe-Session"]) == (f"run_{run.id.hex}", f"ses_{run.session_id.hex}")


@pytest.mark.parametrize("accept", [None, "text/event-stream", "*/*", "text/*", "text/event-stream, application/json"])
def test_run_streams_unless_asked_otherwise(api, accept):
    answer = api.post("/agents/support/run", {"message": "Hello"}, **({"accept": accept} if accept else {}))

    assert answer.status_code == 200
    assert (answer["Content-Type"], answer["Cache-Control"], answer["X-Accel-Buffering"]) == (
        "text/event-stream; charset=utf-8", "no-store", "no",
    )  # fmt: skip
    assert "X-Lethe-Run" in answer


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream;q=0.5, application/json"])
def test_run_answers_with_json_when_asked(api, accept):
    answer = api.post("/agents/support/run", {"message": "Hello"}, accept=accept)

    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "body, code, path",
    [
        ({}, "empty_message", "message"),
        ({"message": ""}, "empty_message", "message"),
        ({"message": " \n\t "}, "empty_message", "message"),
        ({"message": None}, "invalid", "message"),
        ({"message": 7}, "invalid", "message"),
        ({"message": ["a"]}, "invalid", "message"),
        ({"message": "x" * 200_001}, "invalid", "message"),
        ({"message": "a", "session_id": ""}, "invalid", "session_id"),
        ({"message": "a", "session_id": " "}, "invalid_session_key", "session_id"),
        ({"message": "a", "session_id": "x" * 201}, "invalid", "session_id"),
        ({"message": "a", "session_id": 4182}, "invalid", "session_id"),
        ({"message": "a", "session_id": "a\nb"}, "invalid", "session_id"),
        ({"message": "a", "session_id": "a\u0000b"}, "invalid", "session_id"),
        ({"message": "a", "session_id": "a\u200bb"}, "invalid", "session_id"),
        ({"message": "a", "parameters": []}, "invalid", "parameters"),
        ({"message": "a", "parameters": {"unknown": 1}}, "invalid", "parameters.unknown"),
        ({"message": "a", "attachments": {}}, "invalid", "attachments"),
        ({"message": "a", "attachments": [{"data": "eA=="}]}, "invalid", "attachments.0.media_type"),
        ({"message": "a", "culture": "x" * 40}, "invalid", "culture"),
        ({"message": "a", "metadata": "x"}, "invalid", "metadata"),
        ({"message": "a", "approvals": [{"id": "x", "decision": "approve"}]}, "invalid", "approvals.0.id"),
        ({"message": "a", "tenant": "x"}, "invalid", "tenant"),
        ({"message": "a", "attachments": [{"media_type": "text/plain", "data": "eA=="}]}, "invalid", "attachments"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
def test_run_refuses_what_makes_no_sense(api, world, body, code, path):
    before = (Run.objects.count(), Session.objects.count())

    answer = api.post("/agents/support/run", body)

    assert answer.status_code == 400, answer.content if not answer.streaming else ""
    assert (problem(answer)["code"], list(problem(answer)["errors"])) == (code, [path])
    assert (Run.objects.count(), Session.objects.count()) == before


def test_lone_surrogate_in_a_session_key_is_refused(api):
    answer = api.ask("POST", "/agents/support/run", raw=b'{"message": "a", "session_id": "a\\ud800"}')

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["session_id"]


@pytest.mark.parametrize("key", ["x", "x" * 200, "case 4182", "Ärger/42?#", "日本語", "a" * 199 + "é"])
def test_run_takes_any_printable_key(api, key):
    answer = api.post("/agents/support/run", {"message": "a", "session_id": key}, **ASYNC)

    assert answer.status_code == 202
    assert Session.objects.filter(key=key).count() == 1


def test_session_key_of_another_person_is_another_session(world):
    broker = world.key("runs:write", "subjects:assert")

    for name in ("ada", "bob", "ada"):
        answer = broker.post("/agents/support/run", {"message": "a", "session_id": "s"}, x_lethe_subject=name, **ASYNC)
        assert answer.status_code in (202, 409)

    assert Session.objects.filter(key="s").count() == 2
    owners = {session.subject_id for session in Session.objects.filter(key="s")}
    assert owners == {subjects.find(tenant_id=world.tenant.id, value=name).id for name in ("ada", "bob")}


def test_run_of_a_bound_key_belongs_to_its_subject(world):
    bound = world.key("runs:write", subject="person-1")

    bound.post("/agents/support/run", {"message": "a", "session_id": "mine"}, **ASYNC)

    run = Run.objects.get(session__key="mine")
    assert run.subject_id == run.session.subject_id == world.person.id


def test_refused_run_makes_no_subject(world):
    broker = world.key("runs:write", "subjects:assert")
    before = Subject.objects.count()

    broker.post("/agents/support/run", {"message": ""}, x_lethe_subject="newcomer")
    broker.post("/agents/support/run", {"mesage": "a"}, x_lethe_subject="newcomer")
    assert broker.post("/agents/nowhere/run", {"message": "a"}, x_lethe_subject="newcomer").status_code == 404
    world.key("runs:read", "subjects:assert").post("/agents/support/run", {"message": "a"}, x_lethe_subject="newcomer")

    assert Subject.objects.count() == before


@pytest.mark.parametrize(
    "verb, status, code",
    [("disable", 409, "agent_disabled"), ("archive", 409, "agent_disabled")],
)
def test_agent_that_is_switched_off_is_not_run(api, verb, status, code):
    api.post(f"/agents/support/{verb}")

    answer = api.post("/agents/support/run", {"message": "a"})

    assert (answer.status_code, problem(answer)["code"]) == (status, code)


def test_agent_without_a_version_is_not_run(api, world):
    sessions.agent(world.tenant, "fresh", published=False)

    answer = api.post("/agents/fresh/run", {"message": "a"})

    assert (answer.status_code, problem(answer)["code"]) == (409, "agent_not_published")


def test_unknown_agent_is_not_found_also_when_a_stream_was_asked_for(api):
    answer = api.post("/agents/nobody/run", {"message": "a"}, accept="text/event-stream")

    assert answer.status_code == 404
    problem(answer)


def test_content_type_that_is_not_offered_starts_nothing(api):
    before = Run.objects.count()

    answer = api.post("/agents/support/run", {"message": "a"}, accept="application/xml")

    assert (answer.status_code, Run.objects.count()) == (406, before)


def test_busy_session_is_told_at_once(api, world):
    api.post("/agents/support/run", {"message": "a", "session_id": "busy"})

    answer = api.post("/agents/support/run", {"message": "b", "session_id": "busy"})

    assert (answer.status_code, problem(answer)["code"]) == (409, "session_busy")
    assert problem(answer)["run_id"].startswith("run_")
    assert Run.objects.filter(session__key="busy").count() == 1


def test_shutting_down_process_takes_no_run(api):
    dispatch.draining.set()
    try:
        answer = api.post("/agents/support/run", {"message": "a"})
    finally:
        dispatch.draining.clear()

    assert (answer.status_code, problem(answer)["code"], answer["Retry-After"]) == (503, "draining", "5")


def test_used_up_quota_says_which_and_when(api):
    quota = api.post("/quotas", {"scope": "agent", "measure": "runs", "period": "day", "limit": "0"}).json()

    answer = api.post("/agents/support/run", {"message": "a"})

    assert (answer.status_code, problem(answer)["code"]) == (429, "quota_exceeded")
    assert int(answer["Retry-After"]) > 0
    assert quota["id"].removeprefix("quo_") in json.dumps(problem(answer)["quota"]).replace("-", "")


def test_fenced_subject_is_not_written_for(world):
    from governance.domain import fences
    from tests.factories import governance

    fences.restrict(subject=world.person, by=governance.lethe(world.tenant))
    bound = world.key("runs:write", "sessions:write", subject="person-2")
    broker = world.key("runs:write", "subjects:assert")

    answer = broker.post("/agents/support/run", {"message": "a", "session_id": "s"}, x_lethe_subject="person-1")

    assert (answer.status_code, problem(answer)["code"]) == (409, "subject_fenced")
    assert bound.post("/agents/support/run", {"message": "a", "session_id": "s"}, **ASYNC).status_code == 202


# Idempotency


def test_same_key_and_body_give_the_same_run(api):
    body = {"sessionId": "once", "message": "a", "metadata": {"x": 1, "y": 2}}
    same = {"metadata": {"y": 2, "x": 1}, "message": "a", "session_id": "once"}

    first = api.post("/agents/support/run", body, idempotency_key="k", **ASYNC)
    again = api.post("/agents/support/run", same, idempotency_key="k", **ASYNC)

    assert first.json()["run_id"] == again.json()["run_id"]
    assert Run.objects.filter(session__key="once").count() == 1


def test_same_key_and_another_body_are_refused(api):
    api.post("/agents/support/run", {"message": "a"}, idempotency_key="k", **ASYNC)

    answer = api.post("/agents/support/run", {"message": "b"}, idempotency_key="k", **ASYNC)

    assert (answer.status_code, problem(answer)["code"]) == (422, "idempotency_mismatch")


def test_key_of_another_credential_is_another_key(world):
    body = {"message": "a"}

    runs = {
        client.post("/agents/support/run", body, idempotency_key="k", **ASYNC).json()["run_id"]
        for client in (world.api, world.key("runs:write"))
    }

    assert len(runs) == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_idempotency_key_that_is_none_is_refused(api, key):
    answer = api.post("/agents/support/run", {"message": "a"}, idempotency_key=key)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["Idempotency-Key"]


# Reading


def test_run_shows_its_answer_usage_and_cost(api, path, world):
    answer = api.get(path).json()

    assert (answer["id"], answer["agent"], answer["version"], answer["status"]) == (
        f"run_{world.run.id.hex}", "support", 1, "completed",
    )  # fmt: skip
    assert (answer["session_id"], answer["session_key"]) == (f"ses_{world.session.id.hex}", "case-1")
    assert (answer["output"], answer["output_json"], answer["approvals"]) == ("Answer blue", None, [])
    assert answer["metadata"] == {"mark": "blue"}
    assert answer["created_at"].endswith("Z")


def test_run_without_a_session_shows_its_own_output(api, world):
    run = sessions.run(world.agent, output={"text": "42", "output": {"answer": 42}})

    answer = api.get(f"/runs/run_{run.id.hex}").json()

    assert (answer["output"], answer["output_json"], answer["session_id"]) == ("42", {"answer": 42}, None)


def test_waiting_run_lists_what_it_waits_for(api, world):
    answer = api.get(f"/runs/run_{world.waiting.id.hex}").json()

    assert [(row["id"], row["arguments"]) for row in answer["approvals"]] == [(f"apr_{world.approval.id.hex}", {"to": "blue"})]


@pytest.mark.parametrize(
    "query, found",
    [("status=completed", 1), ("status=running", 0), ("agent=support", 2), ("agent=other", 0), ("subject=person-1", 1), ("created_after=2999-01-01", 0)],
)
def test_list_filters(api, query, found):
    assert len(api.get(f"/runs?{query}").json()["results"]) == found


def test_list_by_session(api, world):
    rows = api.get(f"/runs?session=ses_{world.session.id.hex}").json()["results"]

    assert [row["id"] for row in rows] == [f"run_{world.run.id.hex}"]
    assert api.get("/runs?session=nonsense").status_code == 404


def test_context_shows_what_each_call_saw(api, path):
    rows = api.get(f"{path}/context").json()["results"]

    assert [(row["number"], row["model"], row["layers"]) for row in rows] == [
        (1, "demo", [{"layer": "instructions", "tokens": 3, "sources": ["blue"]}])
    ]


def test_context_gives_texts_only_to_who_asks_for_them(api, path, world):
    layers = [{"layer": "working_memory", "tokens": 3, "sources": ["session state"], "left_out": [], "text": "Mode: plan."}]
    sessions.model_call(world.run, 2, context=layers)

    listed = api.get(f"{path}/context").json()["results"][1]["layers"]
    opened = api.get(f"{path}/context/2/working_memory")

    assert listed == [{"layer": "working_memory", "tokens": 3, "sources": ["session state"], "left_out": []}]
    assert opened.json() == {"layer": "working_memory", "pieces": [{"source": "call", "text": "Mode: plan."}], "is_cut": False}
    assert AuditEvent.objects.get(action="content.read").payload == {"what": "context"}
    assert api.get(f"{path}/context/2/history").status_code == 404
    assert api.get(f"{path}/context/7/working_memory").status_code == 404


def test_events_as_json_come_after_the_one_that_was_seen(api, path):
    everything = api.get(f"{path}/events", accept="application/json").json()["results"]
    after = api.get(f"{path}/events?after=1", accept="application/json").json()["results"]
    by_header = api.get(f"{path}/events?after=0", accept="application/json", last_event_id="1").json()["results"]

    assert [(event["seq"], event["type"]) for event in everything] == [(1, "run.started"), (2, "run.completed")]
    assert after == by_header == everything[1:]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 16, "²"])
def test_last_event_id_that_is_none_is_refused(api, path, value):
    answer = api.get(f"{path}/events", last_event_id=value)

    assert answer.status_code == 400
    problem(answer)


def test_head_of_a_stream_does_not_wait_for_it(api, world):
    answer = api.ask("HEAD", f"/runs/run_{world.waiting.id.hex}/events")

    assert (answer.status_code, answer.content) == (200, b"")


def test_cancel_is_idempotent(api, world):
    answers = [api.post(f"/runs/run_{world.waiting.id.hex}/cancel") for _ in range(2)]

    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(200, "cancelled")] * 2


def test_ended_run_cannot_be_cancelled(api, path):
    answer = api.post(f"{path}/cancel")

    assert (answer.status_code, problem(answer)["code"]) == (409, "run_finished")


@pytest.mark.django_db(transaction=True)
async def test_stream_of_an_ended_run_is_whole_and_ends(world):
    headers = {"authorization": f"Bearer {world.api.secret}"}

    answer = await AsyncClient().get(f"/api/runs/run_{world.run.id.hex}/events", headers=headers)
    assert answer.status_code == 200, answer.content
    text = b"".join([piece async for piece in answer]).decode()

    assert text == (
        ": lethe\nretry: 3000\n\n"
        'id: 1\nevent: run.started\ndata: {"mark":"blue","agent":"support"}\n\n'
        'id: 2\nevent: run.completed\ndata: {"status":"completed"}\n\n'
    )
