"""Retention that archives: rows are in a file, read back and compared, before they leave the database."""

import errno
import io
import json
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.utils import timezone

from governance import checks, residue, signing
from governance.domain import (
    archiving,
    clock,
    erasure,
    exports,
    holds,
    previews,
    registry,
    requests,
    retention,
    retention_runs,
    rotation,
)
from governance.domain.holds import Target
from governance.domain.recent import OVER
from governance.errors import NotFound
from governance.ids import uuid7
from governance.models import ArchivedPart, AuditEvent, RetentionPolicy, RetentionRun, SubjectRequest
from sessions.models import Item, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk


@pytest.fixture
def policy(records_manager):
    made = retention.create_policy(
        tenant_id=records_manager.tenant_id, category="sessions", age_basis="ended", days=30, action="archive_then_delete",
        by=records_manager,
    )  # fmt: skip
    RetentionPolicy.objects.filter(pk=made.pk).update(dry_run_until=None, approved_version=1)
    made.refresh_from_db()
    return made


@pytest.fixture
def old(agent, subject):
    return talk.conversation(agent, subject, ended_at=timezone.now() - timedelta(days=40), title="Order 7")


def started(policy, by) -> RetentionRun:
    return retention.run_policy(policy=policy, expected_version=policy.version, by=by)


def run(policy, by) -> RetentionRun:
    return retention_runs.work(run_id=started(policy, by).id)


def lines(part) -> list[dict]:
    return [json.loads(line) for line in archiving.lines_of(part).splitlines()]


def files() -> set[str]:
    return {path.name for path in archiving.directory().rglob("*") if path.is_file()} if archiving.directory().is_dir() else set()


def test_archived_rows_are_in_a_file_and_no_longer_in_the_database(policy, old, subject, records_manager):
    texts = [item.content for item in Item.objects.order_by("seq")]

    done = run(policy, records_manager)

    assert (done.state, done.failure, done.counts["deleted"]) == ("completed", None, 1)
    assert not Session.objects.exists()
    assert not Item.objects.exists()
    part = ArchivedPart.objects.get()
    assert (part.subject_id, part.category, part.run_id) == (subject.id, "sessions", done.id)
    assert part.counts == {key: rows for key, rows in done.counts["by_category"].items() if rows}
    rows = lines(part)
    assert [row["row"]["content"] for row in rows if row["category"] == "items"] == texts
    assert [row["row"]["title"] for row in rows if row["category"] == "sessions"] == ["Order 7"]


def test_manifest_is_signed_and_names_nobody(policy, old, subject, records_manager):
    run(policy, records_manager)

    part = ArchivedPart.objects.get()
    path = archiving.directory() / part.path
    manifest = json.loads(Path(f"{path}.manifest.json").read_text())
    assert signing.is_signed(manifest)
    assert (manifest["sha256"], manifest["rows"], manifest["id"]) == (part.sha256, part.counts, part.id.hex)
    assert subject.id.hex not in json.dumps(manifest)
    assert b"Order 7" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_each_person_has_a_file_of_their_own(policy, old, agent, tenant, subject, records_manager):
    bert, long_ago = make.subject(tenant, "bert"), timezone.now() - timedelta(days=50)
    talk.conversation(agent, bert, ended_at=long_ago)
    talk.conversation(agent, None, ended_at=long_ago)

    run(policy, records_manager)

    assert set(ArchivedPart.objects.values_list("subject_id", flat=True)) == {subject.id, bert.id, None}
    for part in ArchivedPart.objects.all():
        owner = str(part.subject_id) if part.subject_id else None
        assert {row["row"]["subject_id"] for row in lines(part)} == {owner}


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "archive_full"), (errno.EIO, "archive_unreachable")])
def test_archive_that_cannot_take_rows_pauses_the_run_with_its_reason(policy, old, records_manager, monkeypatch, number, code):
    with monkeypatch.context() as patch:
        patch.setattr(archiving.os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(number, "no")))
        paused = run(policy, records_manager)

    assert (paused.state, paused.failure["code"]) == ("running", code)
    assert (Session.objects.count(), Item.objects.count(), ArchivedPart.objects.count()) == (1, 4, 0)
    RetentionRun.objects.update(lease_until=clock.now())

    done = retention_runs.work(run_id=paused.id)

    assert (done.state, done.failure, Session.objects.count()) == ("completed", None, 0)
    # What the failed attempt wrote is gone.
    part = ArchivedPart.objects.get()
    assert files() == {archiving.MARKER, Path(part.path).name, f"{Path(part.path).name}.manifest.json"}


