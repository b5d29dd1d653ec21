"""File tools in real runs: the demo model calls a tool that a message names, with the JSON in it as arguments."""

import asyncio
import json

import pytest

from agents.domain import definitions as catalogue
from agents.queries import agent_named
from governance.domain import fences, subjects
from sessions.context.view import WORKSPACE
from sessions.domain import approvals, history, runs, workspace
from sessions.domain.definitions import compiled
from sessions.domain.runs import RunRequest
from sessions.engine import file_tools
from sessions.errors import StoreUnavailable
from sessions.files import stores
from sessions.files.rows import Shelf, Writer
from sessions.models import AgentFile, Approval, ModelCall, Run, Session, WorkspaceFile
from tests.redis_server import Server
from tests.sessions.domain.conftest import finished

pytestmark = pytest.mark.django_db(transaction=True)
READS = ["file_access_ls", "file_access_read", "file_access_read_lines", "file_access_grep"]
WRITES = ["file_access_write", "file_access_replace", "file_access_replace_lines", "file_access_delete"]
MEMORY = ["file_memory_ls", "file_memory_read", "file_memory_grep", "file_memory_write", "file_memory_replace",
          "file_memory_replace_lines", "file_memory_delete"]  # fmt: skip


@pytest.fixture
def settings_of(agent, actor):
    """Publish changes to the agent's definition, as its builder would."""

    def publish(**changes):
        current = agent_named(tenant_id=agent.tenant_id, name=agent.name)
        document = {**current.draft, **changes}
        saved = catalogue.save_draft(agent=current, document=document, expected=current.draft_counter, by=actor)
        catalogue.publish(agent=saved, note="files", by=actor)

    return publish


@pytest.fixture
def send(agent, actor, subject):
    """Send a message; returns the run once it is over or waits for a person."""

    def start(message, *, key="case-1", by_subject=subject):
        request = RunRequest(message=message, session_key=key)
        run = runs.start(agent_name=agent.name, request=request, by=actor, subject=by_subject)
        return finished(run, statuses=(*Run.FINISHED, Run.Status.AWAITING_APPROVAL))

    return start


@pytest.fixture
def call(send, actor, subject):
    """Have the demo call one tool, approving what asks; returns (outcome, text) of its result."""

    def ask(tool, key="case-1", by_subject=subject, decide="approve", **arguments):
        run = send(f"{tool} {json.dumps(arguments, ensure_ascii=False)}", key=key, by_subject=by_subject)
        for approval in Approval.objects.filter(run=run, status="pending"):
            approvals.decide(approval=approval, decision=decide, reason="No." if decide == "reject" else "", by=actor)
        run = finished(run)
        assert run.status == "completed", run.error
        [result] = results(run)
        return result

    return ask


def results(run):
    items = history.every(session=Session.objects.get(id=run.session_id))
    return [(item.content["outcome"], item.content["text"]) for item in items if item.kind == "tool_result" and item.run_id == run.id]


def offered(run):
    """Names of the file tools that the run has."""
    run = Run.objects.select_related("agent", "version", "session").get(id=run.id)
    definition = compiled(tenant_id=run.tenant_id, version=run.version, document=run.version.document, agent_name=run.agent.name)
    return [spec.name for spec in file_tools.build(run, definition)]


# The workspace


def test_workspace_tools_work_through_a_session(settings_of, call):
    settings_of(workspace={"enabled": True})

    assert call("file_access_write", path="notes/plan.md", content="one\ntwo\nthree\n") == ("success", "Written: notes/plan.md, 14 bytes.")
    assert call("file_access_ls") == ("success", "notes/plan.md\t14 bytes")
    assert call("file_access_read_lines", path="notes/plan.md", first=2, last=3) == ("success", "2\ttwo\n3\tthree")
    assert call("file_access_replace", path="notes/plan.md", old="two", new="zwei")[0] == "success"
    assert call("file_access_replace_lines", path="notes/plan.md", first=1, last=1, content="eins")[0] == "success"
    assert call("file_access_grep", pattern="^Z") == ("success", "notes/plan.md:2: zwei")
    assert call("file_access_read", path="notes/plan.md") == ("success", "eins\nzwei\nthree\n")
    assert call("file_access_delete", path="notes/plan.md")[0] == "success"
    assert call("file_access_ls") == ("success", "No files.")


def test_every_workspace_tool_asks_and_what_changes_a_file_always_does(settings_of, send):
    settings_of(workspace={"enabled": True})
    run = send('file_access_write {"path": "a.md", "content": "x"}')
    assert (run.status, Approval.objects.get(run=run).tool, WorkspaceFile.objects.count()) == ("awaiting_approval", "file_access_write", 0)
    assert offered(run) == [*READS, *WRITES]

    settings_of(workspace={"enabled": True, "disable_read_approval": True})
    quiet = send("file_access_ls {}", key="case-2")
    asking = send('file_access_delete {"path": "a.md"}', key="case-3")
    assert (quiet.status, asking.status) == ("completed", "awaiting_approval")

    settings_of(workspace={"enabled": True, "read_only": True})
    assert offered(send("Hello", key="case-4")) == READS


