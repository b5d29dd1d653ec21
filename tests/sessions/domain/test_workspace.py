"""The workspace of a session: private, within its limits to the byte, and gone with the session."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.db.models import F, Sum

from governance.actors import Actor
from governance.domain import groups, holds
from governance.errors import Held, MissingPermission
from governance.models import AuditEvent, HeldCopy
from governance.permissions import of_scopes
from sessions.domain import sessions as session_verbs
from sessions.domain import workspace
from sessions.domain.workspace import OVERHEAD
from sessions.errors import FileChanged, FileTooLarge, FileUnknown, PathRefused, WorkspaceFull
from sessions.files.rows import Writer
from sessions.models import Session, WorkspaceFile, WorkspaceUsage
from tests.factories import governance as people
from tests.factories import sessions as made

pytestmark = pytest.mark.django_db(transaction=True)
WRITER = Writer("tests")


@pytest.fixture
def tenant(db):
    return people.tenant()


@pytest.fixture
def agent(tenant):
    return made.agent(tenant)


@pytest.fixture
def session(agent, tenant):
    return made.session(agent, people.subject(tenant))


@pytest.fixture
def limits(settings):
    def set_to(**values):
        settings.LETHE = {**settings.LETHE, **{f"workspace_{name}_bytes": value for name, value in values.items()}}

    return set_to


def write(session, path, text="x", **more):
    return workspace.write(session=session, path=path, text=text, writer=WRITER, **more)


def counted(session_id=None, **where):
    return WorkspaceUsage.objects.filter(session_id=session_id, **where).values_list("used", flat=True).first() or 0


def really(**where):
    return WorkspaceFile.objects.filter(**where).aggregate(total=Sum(F("size") + OVERHEAD))["total"] or 0


def test_files_belong_to_one_session(session, agent):
    other = made.session(agent, session.subject)
    write(session, "notes/plan.md", "mine")
    write(other, "notes/plan.md", "other")

    assert workspace.read(session=session, path="notes/plan.md").content == "mine"
    assert [file.path for file in workspace.files(session=session)] == ["notes/plan.md"]
    workspace.delete(session=other, path="notes/plan.md")
    with pytest.raises(FileUnknown):
        workspace.read(session=other, path="notes/plan.md")
    assert workspace.read(session=session, path="notes/plan.md").content == "mine"


def test_a_file_says_who_wrote_it_and_when(session):
    run = made.run(session=session)

    row = workspace.write(session=session, path="a.md", text="x", writer=Writer("agent helper", run.id))

    assert (row.written_by, row.run_id, row.subject_id, row.size) == ("agent helper", run.id, session.subject_id, 1)
    assert row.created_at == row.updated_at
    assert write(session, "a.md", "y").updated_at > row.updated_at


def test_two_writers_on_one_file_and_the_second_is_told(session):
    first = write(session, "a.md", "one")
    write(session, "a.md", "two", expected=first.sha256)

    for expected in (first.sha256, ""):
        with pytest.raises(FileChanged):
            write(session, "a.md", "three", expected=expected)
    with pytest.raises(FileChanged):
        workspace.delete(session=session, path="a.md", expected=first.sha256)

    assert workspace.read(session=session, path="a.md").content == "two"


def test_names_that_lead_out_are_refused(session):
    for path in ("../a", "/etc/passwd", "a/../../b", "C:a", "a\x00b", "%2e%2e/a", "x" * 401):
        with pytest.raises(PathRefused):
            write(session, path)
        with pytest.raises(PathRefused):
            workspace.read(session=session, path=path)

    assert not WorkspaceFile.objects.exists()


def test_limits_hold_to_the_byte(session, agent, limits):
    limits(file=100, session=2 * OVERHEAD + 150, tenant=3 * OVERHEAD + 250)
    other = made.session(agent, session.subject)
    write(session, "a", "ä" * 50)

    with pytest.raises(FileTooLarge):
        write(session, "b", "x" * 101)
    with pytest.raises(WorkspaceFull, match="Workspace quota reached: the files of this session take 1,124 of 2,198 bytes and this would add 1,075"):
        write(session, "b", "x" * 51)
    write(session, "b", "x" * 50)
    write(other, "c", "x" * 99)
    with pytest.raises(WorkspaceFull, match="of this tenant take 3,321 of 3,322 bytes and this would add 1,024"):
        write(other, "d", "")
    write(other, "c", "x" * 100)
    assert (counted(session.id), counted(other.id), counted()) == (2 * OVERHEAD + 150, OVERHEAD + 100, 3 * OVERHEAD + 250)
    write(session, "b", "")
    assert counted(session.id) == 2 * OVERHEAD + 100


def test_a_file_may_become_shorter_over_a_limit_that_was_lowered(session, limits):
    write(session, "a", "x" * 100)
    limits(session=10)

    write(session, "a", "x" * 99)
    with pytest.raises(WorkspaceFull):
        write(session, "a", "x" * 100)


def test_counts_follow_the_files_however_they_go(session, agent):
    other = made.session(agent, session.subject)
    for number in range(3):
        write(session, f"{number}", "x" * number)
        write(other, f"{number}", "y" * 10)
    assert counted(session.id) == really(session=session) == 3 * OVERHEAD + 3
    assert counted() == really()

    workspace.delete(session=session, path="1")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_sessions_workspacefile WHERE session_id = %s AND path = '2'", [session.id])
    assert counted(session.id) == really(session=session) == OVERHEAD
    groups.delete(category="sessions", tenant_id=session.tenant_id, ids=[other.id])

    assert counted() == really() == OVERHEAD
    assert set(WorkspaceUsage.objects.values_list("session_id", flat=True)) == {session.id, None}


def test_files_go_with_the_session_before_its_row(session, tenant):
    write(session, "a", "x")

    session_verbs.delete(session=session, by=people.actor(tenant, "operator"))

    assert not Session.objects.exists()
    assert not WorkspaceFile.objects.exists()
    assert counted() == 0


def test_a_held_file_is_not_deleted_and_its_old_text_is_kept(session, tenant):
    write(session, "a", "evidence")
    holds.place(
        target=holds.Target("session", session_id=session.id), matter="M-1", reason="litigation",
        by=people.actor(tenant, "records_manager"),
    )  # fmt: skip

    write(session, "a", "changed")
    with pytest.raises(Held):
        workspace.delete(session=session, path="a")

    assert [copy.content["content"] for copy in HeldCopy.objects.filter(category="session_workspace")] == ["evidence"]


def test_putting_and_removing_needs_a_permission_and_is_recorded(session, tenant):
    reader = Actor(tenant.id, "api_key", "k", "reader", of_scopes(["sessions:read"]))
    with pytest.raises(MissingPermission):
        workspace.put(session=session, path="a", text="x", expected=None, by=reader)
    with pytest.raises(MissingPermission):
        workspace.remove(session=session, path="a", by=reader)
    by = people.actor(tenant, "operator")

    workspace.put(session=session, path="a", text="x", expected="", by=by)
    workspace.remove(session=session, path="a", by=by)

    assert list(AuditEvent.objects.filter(action__startswith="session.file").order_by("seq").values_list("action", flat=True)) == [
        "session.file_written", "session.file_deleted",
    ]  # fmt: skip


def test_32_writers_against_a_nearly_full_workspace_never_pass_a_limit(session, agent, limits):
    """Each writes, overwrites and deletes at random in two sessions of one tenant; a witness looks at the sums meanwhile."""
    limits(file=4096, session=12 * OVERHEAD, tenant=18 * OVERHEAD)
    sessions = [session, made.session(agent, session.subject)]
    done, passed = threading.Event(), []

    def witness():
        try:
            while not done.wait(0.01):
                for one in sessions:
                    if (total := really(session=one)) > 12 * OVERHEAD:
                        passed.append(("session", total))
                if (total := really()) > 18 * OVERHEAD:
                    passed.append(("tenant", total))
        finally:
            connection.close()

    def work(number):
        chance, results = random.Random(number), []
        try:
            for _ in range(8):
                one, path = chance.choice(sessions), f"file-{chance.randrange(12)}"
                try:
                    if chance.random() < 0.2:
                        workspace.delete(session=one, path=path)
                    else:
                        write(one, path, "x" * chance.randrange(2048))
                    results.append("done")
                except (WorkspaceFull, FileUnknown) as error:
                    results.append(error.code)
        finally:
            connection.close()
        return results

    watching = threading.Thread(target=witness)
    watching.start()
    with ThreadPoolExecutor(32) as pool:
        results = [code for found in pool.map(work, range(32)) for code in found]
    done.set()
    watching.join()

    assert passed == []
    assert len(results) == 32 * 8
    assert {"done", "workspace_full"} <= set(results)
    for one in sessions:
        assert counted(one.id) == really(session=one) <= 12 * OVERHEAD
    assert counted() == really() <= 18 * OVERHEAD
