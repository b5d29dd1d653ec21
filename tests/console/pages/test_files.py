"""Files in the console: a session's workspace, and what agents keep between sessions."""

import io
import zipfile

import pytest
from django.urls import reverse

from governance.ids import shown
from governance.models import AuditEvent
from sessions.models import AgentFile, WorkspaceFile
from tests.factories import governance
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return made.agent(tenant, "helper")


@pytest.fixture
def session(agent, tenant):
    return made.session(agent, governance.subject(tenant))


@pytest.fixture
def ref(session):
    return shown("ses", session.id)


def read_events():
    return AuditEvent.objects.filter(action="content.read").count()


# The workspace


def test_workspace_shows_the_tree_and_what_is_in_use(owner, session, ref):
    run = made.run(session=session)
    made.workspace_file(session, "plan.md", "x" * 2000, written_by="agent helper", run_id=run.id)
    made.workspace_file(session, "notes/<b>.md", "y")

    page = owner.get(reverse("session-workspace", args=[ref]))
    text = page.content.decode()

    assert page.status_code == 200
    assert [(folder, [file.path for file in files]) for folder, files in page.context["folders"]] == [("", ["plan.md"]), ("notes/", ["notes/<b>.md"])]
    assert (page.context["used"], page.context["count"]) == (2000 + 1 + 2 * 1024, 2)
    assert "notes/&lt;b&gt;.md" in text
    assert reverse("run", args=[shown("run", run.id)]) in text
    assert reverse("session-workspace-file", args=[ref, "notes/<b>.md"]) in text


def test_session_page_lists_its_files_and_says_that_they_go_along(owner, session, ref):
    for number in range(14):
        made.workspace_file(session, f"{number:02}.md")

    page = owner.get(reverse("session", args=[ref]))

    assert [file.path for file in page.context["files"]] == [f"{number:02}.md" for number in range(12)]
    assert (page.context["more_files"], (14, "files of its workspace") in page.context["goes"]) == (2, True)
    assert reverse("session-workspace-file", args=[ref, "03.md"]) in page.content.decode()


def test_file_shows_its_text_and_who_did_what_with_it(owner, session, ref):
    run = made.run(session=session)
    made.workspace_file(session, "a/b.md", "<script>alert(1)</script>", written_by="agent helper")
    for number, (name, outcome) in enumerate((("file_access_write", "success"), ("file_access_replace", "failed"))):
        call = {"id": f"c{number}", "name": name, "arguments": {"path": "a/b.md"}}
        made.item(session, "tool_call", "assistant", call, run_id=run.id)
        made.item(session, "tool_result", "tool", {"id": f"c{number}", "name": name, "text": "x", "outcome": outcome}, run_id=run.id)
    made.item(session, "tool_call", "assistant", {"id": "c9", "name": "file_access_write", "arguments": {"path": "other.md"}}, run_id=run.id)

    page = owner.get(reverse("session-workspace-file", args=[ref, "a/b.md"]))

    assert [(call.name, call.outcome, call.run_id) for call in page.context["calls"]] == [
        ("file_access_replace", "failed", run.id), ("file_access_write", "success", run.id),
    ]  # fmt: skip
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.content.decode()
    assert "<script>alert" not in page.content.decode()
    assert read_events() == 1


def test_one_file_and_all_of_them_are_downloaded_as_files(owner, session, ref):
    made.workspace_file(session, "a/ü.html", "<b>Ü</b>")

    one = owner.get(reverse("session-workspace-file", args=[ref, "a/ü.html"]), {"download": "1"})
    every = owner.get(reverse("session-workspace-zip", args=[ref]))

    assert (one.content.decode(), one["Content-Type"]) == ("<b>Ü</b>", "application/octet-stream")
    assert one["Content-Disposition"].startswith("attachment")
    archive = zipfile.ZipFile(io.BytesIO(every.content))
    assert {name: archive.read(name).decode() for name in archive.namelist()} == {"a/ü.html": "<b>Ü</b>"}
    assert read_events() == 2


def test_workspace_is_closed_to_strangers_and_changed_by_operators_only(owner, viewer, stranger, session, ref):
    made.workspace_file(session, "a.md")
    pages = [reverse("session-workspace", args=[ref]), reverse("session-workspace-zip", args=[ref]), reverse("session-workspace-file", args=[ref, "a.md"])]
    delete = reverse("session-workspace-delete", args=[ref, "a.md"])

    assert [stranger.get(page).status_code for page in pages] == [404] * 3
    assert [viewer.get(page).status_code for page in pages] == [200] * 3
    assert (stranger.post(delete).status_code, viewer.post(delete).status_code, WorkspaceFile.objects.count()) == (404, 403, 1)
    assert owner.post(delete).url == reverse("session-workspace", args=[ref])
    assert WorkspaceFile.objects.count() == 0
    assert owner.get(pages[2]).status_code == 404
    assert owner.get(reverse("session-workspace-file", args=[ref, "../a.md"])).status_code in (400, 404)


