"""The promises of the README, against the real processes: database, web, worker and beat."""

import time

import psycopg
import pytest

from console import embedded
from tests.server.conftest import events_of
from tests.wire.replies import Call, Hang, calling, said
from tests.wire.threaded import serving, wait_for_calls

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def key(lethe):
    return lethe.manage(
        "create_api_key", "newcomer", "--tenant", "demo", "--scope", "runs:write", "--scope", "agents:write", "--scope", "sessions:write"
    )


def run(client, agent, message, *, session=None, **headers):
    body = {"message": message} | ({"sessionId": session} if session else {})
    with client.stream("POST", f"/api/agents/{agent}/run", json=body, headers=headers) as response:
        assert response.status_code == 200, response.read()
        return events_of(response)


def text_of(events):
    return next(event["data"]["text"] for event in reversed(events) if event["event"] == "message.completed")


def test_first_start_says_where_it_runs_and_who_may_sign_in(lethe):
    said = lethe.said_first

    assert f"http://localhost:{lethe.port}" in said
    assert "admin" in said
    assert "WARNINGS" not in said
    assert lethe.password


def test_demo_tenant_has_three_published_agents_and_history(lethe, key):
    with lethe.client(key) as client:
        agents = client.get("/api/agents").json()["results"]
        sessions = client.get("/api/sessions").json()["results"]

    published = {agent["name"] for agent in agents if agent["published_version"]}
    # Another test of this installation may have published an agent of its own.
    assert published >= {"research", "assistant", "careful"}
    assert sessions


def test_key_command_prints_only_the_key(key):
    assert key.startswith("lth_")
    assert key.split() == [key]


def test_second_answer_comes_from_the_first_also_after_a_restart(lethe, key):
    """Also in the folder of an earlier version, in which one database role was everything."""
    with lethe.client(key) as client:
        first = run(client, "research", "Summarize the customer request: invoice 2026-118 was charged twice, who refunds it?", session="case-4182")
        second = run(client, "research", "Now list the unresolved questions.", session="case-4182")
    password = lethe.password
    assert _roles(lethe) == {embedded.RUNTIME_ROLE}

    assert lethe.stop() == 0
    lethe.with_server(lambda: _as_owner(lethe, f"DROP OWNED BY {embedded.RUNTIME_ROLE}; DROP ROLE {embedded.RUNTIME_ROLE}"))
    lethe.start()
    with lethe.client(key) as client:
        third = run(client, "research", "Now list the unresolved questions.", session="case-4182")

    assert first[0]["event"] == "run.started"
    assert first[-1]["event"] == "run.completed"
    for answer in (second, third):
        assert "2026-118" in text_of(answer)
    assert _roles(lethe) == {embedded.RUNTIME_ROLE}
    # The second start keeps its data and makes no second administrator.
    assert lethe.password == password
    assert "one-time password" not in "".join(lethe.output)


def _roles(lethe):
    """Who is connected, beside this question."""
    statement = (
        "SELECT usename FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = 'lethe'"
    )
    return {role for (role,) in _as_owner(lethe, statement).fetchall()}


def _as_owner(lethe, statement):
    host = (lethe.directory / "postgres" / "postmaster.pid").read_text().splitlines()[4]
    with psycopg.connect(host=host, user=embedded.OWNER_ROLE, dbname=embedded.DATABASE_NAME, autocommit=True) as connection:
        return connection.execute(statement)


KEEPER = {
    "name": "keeper", "instructions": "Keep what matters.", "model": {"provider": "demo", "model": "demo-1-fast"},
    "harness": {"initial_mode": "plan"}, "workspace": {"enabled": True},
    "compaction": {"strategy": "summarization", "trigger_turns": 4, "minimum_preserved_turns": 1, "background": False},
}  # fmt: skip


def test_session_goes_on_after_a_restart_with_its_todos_mode_files_and_summary(lethe, key):
    with lethe.client(key) as client:
        assert client.post("/api/agents", json=KEEPER).status_code == 201
        assert client.post("/api/agents/keeper/publish", json={"note": "first"}).status_code == 201
        for message in ("Add a todo: call the customer", "Switch to execute mode.", "My name is Ada.", "The parcel is blue.", "What did I say?"):
            run(client, "keeper", message, session="kept")
        made = client.put("/api/sessions/kept/files/notes.md?agent=keeper", json={"content": "Before noon."}, headers={"If-None-Match": "*"})
        assert made.status_code == 200, made.text
        before = _seen(client, "What did I say?")

    assert lethe.stop() == 0
    lethe.start()
    with lethe.client(key) as client:
        after = _seen(client, "What did I say?")

    assert before == after
    assert set(after) == {"summary", "working_memory", "workspace"}
    assert "call the customer" in after["working_memory"]
    assert "execute" in after["working_memory"]
    assert "notes.md" in after["workspace"]
    assert "execute" in after["summary"]


