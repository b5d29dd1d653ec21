"""A category that somebody else brings, over a store that is no table: it keeps the same contract."""

import hashlib
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from governance import checks, inventory
from governance.domain import erasure, exports, previews, requests
from governance.domain import registry as register_
from governance.domain.registry import BlobPrefix, Category, Chunk, Erased, NoLimit, Processing, Sample
from governance.models import Export
from tests.factories import sessions as talk
from tests.governance.declared import sessions_categories


class Letters(Category):
    """One text file a letter, in a folder for each subject."""

    key, title = "letters", "Letters"
    about = Processing(purposes=("write letters",), legal_basis="contract")
    stores = (BlobPrefix("letters"),)
    writers = ("pathlib.Path",)
    limit = NoLimit("Letters are kept for as long as the person wants.", date(2026, 11, 30))
    is_guarded = False

    def __init__(self, root):
        self.root = root

    def of(self, scope):
        folder = self.root / scope.subject_id.hex
        return sorted(folder.iterdir()) if folder.exists() else []

    def plan(self, *, scope):
        files = self.of(scope)
        if files:
            texts = [path.read_bytes() for path in files]
            prints = b"".join(
                hashlib.sha256(path.name.encode()).digest()[:8] + hashlib.sha256(text).digest()[:8]
                for path, text in zip(files, texts, strict=True)
            )
            digest = hashlib.sha256(prints).hexdigest()
            yield Chunk(0, files[0].name, files[-1].name, len(files), sum(map(len, texts)), digest, prints)

    def sample(self, *, scope, limit=20):
        return [Sample(path.name, path.name, None) for path in self.of(scope)[:limit]]

    def export(self, *, scope):
        for path in self.of(scope):
            yield {"name": path.name, "text": path.read_text()}

    def erase(self, *, scope, chunk):
        rows = size = 0
        for path in self.of(scope):
            if chunk.low <= path.name <= chunk.high:
                rows, size = rows + 1, size + path.stat().st_size
                path.unlink()
        return Erased(rows, size, chunk.rows - rows)

    def verify(self, *, scope):
        return len(self.of(scope))


@pytest.fixture
def letters(tmp_path, register, subject, settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}
    settings.DATA_DIR = tmp_path
    category = Letters(tmp_path / "letters")
    folder = category.root / subject.id.hex
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("Dear Anna")
    (folder / "b.txt").write_text("Dear Anna, again")
    register([*sessions_categories(), category])
    return category


def test_category_without_a_table_is_previewed_exported_and_erased(letters, agent, subject, officer):
    talk.conversation(agent, subject)
    exports.work(request_id=requests.export(subject=subject, by=officer).id)
    request, token = previews.preview(subject=subject, by=officer)
    [entry] = [entry for entry in request.preview["categories"] if entry["key"] == "letters"]
    requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert Export.objects.count() == 0
    assert (entry["rows"], entry["bytes"], entry["buckets"]["erase"]) == (2, 25, 2)
    [counted] = [entry for entry in done.receipt["categories"] if entry["key"] == "letters"]
    assert (done.state, counted["erased"]) == ("completed", 2)
    assert letters.verify(scope=register_.Scope(subject.tenant_id, subject.id)) == 0


def test_letter_that_arrives_after_the_preview_stops_the_erasure(letters, subject, officer):
    request, token = previews.preview(subject=subject, by=officer)
    (letters.root / subject.id.hex / "c.txt").write_text("One more")
    requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.drift) == ("previewed", {"categories": [{"key": "letters", "added": 1, "changed": 0}]})


def test_folder_of_the_category_is_accounted_for(letters):
    assert [store.key for store in inventory.folders()] == ["folder:letters"]
    assert checks.check_folders() == []


APP = """
from datetime import date
from django.apps import AppConfig

class Crm(AppConfig):
    name = "crm"

    def ready(self):
        from governance.domain.registry import Category, NoLimit, Processing, SpoolDir, register

        class Cards(Category):
            key, title, stores, writers = "cards", "Cards", (SpoolDir("cards"),), ("crm",)
            about = Processing(purposes=("know whom we called",), legal_basis="contract")
            limit = NoLimit("Test.", date(2026, 11, 30))
            plan = sample = export = erase = verify = lambda self, **names: ()

        register(Cards())
"""
ASK = "import django; django.setup(); from governance.domain import registry; print('cards' in registry.categories())"


def test_app_of_the_operator_registers_its_category(tmp_path):
    (tmp_path / "crm").mkdir()
    (tmp_path / "crm" / "__init__.py").write_text("")
    (tmp_path / "crm" / "apps.py").write_text(APP)
    environment = {
        **os.environ, "LETHE_APPS": "crm", "LETHE_DATA_DIR": str(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]),
    }  # fmt: skip

    answer = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=120, check=True)

    assert answer.stdout.strip() == "True"


def test_category_that_leaves_something_out_cannot_be_made():
    class Cards(Category):
        key, title = "cards", "Cards"

    with pytest.raises(TypeError, match="erase"):
        Cards()
