"""Content under its subject's own key: sealed as it is stored, readable by everybody who may read it, and gone with the key."""

import base64
import io
import json
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from governance import checks, crypto, sealing, subject_keys
from governance.domain import (
    archiving,
    clock,
    erasure,
    holds,
    identities,
    previews,
    receipts,
    registry,
    requests,
    shredding,
    triage,
)
from governance.errors import Invalid
from governance.models import ArchivedPart, AuditEvent, HeldCopy, SubjectRequest
from sessions.files import stores
from sessions.files.rows import Shelf, Writer
from sessions.models import AgentFile, Blob, Item, Summary, WorkspaceFile
from tests.factories import governance as make
from tests.factories import sessions as talk

CANARY = "canary 5150 of Ada Lovelace"


@pytest.fixture
def admin(tenant):
    return make.actor(tenant, "tenant_admin", username="boss")


@pytest.fixture
def store(settings, tmp_path, monkeypatch):
    """A folder for keys, and the days that backups are kept. Every process knows at once what is switched."""
    monkeypatch.setattr(sealing.PROTECTED, "seconds", 0.0)
    settings.SUBJECT_KEY_DIR = tmp_path / "keys"
    settings.LETHE = {**settings.LETHE, "key_backup_days": 10, "backup_days": 30}
    subject_keys.forget()
    yield settings.SUBJECT_KEY_DIR
    subject_keys.forget()


@pytest.fixture
def on(store, tenant, admin):
    shredding.switch(tenant=tenant, on=True, by=admin)
    call_command("rotate_keys", stdout=io.StringIO())
    return store


def filled(agent, subject):
    """A conversation with the canary wherever content is sealed."""
    session = talk.session(agent, subject)
    talk.item(session, content={"text": CANARY, "raw": {"parts": [CANARY]}, "attachments": [{"sha256": "0" * 64, "name": CANARY}]})
    talk.item(session, "tool_call", "assistant", {"id": "c1", "name": "find", "arguments": {"who": CANARY}})
    talk.item(session, "tool_result", "tool", {"id": "c1", "name": "find", "text": CANARY, "outcome": "success"})
    talk.summary(session, text=CANARY)
    talk.blob(session, CANARY.encode(), sha256="0" * 64)
    talk.workspace_file(session, "plan.md", CANARY)
    talk.agent_file(agent, subject, "/plan.md", CANARY)
    return session


def stored(*models):
    """Everything in these tables as it lies there, as text."""
    with connection.cursor() as cursor:
        texts = []
        for model in models or (Item, Summary, Blob, WorkspaceFile, AgentFile):
            cursor.execute(f"SELECT t::text FROM {model._meta.db_table} t")
            texts += [row[0] for row in cursor.fetchall()]
    return "\n".join(texts)


def is_plain(text):
    return CANARY in text or CANARY.encode().hex() in text or "lovelace" in text.lower()


def erased(subject, officer):
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="other", by=officer)
    return erasure.work(request_id=request.id)


def readable(session):
    """What people and agents read of it."""
    items = list(Item.objects.filter(session_id=session.id).order_by("seq"))
    return [
        items[0].content["text"], items[0].content["raw"]["parts"][0], items[0].content["attachments"][0]["name"],
        items[1].content["arguments"]["who"], items[2].content["text"], Summary.objects.get(session=session).text,
        bytes(Blob.objects.get(session=session).data).decode(), WorkspaceFile.objects.get(session=session).content,
        AgentFile.objects.get(subject_id=session.subject_id, path="/plan.md").content,
    ]  # fmt: skip


# -- what is stored, what is read


def test_content_is_sealed_in_the_database_and_read_as_it_was(on, agent, subject):
    session = filled(agent, subject)

    assert not is_plain(stored())
    assert set(readable(session)) == {CANARY}
    # What SQL looks for stays there.
    assert Item.objects.filter(content__name="find", content__outcome="success").count() == 1
    assert list(Item.objects.values_list("content", flat=True))[0]["text"] == CANARY


