"""Stores that are full, gone, shared by processes, or looked into from outside."""

import errno
import multiprocessing
import os
from uuid import UUID

import pytest
from django.db import transaction

from agents import dependents
from governance.domain import fences, holds, registry
from governance.domain.registry import Scope
from governance.errors import Held, StorageFull, SubjectFenced
from governance.ids import uuid7
from governance.models import HeldCopy, SubjectLink
from sessions.errors import StoreUnavailable
from sessions.files import stores
from sessions.files.disk import DiskFiles
from sessions.files.redis_files import RedisFiles
from sessions.files.rows import RowFiles, Shelf, Writer
from sessions.files.store import version_of
from sessions.models import AgentFile
from tests.factories import governance as people
from tests.redis_server import Server
from tests.sessions.files.appending import append_lines

LIMIT = 1024 * 1024
# Ids of rows made in 2020 (UUIDv7).
OLD = "016f5e66e8007000800000000000000{}"


def test_disk_is_shared_by_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append_lines, args=(tmp_path, name, 40)) for name in ("a", "b", "c")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)

    lines = DiskFiles(tmp_path, limit=LIMIT).read("/log/all").splitlines()
    assert sorted(lines) == sorted(f"{name} {line} ä" for name in ("a", "b", "c") for line in range(40))
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


def test_a_full_disk_says_so_and_leaves_the_old_content(tmp_path, monkeypatch):
    files = DiskFiles(tmp_path, limit=LIMIT)
    files.write("/a", "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(StorageFull):
        files.write("/a", "new")
    with pytest.raises(StorageFull):
        files.append("/a", "more")
    assert files.read("/a") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "f-a"]


def test_a_disk_that_is_gone_says_so(tmp_path):
    (tmp_path / "gone").write_text("a file where the folder should be")
    files = DiskFiles(tmp_path / "gone" / "files", limit=LIMIT)

    with pytest.raises(StoreUnavailable):
        files.write("/a", "x")
    assert files.read("/a") is None


def test_files_on_disk_can_be_read_by_their_names(tmp_path):
    DiskFiles(tmp_path, limit=LIMIT).write("/notes/plan.md", "text")

    assert (tmp_path / "d-notes" / "f-plan.md").read_text() == "text"


def test_a_redis_that_is_gone_says_so():
    server = Server()
    files = RedisFiles(server.url, limit=LIMIT)
    files.write("/a", "x")
    server.stop()

    for call in (lambda: files.read("/a"), lambda: files.write("/a", "y"), lambda: files.append("/a", "y"), lambda: files.list("/")):
        with pytest.raises(StoreUnavailable):
            call()
    files.close()


def test_a_full_redis_says_so_and_leaves_the_old_content():
    server = Server("--maxmemory-policy", "noeviction")
    files = RedisFiles(server.url, limit=LIMIT)
    files.write("/a", "old")
    with server.client() as client:
        client.config_set("maxmemory", 1)

        with pytest.raises(StorageFull, match="Redis"):
            files.write("/a", "new")
        with pytest.raises(StorageFull):
            files.append("/a", "more")

        client.config_set("maxmemory", 0)
    assert files.read("/a") == "old"
    files.close()
    server.stop()


BROKEN = b"caf\xe9 \x00 \xed\xa0\x80 \xf0\x9f\x8d end"
READ = "caf\ufffd \ufffd \ufffd\ufffd\ufffd \ufffd end"


@pytest.fixture(params=["disk", "redis"])
def shared_place(request, tmp_path):
    """A place with a file "/a" that another program wrote, which is no UTF-8."""
    if request.param == "disk":
        (tmp_path / "f-a").write_bytes(BROKEN)
        yield DiskFiles(tmp_path, limit=LIMIT)
        return
    url = request.getfixturevalue("redis_url")
    files = RedisFiles(url, limit=LIMIT)
    with files._redis as client:
        client.set("lethe:files:file:/a", BROKEN)
        client.hset("lethe:files:names", "/a", "1")
        yield files
    files.close()


def test_bytes_that_are_no_text_are_read_by_one_rule_and_can_be_replaced(shared_place):
    assert shared_place.read("/a") == READ
    assert shared_place.read_range("/a", 0, 5) == "caf "
    assert "\x00" not in shared_place.read_range("/a", 0)
    assert shared_place.append("/a", "!") == len(BROKEN)

    # The version is that of what was read: otherwise nobody could ever change such a file.
    shared_place.write("/a", "whole", expected=version_of(f"{READ}!"))

    assert shared_place.read("/a") == "whole"


# Rows whose bytes are elsewhere


@pytest.fixture
def on_disk(settings, tmp_path):
    """The operator chose a folder for the bytes of files."""
    settings.LETHE = {**settings.LETHE, "file_store": f"disk:{tmp_path / 'bytes'}"}
    return tmp_path / "bytes"


def bytes_in(folder):
    return sorted(path.read_text() for path in folder.rglob("f-*") if path.is_file())


