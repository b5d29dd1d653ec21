"""The scanner finds a text wherever it stands, and says where without saying what."""

import gzip
import io
import secrets
import zipfile

import pytest
from django.core.management import CommandError, call_command

from governance import residue
from tests.factories import sessions as talk


@pytest.fixture
def canary():
    return f"canary{secrets.token_hex(8)}"


@pytest.fixture
def folder(settings, tmp_path):
    """Where Lethe writes beside the database, empty."""
    settings.DATA_DIR, settings.LEDGER_DIR, settings.ANCHOR_DIR = tmp_path / "data", tmp_path / "ledger", tmp_path / "data" / "anchors"
    settings.DATA_DIR.mkdir()
    return settings.DATA_DIR


def zipped(path, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", data)


def places(canary, level=1):
    return [(hit.place, hit.number) for hit in residue.scan(canaries=[canary, "somethingelse"], level=level)]


def test_every_kind_of_column_is_read(tenant, agent, canary, folder):
    made = talk.session(agent, None, canary, labels=["x", canary], title=f"50% of {canary}")
    talk.item(made, content={"deep": [{"er": canary}]})
    talk.item(made, content={"text": canary.upper()})
    talk.blob(made, data=f"bytes {canary}".encode())

    assert places(canary) == [
        ("table public.agent_sessions_blob", 1), ("table public.agent_sessions_item", 2), ("table public.agent_sessions_session", 1),
    ]  # fmt: skip


def test_text_is_no_pattern(tenant, agent, folder):
    talk.session(agent, None, "canary-abcdef")

    assert list(residue.scan(canaries=["canary_abcdef", "canary%"])) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda path, data: path.write_bytes(b"x" * (residue.BLOCK - 7) + data),
        lambda path, data: path.write_bytes(data.decode().encode("utf-16")),
        lambda path, data: path.write_text(data.hex()),
        lambda path, data: path.write_bytes(gzip.compress(data)),
        lambda path, data: zipped(path, data),
    ],
    ids=["across two blocks", "utf-16", "hexadecimal", "gzip", "zip"],
)
def test_file_is_read_however_it_is_written(db, canary, folder, write):
    path = folder / "queue" / "deep"
    path.parent.mkdir()
    write(path, canary.encode())

    assert places(canary) == [(f"file {path}", 1)]


def test_names_of_files_and_folders_outside_the_data_directory_count(db, canary, folder, settings):
    settings.LEDGER_DIR.mkdir()
    (settings.LEDGER_DIR / f"{canary}.jsonl").write_text("")
    settings.ANCHOR_DIR.mkdir()
    (settings.ANCHOR_DIR / "a").write_text(canary * 3)

    assert places(canary) == [(f"file {settings.ANCHOR_DIR / 'a'}", 3), (f"name {settings.LEDGER_DIR / canary}.jsonl", 1)]


def test_damaged_archive_is_read_as_it_is(db, canary, folder):
    (folder / "a.gz").write_bytes(b"\x1f\x8b" + canary.encode())
    (folder / "a.zip").write_bytes(b"PK\x03\x04" + canary.encode())

    assert places(canary) == [(f"file {folder / 'a.gz'}", 1), (f"file {folder / 'a.zip'}", 1)]


def test_backups_belong_to_the_third_level(db, canary, folder, settings, tmp_path):
    settings.BACKUP_DIR = tmp_path / "backups"
    settings.BACKUP_DIR.mkdir()
    (settings.BACKUP_DIR / "base.sql").write_text(canary)

    assert places(canary) == []
    assert places(canary, level=3) == [(f"file {settings.BACKUP_DIR / 'base.sql'}", 1)]


def test_command_ends_in_an_error_for_a_hit_and_takes_declared_exceptions(db, canary, folder):
    (folder / "notes").write_text(canary)
    out = io.StringIO()

    with pytest.raises(CommandError, match="Found in 1 places"):
        call_command("residue_scan", canary, "--level", "1", stdout=out)
    assert out.getvalue() == f"level 1: 1 in file {folder / 'notes'}\n"
    call_command("residue_scan", canary, "--level", "1", "--ignore", "notes", stdout=out)
    with pytest.raises(CommandError, match="too short"):
        call_command("residue_scan", "abc", stdout=out)
