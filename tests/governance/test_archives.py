"""What is inside an archive, how it is cut into volumes, and who gets it by an address that works once."""

import hashlib
import io
import json
import os
import resource
import zipfile
from dataclasses import replace
from datetime import timedelta

import jsonschema
import pytest

from governance import signing
from governance.domain import clock, exports, fences, requests
from governance.errors import MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, Export, SubjectLink, SubjectRequest
from sessions.models import Blob
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.declared import ABOUT, sessions_categories

pytestmark = pytest.mark.usefixtures("archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def export(subject, by) -> SubjectRequest:
    return exports.work(request_id=requests.export(subject=subject, by=by).id)


def volumes(request, by) -> list[zipfile.ZipFile]:
    stored = Export.objects.get(request=request)
    found = []
    for part in range(1, len(stored.parts) + 1):
        with exports.open_archive(export=stored, part=part, by=by) as file:
            found.append(zipfile.ZipFile(io.BytesIO(file.read())))
    return found


def read(request, by) -> zipfile.ZipFile:
    [archive] = volumes(request, by)
    return archive


def manifest_of(archive) -> dict:
    return json.loads(archive.read("manifest.json"))


def rows_of(archive, key) -> list[dict]:
    return [json.loads(line) for line in archive.read(f"data/{key}.jsonl").splitlines()]


# What is inside


def test_archive_of_every_category_fits_its_schemas(agent, subject, officer):
    talk.conversation(agent, subject)

    archive = read(export(subject, officer), officer)

    manifest = manifest_of(archive)
    assert manifest["complete"] is True
    for key, count in manifest["counts"].items():
        schema = json.loads(archive.read(f"schema/{key}.schema.json"))
        jsonschema.Draft202012Validator.check_schema(schema)
        rows = rows_of(archive, key)
        assert len(rows) == count
        for row in rows:
            jsonschema.validate(row, schema)


def test_manifest_is_signed_by_the_installation(conversation, subject, officer):
    manifest = manifest_of(read(export(subject, officer), officer))

    assert signing.is_signed(manifest)
    assert not signing.is_signed({**manifest, "counts": {}})


def test_rows_that_the_person_supplied_are_marked(conversation, subject, officer):
    archive = read(export(subject, officer), officer)

    marks = [(row["role"], row["provided_by_subject"]) for row in rows_of(archive, "items")]
    assert marks == [("user", True), ("assistant", False), ("tool", False), ("assistant", False)]
    assert [row["provided_by_subject"] for row in rows_of(archive, "blobs")] == [True]


def test_page_is_escaped_and_without_script(agent, subject, officer):
    talk.item(talk.session(agent, subject, title="<b>bold</b>"), content={"text": "<script>alert(1)</script>"})

    page = read(export(subject, officer), officer).read("html/index.html").decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_page_shows_the_first_rows_and_says_so(agent, subject, officer):
    talk.turns(talk.session(agent, subject), 150)

    archive = read(export(subject, officer), officer)

    assert "The first 200 of 300." in archive.read("html/index.html").decode()
    assert len(rows_of(archive, "items")) == 300


def test_same_bytes_under_two_names_are_both_inside(agent, subject, officer):
    """EX-01: users believe an archive complete that lacks uploads."""
    session, digest = talk.session(agent, subject), hashlib.sha256(b"same").hexdigest()
    talk.blob(session, b"same", sha256=digest, name="a.txt")
    talk.blob(talk.session(agent, subject), b"same", sha256=digest, name="b.txt")

    archive = read(export(subject, officer), officer)

    assert {name: archive.read(name) for name in archive.namelist() if name.startswith("files/")} == {
        f"files/{digest}/a.txt": b"same",
        f"files/{digest}/b.txt": b"same",
    }


# Other people


def test_rows_that_concern_others_are_blanked_where_the_rule_says_so(agent, subject, officer, tenant, register):
    register(sessions_categories(items={"about": replace(ABOUT, third_party="redact"), "redact": ("content",)}))
    session = talk.session(agent, subject)
    talk.item(session, content={"text": "about me"})
    talk.item(session, content={"text": "about bert"})
    for person in (make.subject(tenant, "bert"), subject):
        SubjectLink.objects.create(
            tenant_id=tenant.id, subject_id=person.id, category="items", row_id=f"{session.id}:2", role="mentioned"
        )

    archive = read(export(subject, officer), officer)

    assert [(row["content"], row.get("redacted")) for row in rows_of(archive, "items")] == [
        ({"text": "about me"}, None),
        (None, ["content"]),
    ]
    manifest = manifest_of(archive)
    assert (manifest["redacted"], manifest["third_party"]["items"], manifest["complete"]) == ({"items": 1}, "redact", True)
    assert b"bert" not in b"".join(archive.read(name) for name in archive.namelist())
    jsonschema.validate(rows_of(archive, "items")[1], json.loads(archive.read("schema/items.schema.json")))


# Handlers that fail


def broken(key, method, after=0):
    """Declared categories of which one fails while it is exported."""
    categories = sessions_categories()
    [category] = [category for category in categories if category.key == key]
    whole = getattr(category, method)

    def fail(*, scope):
        for number, entry in enumerate(whole(scope=scope)):
            if number == after:
                break
            yield entry
        raise RuntimeError("the store is down")

    setattr(category, method, fail)
    return categories


@pytest.mark.parametrize("method", ["plan", "export"])
def test_failing_handler_leaves_an_archive_that_says_so_and_an_open_request(
    conversation, subject, officer, register, method
):
    register(broken("approvals", method))
    failed = export(subject, officer)

    assert (failed.state, failed.failure["code"]) == ("failed_retryable", "incomplete")
    archive = read(failed, officer)
    manifest = manifest_of(archive)
    assert manifest["complete"] is False
    assert manifest["omissions"] == [
        {"category": "approvals", "rows": 1 if method == "export" else 0, "reason": "handler_failed"}
    ]
    assert (manifest["counts"]["approvals"], manifest["counts"]["items"]) == (0, 4)
    assert Export.objects.get().omissions == manifest["omissions"]
    register(sessions_categories())
    SubjectRequest.objects.update(lease_until=clock.now())

    done = exports.work(request_id=failed.id)

    assert (done.state, done.failure) == ("completed", None)
    assert manifest_of(read(done, officer))["complete"] is True
    assert Export.objects.count() == 1


def test_handler_that_fails_midway_is_told_with_what_is_missing(conversation, subject, officer, register):
    register(broken("items", "export", after=3))

    archive = read(export(subject, officer), officer)

    assert len(rows_of(archive, "items")) == 3
    assert manifest_of(archive)["omissions"] == [{"category": "items", "rows": 1, "reason": "handler_failed"}]


def test_error_of_the_database_in_one_handler_leaves_the_others_whole(conversation, subject, officer, register):
    register(sessions_categories(items={"size_expression": "1 / (t.seq - t.seq)"}))

    archive = read(export(subject, officer), officer)

    manifest = manifest_of(archive)
    assert [entry["category"] for entry in manifest["omissions"]] == ["items"]
    assert len(rows_of(archive, "sessions")) == 1


def test_handler_that_yields_fewer_rows_than_its_plan_is_found_out(conversation, subject, officer, register):
    """EX-02: everything past 10,000 rows was missing, and nobody was told."""
    categories = sessions_categories()
    [items] = [category for category in categories if category.key == "items"]
    whole = items.export
    items.export = lambda *, scope: list(whole(scope=scope))[:-1]
    register(categories)

    failed = export(subject, officer)

    assert failed.state == "failed_retryable"
    assert manifest_of(read(failed, officer))["omissions"] == [{"category": "items", "rows": 1, "reason": "rows_missing"}]


def test_archive_that_lacks_something_is_not_replaced_by_another_that_does(conversation, subject, officer, register, archives):
    register(broken("approvals", "export"))
    failed = export(subject, officer)
    kept = Export.objects.get()
    SubjectRequest.objects.update(lease_until=clock.now())

    exports.work(request_id=failed.id)

    assert Export.objects.get() == kept
    assert len(list(archives.glob("*/*"))) == 1


# Volumes


def test_large_archive_is_cut_into_volumes_that_open_by_themselves(agent, subject, officer, settings):
    settings.LETHE = {**settings.LETHE, "export_part_bytes": 60_000}
    session = talk.session(agent, subject)
    for _ in range(200):
        talk.item(session, content={"text": os.urandom(600).hex()})
    pictures = [os.urandom(20_000) for _ in range(4)]
    for number, picture in enumerate(pictures):
        talk.blob(session, picture, sha256=hashlib.sha256(picture).hexdigest(), name=f"{number}.jpg")

    request = export(subject, officer)

    stored, archives = Export.objects.get(), volumes(request, officer)
    assert len(archives) > 4
    assert all(part["size"] < 70_000 for part in stored.parts)
    assert sum(part["size"] for part in stored.parts) == stored.size
    manifest = manifest_of(archives[-1])
    assert manifest["parts"] == len(archives)
    for entry in manifest["files"]:
        data = archives[entry["part"] - 1].read(entry["path"])
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])
    names = [entry["path"] for entry in manifest["files"] if entry["path"].startswith("data/items.")]
    assert names[:3] == ["data/items.jsonl", "data/items.2.jsonl", "data/items.3.jsonl"]
    assert sum(entry["rows"] for entry in manifest["files"] if entry["path"] in names) == 200
    with pytest.raises(NotFound):
        exports.open_archive(export=stored, part=len(archives) + 1, by=officer)


