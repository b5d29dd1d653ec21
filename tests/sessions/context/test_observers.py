"""What observers notice in a turn, and when it is fatal."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from sessions.context.observers import HOPELESS, REPEATED, watch


@dataclass
class Entry:
    kind: str
    content: dict[str, Any] = field(default_factory=dict)


def turn(*calls):
    """(name, arguments, outcome, text) of each call, with its result."""
    numbers, items = count(1), [Entry("message", {"text": "Go"})]
    for name, arguments, outcome, text in calls:
        call_id = f"c{next(numbers)}"
        items.append(Entry("tool_call", {"id": call_id, "name": name, "arguments": arguments}))
        items.append(Entry("tool_result", {"id": call_id, "name": name, "text": text, "outcome": outcome}))
    return items


def found(items, **used):
    return [(alert.code, alert.about, alert.fatal) for alert in watch(items, used)]


@pytest.mark.parametrize(("used", "told"), [(79, False), (80, True), (100, True)])
def test_limit_is_nearly_spent_at_four_fifths(used, told):
    assert found([], max_tokens_per_run=(used, 100)) == ([("budget_near", "max_tokens_per_run", False)] if told else [])


def test_limit_that_is_not_set_is_never_near():
    assert found([], max_tokens_per_run=(10**9, None)) == []


def test_same_call_with_the_same_result_is_a_loop():
    same = ("look", {"b": 1, "a": 2}, "success", "nothing")
    reordered = ("look", {"a": 2, "b": 1}, "success", "nothing")

    assert found(turn(same, same)) == []
    assert found(turn(same, reordered, same)) == [("loop_suspected", "look", False)]
    assert found(turn(*[same] * HOPELESS)) == [("loop_suspected", "look", False), ("loop_suspected", "look", True)]


def test_waiting_for_something_to_change_is_no_loop():
    polls = [("status", {}, "success", f"{done} % done") for done in range(0, 100, 10)]

    assert found(turn(*polls)) == []


def test_other_arguments_are_another_call():
    assert found(turn(*[("look", {"page": page}, "success", "same") for page in range(20)])) == []


def test_tool_that_fails_in_a_row_is_told_whatever_is_called_between():
    failing, other = [("mail", {"to": number}, "failed", f"no {number}") for number in range(HOPELESS)], ("look", {}, "success", "x")
    between = [call for number in range(REPEATED) for call in (failing[number], (*other[:3], str(number)))]

    assert found(turn(*failing[: REPEATED - 1])) == []
    assert found(turn(*between)) == [("tool_failing", "mail", False)]
    assert found(turn(*failing)) == [("tool_failing", "mail", False), ("tool_failing", "mail", True)]


def test_success_begins_the_count_of_failures_anew():
    calls = [("mail", {"n": n}, "success" if n % 3 == 2 else "failed", str(n)) for n in range(12)]

    assert found(turn(*calls)) == []


def test_refused_call_is_told_at_once_and_fatal_when_repeated():
    refused = [("delete", {"n": n}, "denied", f"Refused {n}") for n in range(HOPELESS)]

    assert found(turn(refused[0])) == [("guard_hit", "delete", False)]
    assert found(turn(*refused)) == [("guard_hit", "delete", False), ("guard_hit", "delete", True)]


def test_alert_reads_the_same_while_it_lasts():
    """A sentence that counted on would change the prompt with every call."""
    same = ("look", {}, "success", "nothing")

    (first,), (later,) = watch(turn(*[same] * 3), {}), watch(turn(*[same] * 5), {})
    (near,), (nearer,) = watch([], {"max_tool_calls": (8, 10)}), watch([], {"max_tool_calls": (9, 10)})

    assert (first, near) == (later, nearer)