def test_a_rejected_write_writes_nothing(settings_of, call):
    settings_of(workspace={"enabled": True})

    outcome, text = call("file_access_write", decide="reject", path="a.md", content="x")

    assert (outcome, WorkspaceFile.objects.count()) == ("denied", 0)
    assert text == "Rejected by a person: No."


def test_what_the_model_may_not_do_it_reads_and_the_run_goes_on(settings_of, call, settings):
    settings_of(workspace={"enabled": True, "disable_read_approval": True})
    settings.LETHE = {**settings.LETHE, "workspace_session_bytes": 1030}

    assert "Workspace quota reached" in call("file_access_write", path="a.md", content="1234567")[1]
    assert call("file_access_write", path="../a.md", content="x") == (
        "failed", "A path cannot have . or .. as a folder: it never leads out of these files.",
    )  # fmt: skip
    assert call("file_access_read", path="missing.md") == ("failed", "There is no such file, or it is not yours.")
    assert call("file_access_write", path="a.md", content="123")[0] == "success"
    assert call("file_access_write", path="a.md", content="456", overwrite=False) == (
        "failed", "There is a file a.md already, and overwrite is false.",
    )  # fmt: skip
    assert call("file_access_grep", pattern="(")[0] == "failed"


def test_in_plan_mode_files_are_read_and_not_changed(settings_of, call):
    settings_of(workspace={"enabled": True, "disable_read_approval": True}, memory={"enable_file_memory": True}, harness={"initial_mode": "plan"})

    assert call("file_access_write", path="a.md", content="x")[0] == "denied"
    assert call("file_memory_write", path="a.md", content="x")[0] == "denied"
    assert call("file_access_ls") == ("success", "No files.")
    assert not Approval.objects.exists()
    assert (WorkspaceFile.objects.count(), AgentFile.objects.count()) == (0, 0)


def test_a_session_that_goes_on_is_told_its_files(settings_of, call, say, subject, agent):
    """FI-05: the workspace is durable and listed in context on resume."""
    settings_of(workspace={"enabled": True})
    empty = say("Hello.", subject=subject)
    call("file_access_write", path="notes/plan.md", content="äöü")
    run = say("And now?", subject=subject)

    def layers(run):
        return {layer["layer"]: layer for layer in ModelCall.objects.filter(run=run).order_by("number").last().context}

    assert WORKSPACE not in layers(empty)
    listed = layers(run)[WORKSPACE]
    assert (listed["sources"], listed["left_out"]) == (["notes/plan.md"], [])
    assert 0 < listed["tokens"] < 60


def test_runs_without_a_session_have_no_file_tools(settings_of, say, subject):
    settings_of(workspace={"enabled": True}, memory={"enable_file_memory": True, "enable_text_search": True})

    run = say("file_access_ls and file_memory_ls", key=None, subject=subject)

    assert (run.status, offered(run)) == ("completed", [])


def test_an_agent_without_files_does_not_look_for_any(say, monkeypatch):
    looked = []
    monkeypatch.setattr(workspace, "files", lambda **named: looked.append(named))
    monkeypatch.setattr(stores, "open_files", lambda *given: looked.append(given))

    run = say("Hello.")

    assert (run.status, looked, offered(run)) == ("completed", [], [])


# File memory


def test_files_outlive_the_session_and_belong_to_the_person(settings_of, call, tenant):
    settings_of(memory={"enable_file_memory": True, "enable_text_search": True})
    other = subjects.resolve(tenant_id=tenant.id, value="person-2")

    assert call("file_memory_write", key="monday", path="memory/kettle.md", content="The kettle is blue.\nAda wants it back.\n")[0] == "success"
    assert call("file_memory_read", key="tuesday", path="/memory/kettle.md") == ("success", "The kettle is blue.\nAda wants it back.\n")
    assert call("file_memory_grep", key="tuesday", pattern="ada") == ("success", "/memory/kettle.md:2: Ada wants it back.")
    assert call("file_memory_replace", key="tuesday", path="memory/kettle.md", old="blue", new="green")[0] == "success"
    assert call("file_memory_replace_lines", key="tuesday", path="memory/kettle.md", first=2, last=2, content="")[0] == "success"
    found = json.loads(call("file_memory_search", key="wednesday", query="green kettles kettle")[1])
    assert [(line["path"], line["line"], line["text"]) for line in found] == [("/memory/kettle.md", 1, "The kettle is green.")]
    assert call("file_memory_ls", key="x", by_subject=other) == ("success", "No files.")
    assert call("file_memory_delete", key="wednesday", path="memory/kettle.md")[0] == "success"
    listed = [line.split("\t")[0] for line in call("file_memory_ls", key="wednesday")[1].splitlines()]
    assert listed == ["/SKILL.md", "/artifacts/README.md", "/log/README.md", "/memory/README.md"]
    assert set(AgentFile.objects.values_list("written_by", flat=True)) == {"agent research"}