def test_nothing_is_sealed_without_a_folder_or_a_wish(store, settings, agent, subject, tenant, admin):
    filled(agent, subject)
    assert is_plain(stored())
    settings.SUBJECT_KEY_DIR = None

    with pytest.raises(Invalid, match="LETHE_SUBJECT_KEY_DIR"):
        shredding.switch(tenant=tenant, on=True, by=admin)


def test_rows_of_nobody_and_of_other_tenants_are_not_sealed(on, agent, stranger_tenant):
    talk.item(talk.session(agent), content={"text": CANARY})
    theirs = talk.agent(stranger_tenant)
    talk.item(talk.session(theirs, make.subject(stranger_tenant, "bert")), content={"text": CANARY})

    assert stored(Item).count(CANARY) == 2
    assert list(on.glob("*/*.key")) == []


def test_files_are_written_extended_cut_and_found(on, agent, subject):
    files = stores.open_files(Shelf(agent.tenant_id, agent.id, subject.id), Writer("tests"))

    files.write("/plan.md", "The blue door. ")
    files.append("/plan.md", CANARY)

    assert files.read("/plan.md") == f"The blue door. {CANARY}"
    assert files.read_range("/plan.md", 4, 8) == "blue"
    assert dict(files.matching("door", folder="/", limit=5, most=10**6)) == {"/plan.md": f"The blue door. {CANARY}"}
    assert not is_plain(stored(AgentFile))


def test_value_in_another_place_does_not_open(on, agent, subject):
    session = filled(agent, subject)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agent_sessions_workspacefile SET content = (SELECT content FROM agent_sessions_agentfile LIMIT 1)")

    with pytest.raises(crypto.Undecipherable):
        WorkspaceFile.objects.get(session=session)


def test_export_is_readable(on, agent, subject):
    filled(agent, subject)
    scope = registry.Scope(subject.tenant_id, subject.id)

    rows = {key: list(registry.get(key).export(scope=scope)) for key in ("items", "summaries")}
    files = [file.data for key in ("blobs", "session_workspace", "agent_files") for file in registry.get(key).files(scope=scope)]

    assert rows["items"][0]["content"]["text"] == rows["summaries"][0]["text"] == CANARY
    assert files == [CANARY.encode()] * 3


def test_archive_keeps_it_sealed_and_shows_it(on, agent, subject, tenant, settings, tmp_path):
    settings.ARCHIVE_DIR = tmp_path / "archive"
    part = make.archived(tenant, filled(agent, subject).id)

    assert not is_plain(archiving.lines_of(part).decode())
    assert CANARY in archiving.readable_lines_of(ArchivedPart.objects.get(pk=part.pk)).decode()


def test_held_copy_stays_sealed_and_is_exported_readable(on, agent, subject, records_manager):
    filled(agent, subject)
    holds.place(target=holds.Target("subject", subject=subject), matter="M-1", reason="audit", by=records_manager)
    stores.open_files(Shelf(agent.tenant_id, agent.id, subject.id), Writer("tests")).write("/plan.md", "anew")

    assert not is_plain(stored(HeldCopy))
    [copy] = registry.get("held_copies").export(scope=registry.Scope(subject.tenant_id, subject.id))
    assert copy["content"]["content"] == CANARY


# -- switching it on and off


def test_what_was_there_before_is_sealed_by_the_command_and_opened_again(store, agent, subject, tenant, admin):
    session = filled(agent, subject)
    written = talk.aggregation(session)
    shredding.switch(tenant=tenant, on=True, by=admin)
    assert is_plain(stored())

    call_command("subject_keys", "status", "--tenant", tenant.slug, stdout=(said := io.StringIO()))
    assert "Run rotate_keys" in said.getvalue()
    call_command("rotate_keys", stdout=io.StringIO())

    assert not is_plain(stored())
    assert set(readable(session)) == {CANARY}
    written.refresh_from_db()
    assert not written.is_stale
    tenant.refresh_from_db()
    assert tenant.settings["subject_keys"]["complete_at"]
    call_command("subject_keys", "off", "--tenant", tenant.slug, stdout=io.StringIO())
    call_command("rotate_keys", stdout=io.StringIO())
    assert set(readable(session)) == {CANARY}
    assert "lethe-sealed" not in stored()
    assert sealing.MARK not in stored()


