"""Runs over real HTTP: a server in this process, the built-in demo model, and clients that read, cut and come back."""

import json
import threading
import time

import httpx
import pytest
import uvicorn
from django.core.asgi import get_asgi_application

from agents.domain.demo import seed_demo_agents
from governance.domain import subjects
from sessions import queries
from sessions.models import Run
from tests.console.api.conftest import ALL_SCOPES, World
from tests.factories import governance

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def demo() -> World:
    """A tenant with the demo agents."""
    world = World(governance.tenant("demo"), "demo")
    seed_demo_agents(tenant_id=world.tenant.id, by=governance.lethe(world.tenant))
    world.api = world.key(*ALL_SCOPES)
    return world


@pytest.fixture
def base(transactional_db):
    """The address of a server in this process, on the test's database."""
    config = uvicorn.Config(get_asgi_application(), port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def http(base, demo):
    with httpx.Client(base_url=f"{base}/api", headers={"Authorization": f"Bearer {demo.api.secret}"}, timeout=60) as client:
        yield client


def parsed(text: str) -> list[tuple[int, str, dict]]:
    """(id, event, data) of a stream, without comments."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "event" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def ended(run_id: str) -> Run:
    """The run once it has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        run = Run.objects.get(id=run_id.removeprefix("run_"))
        if run.is_finished:
            return run
        time.sleep(0.02)
    raise AssertionError(f"the run is still {run.status}")


def test_stream_tells_the_run_from_its_start_to_its_end(http):
    with http.stream("POST", "/agents/research/run", json={"sessionId": "s", "message": "Tell me about yourself."}) as answer:
        pieces = list(answer.iter_text())

    events = parsed("".join(pieces))
    assert pieces[0].startswith(": lethe\n")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (events[0][1], events[-1][1]) == ("run.started", "run.completed")
    assert [number for number, _, _ in events] == sorted({number for number, _, _ in events})
    deltas = "".join(data["text"] for _, kind, data in events if kind == "message.delta")
    assert deltas == [data["text"] for _, kind, data in events if kind == "message.completed"][-1] != ""


def test_json_answer_is_the_finished_run_with_its_text(http):
    answer = http.post("/agents/research/run", json={"message": "Tell me about yourself."}, headers={"Accept": "application/json"})

    run = answer.json()
    assert (answer.status_code, run["status"], run["id"]) == (200, "completed", answer.headers["x-lethe-run"])
    assert run["output"]
    assert run["usage"]["model_calls"] == 1


def test_json_answer_in_a_session_has_the_text_too(http):
    answer = http.post(
        "/agents/research/run", json={"session_id": "s", "message": "Tell me about yourself."}, headers={"Accept": "application/json"}
    )

    items = http.get("/sessions/s/items?agent=research").json()["results"]
    assert answer.json()["output"] == items[-1]["content"]["text"] != ""


def test_stream_resumes_exactly_where_it_was_cut(http):
    with http.stream("POST", "/agents/research/run", json={"session_id": "s", "message": "Tell me about yourself."}) as answer:
        run_id = answer.headers["x-lethe-run"]
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if line.startswith("id: 3"):
                break
    last = max(int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ") and line != lines[-1])

    ended(run_id)
    rest = parsed(http.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": str(last)}).text)
    whole = parsed(http.get(f"/runs/{run_id}/events").text)

    assert rest == [event for event in whole if event[0] > last]
    assert rest[-1][1] == "run.completed"


def test_leaving_before_the_first_byte_does_not_stop_the_run(http):
    with http.stream("POST", "/agents/research/run", json={"session_id": "s", "message": "Tell me about yourself."}) as answer:
        run_id = answer.headers["x-lethe-run"]

    assert ended(run_id).status == Run.Status.COMPLETED


def test_leaving_while_waiting_for_json_does_not_stop_the_run(base, demo):
    headers = {"Authorization": f"Bearer {demo.api.secret}", "Accept": "application/json"}
    with httpx.Client(base_url=f"{base}/api", headers=headers) as client, client.stream(
        "POST", "/agents/research/run", json={"session_id": "s", "message": "Tell me about yourself."}
    ) as answer:
        run_id = answer.headers["x-lethe-run"]

    assert ended(run_id).status == Run.Status.COMPLETED


def test_waiting_connection_is_kept_alive(http, settings):
    settings.LETHE = {**settings.LETHE, "keepalive_seconds": 0.05}
    asked = http.post("/agents/careful/run", json={"session_id": "s", "message": "What is 17 * 23?"}, headers={"Accept": "application/json"})
    assert asked.json()["status"] == "awaiting_approval", asked.json()

    seen = ""
    with http.stream("GET", f"/runs/{asked.json()['id']}/events") as answer:
        for piece in answer.iter_text():
            seen += piece
            if ": keep-alive" in seen:
                break

    assert ": keep-alive\n\n" in seen


def test_approval_in_a_run_request_continues_the_run(http):
    asked = http.post(
        "/agents/careful/run", json={"session_id": "s", "message": "What is 17 * 23?"}, headers={"Accept": "application/json"}
    ).json()
    decision = {"id": asked["approvals"][0]["id"], "decision": "approve"}

    answer = http.post("/agents/careful/run", json={"approvals": [decision]}, headers={"Accept": "application/json"}).json()

    assert (answer["id"], answer["status"]) == (asked["id"], "completed")


def test_fifty_first_messages_open_one_session(base, demo):
    """Exactly one request opens it; the others are told at once."""
    headers = {"Authorization": f"Bearer {demo.api.secret}", "Prefer": "respond-async"}
    statuses = []

    def send():
        answer = httpx.post(f"{base}/api/agents/research/run", json={"session_id": "new", "message": "a"}, headers=headers, timeout=60)
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(statuses) == [202] + [409] * 19
    assert queries.sessions_of(demo.tenant.id).count() == 1


def test_body_of_unstated_length_is_read(http):
    def pieces():
        yield b'{"message": '
        yield b'"Tell me about yourself."}'

    answer = http.post(
        "/agents/research/run", content=pieces(), headers={"Content-Type": "application/json", "Accept": "application/json"}
    )

    assert answer.json()["status"] == "completed"


def test_two_people_with_one_key_never_meet(base, demo):
    broker = demo.key("runs:write", "runs:read", "sessions:read", "subjects:assert").secret
    answers = {}
    for name in ("ada", "bob"):
        headers = {"Authorization": f"Bearer {broker}", "X-Lethe-Subject": name, "Accept": "application/json"}
        body = {"session_id": "s", "message": f"My name is {name}."}
        answers[name] = httpx.post(f"{base}/api/agents/research/run", json=body, headers=headers, timeout=60).json()

    headers = {"Authorization": f"Bearer {broker}", "X-Lethe-Subject": "ada"}
    transcript = httpx.get(f"{base}/api/sessions/s/transcript?agent=research", headers=headers).text

    assert answers["ada"]["session_id"] != answers["bob"]["session_id"]
    assert "My name is ada." in transcript
    assert "bob" not in transcript
    assert httpx.get(f"{base}/api/runs/{answers['bob']['id']}", headers=headers).status_code == 404
    assert subjects.find(tenant_id=demo.tenant.id, value="bob") is not None
