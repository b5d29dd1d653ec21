import pytest

from tests import chromium, programs, redis_server


@pytest.fixture(params=[chromium.PROGRAM, redis_server.PROGRAM], ids=lambda program: program.package)
def program(request, monkeypatch):
    monkeypatch.delenv(request.param.variable, raising=False)
    return request.param


@pytest.fixture
def nothing_on_the_path(monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)


def test_program_is_taken_from_where_the_operator_says(program, monkeypatch, tmp_path):
    there = tmp_path / "program"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    monkeypatch.setenv(program.variable, str(there))

    assert program.find() == str(there)
    assert program.main() == 0


def test_program_that_is_not_where_the_operator_says_is_not_found(program, monkeypatch, tmp_path):
    monkeypatch.setenv(program.variable, str(tmp_path / "missing"))

    assert program.find() is None


def test_program_is_found_by_any_of_its_names(program, monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: f"/usr/bin/{name}" if name == program.names[-1] else None)

    assert program.find() == f"/usr/bin/{program.names[-1]}"


def test_missing_program_says_how_to_get_it(program, nothing_on_the_path, capsys):
    assert program.main() == 1

    told = capsys.readouterr().err
    assert f"apt-get install {program.package}" in told
    assert f"set {program.variable} to its path" in told


def test_nothing_is_installed_by_anybody_but_root(program, monkeypatch):
    ran = []
    monkeypatch.setattr(programs.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(programs.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(programs.subprocess, "run", lambda *arguments, **options: ran.append(arguments))

    assert program.install() is False
    assert ran == []


def test_root_installs_the_package_and_a_failure_is_told(program, monkeypatch):
    ran = []

    class Done:
        returncode = 0

    def run(arguments, **options):
        ran.append(arguments)
        return Done

    monkeypatch.setattr(programs.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(programs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(programs.subprocess, "run", run)

    assert program.install() is True
    assert [arguments[:2] for arguments in ran] == [["apt-get", "update"], ["apt-get", "install"]]
    assert ran[1][-1] == program.package
    monkeypatch.setattr(Done, "returncode", 100)
    assert program.install() is False
