"""The ledger: written before an erasure goes on, and not to be changed unseen."""

import json
import os
from datetime import timedelta

import pytest
from django.conf import settings as django_settings

from governance import checks
from governance.domain import clock, erasure, ledger, previews, requests
from governance.domain import ledger_files as files
from governance.ids import uuid7
from governance.models import LedgerEntry, LedgerState, SubjectRequest, SuppressedIdentifier
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def confirm(subject, by) -> SubjectRequest:
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)


def work(request):
    SubjectRequest.objects.filter(pk=request.pk).update(lease_until=None)
    return erasure.work(request_id=request.id)


def lines():
    return [entry for entry, _ in files.entries()]


def hold(tenant, **facts):
    return ledger.append("hold_placed", tenant_id=tenant.id, ref=uuid7(), **facts)


def test_erasure_is_told_before_and_after(agent, subject, officer):
    talk.conversation(agent, subject)
    request = work(confirm(subject, officer))

    started, finished = lines()

    assert request.state == "completed"
    assert [(entry["no"], entry["kind"], entry["ref"], entry["subject"]) for entry in (started, finished)] == [
        (1, "erase_started", request.id.hex, subject.id.hex),
        (2, "erase_finished", request.id.hex, subject.id.hex),
    ]
    details = ledger.unsealed(started["sealed"], tenant_id=subject.tenant_id, ref=request.id)
    assert {chunk["category"] for chunk in details["chunks"]} >= {"items", "sessions", "subject_identifiers"}
    assert "anna" not in json.dumps(started)
    assert finished["prev"] == files.digest(json.dumps(started, separators=(",", ":"), sort_keys=True).encode())
    assert ledger.position() == ledger.Position(2, 2, "agrees")


def test_erasure_waits_for_the_ledger(agent, subject, officer, settings, tmp_path):
    talk.conversation(agent, subject)
    request = confirm(subject, officer)
    (tmp_path / "file").write_text("")
    reachable, settings.LEDGER_DIR = settings.LEDGER_DIR, tmp_path / "file" / "ledger"

    stopped = work(request)

    assert (stopped.state, stopped.resume_state, stopped.failure["code"]) == ("failed_retryable", "fencing", "ledger_unreachable")
    assert not stopped.steps.exists()
    settings.LEDGER_DIR = reachable
    assert work(request).state == "completed"


def test_erasure_that_met_new_rows_is_not_told(agent, subject, officer):
    request = confirm(subject, officer)
    talk.conversation(agent, subject)

    assert work(request).state == "previewed"
    assert lines() == []


def test_entry_is_told_once(tenant):
    ref = uuid7()
    first = ledger.append("hold_placed", tenant_id=tenant.id, ref=ref, matter="M-17")
    second = ledger.append("hold_placed", tenant_id=tenant.id, ref=ref, matter="M-17")

    assert first.pk == second.pk
    assert (ledger.deliver(), ledger.deliver()) == (1, 0)
    assert [(entry["no"], entry["matter"]) for entry in lines()] == [(1, "M-17")]


def test_number_that_a_crash_lost_is_found_again(tenant):
    """The line was on disk, and the database did not hear of it: nothing is written twice."""
    hold(tenant)
    ledger.deliver()
    hold(tenant)
    ledger.deliver()
    LedgerEntry.objects.filter(number=2).update(number=None, acknowledged_at=None)
    LedgerState.objects.update(high_water=1, tail=lines()[1]["prev"])

    hold(tenant)
    ledger.deliver()

    assert [entry["no"] for entry in lines()] == [1, 2, 3]
    assert sorted(LedgerEntry.objects.values_list("number", flat=True)) == [1, 2, 3]


def test_line_that_a_crash_cut_is_written_anew(tenant):
    hold(tenant)
    ledger.deliver()
    (path,) = files.directory().glob("ledger-*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"schema":"lethe.led')

    hold(tenant)
    ledger.deliver()

    assert [entry["no"] for entry in lines()] == [1, 2]
    assert ledger.position().agrees


def test_files_end_after_so_many_entries(tenant, monkeypatch):
    monkeypatch.setattr(files, "SEGMENT", 2)
    for _ in range(5):
        hold(tenant)
    ledger.deliver()

    assert sorted(path.name for path in files.directory().glob("ledger-*")) == [
        f"ledger-{number:012}.jsonl" for number in (1, 3, 5)
    ]
    assert [entry["no"] for entry in lines()] == [1, 2, 3, 4, 5]
    assert [entry["no"] for entry, _ in files.entries(after=3)] == [4, 5]


@pytest.mark.parametrize("attack", ["change", "remove", "swap"])
def test_ledger_that_was_changed_is_damaged(tenant, attack):
    for _ in range(3):
        hold(tenant, rows=1)
    ledger.deliver()
    (path,) = files.directory().glob("ledger-*.jsonl")
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        {"change": first + second.replace(b'"rows":1', b'"rows":2') + third, "remove": first + third, "swap": second + first + third}[attack]
    )

    with pytest.raises(ledger.LedgerDamaged):
        lines()


