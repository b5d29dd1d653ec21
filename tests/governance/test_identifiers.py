import pytest

from governance.errors import Invalid
from governance.identifiers import candidates, normalise


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("email", "  Anna.Muster@Example.COM ", "anna.muster@example.com"),
        ("email", "\uff41nna@example.com", "anna@example.com"),
        ("phone", "+41 (0)44 668-18 00".replace("(0)", ""), "+41446681800"),
        ("phone", "0041 44 668 18 00", "+41446681800"),
        ("external", " Customer-7 ", " Customer-7 "),
        ("external", "ANNA", "ANNA"),
        ("external", "a\ud800b", "a\ufffdb"),
        ("member", "Admin", "Admin"),
    ],
)
def test_normalise(kind, value, expected):
    assert normalise(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("external", ""), ("external", "   "), ("external", "x" * 201), ("external", "a\nb"), ("external", None),
        ("email", "anna"), ("email", "@example.com"), ("email", "anna@"),
        ("phone", "044 668 18 00"), ("phone", "+41"), ("phone", "+41x446681800"),
    ],
)  # fmt: skip
def test_normalise_refuses(kind, value):
    with pytest.raises(Invalid):
        normalise(kind, value)


def test_candidates_are_every_kind_the_text_could_be():
    assert candidates("Anna@Example.com") == [
        ("external", "Anna@Example.com"),
        ("email", "anna@example.com"),
        ("member", "Anna@Example.com"),
    ]
    assert candidates("") == []
