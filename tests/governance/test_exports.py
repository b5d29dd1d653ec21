"""An archive holds exactly what the preview counts, is unreadable on the disk, and ends."""

import errno
import hashlib
import io
import json
import zipfile
from datetime import timedelta

import pytest

from governance.domain import archives, clock, erasure, exports, fences, jobs, previews, requests
from governance.errors import MissingPermission, NotFound
from governance.models import AuditEvent, Export, SubjectRequest
from governance.sealed import SealedWriter
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.declared import ABOUT, sessions_categories

pytestmark = pytest.mark.usefixtures("declared", "archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def export(subject, by) -> SubjectRequest:
    return exports.work(request_id=requests.export(subject=subject, by=by).id)


def read(request, by) -> zipfile.ZipFile:
    with exports.open_archive(export=Export.objects.get(request=request), by=by) as file:
        return zipfile.ZipFile(io.BytesIO(file.read()))


def lease_runs_out():
    SubjectRequest.objects.update(lease_until=clock.now())


def test_export_holds_every_row_that_a_preview_counts(agent, conversation, subject, officer, stranger_tenant):
    talk.conversation(agent, make.subject(subject.tenant, "bert"))
    talk.conversation(talk.agent(stranger_tenant), make.subject(stranger_tenant, "anna"))
    counted = {
        entry["key"]: entry["rows"] for entry in previews.preview(subject=subject, by=officer)[0].preview["categories"]
    }

    request = export(subject, officer)

    archive = read(request, officer)
    lines = {
        name.split("/")[1].removesuffix(".jsonl"): archive.read(name).splitlines()
        for name in archive.namelist()
        if name.startswith("data/")
    }
    assert request.state == "completed"
    assert {key: len(rows) for key, rows in lines.items()} == counted
    assert [json.loads(row)["content"] for row in lines["items"]][0] == {"text": "Where is my order?"}
    assert json.loads(lines["subject_identifiers"][0])["value"] == "anna"
    assert "digest" not in json.loads(lines["sessions"][0])


def test_manifest_accounts_for_every_file(conversation, subject, officer, tenant):
    talk.blob(conversation, b"picture", name="../../etc/passwd")

    archive = read(export(subject, officer), officer)

    manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["schema"], manifest["complete"], manifest["omissions"]) == ("lethe.export/1", True, [])
    assert manifest["counts"]["items"] == 4
    assert {entry["path"] for entry in manifest["files"]} == set(archive.namelist()) - {"manifest.json"}
    for entry in manifest["files"]:
        data = archive.read(entry["path"])
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    files = sorted(name.rsplit("/")[-1] for name in archive.namelist() if name.startswith("files/"))
    assert files == ["note.txt", "passwd"]
    assert tenant.name in archive.read("README.md").decode()
    context = json.loads(archive.read("context.json"))
    [items] = [entry for entry in context["categories"] if entry["key"] == "items"]
    assert items == {
        "key": "items",
        "title": "Items",
        "purposes": ["carry on a conversation"],
        "legal_basis": "contract",
        "sources": ["the person", "the application that calls Lethe"],
        "recipients": ["model_provider"],
        "third_party": "include",
        "on_erasure": "delete",
        "stores": ["agent_sessions_item"],
        "periods": ["As long as what it belongs to: Sessions."],
    }


