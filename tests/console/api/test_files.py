"""Files over the API: a session's workspace, and what agents keep between sessions."""

import hashlib
import io
import zipfile

import pytest

from governance.domain import subjects
from sessions.models import AgentFile, WorkspaceFile
from tests.console.api.conftest import problem
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db


@pytest.fixture
def files(world):
    return f"/sessions/ses_{world.session.id.hex}/files"


def version(text):
    return hashlib.sha256(text.encode()).hexdigest()


# The workspace


def test_workspace_is_listed_read_written_and_deleted(api, world, files):
    written = api.put(f"{files}/a/b c.md", {"content": "Ä\n"}, if_none_match="*")
    read = api.get(f"{files}/a/b%20c.md")
    listed = api.get(files).json()

    assert (written.status_code, written["ETag"]) == (200, f'"{version("Ä" + chr(10))}"')
    assert read.json() == written.json()
    assert {name: read.json()[name] for name in ("path", "content", "size", "written_by", "run_id")} == {
        "path": "a/b c.md", "content": "Ä\n", "size": 3, "written_by": "application", "run_id": None,
    }  # fmt: skip
    assert [file["path"] for file in listed["results"]] == ["a/b c.md", "notes/plan.md"]
    assert "content" not in listed["results"][0]
    assert api.delete(f"{files}/a/b%20c.md").status_code == 204
    assert problem(api.get(f"{files}/a/b%20c.md"))["code"] == "file_unknown"


def test_a_write_says_what_it_replaces(api, files):
    first = api.put(f"{files}/a.md", {"content": "one"}, if_none_match="*")
    second = api.put(f"{files}/a.md", {"content": "two"}, if_match=first["ETag"])

    assert second.status_code == 200
    assert problem(api.put(f"{files}/a.md", {"content": "x"}))["code"] == "precondition_required"
    for header in ({"if_match": first["ETag"]}, {"if_none_match": "*"}):
        lost = problem(api.put(f"{files}/a.md", {"content": "three"}, **header))
        assert (lost["status"], lost["code"], lost["version"]) == (409, "file_changed", version("two"))
    assert problem(api.put(f"{files}/a.md", {"content": "x"}, if_match='"3"'))["status"] == 400
    assert problem(api.delete(f"{files}/a.md", if_match=first["ETag"]))["code"] == "file_changed"
    assert api.put(f"{files}/a.md", {"content": "any"}, if_match="*").status_code == 200


@pytest.mark.parametrize("path", ["..%2Fsecret", "a/..%2F..%2Fb", "%2Fetc/passwd", "a%5Cb", "C:%5Ca", "a%00b", "a%0Ab", "%252e%252e/a", "con", "x" * 401])
def test_names_that_lead_out_are_a_clients_mistake(api, files, path):
    for answer in (api.get(f"{files}/{path}"), api.put(f"{files}/{path}", {"content": "x"}, if_match="*"), api.delete(f"{files}/{path}")):
        assert answer.status_code in (400, 404)
        problem(answer)
    assert WorkspaceFile.objects.count() == 1


def test_bytes_that_are_no_text_are_a_clients_mistake(api, files):
    answer = api.ask("PUT", f"{files}/a.md", raw=b'{"content": "\xff\xfe"}', if_match="*")

    assert (answer.status_code, WorkspaceFile.objects.count()) == (400, 1)


def test_limits_are_told_with_their_numbers(api, files, settings):
    settings.LETHE = {**settings.LETHE, "workspace_file_bytes": 10, "workspace_session_bytes": 3000}

    large = problem(api.put(f"{files}/a.md", {"content": "x" * 11}, if_match="*"))
    api.put(f"{files}/a.md", {"content": "x" * 10}, if_match="*")
    full = problem(api.put(f"{files}/b.md", {"content": ""}, if_match="*"))

    assert (large["status"], large["code"], large["limit"]) == (422, "file_too_large", 10)
    assert (full["status"], full["code"], full["limit"], full["more"]) == (409, "workspace_full", 3000, 1024)


def test_all_files_come_as_one_zip(api, files, world):
    made.workspace_file(world.session, "größe/ü.md", "Ü\r\n")

    answer = api.get(f"{files}.zip", accept="application/zip")

    assert (answer.status_code, answer["Content-Type"]) == (200, "application/zip")
    assert answer["Content-Disposition"] == f'attachment; filename="workspace-{world.session.id.hex}.zip"'
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    assert {name: archive.read(name).decode() for name in archive.namelist()} == {"größe/ü.md": "Ü\r\n", "notes/plan.md": "Plan blue"}


