"""A backup is put back for real: dump, erase, restore, and what the processes and the commands say then."""

import json
import secrets
import subprocess
from pathlib import Path

import pytest

from governance.domain import drill
from tests.server.conftest import events_of, until

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def key(lethe):
    scopes = ("runs:write", "sessions:write", "governance:read", "governance:write", "subjects:assert")
    return lethe.manage("create_api_key", "restore", "--tenant", "demo", *(word for scope in scopes for word in ("--scope", scope)))


def talk(client, person, text):
    with client.stream("POST", "/api/agents/research/run", json={"message": text, "session_id": "s"}, headers={"X-Lethe-Subject": person}) as response:
        assert response.status_code == 200, response.read()
        return events_of(response)


def erase(client, person):
    preview = client.post(f"/api/subjects/{person}/preview", json={}).json()
    body = {"preview_token": preview["preview_token"], "confirm": person, "reason": "subject_request"}
    request = client.post(f"/api/subjects/{person}/erase", json=body).json()["id"]
    until(lambda: client.get(f"/api/subject-requests/{request}").json()["state"], lambda state: state == "completed")


def tool(lethe, name, *words):
    """PostgreSQL's own tool on the installation's server."""
    host = (lethe.directory / "postgres" / "postmaster.pid").read_text().splitlines()[4]
    done = subprocess.run([drill._program(name), "-h", host, "-U", "postgres", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_restored_backup_is_quarantined_and_brings_nobody_back(lethe, key):
    """HR-04, HR-05, D19: the processes themselves, on the database that they really use."""
    canary, dump = f"canary{secrets.token_hex(8)}", lethe.directory / "backup.dump"
    with lethe.client(key) as client:
        talk(client, "anna", f"My secret is {canary}")
        talk(client, "berta", "I stay.")
        tool(lethe, "pg_dump", "-Fc", "-f", str(dump), "lethe")
        erase(client, "anna")
        assert client.get("/api/subjects", params={"q": "anna"}).json()["results"] == []
    assert lethe.stop() == 0
    lethe.with_server(lambda: _put_back(lethe, dump))

    lethe.start()

    assert "In quarantine" in "".join(lethe.output)
    with lethe.client(key) as client:
        answer = client.get("/api/sessions")
        assert (answer.status_code, answer.json()["code"]) == (503, "quarantined")
        assert client.get("/readyz").json()["checks"]["quarantine"] is False
        assert "Lethe is in quarantine" in client.get("/").text
    assert "agent_sessions_item" in lethe.run_manage("residue_scan", "--level", "1", canary).stdout

    said = lethe.manage("governance_replay")

    assert "1 erased again" in said
    with lethe.client(key) as client:
        until(lambda: client.get("/readyz").json()["checks"]["quarantine"], bool)
        assert client.get("/api/subjects", params={"q": "anna"}).json()["results"] == []
        assert len(client.get("/api/subjects", params={"q": "berta"}).json()["results"]) == 1
    dump.unlink()
    assert lethe.run_manage("residue_scan", "--level", "1", "--ignore", "pg_statistic", canary).returncode == 0


def _put_back(lethe, dump):
    tool(lethe, "dropdb", "--force", "lethe")
    tool(lethe, "createdb", "-T", "template0", "lethe")
    tool(lethe, "pg_restore", "--no-owner", "--exit-on-error", "-d", "lethe", str(dump))


def test_drill_writes_signed_evidence_and_leaves_nothing_behind(lethe, key):
    with lethe.client(key) as client:
        # The installation's own ledger is not empty; the drill's is.
        talk(client, "dora", "Hello")
        erase(client, "dora")
        talk(client, "carla", "Hello")
        before = client.get("/api/sessions").json()["results"]

    said = lethe.manage("restore_drill", "--people", "2")

    evidence = json.loads(Path(said.rsplit("Evidence: ", 1)[1]).read_text())
    assert evidence["succeeded"] is True
    assert set(evidence["checks"].values()) == {True}
    assert evidence["people"] == 3
    assert evidence["rows_restored"] == evidence["rows_erased"] > 3
    assert evidence["signature"]["alg"] == "Ed25519"
    assert [path.suffix for path in (lethe.directory / "drills").iterdir()] == [".json"]
    with lethe.client(key) as client:
        assert client.get("/api/sessions").json()["results"] == before
        assert client.get("/readyz").json()["ready"] is True