def test_archive_is_encrypted_on_the_disk(agent, subject, officer, archives):
    talk.item(talk.session(agent, subject), content={"text": "canary-2c9d" * 50})

    request = export(subject, officer)

    [path] = archives.glob("*/*")
    stored = Export.objects.get(request=request)
    data = path.read_bytes()
    assert b"canary" not in data
    assert data[:2] != b"PK"
    assert stored.parts == [
        {"path": f"{path.parent.name}/{path.name}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert path.stat().st_mode & 0o077 == 0


def test_category_about_others_is_left_out_with_its_reason(conversation, subject, officer, register):
    from dataclasses import replace

    register(sessions_categories(approvals={"about": replace(ABOUT, third_party="omit")}))

    archive = read(export(subject, officer), officer)

    manifest = json.loads(archive.read("manifest.json"))
    assert manifest["complete"] is False
    assert manifest["omissions"] == [{"category": "approvals", "rows": 1, "reason": "concerns_third_parties"}]
    assert "data/approvals.jsonl" not in archive.namelist()


def test_download_is_audited_before_the_first_byte(conversation, subject, officer):
    request = export(subject, officer)

    exports.open_archive(export=Export.objects.get(request=request), by=officer).close()

    stored = Export.objects.get(request=request)
    assert stored.downloaded_at is not None
    event = AuditEvent.objects.get(action="export.downloaded")
    assert (event.actor_label, event.payload) == ("officer", {"subject": subject.id.hex, "size": stored.size, "part": 1})


def test_download_fails_closed_when_it_cannot_be_audited(conversation, subject, officer, monkeypatch):
    request = export(subject, officer)

    def fail(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr(AuditEvent.objects, "create", fail)

    with pytest.raises(RuntimeError):
        exports.open_archive(export=Export.objects.get(request=request), by=officer)
    assert Export.objects.get().downloaded_at is None


def test_download_needs_the_role_and_stays_in_the_tenant(conversation, subject, officer, tenant, stranger_tenant):
    export(subject, officer)
    archive = Export.objects.get()

    with pytest.raises(MissingPermission):
        exports.open_archive(export=archive, by=make.actor(tenant, "auditor"))
    with pytest.raises(NotFound):
        exports.open_archive(export=archive, by=make.actor(stranger_tenant, "privacy_officer"))


def test_archive_lives_for_seven_days(conversation, subject, officer, archives):
    export(subject, officer)
    archive = Export.objects.get()
    assert timedelta(days=6, hours=23) < archive.expires_at - clock.now() <= timedelta(days=7)
    assert exports.expire() == 0

    Export.objects.update(expires_at=clock.now())

    with pytest.raises(NotFound):
        exports.open_archive(export=archive, by=officer)
    assert exports.expire() == 1
    assert not Export.objects.exists()
    assert list(archives.glob("*/*")) == []
    assert AuditEvent.objects.filter(action="export.expired").count() == 1


def test_archive_whose_bytes_are_gone_is_not_found(conversation, subject, officer, archives):
    export(subject, officer)
    for path in archives.glob("*/*"):
        path.unlink()

    with pytest.raises(NotFound):
        exports.open_archive(export=Export.objects.get(), by=officer)


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "storage")])
def test_full_disk_is_named_and_tried_again(conversation, subject, officer, archives, number, code):
    request = requests.export(subject=subject, by=officer)

    def fail(self, data):
        raise OSError(number, "no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SealedWriter, "write", fail)
        failed = exports.work(request_id=request.id)
    assert (failed.state, failed.resume_state, failed.failure["code"]) == ("failed_retryable", "executing", code)
    assert list(archives.glob("*/*")) == []
    assert not Export.objects.exists()
    assert AuditEvent.objects.get(action="export.failed").payload == {"code": code}
    assert exports.work(request_id=request.id) is None
    lease_runs_out()

    done = exports.work(request_id=request.id)

    assert (done.state, done.failure) == ("completed", None)


def test_interrupted_export_starts_over_and_leaves_no_part(conversation, subject, officer, archives):
    class Killed(BaseException):
        pass

    def die(*args, **kwargs):
        raise Killed

    request = requests.export(subject=subject, by=officer)
    folder = archives / subject.tenant_id.hex
    folder.mkdir(parents=True)
    (folder / f"{request.id.hex}.0.part").write_bytes(b"left by a killed worker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "_keep", die)
        with pytest.raises(Killed):
            exports.work(request_id=request.id)
    lease_runs_out()

    done = exports.work(request_id=request.id)

    assert done.state == "completed"
    assert [path.name for path in folder.iterdir()] == [f"{request.id.hex}.2.1.zip.sealed"]
    assert read(done, officer).testzip() is None


def test_tidy_deletes_only_what_nothing_accounts_for(conversation, subject, officer, archives):
    done = export(subject, officer)
    waiting = requests.export(subject=make.subject(subject.tenant, "bert"), by=officer)
    folder = archives / subject.tenant_id.hex
    (folder / f"{waiting.id.hex}.1.part").write_bytes(b"being written")
    (folder / f"{done.id.hex}.1.part").write_bytes(b"left behind")

    assert exports.tidy() == 1

    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{done.id.hex}.1.1.zip.sealed", f"{waiting.id.hex}.1.part"]
    )


def test_erasure_takes_archives_along_bytes_first(conversation, subject, officer, archives):
    export(subject, officer)
    request, token = previews.preview(subject=subject, by=officer)
    assert {entry["key"]: entry["rows"] for entry in request.preview["categories"]}["exports"] == 1
    requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert done.state == "completed"
    assert list(archives.glob("*/*")) == []
    assert not Export.objects.exists()


def test_export_that_finishes_behind_a_fence_of_an_erasure_is_thrown_away(conversation, subject, officer, archives):
    request = requests.export(subject=subject, by=officer)
    eraser = SubjectRequest.objects.create(
        tenant=subject.tenant, subject=subject, ref="SR-1", kind="erase", state="executing"
    )
    fences.open_fence(subject=subject, mode="erase", by=make.lethe(subject.tenant), request=eraser)

    failed = exports.work(request_id=request.id)

    assert (failed.state, failed.failure["code"]) == ("failed_retryable", "subject_fenced")
    assert list(archives.glob("*/*")) == []
    assert not Export.objects.exists()


def test_export_of_a_restricted_subject_is_made_and_expires(conversation, subject, officer, archives):
    fences.restrict(subject=subject, by=officer)

    assert export(subject, officer).state == "completed"
    Export.objects.update(expires_at=clock.now())
    assert exports.expire() == 1


def test_another_export_after_the_first_holds_the_record_of_it(conversation, subject, officer):
    export(subject, officer)

    archive = read(export(subject, officer), officer)

    [row] = archive.read("data/exports.jsonl").splitlines()
    assert set(json.loads(row)) == {"id", "size", "counts", "omissions", "created_at", "expires_at", "downloaded_at"}


@pytest.mark.django_db(transaction=True)
def test_export_in_real_transactions_keeps_its_lease_while_it_reads(monkeypatch):
    monkeypatch.setattr(jobs, "LEASE", timedelta(seconds=0.6))
    tenant = make.tenant("acme")
    subject, by = make.subject(tenant, "anna"), make.lethe(tenant)
    talk.conversation(talk.agent(tenant), subject)
    request = requests.export(subject=subject, by=by)
    fill, renewed = archives.fill, []

    def slowly(volumes, request):
        import time

        contents = fill(volumes, request)
        before = SubjectRequest.objects.get().lease_until
        time.sleep(1)
        renewed.append(SubjectRequest.objects.get().lease_until > before)
        return contents

    monkeypatch.setattr(archives, "fill", slowly)

    done = exports.work(request_id=request.id)

    assert (done.state, renewed) == ("completed", [True])
    assert json.loads(read(done, by).read("manifest.json"))["counts"]["items"] == 4
