"""A drill erases people on copies: what is alive outside the database must not notice."""

import subprocess
from types import SimpleNamespace

import pytest

from governance.domain import archiving, drill


@pytest.fixture
def given(monkeypatch, tmp_path):
    """`given()`: the environment in which a stage runs."""
    seen = []

    def run(command, *, env, **options):
        seen.append(env)
        return SimpleNamespace(returncode=0, stdout="{}", stderr="")

    monkeypatch.setattr(subprocess, "run", run)

    def start():
        assert drill.Drill(tmp_path, told=print)._stage("copy", "erase") == {}
        return seen[-1]

    return start


def test_stage_knows_no_place_of_the_living(db, given, settings, tmp_path):
    settings.SUBJECT_KEY_DIR, settings.ARCHIVE_DIR = tmp_path / "live-keys", tmp_path / "live-archive"
    settings.LETHE = {**settings.LETHE, "file_store": "redis://files/0"}

    env = given()

    assert env["LETHE_SUBJECT_KEY_DIR"] == ""
    assert (env["LETHE_ARCHIVE_DIR"], env["LETHE_FILE_STORE"]) == (str(tmp_path / "archive"), f"disk:{tmp_path / 'files'}")
    # An archive that is there and has nothing: what is to be deleted from it counts as gone.
    settings.ARCHIVE_DIR = tmp_path / "archive"
    archiving.delete_bytes(paths=["somewhere/1.jsonl.sealed"])


def test_stage_has_no_archive_where_there_is_none(db, given, settings):
    settings.ARCHIVE_DIR = None

    assert "LETHE_ARCHIVE_DIR" not in given()
