"""Which names files may have: a corpus of ways out, and what ordinary people call their files."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.errors import PathRefused
from sessions.files import paths

WAYS_OUT = [
    "..", ".", "./a", "../a", "a/..", "a/../b", "a/../../b", "...", "a/.../b", "a/. /b", ". .", " ..", ".. /a", "a/.. ",
    "/a", "//a", "/", "///", "a//b", "a/", "", " ", "~", "~/a", "~root/.ssh", "a/~b",
    "C:", "C:/a", "c:\\a", "C:a", "Ｃ：/a", "\\\\server\\share", "\\a", "a\\b", "..\\a", "a\\..\\b", "a＼b", "//server/share",
    "file:///etc/passwd", "http://x/y", "a:b", "a.txt:stream", "a.txt::$DATA",
    "%2e%2e/a", "%2e%2e%2fa", "..%2fa", "..%5ca", "%252e%252e/a", "a%00b", "%c0%ae%c0%ae/a", "%u002e%u002e/a", "\\x2e\\x2e/a", "&#46;&#46;/a", "%2F",
    "．．/a", "a/．．/b", "‥/a", "…", "a／b", "．/a", "․․/a",
    "a\x00b", "a\nb", "a\rb", "a\tb", "a\x1bb", "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b",
    "a\u200bb", "a\u202eb", "a\ufeffb", "a\u2066b", "a\ud800b", "a\udfffb", "a\ue000b", "a\uffffb",
    "con", "CON", "con.txt", "NUL", "nul.tar.gz", "aux/a", "a/prn", "com1", "COM9.log", "lpt1.txt", "com¹", "CONIN$", "clock$",
    "a.", "a./b", "a /b", "a ", " a", "a<b", "a>b", 'a"b', "a|b", "a?b", "a*b",
    "x" * 401, "x/" * 200 + "y", "ä" * 401, "🍏" * 401,
]  # fmt: skip
ORDINARY = [
    "a", "plan.md", "notes/plan.md", ".env", ".github/workflow.yml", "a b/c d.txt", "Käse & Wein.md", "苹果/计划？.md", "50% off.txt",
    "100%.txt", "über/größe.txt", "ملف.txt", "🍏.md", "a..b", "..a", "...a", "a'b", "a,b;c", "[draft] (1)", "report-2026_final!.md",
    "console.txt", "community", "null", "x" * 400, "x/" * 199 + "y", "a+b=c@d#e$f^g`h{i}",
]  # fmt: skip


@pytest.mark.parametrize("path", WAYS_OUT)
def test_path_that_leads_out_or_means_different_things_is_refused_with_a_reason(path):
    with pytest.raises(PathRefused) as refused:
        paths.relative(path)

    assert refused.value.detail.endswith(".")
    assert refused.value.errors == {"path": [refused.value.detail]}


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_path_is_taken_as_it_is(path):
    assert paths.relative(path) == path


def test_path_is_kept_in_its_composed_form():
    assert paths.relative(unicodedata.normalize("NFD", "größe/é.md")) == unicodedata.normalize("NFC", "größe/é.md")


def test_a_path_of_400_characters_is_taken_and_one_of_401_says_how_long_it_is():
    assert paths.relative("x" * 400) == "x" * 400
    with pytest.raises(PathRefused, match="401"):
        paths.relative("x" * 401)


def test_paths_of_stores_begin_at_the_root_and_lose_slashes_too_many():
    assert [paths.absolute(path) for path in ("a", "/a", "//a//b/")] == ["/a", "/a", "/a/b"]
    assert [paths.folder(path) for path in ("", "/", "//", "a", "/a/b/")] == ["/", "/", "/", "/a/", "/a/b/"]


@given(st.text(max_size=60))
def test_a_path_that_is_taken_stays_inside_and_is_taken_again(text):
    try:
        path = paths.relative(text)
    except PathRefused:
        return

    assert paths.relative(path) == path
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(path.split("/"))
    assert "\\" not in unicodedata.normalize("NFKC", path)
    assert not [character for character in path if unicodedata.category(character)[0] == "C"]
