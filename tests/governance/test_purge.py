"""Bytes: out of the files, out of WAL. On real files, so these tests commit."""

import io
import secrets
import time

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from governance import residue
from governance.domain import clock, erasure, previews, purge, requests, sweeping
from governance.models import PurgeJob, RequestPurge, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.owner import as_owner


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def canaries():
    return [f"canary{secrets.token_hex(8)}" for _ in range(3)]


def erase(subject, by):
    _, token = previews.preview(subject=subject, by=by)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)
    request = erasure.work(request_id=request.id)
    assert request.state == "completed"
    return request


def planted(tenant, canaries):
    """A person whose texts, key, title and identifier are canaries, among neighbours in the same pages."""
    agent = talk.agent(tenant, "helper")
    neighbour = make.subject(tenant, "berta")
    talk.turns(talk.session(agent, neighbour, "before"), 30)
    subject = make.subject(tenant, canaries[0])
    made = talk.session(agent, subject, canaries[1], title=canaries[1], labels=[canaries[1]])
    for number in range(40):
        talk.item(made, content={"text": f"{canaries[2]} {number}"})
    talk.turns(talk.session(agent, neighbour, "after"), 30)
    for table in ("agent_sessions_item", "agent_sessions_session"):
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {table}")
    return subject


def purged(**expected):
    """Purge until this much is done in all: transactions of tests beside this one hold a purge back while they last."""
    total = dict.fromkeys(expected, 0)
    until = time.monotonic() + 300
    while total != expected and time.monotonic() < until:
        done = purge.work(now=True)
        total = {name: total[name] + done[name] for name in total}
        if total != expected:
            time.sleep(0.2)
    return total


# It reads every file of the server, with the databases and the WAL of the tests that run beside it.
@pytest.mark.timeout(900)
@pytest.mark.django_db(transaction=True)
def test_purged_bytes_are_in_no_file_and_in_no_wal(canaries, settings, monkeypatch):
    """D3 and D4, small: the receipt says purged, and then the files say so too."""
    # Tables that are busy for longer are only vacuumed: see the test of a table that somebody holds.
    monkeypatch.setattr(purge, "LOCK_TIMEOUT_MS", 60_000)
    settings.LETHE = {**settings.LETHE, "backup_days": 30}
    tenant = make.tenant("acme")
    officer = make.actor(tenant, "privacy_officer")
    subject = planted(tenant, canaries)
    # WAL belongs to the whole server: a test beside this one may have recycled it. tests/server has it to itself.
    assert {hit.level for hit in residue.scan(canaries=canaries, level=3)} >= {1, 2}

    request = erase(subject, officer)
    assert [hit for hit in residue.scan(canaries=canaries, level=1) if "pg_statistic" not in hit.place] == []
    assert 2 in {hit.level for hit in residue.scan(canaries=canaries, level=3)}
    assert purged(requests=1, horizons=1) == {"requests": 1, "horizons": 1}
    assert list(residue.scan(canaries=canaries, level=3)) == []
    request.refresh_from_db()
    receipt = request.receipt
    assert receipt["version"] == 3
    assert receipt["purge"]["state"] == "purged"
    assert receipt["purge"]["due_by"] > receipt["purge"]["purged_at"] > receipt["logically_erased_at"]
    assert receipt["horizons"]["wal_until"] >= receipt["purge"]["purged_at"]
    assert receipt["horizons"]["backups_until"] > receipt["horizons"]["wal_until"]
    # Nothing is told twice.
    assert purge.work(now=True) == {"tables": 0, "requests": 0, "horizons": 0}
    assert SubjectRequest.objects.get(pk=request.pk).receipt["version"] == 3


@pytest.mark.django_db(transaction=True)
def test_large_table_is_vacuumed_and_its_indexes_built_anew(canaries, settings):
    settings.LETHE = {**settings.LETHE, "purge_rewrite_mb": 0}
    tenant = make.tenant("acme")
    officer = make.actor(tenant, "privacy_officer")
    erase(planted(tenant, canaries), officer)
    before = _index_files("agent_sessions_session")

    assert purged(requests=1) == {"requests": 1}

    after = _index_files("agent_sessions_session")
    content = purge.content_indexes("agent_sessions_session")
    assert content
    assert {name for name in before if before[name] != after[name]} == set(content)
    assert RequestPurge.objects.get().purged_at is not None


