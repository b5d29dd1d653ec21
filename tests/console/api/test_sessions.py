"""Sessions over the API."""

import pytest

from governance.domain import subjects
from sessions.models import Session
from tests.console.api.conftest import problem
from tests.factories import sessions


@pytest.fixture
def path(world):
    return f"/sessions/ses_{world.session.id.hex}"


def test_list_is_newest_activity_first_and_slim(api, world):
    rows = api.get("/sessions").json()["results"]

    assert [row["key"] for row in rows] == ["case-1", "case-1"]
    assert rows[0]["id"] == f"ses_{world.personal.id.hex}"
    assert rows[0]["subject_ref"] == world.person.display_ref
    assert not {"task", "shared", "history"} & set(rows[0])


@pytest.mark.parametrize(
    "query, found",
    [
        ("agent=support", 2),
        ("agent=other", 0),
        ("state=open", 2),
        ("state=closed", 0),
        ("key=case-1", 2),
        ("key=case", 0),
        ("label=blue", 1),
        ("q=personal", 1),
        ("q=nothing", 0),
        ("subject=person-1", 1),
        ("subject=nobody", 0),
        ("archived=true", 0),
        ("created_after=2000-01-01T00:00:00Z", 2),
        ("createdAfter=2000-01-01", 2),
        ("created_before=2000-01-01T00:00:00Z", 0),
        ("active_after=2999-01-01T00:00:00%2B02:00", 0),
        ("active_before=2999-01-01T00:00:00Z", 2),
    ],
)
def test_list_filters(api, query, found):
    answer = api.get(f"/sessions?{query}")

    assert answer.status_code == 200, answer.content
    assert len(answer.json()["results"]) == found


def test_list_by_subject_takes_id_and_reference(api, world):
    by_id = api.get(f"/sessions?subject=sub_{world.person.id.hex}").json()["results"]
    by_ref = api.get(f"/sessions?subject={world.person.display_ref}").json()["results"]

    assert [row["id"] for row in by_id] == [row["id"] for row in by_ref] == [f"ses_{world.personal.id.hex}"]


def test_read_by_key_needs_the_agent(api, world):
    sessions.session(world.agent, None, "only-one")

    assert api.get("/sessions/only-one?agent=support").json()["key"] == "only-one"
    assert api.get("/sessions/only-one").status_code == 404
    assert api.get("/sessions/only-one?agent=other").status_code == 404


def test_change_of_title_and_labels(api, path):
    answer = api.patch(path, {"title": " A new title ", "labels": ["a", "b", "a"]})

    assert answer.status_code == 200
    assert (answer.json()["title"], answer.json()["labels"]) == ("A new title", ["a", "b"])


@pytest.mark.parametrize(
    "body, place",
    [({"title": "x" * 201}, "title"), ({"labels": ["x"] * 21}, "labels"), ({"labels": "a"}, "labels"), ({"labels": [""]}, "labels.0"), ({"title": 7}, "title")],
)
def test_change_refuses_what_does_not_fit(api, path, body, place):
    answer = api.patch(path, body)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == [place]


def test_archived_session_leaves_the_list(api, path):
    api.patch(path, {"archived": True})

    assert [len(api.get(f"/sessions{query}").json()["results"]) for query in ("", "?archived=true")] == [1, 1]


def test_delete_answers_once(api, path, world):
    assert [api.delete(path).status_code for _ in range(2)] == [204, 404]
    assert not Session.objects.filter(id=world.session.id).exists()


def test_close_and_reopen(api, path):
    assert api.post(f"{path}/close").json()["state"] == "closed"
    assert api.post(f"{path}/close").json()["state"] == "closed"
    assert api.post(f"{path}/reopen").json()["state"] == "open"


def test_message_to_a_closed_session_is_refused(api, path):
    api.post(f"{path}/close")

    answer = api.post("/agents/support/run", {"session_id": "case-1", "message": "Hello"})

    assert (answer.status_code, problem(answer)["code"]) == (409, "session_closed")


# Items


@pytest.fixture
def long_session(world):
    session = sessions.session(world.agent, None, "long")
    sessions.turns(session, 30)
    return f"/sessions/ses_{session.id.hex}/items"


def test_items_open_on_the_last_page_and_go_both_ways(api, long_session):
    last = api.get(f"{long_session}?limit=20").json()
    middle = api.get(f"{long_session}?limit=20&cursor={last['previous_cursor']}").json()
    first = api.get(f"{long_session}?limit=20&cursor={middle['previous_cursor']}").json()
    again = api.get(f"{long_session}?limit=20&cursor={first['next_cursor']}").json()

    assert [[row["seq"] for row in page["results"]] for page in (last, middle, first)] == [
        list(range(41, 61)), list(range(21, 41)), list(range(1, 21)),
    ]  # fmt: skip
    assert (last["next_cursor"], first["previous_cursor"]) == (None, None)
    assert again["results"] == middle["results"]


@pytest.mark.parametrize("cursor", ["1", "after", "eyJ", "%00", "a:b:c", "x" * 1001])
def test_items_refuse_a_cursor_that_is_not_theirs(api, long_session, cursor):
    answer = api.get(f"{long_session}?cursor={cursor}")

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["cursor"]


