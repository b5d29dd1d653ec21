import pytest

from console import checks


@pytest.mark.parametrize("host, https, warned", [("127.0.0.1", False, False), ("[::1]", False, False), ("localhost", False, False), ("0.0.0.0", True, False), ("0.0.0.0", False, True), ("lethe.example.com", False, True)])
def test_listening_beyond_the_machine_without_https_is_warned_about(settings, host, https, warned):
    settings.HOST, settings.SESSION_COOKIE_SECURE = host, https

    assert [warning.id for warning in checks.reachable_without_encryption(None)] == (["console.W001"] if warned else [])


def test_answering_to_every_name_is_warned_about(settings):
    settings.ALLOWED_HOSTS = ["*"]

    assert [warning.id for warning in checks.answers_to_every_name(None)] == ["console.W002"]
