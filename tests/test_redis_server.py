import pytest

from tests import redis_server


@pytest.fixture
def without_redis(monkeypatch):
    monkeypatch.delenv("LETHE_REDIS_SERVER", raising=False)
    monkeypatch.setattr(redis_server.shutil, "which", lambda name: None)


def test_redis_is_taken_from_where_the_operator_says(monkeypatch, tmp_path):
    program = tmp_path / "redis"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("LETHE_REDIS_SERVER", str(program))

    assert redis_server.find() == str(program)
    assert redis_server.main() == 0


def test_redis_that_is_not_there_is_not_found(monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_REDIS_SERVER", str(tmp_path / "missing"))

    assert redis_server.find() is None


def test_missing_redis_says_how_to_get_it(without_redis, capsys):
    assert redis_server.main() == 1
    assert "apt-get install redis-server" in capsys.readouterr().err


def test_nothing_is_installed_by_anybody_but_root(monkeypatch):
    ran = []
    monkeypatch.setattr(redis_server.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(redis_server.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(redis_server.subprocess, "run", lambda *arguments, **options: ran.append(arguments))

    assert redis_server.install() is False
    assert ran == []
