"""The instructions of a run: language, values, and what a run may hand over."""

import pytest

from agents.definition import Definition, check_parameters, fill, instructions_for, placeholders
from agents.errors import ParametersInvalid

DEFINITION = Definition.model_validate(
    {
        "name": "a",
        "model": {"provider": "p", "model": "m"},
        "instructions": "Help {{name}}.",
        "instructions_by_culture": {"de": "Hilf {{name}}.", "pt-BR": "Ajude."},
        "parameters": [
            {"name": "name", "required": True},
            {"name": "age", "kind": "number", "default": 30},
            {"name": "vip", "kind": "boolean"},
        ],
    }
)


@pytest.mark.parametrize(
    ("culture", "text"),
    [
        (None, "Help {{name}}."),
        ("", "Help {{name}}."),
        ("fr", "Help {{name}}."),
        ("de", "Hilf {{name}}."),
        ("DE-at", "Hilf {{name}}."),
        ("de-AT-1996", "Hilf {{name}}."),
        ("de_AT", "Hilf {{name}}."),
        ("pt-BR", "Ajude."),
        ("pt", "Help {{name}}."),
        ("---", "Help {{name}}."),
    ],
)
def test_instructions_follow_the_language(culture, text):
    assert instructions_for(DEFINITION, culture) == text


def test_values_are_put_in_once():
    """A value that looks like a placeholder is a value."""
    text = fill("{{a}} {{ b }} {{c}} {{ d}} {{unknown}} {{1}}", {"a": "{{b}}", "b": 1.5, "c": True, "d": None})

    assert text == "{{b}} 1.5 true  {{unknown}} {{1}}"
    assert placeholders("{{b}} {{ a }} {{b}} { {c} }") == ["b", "a"]


def test_parameters_take_their_defaults():
    assert check_parameters(DEFINITION, {"name": "Ada"}) == {"name": "Ada", "age": 30, "vip": None}
    assert check_parameters(DEFINITION, {"name": "", "age": 1, "vip": False}) == {"name": "", "age": 1, "vip": False}


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({}, {"parameters.name"}),
        (None, {"parameters.name"}),
        ({"name": None}, {"parameters.name"}),
        ({"name": 5, "age": "old", "vip": 1, "more": 1}, {"parameters.name", "parameters.age", "parameters.vip", "parameters.more"}),
        ({"name": "x", "age": True}, {"parameters.age"}),
        (["name"], {"parameters"}),
    ],
)
def test_parameters_that_do_not_fit(given, paths):
    with pytest.raises(ParametersInvalid) as refused:
        check_parameters(DEFINITION, given)

    assert set(refused.value.errors) == paths