def test_folder_that_no_tenant_uses_yet_is_in_nobodys_way(store, agent, subject, officer):
    filled(agent, subject)

    call_command("rotate_keys", stdout=io.StringIO())

    assert erased(subject, officer).state == "completed"
    assert not store.exists()


def test_held_rows_are_left_as_they_are_and_nothing_is_called_complete(store, agent, subject, tenant, admin, records_manager):
    filled(agent, subject)
    holds.place(target=holds.Target("subject", subject=subject), matter="M-1", reason="audit", by=records_manager)
    shredding.switch(tenant=tenant, on=True, by=admin)

    counts = shredding.bring_in_line()

    assert counts["items"].refused == 3
    # The database kept the files as they were.
    assert is_plain(stored(HeldCopy))
    tenant.refresh_from_db()
    assert tenant.settings["subject_keys"]["complete_at"] is None


def test_keys_follow_a_new_encryption_key(on, agent, subject, settings):
    session = filled(agent, subject)
    settings.OLD_ENCRYPTION_KEYS = [settings.ENCRYPTION_KEY]
    settings.ENCRYPTION_KEY = base64.b64encode(secrets.token_bytes(32)).decode()

    call_command("rotate_keys", stdout=io.StringIO())

    settings.OLD_ENCRYPTION_KEYS = []
    subject_keys.forget()
    assert set(readable(session)) == {CANARY}


# -- the end of a person


def test_erasure_destroys_the_key_and_no_backup_can_be_read(on, agent, subject, officer, django_capture_on_commit_callbacks):
    filled(agent, subject)
    with connection.cursor() as cursor:
        cursor.execute("SELECT content::text FROM agent_sessions_item ORDER BY seq LIMIT 1")
        backup = json.loads(cursor.fetchone()[0])
    field = Item._meta.get_field("content")
    assert field.opened(backup)["text"] == CANARY

    with django_capture_on_commit_callbacks(execute=True):
        done = erased(subject, officer)

    assert (done.state, Item.objects.count()) == ("completed", 0)
    assert list(on.glob("*/*.key")) == []
    with pytest.raises(subject_keys.KeyDestroyed):
        field.opened(backup)
    with pytest.raises(subject_keys.KeyDestroyed):
        subject_keys.key_of(tenant_id=subject.tenant_id, subject_id=subject.id, make=True)
    request = SubjectRequest.objects.get(pk=done.pk)
    told = request.receipt["subject_key"]
    assert (request.receipt["version"], told["state"]) == (2, "destroyed")
    assert AuditEvent.objects.get(action="subject.key_destroyed").object_ref == subject.id.hex
    assert receipts.problems(request.receipt) == []


@pytest.fixture
def done(on, agent, subject, officer):
    filled(agent, subject)
    ended = erased(subject, officer)
    shredding.sweep()
    return SubjectRequest.objects.get(pk=ended.pk)


def methods(request):
    request.refresh_from_db()
    return {entry["key"]: entry["method"] for entry in request.receipt["categories"] if entry["erased"]}


def test_receipt_says_crypto_erase_only_when_every_backup_has_expired(done, monkeypatch):
    begins = timezone.datetime.fromisoformat(done.receipt["subject_key"]["crypto_erase_from"])
    # What was written before it was sealed is in backups for 30 days from then; the key is in its backups for 10.
    assert timedelta(days=29) < begins - timezone.now() <= timedelta(days=30)
    assert shredding.sweep() == 0
    assert methods(done)["items"] == "delete"

    monkeypatch.setattr(clock, "now", lambda: begins + timedelta(seconds=1))

    assert shredding.sweep() == 1
    assert {methods(done)[key] for key in ("items", "summaries", "blobs", "session_workspace", "agent_files")} == {"crypto_erase"}
    assert methods(done)["sessions"] == "delete"
    assert done.receipt["subject_key"]["state"] == "expired"
    assert receipts.problems(done.receipt) == []
    assert shredding.sweep() == 0