def test_bytes_outside_go_with_their_rows(on_disk, shelf, writer, tenant, subject):
    files = stores.open_files(shelf, writer)
    files.write("/a", "the person's words")
    stores.open_files(Shelf(tenant.id), Writer("tests")).write("/b", "of the tenant")
    category, scope = registry.get("agent_files"), Scope(tenant.id, subject.id)

    exported = list(category.export(scope=scope))
    carried = [(file.name, file.data) for file in category.files(scope=scope)]
    for chunk in list(category.plan(scope=scope)):
        category.erase(scope=scope, chunk=chunk)

    assert [row["path"] for row in exported] == ["/a"]
    assert carried == [("/a", b"the person's words")]
    assert bytes_in(on_disk) == ["of the tenant"]
    assert list(AgentFile.objects.values_list("path", "content")) == [("/b", "")]


def test_bytes_without_a_row_are_swept_once_they_are_old(on_disk, shelf, writer, tenant):
    """FI-01, FI-03: a listing of the store minus the rows is empty, and fresh bytes are left alone."""
    files, place = stores.open_files(shelf, writer), stores.outside()
    files.write("/a", "kept")
    [kept] = AgentFile.objects.all()
    AgentFile.objects.filter(id=kept.id).update(id=UUID(OLD.format(1)))
    place.write(f"/{tenant.id.hex}/{OLD.format(1)}", "kept")
    place.delete(f"/{tenant.id.hex}/{kept.id.hex}")
    for path in (f"/{tenant.id.hex}/{OLD.format(2)}", f"/{tenant.id.hex}/{uuid7().hex}", f"/{uuid7().hex}/{OLD.format(3)}"):
        place.write(path, path)

    assert stores.sweep_orphans() == 1
    assert stores.sweep_orphans() == 0
    assert files.read("/a") == "kept"
    assert f"/{tenant.id.hex}/{OLD.format(2)}" not in bytes_in(on_disk)
    assert len(bytes_in(on_disk)) == 3


def test_nothing_is_swept_where_all_bytes_are_in_the_database(db):
    assert stores.sweep_orphans() == 0


def test_an_erasure_whose_store_is_gone_deletes_no_row(on_disk, shelf, writer, tenant, subject, settings):
    stores.open_files(shelf, writer).write("/a", "x")
    settings.LETHE = {**settings.LETHE, "file_store": "redis://127.0.0.1:1/0"}
    category, scope = registry.get("agent_files"), Scope(tenant.id, subject.id)
    [chunk] = category.plan(scope=scope)

    with pytest.raises(StoreUnavailable), transaction.atomic():
        category.erase(scope=scope, chunk=chunk)

    assert category.verify(scope=scope) == 1


@pytest.mark.django_db(transaction=True)
def test_a_hold_keeps_the_old_bytes_that_are_outside(on_disk, shelf, writer, tenant, subject):
    files = stores.open_files(shelf, writer)
    files.write("/a", "evidence")
    holds.place(target=holds.Target("subject", subject=subject), matter="M-1", reason="litigation", by=people.actor(tenant, "records_manager"))

    files.write("/a", "something else")
    with pytest.raises(Held):
        files.delete("/a")

    assert {copy.content["content"] for copy in HeldCopy.objects.all()} == {"", "evidence"}
    assert files.read("/a") == "something else"


def test_an_unknown_store_stops_with_a_sentence(settings):
    settings.LETHE = {**settings.LETHE, "file_store": "floppy"}

    with pytest.raises(ValueError, match="LETHE_FILE_STORE"):
        stores.outside()


# Whose files


@pytest.mark.django_db(transaction=True)
def test_files_of_a_fenced_subject_are_refused_on_every_shelf(shelf, writer, tenant, agent, subject):
    files = stores.open_files(shelf, writer)
    files.write("/a", "x")
    fences.open_fence(subject=subject, mode="restrict", by=people.lethe(tenant))

    shared = stores.open_files(Shelf(tenant.id, agent.id), writer)
    for write in (
        lambda: files.write("/b", "x"), lambda: files.append("/a", "y"), lambda: files.delete("/a"), lambda: shared.write("/c", "x")
    ):  # fmt: skip
        with pytest.raises(SubjectFenced):
            write()

    assert AgentFile.objects.count() == 1


def test_a_shared_file_is_linked_to_whose_words_are_in_it(tenant, agent, subject):
    other = people.subject(tenant)
    for person in (subject, other, subject):
        stores.open_files(Shelf(tenant.id, agent.id), Writer("tests", subject_id=person.id)).append("/shared.md", "x")

    [row] = AgentFile.objects.all()
    found = SubjectLink.objects.filter(category="agent_files", row_id=str(row.id), role="author")
    assert set(found.values_list("subject_id", flat=True)) == {subject.id, other.id}


def test_an_agents_files_go_with_the_agent(tenant, agent, shelf, writer):
    stores.open_files(shelf, writer).write("/a", "x")
    stores.open_files(Shelf(tenant.id), Writer("tests")).write("/b", "of the tenant")
    by = people.actor(tenant, "operator")

    assert dependents.counts(agent) == {"files": 1}
    dependents.delete_all(agent, by)
    assert list(AgentFile.objects.values_list("path", flat=True)) == ["/b"]


def test_listing_a_shelf_is_one_statement_however_much_is_in_it(shelf, writer, django_assert_num_queries):
    files = RowFiles(shelf, writer=writer, limit=LIMIT)
    for number in range(30):
        files.write(f"/notes/{number}/text.md", "x")

    with django_assert_num_queries(1):
        assert len(files.list("/notes/")) == 30