def test_position_tells_a_restored_database_from_a_lost_ledger(tenant):
    hold(tenant)
    ledger.deliver()
    (path,) = files.directory().glob("ledger-*.jsonl")
    LedgerEntry.objects.all().delete()

    LedgerState.objects.update(high_water=0, tail="")
    assert ledger.position() == ledger.Position(0, 1, "ahead")
    LedgerState.objects.update(high_water=7, tail="00")
    assert ledger.position() == ledger.Position(7, 1, "behind")
    LedgerState.objects.update(high_water=1, tail="00")
    assert ledger.position() == ledger.Position(1, 1, "differs")
    path.write_text("no json\n")
    assert ledger.position().verdict == "damaged"


def test_nothing_is_written_while_the_two_disagree(tenant):
    hold(tenant)
    ledger.deliver()
    LedgerState.objects.update(high_water=9)
    hold(tenant)

    with pytest.raises(ledger.Quarantined):
        ledger.deliver()
    assert ledger.deliver_waiting() == 0
    assert len(lines()) == 1


def test_old_content_of_an_erased_person_is_suppressed_and_new_content_is_not(subject, tenant, stranger_tenant, officer):
    """HR-08: the person may come back; what was known before may not."""
    before, request = clock.now(), work(confirm(subject, officer))
    later = request.logically_erased_at + timedelta(seconds=1)

    def told(tenant, value, at):
        return ledger.is_suppressed(tenant_id=tenant.id, identifiers=[("external", value), ("email", "x@example.org")], content_at=at)

    assert told(tenant, "anna", before)
    assert not told(tenant, "anna", later)
    assert not told(tenant, "berta", before)
    assert not told(stranger_tenant, "anna", before)
    assert not ledger.is_suppressed(tenant_id=tenant.id, identifiers=[], content_at=before)


def test_person_who_is_erased_twice_is_suppressed_until_the_second_time(tenant, officer):
    work(confirm(make.subject(tenant, "anna"), officer))
    between = clock.now()
    work(confirm(make.subject(tenant, "anna"), officer))

    assert ledger.is_suppressed(tenant_id=tenant.id, identifiers=[("external", "anna")], content_at=between)
    assert SuppressedIdentifier.objects.count() == 1


def test_ledger_inside_the_database_or_its_backups_stops_the_start(db, settings, tmp_path):
    settings.BACKUP_DIR, settings.LEDGER_DIR = tmp_path, tmp_path / "ledger"
    assert [problem.id for problem in checks.check_ledger()] == ["governance.E007"]
    assert ["lies in the backups" in problem.msg for problem in checks.problems() if problem.id == "governance.E007"] == [True]

    settings.BACKUP_DIR = None
    settings.LEDGER_DIR = os.path.join(django_settings.DATABASES["default"]["DATA_DIR"], "postgres", "ledger")
    assert "lies in the database's folder" in checks.check_ledger()[0].msg

    (tmp_path / "file").write_text("")
    settings.LEDGER_DIR = tmp_path / "file" / "ledger"
    assert "cannot be written" in checks.check_ledger()[0].msg
    assert [problem for problem in checks.problems() if problem.id == "governance.E007"] == []


def test_ledger_ends_with_the_last_backup_that_it_could_serve(tenant, settings, monkeypatch):
    monkeypatch.setattr(files, "SEGMENT", 2)
    for _ in range(3):
        hold(tenant)
        ledger.deliver()
    first, second = sorted(files.directory().glob("ledger-*.jsonl"))
    SuppressedIdentifier.objects.create(tenant_id=tenant.id, kind="email", value_hmac=b"x" * 32, erased_at=clock.now() - timedelta(days=100))
    settings.LETHE = {**settings.LETHE, "backup_days": None}
    assert ledger.expire() == 0

    settings.LETHE = {**settings.LETHE, "backup_days": 60}
    assert (ledger.expire(), SuppressedIdentifier.objects.count()) == (0, 0)
    later = clock.now() + timedelta(days=91)
    monkeypatch.setattr(ledger.clock, "now", lambda: later)

    assert ledger.expire() == 2
    assert (first.exists(), second.exists()) == (False, True)
    assert [entry["no"] for entry in lines()] == [3]
    assert ledger.position().verdict == "agrees"
    assert ledger.expire() == 0


def test_file_that_holds_a_younger_entry_stays_whole(tenant, settings, monkeypatch):
    monkeypatch.setattr(files, "SEGMENT", 2)
    for _ in range(3):
        hold(tenant)
        ledger.deliver()
    oldest = sorted(files.directory().glob("ledger-*.jsonl"))[0]
    os.utime(oldest, (0, 0))
    settings.LETHE = {**settings.LETHE, "backup_days": 60}

    assert ledger.expire() == 0
    assert len(lines()) == 3


def test_backup_older_than_the_ledger_reaches_is_not_replayed(tenant, monkeypatch):
    monkeypatch.setattr(files, "SEGMENT", 2)
    for _ in range(3):
        hold(tenant)
        ledger.deliver()
    with files.opened():
        files.drop(before=clock.now() + timedelta(days=1))
    LedgerState.objects.update(high_water=1)

    assert ledger.position().verdict == "differs"