@pytest.mark.parametrize("unknown", ["key_backup_days", "backup_days"])
def test_receipt_promises_no_date_that_nobody_has_declared(on, agent, subject, officer, settings, unknown):
    settings.LETHE = {**settings.LETHE, unknown: None}
    filled(agent, subject)
    request = erased(subject, officer)

    shredding.sweep()

    request.refresh_from_db()
    assert (request.receipt["subject_key"]["state"], request.receipt["subject_key"]["crypto_erase_from"]) == ("destroyed", None)


def test_death_between_the_key_and_its_account_is_taken_up_again(on, agent, subject, officer, monkeypatch):
    filled(agent, subject)
    request = erased(subject, officer)
    with monkeypatch.context() as patch:
        patch.setattr(receipts, "addendum", lambda **given: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            shredding.sweep()
    request.refresh_from_db()
    assert (request.receipt["subject_key"]["state"], list(on.glob("*/*.key"))) == ("pending", [])

    assert shredding.sweep() == 1

    request.refresh_from_db()
    assert request.receipt["subject_key"]["state"] == "destroyed"


def test_death_inside_the_destruction_is_taken_up_again(on, agent, subject, monkeypatch):
    session = filled(agent, subject)
    names = {"tenant_id": subject.tenant_id, "subject_id": subject.id}
    with monkeypatch.context() as patch:
        patch.setattr(subject_keys, "_overwrite", lambda path: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            subject_keys.destroy(**names)
    # Half destroyed is destroyed: nobody reads with it, and nobody makes another.
    with pytest.raises(subject_keys.KeyDestroyed):
        readable(session)

    subject_keys.destroy(**names)

    assert list(on.glob("*/*.key")) == []


def test_store_that_is_gone_keeps_an_erasure_from_ending(on, agent, subject, officer):
    filled(agent, subject)
    away = on.rename(on.with_name("away"))
    failed = erased(subject, officer)
    assert (failed.state, failed.failure["code"]) == ("failed_retryable", "key_store_unreachable")

    away.rename(on)
    SubjectRequest.objects.update(lease_until=clock.now())

    assert erasure.work(request_id=failed.id).state == "completed"


# -- merged and split


def test_merged_person_is_readable_and_both_keys_go(on, agent, tenant, subject, officer):
    bert = make.subject(tenant, "bert")
    session = filled(agent, bert)
    talk.item(talk.session(agent, subject), content={"text": CANARY})
    merger = make.actor(tenant, "privacy_officer", username="merger")

    identities.merge(subject=subject, other=bert, by=merger)

    assert Item.objects.filter(session_id=session.id).first().content["text"] == CANARY
    assert len(list(on.glob("*/*.key"))) == 2
    erased(subject, officer)
    shredding.sweep()
    assert list(on.glob("*/*.key")) == []
    assert len(list(on.glob("*/*.gone"))) == 2


def test_split_person_has_a_key_of_their_own(on, agent, tenant, subject, officer):
    session = talk.session(agent, subject)
    talk.item(session, content={"text": CANARY})
    tenant.refresh_from_db()
    before = tenant.settings["subject_keys"]["complete_at"]

    other = identities.split(subject=subject, rows={"sessions": [session.id]}, by=officer)

    assert len(list(on.glob("*/*.key"))) == 2
    # Backups from before have these rows under the first key.
    tenant.refresh_from_db()
    assert tenant.settings["subject_keys"]["complete_at"] > before

    erased(subject, officer)
    shredding.sweep()

    assert Item.objects.get(session_id=session.id, subject_id=other.id).content["text"] == CANARY


def test_rows_of_nobody_that_are_given_to_somebody_are_sealed_by_the_command(on, agent, tenant, subject, officer):
    session = talk.session(agent)
    talk.item(session, content={"text": CANARY})
    triage.assign(category="sessions", ids=[session.id], subject=subject, by=officer)
    tenant.refresh_from_db()
    assert tenant.settings["subject_keys"]["complete_at"] is None

    call_command("rotate_keys", stdout=io.StringIO())

    tenant.refresh_from_db()
    assert tenant.settings["subject_keys"]["complete_at"]
    assert not is_plain(stored())


# -- the store of keys


def test_store_that_is_gone_is_a_clear_problem_and_nothing_is_damaged(on, agent, subject):
    session = filled(agent, subject)
    subject_keys.forget()
    away = on.rename(on.with_name("away"))
    with pytest.raises(subject_keys.KeyStoreUnreachable):
        readable(session)
    # An empty folder, as where a disk is not mounted, is no store from which all keys have gone.
    on.mkdir()
    with pytest.raises(subject_keys.KeyStoreUnreachable), transaction.atomic():
        talk.item(session, content={"text": CANARY})
    on.rmdir()

    away.rename(on)

    assert set(readable(session)) == {CANARY}


def test_lost_key_is_missed_by_name(on, agent, subject):
    session = filled(agent, subject)
    subject_keys.forget()
    next(on.glob("*/*.key")).unlink()

    with pytest.raises(subject_keys.KeyMissing):
        readable(session)


def test_key_is_remembered_for_a_minute_at_most(on, subject, monkeypatch):
    names = {"tenant_id": subject.tenant_id, "subject_id": subject.id}
    key, began = subject_keys.key_of(**names, make=True), time.monotonic()
    # Another process destroys it.
    path = next(on.glob("*/*.key"))
    path.with_suffix(".gone").touch()
    path.unlink()
    monkeypatch.setattr(subject_keys.time, "monotonic", lambda: began + 59)
    assert subject_keys.key_of(**names) == key

    monkeypatch.setattr(subject_keys.time, "monotonic", lambda: began + 61)

    with pytest.raises(subject_keys.KeyDestroyed):
        subject_keys.key_of(**names)


def test_many_who_make_a_key_at_once_have_the_same_one(on, subject, monkeypatch):
    monkeypatch.setattr(subject_keys, "CACHE_SECONDS", -1.0)
    start = Barrier(8)

    def make_key(_):
        start.wait()
        return subject_keys.key_of(tenant_id=subject.tenant_id, subject_id=subject.id, make=True)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make_key, range(8)))) == 1
    assert [path.suffix for path in on.glob(f"{subject.tenant_id.hex}/*")] == [".key"]


def test_key_lies_there_encrypted_and_for_its_owner_only(on, subject):
    key = subject_keys.key_of(tenant_id=subject.tenant_id, subject_id=subject.id, make=True)
    path = next(on.glob("*/*.key"))

    assert key not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_destroyed_bytes_are_overwritten_before_the_file_goes(on, subject, monkeypatch):
    names = {"tenant_id": subject.tenant_id, "subject_id": subject.id}
    subject_keys.key_of(**names, make=True)
    path = next(on.glob("*/*.key"))
    before, copy = path.read_bytes(), on / "same-bytes"
    # A second name of the same file shows what became of its bytes.
    copy.hardlink_to(path)

    subject_keys.destroy(**names)

    assert not path.exists()
    assert copy.read_bytes() != before


def test_keys_inside_the_backups_stop_the_start(settings, tmp_path):
    settings.BACKUP_DIR, settings.SUBJECT_KEY_DIR = tmp_path, tmp_path / "keys"

    assert [error.id for error in checks.check_subject_keys()] == ["governance.E010"]
    settings.SUBJECT_KEY_DIR = None
    assert checks.check_subject_keys() == []