def test_rows_that_come_back_changed_are_not_deleted(policy, old, records_manager, monkeypatch):
    write = archiving.SealedWriter.write
    monkeypatch.setattr(archiving.SealedWriter, "write", lambda self, data: write(self, data.replace(b"Order 7", b"Order 8")))

    paused = run(policy, records_manager)

    assert (paused.state, paused.failure["code"]) == ("running", "archive_differs")
    assert Session.objects.get().title == "Order 7"


def test_rows_that_were_not_archived_are_not_deleted(policy, old, records_manager, monkeypatch):
    """Somebody adds a row between writing and deleting."""
    keep = archiving.keep

    def and_then(**values):
        counts = keep(**values)
        talk.item(old, content={"text": "late"})
        return counts

    monkeypatch.setattr(archiving, "keep", and_then)

    paused = run(policy, records_manager)

    assert (paused.state, paused.failure["code"]) == ("running", "archive_differs")
    assert Item.objects.count() == 4


def test_attempts_end_and_nothing_was_deleted(policy, old, records_manager, settings, tmp_path):
    (tmp_path / "file").write_text("no folder")
    settings.ARCHIVE_DIR = tmp_path / "file" / "archive"
    waiting = started(policy, records_manager)

    for _ in range(retention_runs.ATTEMPTS):
        RetentionRun.objects.update(lease_until=None)
        done = retention_runs.work(run_id=waiting.id)

    assert (done.state, done.failure["code"]) == ("failed", "archive_unreachable")
    assert Session.objects.count() == 1


# -- what reaches archived rows


def erased(subject, by) -> SubjectRequest:
    _, token = previews.preview(subject=subject, by=by)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="other", by=by)
    return erasure.work(request_id=request.id)


@pytest.fixture
def archived(policy, old, records_manager):
    run(policy, records_manager)
    return ArchivedPart.objects.get()


def test_erasure_deletes_the_file_and_its_key(archived, subject, officer, agent, tenant):
    talk.conversation(agent, make.subject(tenant, "bert"))

    done = erased(subject, officer)

    assert (done.state, done.failure) == ("completed", None)
    assert next(entry["erased"] for entry in done.receipt["categories"] if entry["key"] == "archived_rows") == 1
    assert not ArchivedPart.objects.exists()
    assert files() == {archiving.MARKER}
    assert Session.objects.count() == 1


def test_erasure_does_not_take_a_missing_disk_for_missing_data(archived, subject, officer, settings, tmp_path):
    there, settings.ARCHIVE_DIR = settings.ARCHIVE_DIR, tmp_path / "empty"
    settings.ARCHIVE_DIR.mkdir()

    failed = erased(subject, officer)

    assert (failed.state, failed.failure["code"]) == ("failed_retryable", "archive_unreachable")
    assert ArchivedPart.objects.exists()
    settings.ARCHIVE_DIR = there
    SubjectRequest.objects.update(lease_until=clock.now())
    assert erasure.work(request_id=failed.id).state == "completed"
    assert files() == {archiving.MARKER}


def test_export_carries_archived_rows_readable(archived, subject, officer):
    scope = registry.Scope(subject.tenant_id, subject.id)
    [row] = registry.get("archived_rows").export(scope=scope)
    [file] = registry.get("archived_rows").files(scope=scope)

    assert (row["content_sha256"], file.sha256) == (archived.content_sha256, archived.content_sha256)
    assert b"Order 7" in file.data
    request = requests.export(subject=subject, by=officer)
    assert exports.work(request_id=request.id).state == "completed"


def test_hold_keeps_the_file(archived, subject, officer, records_manager):
    holds.place(target=Target("subject", subject=subject), matter="M-1", reason="audit", by=records_manager)

    done = erased(subject, officer)

    assert done.state == "completed_with_exceptions"
    assert lines(archived)


TARGETS = {
    "session": lambda old: Target("session", session_id=old.id),
    "agent": lambda old: Target("agent", agent_id=old.agent_id, agent_name="helper"),
    "category": lambda old: Target("category", category="items"),
    "query": lambda old: Target("query", query={"category": "archived_rows", "after": timezone.now() - timedelta(days=1)}),
}


@pytest.mark.parametrize("known", [True, False], ids=["noted", "from before it was noted"])
@pytest.mark.parametrize("scope", TARGETS)
def test_hold_placed_later_reaches_what_is_archived(archived, old, subject, officer, records_manager, scope, known):
    hold_target = TARGETS[scope](old)
    if not known:
        ArchivedPart.objects.update(roots=None, agents=None)
        # Nobody can know any more which sessions are in it: a hold on any other keeps the file.
        hold_target = Target("session", session_id=talk.conversation(old.agent, subject).id) if scope == "session" else hold_target

    hold = holds.place(target=hold_target, matter="M-1", reason="audit", by=records_manager)

    assert holds.rows_by_category(hold=hold).get("archived_rows") == 1
    with pytest.raises(DatabaseError, match="legal hold"), transaction.atomic():
        ArchivedPart.objects.all().delete()
    assert erased(subject, officer).state == "completed_with_exceptions"
    assert lines(archived)


