"""What a standing answer's condition says about arguments."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.domain import rules
from sessions.errors import InvalidRule

scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8
)
arguments = st.dictionaries(st.text("abc", min_size=1, max_size=3), values, max_size=4)


@given(arguments)
def test_exactly_holds_for_the_arguments_it_was_made_of(given_arguments):
    assert rules.holds(rules.exactly(given_arguments), given_arguments)


@given(arguments, arguments)
def test_exactly_holds_for_no_other_arguments(one, other):
    assert rules.holds(rules.exactly(one), other) == rules.same(one, other)


@given(arguments, st.text("abc", min_size=1, max_size=3), values)
def test_exactly_fails_once_something_is_added(given_arguments, name, value):
    longer = {**given_arguments, f"{name}-new": value}

    assert not rules.holds(rules.exactly(given_arguments), longer)


@given(values)
def test_same_is_reflexive(value):
    assert rules.same(value, value)


@given(values, values)
def test_same_is_symmetric(one, other):
    assert rules.same(one, other) == rules.same(other, one)


@given(arguments, arguments, arguments)
def test_every_added_test_narrows_a_condition(condition_of, more, called_with):
    narrow = {name: {"equals": value} for name, value in {**more, **condition_of}.items()}
    wide = {name: {"equals": value} for name, value in condition_of.items()}

    if wide and rules.holds(narrow, called_with):
        assert rules.holds(wide, called_with)


@given(st.text(max_size=20), st.text(max_size=20))
def test_prefix_allows_only_what_begins_with_it(prefix, value):
    if prefix and rules.holds({"path": {"prefix": prefix}}, {"path": value}):
        assert value.startswith(prefix)


@given(values)
def test_any_value_at_all_is_checked_without_an_accident(condition):
    with suppress(InvalidRule):
        assert rules.holds(rules.checked(condition), {"a": 1}) in (True, False)


@pytest.mark.parametrize(
    "value",
    [
        "drafts/../secrets.txt",
        "drafts/..",
        "drafts/a/../../b",
        "drafts/..\\secrets.txt",
        "drafts/%2e%2e/secrets.txt",
        "drafts/%2E./secrets.txt",
        "drafts/..%2fsecrets.txt",
        "drafts/%252e%252e%252fsecrets.txt",
        "drafts/..;/secrets.txt",
        "drafts/.\n./secrets.txt",
        "drafts/..?x=1",
    ],
)
def test_prefix_refuses_to_climb_out_of_its_folder(value):
    assert not rules.holds({"path": {"prefix": "drafts/"}}, {"path": value})


@pytest.mark.parametrize("value", ["drafts/a.txt", "drafts/a..b.txt", "drafts/100%.txt", "drafts/…", "drafts/a?b=..c"])
def test_prefix_allows_what_only_looks_unusual(value):
    assert rules.holds({"path": {"prefix": "drafts/"}}, {"path": value})


@pytest.mark.parametrize(
    "condition, called_with, expected",
    [
        (None, {}, True),
        ({}, {}, False),
        ({"limit": {"equals": 1}}, {"limit": 1.0}, True),
        ({"limit": {"equals": 1}}, {"limit": True}, False),
        ({"limit": {"equals": 0}}, {"limit": False}, False),
        ({"limit": {"equals": 1}}, {"limit": "1"}, False),
        ({"limit": {"equals": None}}, {"limit": None}, True),
        ({"limit": {"equals": None}}, {}, False),
        ({"limit": {"one_of": [1, 2]}}, {"limit": 2}, True),
        ({"limit": {"one_of": [1, 2]}}, {"limit": 3}, False),
        ({"limit": {"one_of": [1, 2]}}, {"limit": True}, False),
        ({"order.lines.1.sku": {"equals": "B"}}, {"order": {"lines": [{"sku": "A"}, {"sku": "B"}]}}, True),
        ({"order.lines.9.sku": {"equals": "B"}}, {"order": {"lines": [{"sku": "A"}]}}, False),
        ({"order.lines.-1.sku": {"equals": "A"}}, {"order": {"lines": [{"sku": "A"}]}}, False),
        ({"path": {"prefix": "a/", "one_of": ["a/1", "a/2"]}}, {"path": "a/2"}, True),
        ({"path": {"prefix": "a/", "one_of": ["a/1", "a/2"]}}, {"path": "a/3"}, False),
        ({"path": {"prefix": "a/"}, "mode": {"equals": "r"}}, {"path": "a/1", "mode": "w"}, False),
        ({"path": {"prefix": "a/"}}, {"path": ["a/1"]}, False),
        ({"path": {"unknown": "a/"}}, {"path": "a/1"}, False),
        ({"path": {}}, {"path": "a/1"}, False),
        ({"path": "a/1"}, {"path": "a/1"}, False),
    ],
)
def test_holds(condition, called_with, expected):
    assert rules.holds(condition, called_with) is expected


@pytest.mark.parametrize(
    "condition, path",
    [
        ([], "condition"),
        ({}, "condition"),
        ("x", "condition"),
        ({"a": {}}, "condition.a"),
        ({"a": 1}, "condition.a"),
        ({"a": {"matches": ".*"}}, "condition.a"),
        ({"a": {"prefix": ""}}, "condition.a"),
        ({"a": {"prefix": 1}}, "condition.a"),
        ({"a": {"prefix": "../x"}}, "condition.a"),
        ({"a": {"prefix": "https://shop.example"}}, "condition.a"),
        ({"a": {"one_of": []}}, "condition.a"),
        ({"a": {"one_of": "abc"}}, "condition.a"),
        ({"a": {"one_of": list(range(101))}}, "condition.a"),
        ({"x" * 201: {"equals": 1}}, "condition"),
        ({f"a{number}": {"equals": 1} for number in range(21)}, "condition"),
        ({"a": {"equals": "x" * 9000}}, "condition"),
    ],
)
def test_checked_names_the_place_of_a_mistake(condition, path):
    with pytest.raises(InvalidRule) as caught:
        rules.checked(condition)

    assert list(caught.value.errors) == [path]


def test_checked_keeps_an_address_with_its_host_closed():
    assert rules.checked({"url": {"prefix": "https://shop.example/"}}) == {"url": {"prefix": "https://shop.example/"}}


def test_checked_cleans_what_cannot_be_stored():
    assert rules.checked({"a\x00": {"equals": "b\ud800"}}) == {"a\ufffd": {"equals": "b\ufffd"}}
