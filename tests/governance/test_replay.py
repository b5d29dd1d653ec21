"""A restored database: quarantined, then brought up to the ledger. The restore is a rollback to a savepoint: the
database forgets, the ledger's files do not."""

import io

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from governance.domain import erasure, fences, ledger, previews, quarantine, replay, requests
from governance.domain import ledger_files as files
from governance.ids import uuid7
from governance.models import AuditEvent, LedgerState, Subject, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture(autouse=True)
def impatient(settings, monkeypatch):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    monkeypatch.setattr(quarantine, "_reason", None)
    monkeypatch.setattr(quarantine, "LOOK_AGAIN_SECONDS", 0.0)


def confirm(subject, by):
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)


def erase(subject, by):
    request = erasure.work(request_id=confirm(subject, by).id)
    assert request.state == "completed"


def left(subject):
    return replay.residue(tenant_id=subject.tenant_id, subject_id=subject.id)


def command(*words):
    out = io.StringIO()
    call_command("governance_replay", *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def restored(agent, subject, officer):
    """Anna was erased after the backup that is back now; her neighbour was not."""
    talk.conversation(agent, subject)
    neighbour = make.subject(subject.tenant, "berta")
    talk.conversation(agent, neighbour)
    backup = transaction.savepoint()
    erase(subject, officer)
    transaction.savepoint_rollback(backup)
    assert left(subject) > 0
    return neighbour


def test_restored_database_is_quarantined_until_the_replay(restored, subject):
    before = left(restored)

    assert quarantine.enter().verdict == "ahead"
    with pytest.raises(ledger.Quarantined):
        quarantine.require_none()
    report = replay.replay(who="test")

    assert (report.erased_again, report.nothing_left, len(report.receipts)) == (1, 0, 1)
    assert left(subject) == 0
    assert left(restored) == before
    assert Subject.objects.get(pk=subject.pk).state == "erased"
    assert quarantine.current() is None
    receipt = SubjectRequest.objects.get(ref=report.receipts[0])
    assert (receipt.state, receipt.reason) == ("completed", "ledger_replay")
    assert receipt.receipt["verification"]["hits"] == 0
    assert AuditEvent.objects.filter(action="ledger.replayed").count() == 1
    # The replay's own erasure is in the ledger as well.
    assert [entry["kind"] for entry, _ in files.entries()] == ["erase_started", "erase_finished"] * 2


def test_identifiers_are_suppressed_again(restored, subject):
    replay.replay(who="test")

    assert ledger.is_suppressed(tenant_id=subject.tenant_id, identifiers=[("external", "anna")], content_at=subject.created_at)


def test_second_replay_has_nothing_to_do(restored):
    replay.replay(who="test")

    with pytest.raises(replay.NothingToReplay):
        replay.replay(who="test")


def test_interrupted_replay_goes_on(restored, subject, monkeypatch):
    real = erasure._execute

    def dies(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(erasure, "_execute", dies)
    with pytest.raises(KeyboardInterrupt):
        replay.replay(who="test")
    assert quarantine.check().verdict == "ahead"
    monkeypatch.setattr(erasure, "_execute", real)

    report = replay.replay(who="test")

    assert (report.erased_again, left(subject)) == (1, 0)
    assert SubjectRequest.objects.filter(subject=subject, kind="erase").count() == 1
    assert quarantine.check() is None


def test_replay_that_died_after_its_last_entry_stays_in_quarantine(restored):
    replay.replay(who="test")
    LedgerState.objects.update(is_replaying=True)

    assert quarantine.check() is not None
    assert replay.replay(who="test").erased_again == 0
    assert quarantine.check() is None


def test_replay_lifts_a_restriction_that_came_before(agent, subject, officer):
    talk.conversation(agent, subject)
    fence = fences.restrict(subject=subject, by=officer)
    backup = transaction.savepoint()
    fences.lift_fence(fence=fence, by=officer)
    erase(Subject.objects.get(pk=subject.pk), officer)
    transaction.savepoint_rollback(backup)

    replay.replay(who="test")

    assert left(subject) == 0


def test_backup_from_the_middle_of_the_erasure_is_finished(agent, subject, officer, monkeypatch):
    talk.conversation(agent, subject)
    request = confirm(subject, officer)
    backup = transaction.savepoint()
    erasure.work(request_id=request.id)
    transaction.savepoint_rollback(backup)

    report = replay.replay(who="test")

    assert report.receipts == [request.ref]
    assert left(subject) == 0


def test_backup_older_than_the_person_needs_nothing(tenant, officer):
    backup = transaction.savepoint()
    subject = make.subject(tenant, "anna")
    erase(subject, officer)
    transaction.savepoint_rollback(backup)

    report = replay.replay(who="test")

    assert (report.erased_again, report.nothing_left) == (0, 1)


def test_other_entries_go_to_their_handlers_in_order(restored, tenant, subject, monkeypatch):
    monkeypatch.setattr(replay, "_handlers", {})
    done = []
    backup = transaction.savepoint()
    LedgerState.objects.create(pk=1, high_water=2, tail=files.tail().hash)
    ledger.append("hold_placed", tenant_id=tenant.id, ref=uuid7(), matter="M-17")
    ledger.deliver()
    transaction.savepoint_rollback(backup)

    with pytest.raises(replay.ReplayStuck, match="hold_placed"):
        replay.replay(who="test")
    assert left(subject) == 0

    @replay.handles("hold_placed")
    def place(entry):
        done.append(entry["matter"])
        return "placed"

    assert replay.replay(who="test").others == {"hold_placed": 1}
    assert done == ["M-17"]


def test_changed_ledger_is_not_replayed(restored, subject):
    (path,) = files.directory().glob("ledger-*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"erase_started"', b'"erase_stopped"'))

    assert quarantine.check().verdict == "damaged"
    with pytest.raises(replay.NothingToReplay, match="damaged"):
        replay.replay(who="test")
    with pytest.raises(CommandError, match="Move it away"):
        command("--break-glass", "ledger-lost")
    assert left(subject) > 0


def test_command_replays_and_names_the_receipts(restored, subject):
    with pytest.raises(CommandError, match="restored from a backup"):
        command("--check")

    text = command()

    assert "1 erase_started: erased again, SR-" in text
    assert "1 erased again, 0 had nothing left." in text
    assert "receipt SR-" in text
    assert "agrees" in command("--check")
    with pytest.raises(CommandError, match="agrees"):
        command()


def test_breaking_the_glass_is_told_in_every_trail(restored, stranger_tenant, subject, tenant):
    with pytest.raises(CommandError, match="as a code"):
        command("--break-glass", "because I can")

    assert "without a replay" in command("--break-glass", "ledger-lost")

    assert quarantine.check() is None
    told = AuditEvent.objects.filter(action="ledger.break_glass")
    assert {event.tenant_id for event in told} == {tenant.id, stranger_tenant.id}
    ledger.append("hold_placed", tenant_id=tenant.id, ref=uuid7())
    ledger.deliver()
    assert [entry["kind"] for entry, _ in files.entries()][-2:] == ["break_glass", "hold_placed"]


def test_ledger_that_was_lost_goes_on_after_breaking_the_glass(tenant):
    LedgerState.objects.create(pk=1, high_water=41, tail="ab")
    assert quarantine.check().verdict == "behind"

    quarantine.break_glass(reason="ledger-lost", who="test")

    assert [(entry["no"], entry["kind"]) for entry, _ in files.entries()] == [(42, "break_glass")]
    assert quarantine.check() is None


def test_unreachable_ledger_quarantines_until_it_is_waived(tenant, settings, tmp_path):
    reachable = settings.LEDGER_DIR
    (tmp_path / "file").write_text("")
    settings.LEDGER_DIR = tmp_path / "file" / "ledger"
    assert quarantine.enter().verdict == "unreachable"

    quarantine.break_glass(reason="disk-gone", who="test")

    assert quarantine.check() is None
    settings.LEDGER_DIR = reachable
    assert quarantine.check() is None
    settings.LEDGER_DIR = tmp_path / "file" / "ledger"
    assert quarantine.check().verdict == "unreachable"


def test_glass_is_broken_only_in_quarantine(db):
    with pytest.raises(CommandError, match="not in quarantine"):
        command("--break-glass", "ledger-lost")


def test_backup_older_than_the_ledger_itself_is_quarantined(restored, monkeypatch):
    """Its tables are not there yet; a process that starts before `migrate` serves nothing either."""
    monkeypatch.setattr(connection.introspection, "table_names", lambda: ["governance_tenant"])

    assert quarantine.check() == ledger.Position(0, 2, "ahead")