def _seen(client, message) -> dict[str, str]:
    """What the model was shown beside the conversation, by layer."""
    body = {"sessionId": "kept", "message": message}
    done = client.post("/api/agents/keeper/run", json=body, headers={"Accept": "application/json"}).json()
    report = client.get(f"/api/runs/{done['id']}/context").json()["results"][0]["layers"]
    texts = {}
    for layer in {layer["layer"] for layer in report} - {"history", "message", "tools", "instructions"}:
        answer = client.get(f"/api/runs/{done['id']}/context/1/{layer}")
        assert answer.status_code == 200, answer.text
        texts[layer] = "\n".join(piece["text"] for piece in answer.json()["pieces"])
    return texts


def test_stream_that_was_cut_resumes_elsewhere_with_the_same_text(lethe, key):
    """The run goes on without its client; a worker and the web process read the same rows."""
    with lethe.client(key) as client:
        with client.stream("POST", "/api/agents/research/run", json={"message": "Tell me about yourself.", "session_id": "cut"}) as response:
            lines = response.iter_lines()
            first_id = next(line for line in lines if line.startswith("id:")).partition(":")[2].strip()
            run_id = response.headers["X-Lethe-Run"]
        with client.stream("GET", f"/api/runs/{run_id}/events", headers={"Last-Event-ID": first_id}) as response:
            resumed = events_of(response)
        with client.stream("GET", f"/api/runs/{run_id}/events") as response:
            whole = events_of(response)

    assert int(resumed[0]["id"]) == int(first_id) + 1
    assert text_of(resumed) == text_of(whole)
    assert resumed[-1]["event"] == whole[-1]["event"] == "run.completed"


def test_worker_killed_in_the_middle_of_a_tool_loop_loses_nothing(lethe, key):
    script = [calling(Call("count_text", '{"text": "one two three"}')), Hang(), said("There are three words.")]
    with serving("chat", *script) as provider, lethe.client(key) as client:
        _publish_agent(client, provider.base_url)

        answer = client.post(
            "/api/agents/fragile/run", json={"session_id": "fragile", "message": "Count, please."}, headers={"Prefer": "respond-async"}
        )
        assert answer.status_code == 202
        run_id = answer.json()["run_id"]
        wait_for_calls(provider, 2)
        lethe.child("worker").kill()
        interrupted = _until(client, run_id, "interrupted")
        items = client.get("/api/sessions/fragile/items", params={"agent": "fragile"}).json()["results"]
        after = run(client, "fragile", "Well?", session="fragile")

    assert interrupted["usage"]["input_tokens"] > 0
    assert [item["kind"] for item in items] == ["message", "tool_call", "tool_result", "note"]
    assert text_of(after) == "There are three words."


def test_web_process_that_dies_is_started_again_and_the_other_answers(lethe, key):
    before = lethe.child("uvicorn")
    others = [child for child in lethe.children() if "uvicorn" in child.cmdline() and child.pid != before.pid]

    before.kill()
    with lethe.client(key) as client:
        # Who waits for the new process waits as long as it takes to start, on a busy machine.
        client.timeout = 200
        answers = [client.get("/api/agents", headers={"Connection": "close"}) for _ in range(12)]

    assert {answer.status_code for answer in answers} == {200}
    assert lethe.child("uvicorn").pid != before.pid
    assert all(child.is_running() for child in others)
    assert others
    assert "is started again" in "".join(lethe.output)


def _publish_agent(client, url):
    assert client.post("/api/providers", json={"name": "local", "kind": "openai_compatible", "base_url": url}).status_code == 201
    document = {"name": "fragile", "instructions": "Count.", "model": {"provider": "local", "model": "m"}, "tools": ["count_text"]}
    assert client.post("/api/agents", json=document).status_code == 201
    assert client.post("/api/agents/fragile/publish", json={"note": "first"}).status_code in (200, 201)


def _until(client, run_id, status, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = client.get(f"/api/runs/{run_id}").json()
        if found["status"] == status:
            return found
        time.sleep(0.2)
    raise AssertionError(found)