def test_volumes_cannot_be_taken_for_one_another(agent, subject, officer, settings, archives):
    settings.LETHE = {**settings.LETHE, "export_part_bytes": 60_000}
    talk.blob(talk.session(agent, subject), os.urandom(100_000))
    export(subject, officer)
    stored = Export.objects.get()
    stored.parts.reverse()

    with pytest.raises(exports.protection.Undecipherable), exports.open_archive(export=stored, by=officer) as file:
        file.read()


def test_full_disk_pauses_the_export_with_its_reason(agent, subject, officer, archives):
    talk.blob(talk.session(agent, subject), os.urandom(6_000_000))
    request = requests.export(subject=subject, by=officer)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        paused = exports.work(request_id=request.id)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (paused.state, paused.failure["code"]) == ("failed_retryable", "disk_full")
    assert paused.failure["message"].startswith("Paused: the disk")
    assert list(archives.glob("*/*")) == []
    SubjectRequest.objects.update(lease_until=clock.now())
    assert exports.work(request_id=request.id).state == "completed"
    assert Blob.objects.get().size == 6_000_000


# Addresses that work once


def test_link_opens_the_archive_once(conversation, subject, officer):
    export(subject, officer)
    stored = Export.objects.get()

    [token] = exports.make_links(export=stored, by=officer)

    assert token not in json.dumps(Export.objects.get().links)
    assert exports.find_link(token=token) == (stored, 1)
    found, part, file = exports.open_link(token=token)
    with file:
        assert zipfile.ZipFile(io.BytesIO(file.read())).testzip() is None
    assert (found, part) == (stored, 1)
    with pytest.raises(NotFound):
        exports.open_link(token=token)
    with pytest.raises(NotFound):
        exports.find_link(token=token)
    told = AuditEvent.objects.get(action="export.downloaded")
    assert (told.actor_label, told.payload["part"]) == ("one-time link", 1)
    assert AuditEvent.objects.get(action="export.link_created").actor_label == "officer"


