"""Finding lines: by a pattern, and ranked by words."""

import pytest

from sessions.errors import EditRefused
from sessions.files import looking, stores
from sessions.files.looking import Line
from sessions.files.rows import Shelf, Writer
from tests.factories import governance as people

pytestmark = pytest.mark.django_db


@pytest.fixture
def files(shelf, writer):
    files = stores.open_files(shelf, writer)
    files.write("/kitchen.md", "The kettle is blue.\nThe oven is old.\nA kettle, a kettle, the blue kettle.\n")
    files.write("/garden/plants.md", "Roses and tulips.\nThe blue bench.\n")
    files.write("/empty.md", "")
    return files


def test_grep_finds_lines_by_a_regular_expression():
    files = [("a.md", "Alpha\nbeta 12\ngamma"), ("b.md", "alphabet")]

    assert looking.grep(files, "^alpha") == [Line("b.md", 1, "alphabet")]
    assert looking.grep(files, "^alpha", ignore_case=True) == [Line("a.md", 1, "Alpha"), Line("b.md", 1, "alphabet")]
    assert looking.grep(files, r"\d+$") == [Line("a.md", 2, "beta 12")]
    assert looking.grep([], "x") == []


def test_grep_refuses_what_is_no_pattern_and_what_takes_too_long(monkeypatch):
    with pytest.raises(EditRefused, match="regular expression"):
        looking.grep([("a", "text")], "(unclosed")
    monkeypatch.setattr(looking, "_MILLISECONDS", 1)
    with pytest.raises(EditRefused, match="too long"):
        looking.grep([(f"{number}", "ab" * 100_000) for number in range(20)], r"(a.)\1c")
    monkeypatch.undo()
    assert looking.grep([("a", "text")], "text") == [Line("a", 1, "text")]


def test_search_ranks_lines_by_words(files):
    found = looking.search(files, "blue kettle")

    assert [(line.path, line.number) for line in found[:2]] == [("/kitchen.md", 3), ("/kitchen.md", 1)]
    assert {(line.path, line.number) for line in found} == {("/kitchen.md", 3), ("/kitchen.md", 1), ("/garden/plants.md", 2)}
    assert [line.score for line in found] == sorted((line.score for line in found), reverse=True)
    assert all(0 < line.score <= 1 for line in found)


def test_search_finds_longer_words_stays_in_its_folder_and_takes_any_query(files):
    assert [line.text for line in looking.search(files, "tul")] == ["Roses and tulips."]
    assert [line.path for line in looking.search(files, "blue", folder="/garden/")] == ["/garden/plants.md"]
    assert looking.search(files, "nowhere") == []
    assert looking.search(files, "it's & | ! <-> ('x') \\ *") == []
    with pytest.raises(EditRefused):
        looking.search(files, "?!")


def test_search_sees_the_own_shelf_only_and_what_was_deleted_is_gone(files, tenant, agent):
    other = people.subject(tenant)
    stranger = stores.open_files(Shelf(tenant.id, agent.id, other.id), Writer("tests"))
    stranger.write("/secret.md", "the blue kettle of somebody else")

    assert {line.path for line in looking.search(files, "kettle")} == {"/kitchen.md"}
    files.delete("/kitchen.md")
    assert looking.search(files, "kettle") == []


def test_search_looks_into_files_whose_bytes_are_elsewhere(shelf, writer, settings, tmp_path):
    settings.LETHE = {**settings.LETHE, "file_store": f"disk:{tmp_path}"}
    files = stores.open_files(shelf, writer)
    files.write("/a.md", "nothing\nthe blue kettle\n")

    assert [(line.path, line.number) for line in looking.search(files, "kettle")] == [("/a.md", 2)]
