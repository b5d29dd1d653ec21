import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.errors import EditRefused
from sessions.files import editing

TEXT = "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("first", "last", "new", "expected"),
    [
        (2, 2, "zwei", "one\nzwei\nthree\n"),
        (2, 2, "zwei\n", "one\nzwei\nthree\n"),
        (1, 3, "all", "all\n"),
        (2, 3, "", "one\n"),
        (1, 3, "", ""),
        (2, 1, "between", "one\nbetween\ntwo\nthree\n"),
        (4, 3, "four\nfive", "one\ntwo\nthree\nfour\nfive\n"),
        (1, 0, "zero", "zero\none\ntwo\nthree\n"),
    ],
)
def test_lines_are_replaced_inserted_and_deleted(first, last, new, expected):
    assert editing.replace_lines(TEXT, first, last, new) == expected


@pytest.mark.parametrize(("first", "last"), [(0, 1), (5, 5), (1, 4), (3, 1), (-1, 2)])
def test_lines_that_are_not_there_are_refused(first, last):
    with pytest.raises(EditRefused, match="1 to 3"):
        editing.replace_lines(TEXT, first, last, "x")


def test_an_end_without_newline_stays_one_and_an_empty_file_takes_its_first_line():
    assert editing.replace_lines("one\ntwo", 1, 1, "eins") == "eins\ntwo"
    assert editing.replace_lines("one\ntwo", 2, 2, "zwei") == "one\nzwei"
    assert editing.replace_lines("", 1, 0, "first") == "first\n"


def test_text_is_replaced_where_it_is_once_or_everywhere_when_asked():
    assert editing.replace("a b a", "b", "c") == ("a c a", 1)
    assert editing.replace("a b a", "a", "c", everywhere=True) == ("c b c", 2)
    for old, said in (("a", "2 times"), ("x", "not in the file"), ("", "not in the file")):
        with pytest.raises(EditRefused, match=said):
            editing.replace("a b a", old, "c")


def test_lines_are_shown_with_their_numbers():
    assert editing.numbered(TEXT, 2, 9) == "2\ttwo\n3\tthree"
    with pytest.raises(EditRefused):
        editing.numbered(TEXT, 4, 5)


@given(st.lists(st.text(alphabet="ab \r", max_size=5), min_size=1, max_size=8), st.data())
def test_replacing_lines_by_themselves_changes_nothing(lines, data):
    text = "\n".join(lines) + "\n"
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))

    assert editing.replace_lines(text, first, last, "\n".join(lines[first - 1 : last]) + "\n") == text