def test_file_memory_tools_are_these_and_search_comes_with_its_setting(settings_of, say, subject):
    settings_of(memory={"enable_file_memory": True})
    without = offered(say("Hello", subject=subject))
    settings_of(memory={"enable_file_memory": True, "enable_text_search": True})

    assert without == MEMORY
    assert offered(say("Hello", key="case-2", subject=subject)) == [*MEMORY, "file_memory_search"]


def test_without_a_subject_files_of_one_person_are_not_offered(settings_of, say):
    settings_of(memory={"enable_file_memory": True})
    nobody = offered(say("Hello"))
    settings_of(memory={"enable_file_memory": True, "scope": "agent"})

    assert (nobody, offered(say("Hello", key="case-2"))) == ([], MEMORY)


def test_scope_decides_who_shares_the_files(settings_of, call, agent, tenant):
    other = subjects.resolve(tenant_id=tenant.id, value="person-2")
    for scope in ("subject", "agent", "tenant"):
        settings_of(memory={"enable_file_memory": True, "scope": scope})
        call("file_memory_write", key=f"w-{scope}", path="a.md", content=scope)
        read = call("file_memory_read", key=f"r-{scope}", by_subject=other, path="a.md")
        assert read == (("failed", "There is no such file, or it is not yours.") if scope == "subject" else ("success", scope))

    owners = AgentFile.objects.filter(path="/a.md").order_by("content").values_list("content", "agent_id", "subject_id")
    mine = subjects.resolve(tenant_id=tenant.id, value="person-1")
    assert list(owners) == [("agent", agent.id, None), ("subject", agent.id, mine.id), ("tenant", None, None)]


def test_a_store_that_is_gone_is_told_to_the_model_and_the_run_goes_on(settings_of, call, settings):
    settings_of(memory={"enable_file_memory": True})
    settings.LETHE = {**settings.LETHE, "file_store": "redis://127.0.0.1:1/0"}

    outcome, text = call("file_memory_write", path="a.md", content="x")

    assert (outcome, text) == ("failed", StoreUnavailable("in Redis").detail)
    assert not AgentFile.objects.exists()


@pytest.fixture
def redis_server():
    server = Server("--maxmemory-policy", "noeviction")
    yield server
    server.stop()


def test_a_store_that_is_full_is_told_to_the_model_and_the_run_goes_on(settings_of, call, settings, redis_server):
    settings_of(memory={"enable_file_memory": True})
    settings.LETHE = {**settings.LETHE, "file_store": redis_server.url}
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        full = call("file_memory_write", path="a.md", content="x")
        client.config_set("maxmemory", 0)

    assert full[0] == "failed"
    assert "is full. Nothing was stored" in full[1]
    assert not AgentFile.objects.exists()
    assert call("file_memory_write", key="case-2", path="a.md", content="x")[0] == "success"


def test_bytes_that_somebody_broke_are_read_and_mended_by_the_agent(settings_of, call, settings, tmp_path):
    settings_of(memory={"enable_file_memory": True})
    settings.LETHE = {**settings.LETHE, "file_store": f"disk:{tmp_path}"}
    call("file_memory_write", path="a.md", content="The café is blue.")
    [place] = [path for path in tmp_path.rglob("f-*") if path.is_file() and "blue" in path.read_text()]
    place.write_bytes("The café is blue.\x00".encode("latin-1"))

    assert call("file_memory_read", key="case-2", path="a.md") == ("success", "The caf� is blue.�")
    assert call("file_memory_grep", key="case-3", pattern="blue") == ("success", "/a.md:1: The caf� is blue.�")
    assert call("file_memory_replace", key="case-4", path="a.md", old="caf� is blue.�", new="café is blue.")[0] == "success"
    assert call("file_memory_read", key="case-5", path="a.md") == ("success", "The café is blue.")


def test_a_run_of_a_fenced_subject_writes_no_file(settings_of, call, agent, subject, actor):
    settings_of(memory={"enable_file_memory": True})
    files = stores.open_files(Shelf(agent.tenant_id, agent.id, subject.id), Writer("tests"))
    files.write("/a.md", "before")
    fences.open_fence(subject=subject, mode="restrict", by=actor)
    run = Run(tenant_id=agent.tenant_id, agent=agent, subject_id=subject.id, session=Session(id=subject.id))
    definition = compiled(tenant_id=agent.tenant_id, version=None, document={**agent.draft, "memory": {"enable_file_memory": True}}, agent_name=agent.name)
    [write] = [spec for spec in file_tools.build(run, definition) if spec.name == "file_memory_write"]

    with pytest.raises(file_tools.ToolFailed, match="nothing new may be stored"):
        asyncio.run(write.run({"path": "a.md", "content": "after"}))
    assert files.read("/a.md") == "before"