def test_a_key_of_one_person_reaches_that_persons_workspace_only(world, files):
    made.workspace_file(world.personal, "mine.md", "mine")
    person = world.key("sessions:read", "sessions:write", "memory:read", "memory:write", subject="person-1")

    assert [file["path"] for file in person.get(f"/sessions/ses_{world.personal.id.hex}/files").json()["results"]] == ["mine.md"]
    assert person.get(files).status_code == 404
    assert person.put(f"{files}/x.md", {"content": "x"}, if_match="*").status_code == 404


# Files that agents keep


def test_agent_file_is_made_read_changed_and_deleted(api, world):
    made_file = api.post("/files", {"agent": "support", "scope": "agent", "path": "memory//a.md", "content": "one"})
    place = f"/files/{made_file.json()['id']}"
    changed = api.put(place, {"content": "two"}, if_match=made_file["ETag"])

    assert (made_file.status_code, made_file["Location"]) == (201, f"/api{place}")
    assert {name: made_file.json()[name] for name in ("agent", "scope", "subject_id", "path", "content", "written_by")} == {
        "agent": "support", "scope": "agent", "subject_id": None, "path": "/memory/a.md", "content": "one", "written_by": "application",
    }  # fmt: skip
    assert api.get(place).json() == changed.json()
    assert problem(api.put(place, {"content": "x"}, if_match=made_file["ETag"]))["code"] == "file_changed"
    assert problem(api.put(place, {"content": "x"}))["code"] == "precondition_required"
    assert problem(api.post("/files", {"agent": "support", "scope": "agent", "path": "/memory/a.md", "content": "x"}))["code"] == "file_changed"
    assert problem(api.delete(place, if_match=made_file["ETag"]))["code"] == "file_changed"
    assert (api.delete(place).status_code, api.get(place).status_code) == (204, 404)


def test_the_person_comes_from_the_credential(api, world):
    person = world.key("memory:read", "memory:write", subject="person-1")
    other = world.key("memory:read", "memory:write", subject="person-2")
    body = {"agent": "support", "path": "/a.md", "content": "of person 1"}

    mine = person.post("/files", body)

    assert mine.json()["subject_id"] == f"sub_{world.person.id.hex}"
    assert [file["path"] for file in person.get("/files").json()["results"]] == ["/a.md"]
    assert other.get("/files").json()["results"] == []
    assert other.get(f"/files/{mine.json()['id']}").status_code == 404
    assert other.delete(f"/files/{mine.json()['id']}").status_code == 404
    assert problem(person.post("/files", {**body, "scope": "agent"}))["status"] == 403
    assert problem(api.post("/files", body))["code"] == "subject_required"
    assert [file["path"] for file in api.get(f"/files?subject=sub_{world.person.id.hex}").json()["results"]] == ["/a.md"]


def test_an_asserted_person_is_made_when_it_writes(world):
    keeper = world.key("memory:read", "memory:write", "subjects:assert")

    answer = keeper.post("/files", {"agent": "support", "path": "/a.md", "content": "x"}, x_lethe_subject="person-9")

    subject = subjects.find(tenant_id=world.tenant.id, value="person-9")
    assert answer.json()["subject_id"] == f"sub_{subject.id.hex}"
    assert AgentFile.objects.get(path="/a.md").subject_id == subject.id


def test_list_is_filtered_and_an_unknown_filter_is_refused(api, world):
    made.agent_file(world.agent, world.person, "/memory/kettle.md", "the blue kettle")

    def paths(query):
        return [file["path"] for file in api.get(f"/files?{query}").json()["results"]]

    assert paths("") == ["/memory/kettle.md", "/notes.md"]
    assert paths("scope=agent") == ["/notes.md"]
    assert paths("scope=tenant") == []
    assert paths("below=memory/") == ["/memory/kettle.md"]
    assert paths("q=kettle") == ["/memory/kettle.md"]
    assert paths("agent=nobody") == []
    assert problem(api.get("/files?owner=me"))["code"] == "unknown_filter"


def test_search_ranks_lines(world):
    person = world.key("memory:read", "memory:write", subject="person-1")
    made.agent_file(world.agent, world.person, "/memory/a.md", "the oven\nthe blue kettle, the kettle\n")
    made.agent_file(world.agent, world.person, "/memory/b.md", "a kettle\n")

    found = person.get("/files/search?agent=support&q=blue%20kettle").json()["results"]

    assert [(line["path"], line["line"], line["text"]) for line in found] == [
        ("/memory/a.md", 2, "the blue kettle, the kettle"), ("/memory/b.md", 1, "a kettle"),
    ]  # fmt: skip
    assert found[0]["score"] > found[1]["score"] > 0
    assert problem(person.get("/files/search?agent=support&q=%3F"))["code"] == "edit_refused"
    assert problem(person.get("/files/search?agent=nobody&q=x"))["status"] == 404