def test_workspace_costs_the_same_for_one_and_many_files(owner, session, ref, queries_of):
    made.workspace_file(session)
    one = queries_of(owner, reverse("session-workspace", args=[ref]))
    for _ in range(5):
        made.workspace_file(session)

    assert queries_of(owner, reverse("session-workspace", args=[ref])) == one


# Files that agents keep


def test_files_are_listed_and_filtered(owner, tenant, agent, session):
    made.agent_file(agent, session.subject, "/memory/kettle.md", "the blue kettle")
    made.agent_file(agent, None, "/notes.md", "shared")
    made.agent_file(made.agent(governance.tenant("other")), None, "/foreign.md")
    address = reverse("files")

    def paths(**query):
        return [file.path for file in owner.get(address, query).context["listing"].results]

    assert paths() == ["/notes.md", "/memory/kettle.md"]
    assert paths(scope="subject") == ["/memory/kettle.md"]
    assert paths(scope="agent") == ["/notes.md"]
    assert paths(q="kettle") == ["/memory/kettle.md"]
    assert paths(below="memory") == ["/memory/kettle.md"]
    assert paths(subject=session.subject.display_ref) == ["/memory/kettle.md"]
    assert paths(agent="nobody-here") == []
    assert owner.get(address, {"subject": "S-0000-0000"}).status_code == 400
    assert session.subject.display_ref in owner.get(address).content.decode()


def test_file_list_without_files_says_what_to_do(owner):
    assert "Switch on file memory" in owner.get(reverse("files")).content.decode()


def test_file_list_costs_the_same_for_one_and_three(owner, agent, tenant, queries_of):
    made.agent_file(agent, governance.subject(tenant))
    one = queries_of(owner, reverse("files"))
    for _ in range(2):
        made.agent_file(agent, governance.subject(tenant))

    assert queries_of(owner, reverse("files")) == one


def test_file_is_read_corrected_and_deleted(owner, agent, session):
    file = made.agent_file(agent, session.subject, "/memory/a.md", "one\ntwo\n")
    address = reverse("file", args=[shown("fil", file.id)])

    page = owner.get(address)
    saved = owner.post(address, {"content": "eins\r\nzwei\r\n", "version": file.sha256})

    assert (page.context["form"].initial["content"], saved.url) == ("one\ntwo\n", address)
    stored = AgentFile.objects.get()
    assert (stored.content, stored.written_by) == ("eins\nzwei\n", owner.member.username)
    assert owner.get(address, {"download": "1"}).content == b"eins\nzwei\n"
    assert owner.post(reverse("file-delete", args=[shown("fil", file.id)])).url == reverse("files")
    assert (AgentFile.objects.count(), owner.get(address).status_code) == (0, 404)
    assert list(AuditEvent.objects.filter(object_type="file").order_by("seq").values_list("action", flat=True)) == [
        "content.read", "file.written", "content.read", "file.deleted",
    ]  # fmt: skip


def test_a_lost_race_keeps_what_was_typed_and_the_next_save_counts(owner, agent):
    file = made.agent_file(agent, None, "/a.md", "one")
    address = reverse("file", args=[shown("fil", file.id)])
    owner.post(address, {"content": "two", "version": file.sha256})

    lost = owner.post(address, {"content": "mine", "version": file.sha256})

    assert (lost.status_code, AgentFile.objects.get().content) == (422, "two")
    assert "changed by somebody else" in lost.content.decode()
    form = lost.context["form"]
    assert (form["content"].value(), form["version"].value()) == ("mine", AgentFile.objects.get().sha256)
    owner.post(address, {"content": "mine", "version": form["version"].value()})
    assert AgentFile.objects.get().content == "mine"


def test_files_are_closed_to_strangers_and_changed_by_some_only(viewer, stranger, agent, sign_in, tenant):
    file = made.agent_file(agent, None, "/a.md", "text")
    address, delete = reverse("file", args=[shown("fil", file.id)]), reverse("file-delete", args=[shown("fil", file.id)])
    officer = sign_in(tenant, "privacy_officer")

    assert (stranger.get(address).status_code, stranger.post(delete).status_code) == (404, 404)
    assert (viewer.get(address).status_code, viewer.post(address, {"content": "x"}).status_code, viewer.post(delete).status_code) == (200, 403, 403)
    assert (officer.get(address).status_code, officer.get(reverse("files")).status_code) == (403, 403)
    assert "<textarea" not in viewer.get(address).content.decode()
    assert AgentFile.objects.get().content == "text"


def test_a_file_whose_store_is_gone_says_so(owner, agent):
    file = made.agent_file(agent, None, "/a.md", "", is_outside=True)

    page = owner.get(reverse("file", args=[shown("fil", file.id)]))

    assert (page.status_code, "cannot be reached" in page.content.decode()) == (200, True)
