"""Files as personal data: on shared shelves, in archives, when two people turn out to be one."""

import pytest

from governance.domain import erasure, identities, previews, registry, requests
from governance.domain.registry import Scope
from governance.models import SubjectLink
from sessions.files import stores
from sessions.files.rows import Shelf, Writer
from sessions.models import AgentFile, WorkspaceFile, WorkspaceUsage
from tests.factories import governance as people
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db(transaction=True)


def on_shelf(agent, subject, path, text):
    stores.open_files(Shelf(agent.tenant_id, agent.id), Writer("tests", subject_id=subject.id)).append(path, text)


def test_a_shared_file_goes_with_the_first_who_wrote_in_it(agent, subject, tenant, lethe):
    other = people.subject(tenant)
    for person in (subject, other):
        on_shelf(agent, person, "/both.md", "x")
    on_shelf(agent, other, "/theirs.md", "y")
    made.agent_file(agent, subject, "/own.md")
    made.workspace_file(made.session(agent, subject))
    _, token = previews.preview(subject=subject, by=lethe)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=lethe)

    done = erasure.work(request_id=request.id)

    counts = {entry["key"]: entry["erased"] for entry in done.receipt["categories"]}
    assert (done.state, counts["agent_files"], counts["session_workspace"]) == ("completed", 2, 1)
    assert list(AgentFile.objects.values_list("path", flat=True)) == ["/theirs.md"]
    assert (WorkspaceFile.objects.count(), WorkspaceUsage.objects.exclude(session_id=None).count()) == (0, 0)
    assert set(SubjectLink.objects.values_list("subject_id", flat=True)) == {other.id}


@pytest.mark.parametrize("key", ["agent_files", "session_workspace"])
def test_an_archive_carries_texts_as_files_and_rows_without_them(key, agent, subject, tenant):
    made.agent_file(agent, subject, "/notes/ü.md", "Ä\r\n")
    made.workspace_file(made.session(agent, subject), "notes/ü.md", "Ä\r\n")
    category, scope = registry.get(key), Scope(tenant.id, subject.id)

    [row] = category.export(scope=scope)
    [file] = category.files(scope=scope)

    assert (file.sha256, file.name.strip("/"), file.data) == (row["sha256"], "notes/ü.md", "Ä\r\n".encode())
    assert "content" not in row
    assert "Ä" not in str(row)


def test_when_two_people_are_one_both_keep_their_files(agent, subject, tenant, lethe):
    other = people.subject(tenant)
    made.agent_file(agent, subject, "/notes.md", "of the first")
    moved = made.agent_file(agent, other, "/notes.md", "of the second")
    made.agent_file(agent, other, "/more.md", "more")

    identities.merge(subject=subject, other=other, by=lethe)

    found = dict(AgentFile.objects.filter(subject_id=subject.id).values_list("path", "content"))
    assert found == {"/notes.md": "of the first", f"/notes.md-{moved.id.hex[-12:]}": "of the second", "/more.md": "more"}
