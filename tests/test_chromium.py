import pytest

from tests import chromium


@pytest.fixture
def without_chromium(monkeypatch):
    monkeypatch.delenv("LETHE_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)


def test_chromium_is_taken_from_where_the_operator_says(monkeypatch, tmp_path):
    program = tmp_path / "chrome"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("LETHE_CHROMIUM", str(program))

    assert chromium.find() == str(program)
    assert chromium.main() == 0


def test_chromium_that_is_not_there_is_not_found(monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_CHROMIUM", str(tmp_path / "missing"))

    assert chromium.find() is None


def test_missing_chromium_says_how_to_get_it(without_chromium, capsys):
    assert chromium.main() == 1
    assert "apt-get install chromium" in capsys.readouterr().err


def test_nothing_is_installed_by_anybody_but_root(monkeypatch):
    ran = []
    monkeypatch.setattr(chromium.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(chromium.subprocess, "run", lambda *arguments, **options: ran.append(arguments))

    assert chromium.install() is False
    assert ran == []