def test_hold_on_something_else_leaves_the_archive_alone(archived, old, subject, officer, records_manager):
    other = talk.conversation(talk.agent(old.tenant, "other"), make.subject(old.tenant, "other"))
    for target in (Target("session", session_id=other.id), Target("agent", agent_id=other.agent_id, agent_name="other")):
        holds.place(target=target, matter="M-1", reason="audit", by=records_manager)

    assert erased(subject, officer).state == "completed"
    assert files() == {archiving.MARKER}


def test_hold_on_a_session_that_nobody_ever_had_is_not_placed(archived, records_manager):
    with pytest.raises(NotFound):
        holds.place(target=Target("session", session_id=uuid7()), matter="M-1", reason="audit", by=records_manager)


def test_policy_of_their_own_ends_archived_rows(archived, records_manager):
    ending = retention.create_policy(
        tenant_id=records_manager.tenant_id, category="archived_rows", age_basis="created", days=365, by=records_manager
    )
    RetentionPolicy.objects.filter(pk=ending.pk).update(dry_run_until=None, approved_version=1)
    ending.refresh_from_db()
    ArchivedPart.objects.update(archived_at=timezone.now() - timedelta(days=400))

    assert run(ending, records_manager).counts["deleted"] == 1
    assert files() == {archiving.MARKER}


def test_files_follow_a_new_encryption_key(archived, settings):
    old_key, settings.ENCRYPTION_KEY = settings.ENCRYPTION_KEY, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    settings.OLD_ENCRYPTION_KEYS = [old_key]

    assert rotation.rotate()["archived rows"].rotated == 1

    settings.OLD_ENCRYPTION_KEYS = []
    archived.refresh_from_db()
    assert lines(archived)


def test_reading_a_file_is_audited(archived, subject):
    out = io.StringIO()

    with redirect_stdout(out):
        call_command("read_archive", str(archived.id), stdout=out)

    assert {json.loads(line)["category"] for line in out.getvalue().splitlines()} == set(archived.counts)
    event = AuditEvent.objects.get(action="content.read", object_type="archived_part")
    assert (event.actor_label, event.object_ref) == ("read_archive", archived.id.hex)


def test_file_past_its_time_is_not_printed(archived, capsys):
    RetentionPolicy.objects.create(
        tenant_id=archived.tenant_id, category="archived_rows", age_basis="created", days=10, approved_version=1
    )
    type(archived).objects.update(archived_at=timezone.now() - timedelta(days=11))
    OVER.forget(archived.tenant_id)

    with pytest.raises(SystemExit):
        call_command("read_archive", str(archived.id))

    assert "past their time" in capsys.readouterr().err


def test_file_of_another_tenant_is_not_found(archived, stranger_tenant):
    with pytest.raises(NotFound):
        archiving.open_part(part=archived, by=make.lethe(stranger_tenant))


def test_residue_scan_reads_the_archive(archived):
    (archiving.directory() / "left").write_text("canary-5150")

    assert [hit.place for hit in residue.scan(canaries=["canary-5150"])] == [f"file {archiving.directory() / 'left'}"]


def test_archive_inside_the_backups_stops_the_start(settings, tmp_path):
    settings.BACKUP_DIR, settings.ARCHIVE_DIR = tmp_path, tmp_path / "archive"

    assert [error.id for error in checks.check_archive()] == ["governance.E009"]
    settings.ARCHIVE_DIR = None
    assert checks.check_archive() == []


def test_archived_runs_keep_their_totals_when_they_are_archived_alone(records_manager, agent, subject):
    """A run that outlived its session goes with its events and calls."""
    made = retention.create_policy(
        tenant_id=records_manager.tenant_id, category="runs", age_basis="ended", days=30, action="archive_then_delete",
        by=records_manager,
    )  # fmt: skip
    RetentionPolicy.objects.filter(pk=made.pk).update(dry_run_until=None, approved_version=1)
    made.refresh_from_db()
    talk.conversation(agent, subject)
    Run.objects.update(ended_at=timezone.now() - timedelta(days=40))

    run(made, records_manager)

    counts = ArchivedPart.objects.get().counts
    assert (counts["runs"], counts["model_calls"], Run.objects.count(), Session.objects.count()) == (1, 1, 0, 1)