def test_two_links_are_used_up_apart(conversation, subject, officer):
    export(subject, officer)
    [first], [second] = (exports.make_links(export=Export.objects.get(), by=officer) for _ in range(2))

    exports.open_link(token=first)[2].close()
    exports.open_link(token=second)[2].close()

    assert AuditEvent.objects.filter(action="export.downloaded").count() == 2


def test_link_ends_with_the_archive_and_cannot_be_made_up(conversation, subject, officer):
    export(subject, officer)
    [token] = exports.make_links(export=Export.objects.get(), by=officer)
    for forged in ("", "x", token[:-1] + ("A" if token[-1] != "A" else "B")):
        with pytest.raises(NotFound):
            exports.open_link(token=forged)
    Export.objects.update(expires_at=clock.now() - timedelta(seconds=1))

    with pytest.raises(NotFound):
        exports.open_link(token=token)
    with pytest.raises(NotFound):
        exports.make_links(export=Export.objects.get(), by=officer)


def test_link_does_not_open_while_the_subject_is_erased(conversation, subject, officer):
    export(subject, officer)
    [token] = exports.make_links(export=Export.objects.get(), by=officer)
    eraser = SubjectRequest.objects.create(tenant=subject.tenant, subject=subject, ref="SR-1", kind="erase", state="executing")
    fences.open_fence(subject=subject, mode="erase", by=make.lethe(subject.tenant), request=eraser)

    with pytest.raises(SubjectFenced):
        exports.open_link(token=token)
    assert not AuditEvent.objects.filter(action="export.downloaded").exists()


def test_link_is_not_used_up_when_it_cannot_be_audited(conversation, subject, officer, monkeypatch):
    export(subject, officer)
    [token] = exports.make_links(export=Export.objects.get(), by=officer)

    def fail(*args, **kwargs):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(exports.audit, "record", fail)
        with pytest.raises(RuntimeError):
            exports.open_link(token=token)

    exports.open_link(token=token)[2].close()


def test_links_need_the_role_and_stay_in_the_tenant(conversation, subject, officer, tenant, stranger_tenant):
    export(subject, officer)
    stored = Export.objects.get()

    with pytest.raises(MissingPermission):
        exports.make_links(export=stored, by=make.actor(tenant, "privacy_approver"))
    with pytest.raises(NotFound):
        exports.make_links(export=stored, by=make.actor(stranger_tenant, "privacy_officer"))
