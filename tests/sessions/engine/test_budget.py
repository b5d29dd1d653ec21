"""One purse for a run and all that it calls."""

from decimal import Decimal
from types import SimpleNamespace

import pytest

from agents.definition import Limits
from sessions.engine.budget import Budget
from sessions.engine.store import Spent
from sessions.engine.toolbox import asks
from tests.sessions.engine.scenes import definition


def purse(above=None, *, tokens=0, cost="0", tool_calls=0, **limits):
    spent = Spent(tokens=tokens, cost=Decimal(cost), tool_calls=tool_calls)
    store = SimpleNamespace(spent=lambda: spent)
    return Budget(Limits(**limits) if limits else None, store, above)


def test_spent_is_counted_all_the_way_up():
    top = purse(tokens=100, cost="0.1", tool_calls=1)
    left = purse(top, tokens=50, cost="0.2", tool_calls=2)
    purse(left, tokens=25, tool_calls=3)
    purse(top, tokens=5)

    assert top.spent() == Spent(tokens=180, cost=Decimal("0.3"), tool_calls=6)
    assert left.spent() == Spent(tokens=75, cost=Decimal("0.2"), tool_calls=5)
    assert (top.depth, left.depth) == (0, 1)


@pytest.mark.parametrize(
    ("own", "above", "reached"),
    [
        ({"tokens": 60}, {"tokens": 40, "max_tokens_per_run": 100}, "max_tokens_per_run"),
        ({"tokens": 59}, {"tokens": 40, "max_tokens_per_run": 100}, None),
        ({"tokens": 10, "max_tokens_per_run": 10}, {"max_tokens_per_run": 100}, "max_tokens_per_run"),
        ({"cost": "0.5"}, {"cost": "0.5", "max_cost_per_run": 1.0}, "max_cost_per_run"),
        ({"cost": "0.4"}, {"cost": "0.5", "max_cost_per_run": 1.0}, None),
        ({"tokens": 1000}, {}, None),
    ],
)
def test_limit_above_holds_below(own, above, reached):
    assert purse(purse(**above), **own).reached() == reached


def test_tool_calls_at_once_never_pass_the_limit_of_their_caller():
    top = purse(max_tool_calls=5)
    granted = top.take(2)
    first, second = purse(top), purse(top, max_tool_calls=1)

    assert (granted, first.take(2), second.take(3), first.take(9), top.take(1)) == (2, 2, 1, 0, 0)
    second.give_back(1)
    assert (second.take(1), second.most_tool_calls) == (1, 1)
    assert purse().take(1000) == 1000


def test_what_is_left_is_the_least_of_all():
    top = purse(tokens=10, cost="0.25", max_tokens_per_run=100, max_cost_per_run=1.0)
    child = purse(top, tokens=20, max_tokens_per_run=30)

    assert child.left() == (10, Decimal("0.75"))
    assert purse().left() == (None, None)


def test_called_runs_of_an_earlier_process_count():
    budget = Budget(Limits(max_tokens_per_run=100), SimpleNamespace(spent=Spent), earlier=Spent(tokens=100, cost=Decimal(1)))

    assert (budget.reached(), budget.spent().cost) == ("max_tokens_per_run", Decimal(1))


@pytest.mark.parametrize(
    ("setting", "harness", "effect", "by_origin", "asked"),
    [
        (None, None, "external", None, True),
        (None, None, "read", None, False),
        (None, None, "read", True, True),
        (None, None, "external", False, False),
        ("never", None, "external", True, False),
        ("always", None, "read", False, True),
        (None, {"disable_tool_auto_approval": True}, "read", False, True),
        ("never", {"disable_tool_auto_approval": True}, "read", True, False),
    ],
)
def test_who_decides_whether_a_call_asks(setting, harness, effect, by_origin, asked):
    """The tool's setting, then the harness, then what the tool's origin wants (a server of tools), then its effect."""
    changes = {"tool_settings": {"t": {"approval": setting}}} if setting else {}
    made = definition(**changes, **({"harness": harness} if harness else {}))

    assert asks(made, "t", effect, by_origin=by_origin) is asked
