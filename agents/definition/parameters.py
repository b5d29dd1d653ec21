"""The instructions of one run: the language that was asked for, and the values put in."""

import re
from typing import Any

from agents.definition.document import Definition
from agents.errors import ParametersInvalid

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def placeholders(text: str) -> list[str]:
    """The parameters that a text mentions, each once, in order."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def fill(text: str, values: dict[str, Any]) -> str:
    """`text` with every `{{name}}` replaced in one pass, so that a value is never read as a placeholder itself."""
    return _PLACEHOLDER.sub(lambda found: _shown(values.get(found[1])) if found[1] in values else found[0], text)


def instructions_for(definition: Definition, culture: str | None = None) -> str:
    """The instructions in a language: of the exact tag, else of a parent tag (de-AT, then de), else the general ones."""
    by_tag = {tag.lower(): text for tag, text in definition.instructions_by_culture.items()}
    tag = (culture or "").replace("_", "-").lower()
    while tag:
        if tag in by_tag:
            return by_tag[tag]
        tag = tag.rpartition("-")[0]
    return definition.instructions


def check_parameters(definition: Definition, values: Any) -> dict[str, Any]:
    """The values of a run with defaults filled in. Raises ParametersInvalid with all problems by path."""
    given = values or {}
    if not isinstance(given, dict):
        raise ParametersInvalid(errors={"parameters": ["Parameters are an object: each name with its value."]})
    declared = {parameter.name: parameter for parameter in definition.parameters}
    errors, checked = {}, {}
    for name in given.keys() - declared.keys():
        errors[f"parameters.{name}"] = ["This agent has no such parameter."]
    for name, parameter in declared.items():
        value = given.get(name)
        if value is None:
            value = parameter.default
        if value is None and parameter.required:
            errors[f"parameters.{name}"] = ["This parameter is required."]
        elif value is not None and not is_of_kind(value, parameter.kind):
            errors[f"parameters.{name}"] = [f"This parameter takes {KINDS[parameter.kind]}."]
        checked[name] = value
    if errors:
        raise ParametersInvalid(errors=errors)
    return checked


KINDS = {"text": "text", "number": "a number", "boolean": "true or false"}


def is_of_kind(value: Any, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """How a value stands in the instructions: nothing for none, yes and no as JSON writes them."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
