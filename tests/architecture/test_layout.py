"""What must stay true of the repository itself."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).exists()]


@pytest.mark.parametrize("package", ["console", "sessions", "agents", "governance"])
def test_package_resolves_inside_the_repository(package):
    """PyPI has distributions of these names: none of them may shadow ours."""
    assert Path(importlib.util.find_spec(package).origin) == ROOT / package / "__init__.py"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_pins_every_requirement_with_hashes(lock):
    requirements = re.split(r"\n(?=[a-z0-9])", lock.read_text().strip(), flags=re.IGNORECASE)

    assert requirements
    assert [line.splitlines()[0] for line in requirements if "==" not in line or "--hash=sha256:" not in line] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_names_no_registry(lock):
    assert re.findall(r"\S*://\S*|--index-url|--find-links", lock.read_text()) == []


def test_files_are_short_enough_to_read():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in tracked("*.py")
        if "migrations" not in path.parts
    }

    # A module that is longer wants to be a package; a file of tests may list more cases.
    assert {name: length for name, length in lengths.items() if length > (800 if name.startswith("tests/") else 450)} == {}


def test_own_style_sheets_and_scripts_stay_small():
    static = ROOT / "console" / "static" / "console"

    assert sum(path.stat().st_size for path in static.rglob("*.css")) < 60_000
    assert sum(path.stat().st_size for path in static.rglob("*.js")) < 20_000


def test_no_template_carries_inline_style_script_or_handlers():
    inline = re.compile(r"<style[\s>]|\sstyle=|\son[a-z]+=|<script(?![^>]*\bsrc=)(?![^>]*application/json)", re.IGNORECASE)
    found = {
        str(path.relative_to(ROOT)): inline.findall(path.read_text()) for path in tracked("templates/**/*.html", "templates/*.html")
    }

    assert {name: hits for name, hits in found.items() if hits} == {}
