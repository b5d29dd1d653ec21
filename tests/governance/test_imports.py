"""An archive read back into an installation that does not have its rows reproduces the counts."""

import os
import zipfile

import pytest
from django.core.management import call_command

from governance.actors import system
from governance.domain import exports, imports, requests, subjects
from governance.domain import registry as register_
from governance.errors import AmbiguousIdentifier, Invalid
from governance.models import Export, SubjectIdentifier
from sessions.domain import history
from sessions.models import Blob, Item, ModelCall, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.test_contract import fill

pytestmark = pytest.mark.usefixtures("archives")


@pytest.fixture
def archive(agent, subject, officer, tmp_path, settings):
    """The volumes of a subject with rows in every category, whose rows are gone afterwards."""
    fill(agent, subject, "anna")
    session = talk.session(agent, subject, key="second")
    talk.turns(session, 3)
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    return save(subject, officer, tmp_path)


def save(subject, by, folder):
    request = exports.work(request_id=requests.export(subject=subject, by=by).id)
    stored, paths = Export.objects.get(request=request), []
    for part in range(1, len(stored.parts) + 1):
        paths.append(folder / f"archive.{part}.zip")
        with exports.open_archive(export=stored, part=part, by=by) as file:
            paths[-1].write_bytes(file.read())
    return paths


def forget(subject):
    """As in an empty installation: none of the subject's rows are here."""
    scope = register_.Scope(subject.tenant_id, subject.id)
    for category in register_.erase_order():
        for chunk in list(category.plan(scope=scope)):
            category.erase(scope=scope, chunk=chunk)
    ModelCall.objects.all().delete()
    Run.objects.all().delete()


def test_import_reproduces_the_counts(archive, subject, tenant):
    before = list(Item.objects.order_by("session_id", "seq").values("seq", "content", "role", "turn", "group", "tokens", "created_at"))
    forget(subject)

    done = imports.import_export(paths=archive, tenant_id=tenant.id, by=system(tenant.id))

    assert done.left == ["api_keys", "archived_rows", "audit_notes", "exports", "held_copies", "lineage", "quota_reservations", "subject_links"]
    moved = {key: rows for key, rows in done.expected.items() if key not in done.left}
    assert {key: done.found[key] for key in moved} == moved
    assert min(moved.values()) > 0
    assert (done.is_whole, done.is_signed) == (True, True)
    assert list(Item.objects.order_by("session_id", "seq").values("seq", "content", "role", "turn", "group", "tokens", "created_at")) == before
    assert subjects.find(tenant_id=tenant.id, value="anna") == done.subject
    assert bytes(Blob.objects.get().data) == b"text"
    assert [item.seq for item in history.every(session=Session.objects.get(key="second"))] == [1, 2, 3, 4, 5, 6]


def test_import_into_another_tenant_makes_the_agents_that_are_missing(archive, subject, stranger_tenant):
    forget(subject)

    done = imports.import_export(paths=archive, tenant_id=stranger_tenant.id, by=system(stranger_tenant.id))

    assert done.is_whole
    assert {session.agent.name for session in Session.objects.all()} == {"helper"}
    assert {session.agent.tenant_id for session in Session.objects.all()} == {stranger_tenant.id}


def test_import_of_what_is_here_already_changes_nothing(archive, subject, stranger_tenant):
    with pytest.raises(imports.AlreadyImported):
        imports.import_export(paths=archive, tenant_id=stranger_tenant.id, by=system(stranger_tenant.id))

    assert SubjectIdentifier.objects.filter(tenant=stranger_tenant).count() == 0


def test_import_for_somebody_who_is_known_here_is_refused(archive, subject, tenant):
    forget(subject)
    make.subject(tenant, "anna")

    with pytest.raises(AmbiguousIdentifier):
        imports.import_export(paths=archive, tenant_id=tenant.id, by=system(tenant.id))


def rewritten(path, name, data):
    """The same ZIP with one file changed or, for None, left out."""
    with zipfile.ZipFile(path) as old:
        entries = {entry: old.read(entry) for entry in old.namelist()}
    entries[name] = data
    with zipfile.ZipFile(path, "w") as new:
        for entry, content in entries.items():
            if content is not None:
                new.writestr(entry, content)


@pytest.mark.parametrize(
    ("name", "data"), [("data/items.jsonl", b"{}\n"), ("data/items.jsonl", None), ("manifest.json", None), ("manifest.json", b"{}")]
)
def test_archive_that_was_changed_is_refused(archive, subject, tenant, name, data):
    forget(subject)
    rewritten(archive[0], name, data)

    with pytest.raises(Invalid):
        imports.import_export(paths=archive, tenant_id=tenant.id, by=system(tenant.id))
    assert not Session.objects.exists()


def test_import_takes_all_volumes_and_no_fewer(agent, subject, officer, tenant, tmp_path, settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0, "export_part_bytes": 60_000}
    session = talk.conversation(agent, subject)
    for _ in range(100):
        talk.item(session, content={"text": os.urandom(900).hex()})
    paths = save(subject, officer, tmp_path)
    assert len(paths) > 1
    forget(subject)

    with pytest.raises(Invalid):
        imports.import_export(paths=paths[1:], tenant_id=tenant.id, by=system(tenant.id))
    done = imports.import_export(paths=paths, tenant_id=tenant.id, by=system(tenant.id))

    assert done.is_whole
    assert Item.objects.count() == 104


def test_command_prints_the_counts_and_fails_for_what_it_cannot_read(archive, subject, tenant, capsys, tmp_path):
    forget(subject)

    call_command("import_export", *map(str, archive), "--tenant", tenant.slug)

    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["items", "10", "10"] for line in lines)
    assert lines[-1] == "Signed by this installation"
    (tmp_path / "other.zip").write_text("no archive")
    with pytest.raises(SystemExit):
        call_command("import_export", str(tmp_path / "other.zip"), "--tenant", tenant.slug)
    assert "other.zip is not a ZIP that can be read." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call_command("import_export", str(archive[0]), "--tenant", "nobody")
