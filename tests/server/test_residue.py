"""Forgotten means gone from the disk: canaries go in through every door, the person is erased, and everything is read.

The real processes, the real data directory. The scanner does not ask the register of categories what there is.
"""

import base64
import secrets

import pytest

from tests.server.conftest import events_of, until

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

DOORS = (
    "identifier", "message", "tool", "metadata", "parameter", "attachment", "attachment_name", "session", "title", "label", "task",
    "decision", "idempotency", "alone", "forked", "refused", "asked",
)  # fmt: skip
GREETER = {
    "name": "greeter",
    "instructions": "Greet {{ guest }}.",
    "model": {"provider": "demo", "model": "demo-1"},
    "parameters": [{"name": "guest", "type": "text"}],
}


@pytest.fixture(scope="module")
def canaries():
    return {door: f"canary{secrets.token_hex(8)}" for door in DOORS}


@pytest.fixture(scope="module")
def key(lethe):
    scopes = ("runs:write", "agents:write", "sessions:write", "governance:read", "governance:write", "subjects:assert")
    return lethe.manage("create_api_key", "canaries", "--tenant", "demo", *(word for scope in scopes for word in ("--scope", scope)))


def run(client, agent, body, **headers):
    with client.stream("POST", f"/api/agents/{agent}/run", json=body, headers=headers) as response:
        assert response.status_code == 200, response.read()
        return events_of(response)


def plant(client, canaries):
    """Everything that a caller may send for a person, each with a canary of its own. Returns the subject's id."""
    client.headers["X-Lethe-Subject"] = canaries["identifier"]
    session = f"case-{canaries['session']}"
    attachment = {
        "name": f"{canaries['attachment_name']}.txt", "media_type": "text/plain",
        "data": base64.b64encode(canaries["attachment"].encode() * 50).decode(),
    }  # fmt: skip
    body = {"message": f"My parcel is {canaries['message']}.", "session_id": session, "metadata": {"order": canaries["metadata"]}, "attachments": [attachment]}
    run(client, "research", body, **{"Idempotency-Key": canaries["idempotency"]})
    run(client, "research", {"message": f'How many characters has "{canaries["tool"]}"?', "session_id": session})
    run(client, "research", {"message": f"Only once: {canaries['alone']}"})
    assert client.post("/api/agents", json=GREETER).status_code == 201
    assert client.post("/api/agents/greeter/publish", json={"note": "first"}).status_code in (200, 201)
    run(client, "greeter", {"message": "Hello", "session_id": session, "parameters": {"guest": canaries["parameter"]}})
    found = client.get("/api/sessions", params={"agent": "research"}).json()["results"][0]
    path = f"/api/sessions/{found['id']}"
    assert client.patch(path, json={"title": canaries["title"], "labels": [canaries["label"]]}).status_code == 200
    assert client.patch(f"{path}/state", json={"task": {"step": canaries["task"]}}, headers={"If-Match": "*"}).status_code == 200
    assert client.post(f"{path}/fork", json={"key": canaries["forked"]}).status_code == 201
    body = {"message": "What is 2 * 21?", "session_id": session}
    assert client.post("/api/agents/careful/run", json=body, headers={"Prefer": "respond-async"}).status_code == 202
    waiting = until(lambda: client.get("/api/approvals", params={"status": "pending", "agent": "careful"}).json()["results"], bool)
    ref = waiting[0]["id"]
    assert client.post(f"/api/approvals/{ref}/decide", json={"decision": "reject", "reason": canaries["decision"]}).status_code == 200
    # What is refused, or only asked, is not to be kept either.
    assert client.post("/api/agents/research/run", json={"message": "x", "unknown": canaries["refused"]}).status_code == 400
    broken = b'{"message": "' + canaries["refused"].encode()
    assert client.post("/api/agents/research/run", content=broken, headers={"Content-Type": "application/json"}).status_code == 400
    client.get("/api/subjects", params={"q": canaries["asked"]})
    return found["subject_id"]


def scan(lethe, canaries, level):
    """The scanner's lines; empty when nothing was found."""
    done = lethe.run_manage("residue_scan", "--level", str(level), *canaries.values())
    assert done.returncode in (0, 1), done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("level")]
    assert bool(lines) == bool(done.returncode)
    return lines


def test_erased_person_is_in_no_table_no_file_and_no_log(lethe, key, canaries):
    """D2, D3 and D4: levels 1 to 3 after erasure and purge; before the erasure each level finds what was planted."""
    with lethe.client(key) as client:
        subject = plant(client, canaries)
        planted = scan(lethe, canaries, 3)
        assert {line.split(":")[0] for line in planted} == {"level 1", "level 2", "level 3"}
        # The export's archive is one more copy.
        exported = client.post(f"/api/subjects/{subject}/export").json()["id"]
        until(lambda: client.get(f"/api/subject-requests/{exported}").json()["state"], lambda state: state == "completed")

        preview = client.post(f"/api/subjects/{subject}/preview", json={}).json()
        asked = client.post(f"/api/subjects/{subject}/erase", json={"preview_token": preview["preview_token"], "confirm": canaries["identifier"], "reason": "subject_request"})
        assert asked.status_code == 202, asked.text
        request = asked.json()["id"]
        until(lambda: client.get(f"/api/subject-requests/{request}").json()["state"], lambda state: state == "completed")

        logical = [line for line in scan(lethe, canaries, 1) if "pg_statistic" not in line]
        until(lambda: lethe.run_manage("purge").returncode, lambda code: code == 0)
        receipt = client.get(f"/api/subject-requests/{request}/receipt").json()["receipt"]

    assert logical == []
    assert receipt["purge"]["state"] == "purged"
    assert receipt["horizons"]["wal_until"]
    assert scan(lethe, canaries, 3) == []
    output = "".join(lethe.output)
    assert [door for door, canary in canaries.items() if canary in output] == []
