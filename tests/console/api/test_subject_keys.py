"""What an application meets when the keys of its people cannot be reached."""

import pytest

from governance import ids, sealing, subject_keys
from governance.domain import shredding
from tests.console.api.conftest import problem
from tests.factories import governance, sessions


@pytest.fixture
def keys(settings, tmp_path, world, monkeypatch):
    monkeypatch.setattr(sealing.PROTECTED, "seconds", 0.0)
    settings.SUBJECT_KEY_DIR = tmp_path / "keys"
    subject_keys.forget()
    shredding.switch(tenant=world.tenant, on=True, by=governance.lethe(world.tenant))
    yield settings.SUBJECT_KEY_DIR
    subject_keys.forget()


def test_conversation_is_read_with_the_keys_and_a_clear_503_without(api, world, keys):
    sessions.item(world.personal, content={"text": "The blue door"})
    path = f"/sessions/{ids.shown('ses', world.personal.id)}/items"
    assert [item["content"]["text"] for item in api.get(path).json()["results"]] == ["The blue door"]
    subject_keys.forget()
    keys.rename(keys.with_name("away"))

    answer = api.get(path)

    assert answer.status_code == 503
    assert problem(answer)["code"] == "key_store_unreachable"
    # Nobody else is concerned.
    assert api.get(f"/sessions/{ids.shown('ses', world.session.id)}/items").status_code == 200