def test_cursor_of_one_session_opens_no_other(api, long_session, path):
    cursor = api.get(f"{long_session}?limit=5").json()["previous_cursor"]

    assert api.get(f"{path}/items?cursor={cursor}").status_code == 400


def test_items_carry_their_content(api, path, world):
    rows = api.get(f"{path}/items").json()["results"]

    assert [(row["seq"], row["kind"], row["role"], row["content"]["text"]) for row in rows] == [
        (1, "message", "user", "Question blue"),
        (2, "message", "assistant", "Answer blue"),
    ]
    assert rows[0]["run_id"] == f"run_{world.run.id.hex}"


# State


def test_state_is_patched_with_the_etag_that_was_read(api, path):
    read = api.get(f"{path}/state")
    first = api.patch(f"{path}/state", {"task": {"cart": {"a": 1, "b": 2}}}, if_match=read["ETag"])
    second = api.patch(f"{path}/state", {"task": {"cart": {"a": None}}}, if_match=first["ETag"])

    assert read.json() == {"task": {}, "version": 0}
    assert second.json() == {"task": {"cart": {"b": 2}}, "version": 2}
    assert second["ETag"] == '"2"'


def test_state_refuses_a_patch_without_an_etag_and_with_an_old_one(api, path):
    api.patch(f"{path}/state", {"task": {"a": 1}}, if_match='"0"')

    missing = api.patch(f"{path}/state", {"task": {"a": 2}})
    old = api.patch(f"{path}/state", {"task": {"a": 2}}, if_match='"0"')

    assert (missing.status_code, old.status_code) == (428, 409)
    assert problem(old)["current"] == {"task": {"a": 1}, "version": 1}


def test_state_that_grew_too_large_is_refused(api, path):
    answer = api.patch(f"{path}/state", {"task": {"a": "x" * 300_000}}, if_match="*")

    assert answer.status_code == 400


# Forks and transcripts


def test_fork_shares_the_history_up_to_an_item(api, path, world):
    answer = api.post(f"{path}/fork", {"key": "case-2", "atSeq": 2})

    assert answer.status_code == 201
    assert (answer.json()["forked_from"], answer.json()["items"]) == (f"ses_{world.session.id.hex}", 2)
    items = api.get(f"{answer['Location'].removeprefix('/api')}/items").json()["results"]
    assert [row["content"]["text"] for row in items] == ["Question blue", "Answer blue"]


@pytest.mark.parametrize(
    "body, status",
    [({}, 400), ({"key": ""}, 400), ({"key": "x" * 201}, 400), ({"key": "a\nb"}, 400), ({"key": "k", "at_seq": 0}, 400), ({"key": "k", "at_seq": 99}, 400), ({"key": "case-1"}, 409)],
)
def test_fork_refuses_what_does_not_fit(api, path, body, status):
    answer = api.post(f"{path}/fork", body)

    assert answer.status_code == status
    problem(answer)


@pytest.mark.parametrize(
    "query, accept, content_type",
    [
        ("", "*/*", "text/markdown; charset=utf-8"),
        ("?format=json", "*/*", "application/json"),
        ("?format=markdown", "application/json", "text/markdown; charset=utf-8"),
        ("", "application/json", "application/json"),
    ],
)
def test_transcript_comes_as_markdown_or_json(api, path, query, accept, content_type):
    answer = api.get(f"{path}/transcript{query}", accept=accept)

    assert answer["Content-Type"] == content_type
    assert "Answer blue" in answer.content.decode()


def test_sessions_of_two_people_with_one_key_are_told_apart(world):
    other = subjects.resolve(tenant_id=world.tenant.id, value="person-2")
    theirs = sessions.session(world.agent, other, "case-1")

    mine = world.key("sessions:read", subject="person-1")
    hers = world.key("sessions:read", subject="person-2")

    assert mine.get("/sessions/case-1?agent=support").json()["id"] == f"ses_{world.personal.id.hex}"
    assert hers.get("/sessions/case-1?agent=support").json()["id"] == f"ses_{theirs.id.hex}"


def test_session_that_cannot_be_compacted_says_why(api, path):
    answer = api.post(f"{path}/compact")

    assert (answer.status_code, problem(answer)["code"]) == (409, "no_summaries")


def test_compacted_session_answers_with_its_summary(api, path, world, monkeypatch):
    stored = sessions.summary(world.session, 2)
    monkeypatch.setattr("console.api.views.sessions.compacting.compact", lambda session, by: stored)

    answer = api.post(f"{path}/compact")

    assert answer.json()["state"] == "done"
    assert {name: answer.json()["summary"][name] for name in ("id", "from_seq", "to_seq", "text", "tokens")} == {
        "id": f"sum_{stored.id.hex}", "from_seq": 1, "to_seq": 2, "text": "They talked.", "tokens": 5,
    }  # fmt: skip


def test_summary_that_takes_long_is_running(api, path, monkeypatch):
    monkeypatch.setattr("console.api.views.sessions.compacting.compact", lambda session, by: None)

    assert api.post(f"{path}/compact").json() == {"state": "running", "summary": None}