def _index_files(table):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT i.relname, pg_relation_filenode(i.oid) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid"
            " WHERE x.indrelid = to_regclass(%s)",
            [table],
        )
        return dict(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_purge_waits_for_older_snapshots(canaries):
    tenant = make.tenant("acme")
    officer = make.actor(tenant, "privacy_officer")
    subject = planted(tenant, canaries)
    older = connections.create_connection("default")
    try:
        older.set_autocommit(False)
        with older.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM agent_sessions_item")
        erase(subject, officer)

        assert purge.work(now=True) == {"tables": 0, "requests": 0, "horizons": 0}
        with pytest.raises(CommandError, match="agent_sessions_item"):
            call_command("purge", stdout=io.StringIO())
    finally:
        older.rollback()
        older.close()

    assert purged(requests=1) == {"requests": 1}


@pytest.mark.django_db(transaction=True)
def test_table_that_somebody_holds_is_cleaned_the_other_way(canaries, monkeypatch):
    monkeypatch.setattr(purge, "LOCK_TIMEOUT_MS", 50)
    talk.turns(talk.session(talk.agent(make.tenant("acme"))), 3)
    reader = connections.create_connection("default")
    try:
        reader.set_autocommit(False)
        with reader.cursor() as cursor:
            cursor.execute("LOCK TABLE agent_sessions_session IN ROW EXCLUSIVE MODE")
        assert purge._rewrite("agent_sessions_session") is False
    finally:
        reader.rollback()
        reader.close()
    assert purge._rewrite("agent_sessions_session") is True


def test_erasures_are_collected_before_the_tables_are_cleaned(tenant, officer, settings):
    settings.LETHE = {**settings.LETHE, "purge_after_minutes": 60}
    erase(make.subject(tenant, "anna"), officer)
    erase(make.subject(tenant, "berta"), officer)

    jobs = PurgeJob.objects.filter(table="governance_subjectidentifier")
    assert [(job.state, job.wanted_xid >= job.done_xid) for job in jobs] == [("queued", True)]
    assert not purge.is_due()
    assert sweeping.sweep()["purges"] == 0
    PurgeJob.objects.update(requested_at=clock.after(-sweeping.timedelta(minutes=61)))
    assert purge.is_due()
    assert sweeping.sweep()["purges"] == 1


def test_erasure_that_comes_meanwhile_keeps_the_table_waiting(tenant, officer, monkeypatch):
    monkeypatch.setattr(purge, "_holding_back", lambda xid: 0)

    def another(table):
        PurgeJob.objects.filter(table=table).update(wanted_xid=2**40)

    monkeypatch.setattr(purge, "clean_table", another)
    erase(make.subject(tenant, "anna"), officer)
    job = PurgeJob.objects.get(table="governance_subjectidentifier")

    assert purge._purge(job.id)

    job.refresh_from_db()
    assert (job.state, job.wanted_xid, job.done_xid < 2**40) == ("queued", 2**40, True)


def test_positions_of_wal_are_compared_as_numbers():
    assert purge._position("1/0") > purge._position("0/FFFFFFFF")
    assert purge._position("0/16B3748") == 0x16B3748


def test_content_indexes_come_from_the_catalogue(db):
    as_owner("CREATE TABLE odd (id uuid PRIMARY KEY, body jsonb, note text, number int, tags text[])")
    as_owner("CREATE INDEX odd_note ON odd (note); CREATE INDEX odd_number ON odd (number)")
    as_owner("CREATE INDEX odd_body ON odd USING gin (body); CREATE INDEX odd_lower ON odd (lower(note))")
    as_owner("CREATE INDEX odd_tags ON odd USING gin (tags)")

    assert purge.content_indexes("odd") == ["odd_body", "odd_lower", "odd_note", "odd_tags"]


def test_only_tables_are_purged_and_a_table_that_is_gone_is_no_failure(tenant, officer, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    request = erase(make.subject(tenant, "anna"), officer)

    tables = RequestPurge.objects.get(request=request).tables
    assert "governance_subjectidentifier" in tables
    assert set(tables) <= set(connection.introspection.table_names())
    purge.clean_table("no_such_table")
