"""Standing answers: what a rule's condition says about the arguments of a call.

A condition maps a path into the arguments to what must hold there: {"path": {"prefix": "drafts/"}, "limit": {"one_of":
[10, 20]}}. All must hold. A path has dots between names and list positions ("order.lines.0.sku"); the empty path means
the arguments as a whole.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

from governance.text import clean_json
from sessions.errors import InvalidRule

OPERATORS = ("equals", "prefix", "one_of")
MAX_PATHS = 20
MAX_PATH_LENGTH = 200
MAX_CHOICES = 100
MAX_BYTES = 8_192

# What ends a segment of a path or an address, and what readers of addresses drop (WHATWG URL, 4.4).
_SEPARATORS = re.compile(r"[/\\?#;]")
_IGNORED = re.compile(r"[\t\r\n]")
_MISSING = object()


def checked(condition: Any, *, path: str = "condition") -> dict | None:
    """`condition` in the form in which it is stored; None stands for any arguments. Raises InvalidRule by path."""
    if condition is None:
        return None
    if not isinstance(condition, dict) or not condition:
        raise _invalid(path, "A condition names at least one argument. Leave it out to allow any arguments.")
    if len(condition) > MAX_PATHS:
        raise _invalid(path, f"A condition has at most {MAX_PATHS} arguments.")
    condition = clean_json(condition)
    for name, tests in condition.items():
        if len(name) > MAX_PATH_LENGTH:
            raise _invalid(path, f"The name of an argument has at most {MAX_PATH_LENGTH} characters.")
        _check_tests(tests, f"{path}.{name}")
    if len(json.dumps(condition, ensure_ascii=False).encode()) > MAX_BYTES:
        raise _invalid(path, "The condition is too long.")
    return condition


def exactly(arguments: dict) -> dict:
    """The condition that only these arguments meet."""
    return {"": {"equals": arguments}}


def holds(condition: dict | None, arguments: dict) -> bool:
    """Whether the arguments meet the condition. What cannot be understood is not met."""
    if condition is None:
        return True
    return bool(condition) and all(
        isinstance(tests, dict) and bool(tests) and all(_meets(operator, wanted, _at(arguments, path)) for operator, wanted in tests.items())
        for path, tests in condition.items()
    )


def _check_tests(tests: Any, path: str) -> None:
    if not isinstance(tests, dict) or not tests:
        raise _invalid(path, f"Say what must hold: one of {', '.join(OPERATORS)}.")
    for operator, wanted in tests.items():
        if operator not in OPERATORS:
            raise _invalid(path, f"Unknown test “{operator[:40]}”. Known: {', '.join(OPERATORS)}.")
        if operator == "prefix":
            _check_prefix(wanted, path)
        if operator == "one_of" and not (isinstance(wanted, list) and 1 <= len(wanted) <= MAX_CHOICES):
            raise _invalid(path, f"one_of is a list of 1 to {MAX_CHOICES} values.")


def _check_prefix(wanted: Any, path: str) -> None:
    if not isinstance(wanted, str) or not wanted:
        raise _invalid(path, "prefix is a text that is not empty.")
    if _climbs(wanted):
        raise _invalid(path, "A prefix has no “..” in it.")
    _, separator, rest = wanted.partition("://")
    if separator and "/" not in rest:
        # https://shop.example would also allow https://shop.example.evil.test.
        raise _invalid(path, "A prefix that is an address ends its host with a “/”.")


def _meets(operator: str, wanted: Any, found: Any) -> bool:
    if found is _MISSING:
        return False
    if operator == "equals":
        return same(wanted, found)
    if operator == "one_of":
        return isinstance(wanted, list) and any(same(choice, found) for choice in wanted)
    if operator == "prefix":
        return isinstance(wanted, str) and bool(wanted) and isinstance(found, str) and found.startswith(wanted) and not _climbs(found)
    return False


def _climbs(text: str) -> bool:
    """Whether `text` has a “..” segment, written plainly or percent-encoded: “drafts/../secrets” is not in drafts."""
    for _ in range(3):
        if ".." in _SEPARATORS.split(_IGNORED.sub("", text)):
            return True
        decoded = unquote(text)
        if decoded == text:
            return False
        text = decoded
    # Encoded more often than anything honest is.
    return True


def _at(arguments: Any, path: str) -> Any:
    """The value at `path`, or _MISSING."""
    if path == "":
        return arguments
    value = arguments
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but true is no number and "1" is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and one == other


def _invalid(path: str, sentence: str) -> InvalidRule:
    return InvalidRule(sentence, errors={path: [sentence]})
