import time

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from agents.definition import Compaction
from sessions.context.compaction import SHORTENED_TOKENS, SUMMARY_TOKENS, plan
from tests.sessions.context.histories import STRATEGIES, broken, histories, opened, settings, shown, turns_of
from tests.sessions.context.long_session import SETTINGS, live

STEADY = example_settings(max_examples=150)
MANY = example_settings(max_examples=12_000, suppress_health_check=list(HealthCheck))


def check_promises(things, chosen, stored, fixed, factor):
    """A stored summary is at most as large as summaries get."""
    made = plan(things, chosen, fixed=fixed, summary_tokens=stored, factor=factor)

    assert broken(made, things) == []
    # Planning again changes nothing.
    again = plan(shown(made), chosen, fixed=fixed, summary_tokens=made.summary_tokens, factor=factor)
    assert (again.changes, again.after) == (False, made.after)
    # Nothing changes before a trigger is reached.
    if chosen.strategy != "context_window" and not reached(things, chosen, stored, factor):
        assert not made.changes
    preserved = things[-1].turn - chosen.minimum_preserved_turns
    if chosen.strategy in ("sliding_window", "tool_result", "summarization"):
        touched = [thing.turn for thing in (*made.dropped, *made.summarised)] + [t.turn for t in made.kept if t.seq in made.shortened]
        assert all(turn <= preserved for turn in touched)
    if chosen.strategy in ("truncation", "context_window"):
        newest = list(dict.fromkeys(thing.group for thing in things))[-chosen.minimum_preserved_groups :]
        assert not {thing.group for thing in made.dropped} & set(newest)


def reached(things, chosen, stored, factor):
    return (
        (chosen.trigger_tokens and (stored + sum(thing.tokens for thing in things)) * factor >= chosen.trigger_tokens)
        or (chosen.trigger_messages and sum(thing.kind == "message" for thing in things) >= chosen.trigger_messages)
        or (chosen.trigger_turns and len({thing.turn for thing in things}) >= chosen.trigger_turns)
    )


ANY = (histories(), settings, st.sampled_from([0, 0, 60, SUMMARY_TOKENS]), st.integers(0, 500), st.sampled_from([1.0, 1.3, 2.0]))


@STEADY
@given(*ANY)
def test_plan_keeps_its_promises(things, chosen, stored, fixed, factor):
    check_promises(things, chosen, stored, fixed, factor)


@pytest.mark.long
@pytest.mark.timeout(1800)
@MANY
@given(histories(longest=30), *ANY[1:])
def test_plan_keeps_its_promises_for_thousands_of_histories(things, chosen, stored, fixed, factor):
    check_promises(things, chosen, stored, fixed, factor)


@STEADY
@given(st.data(), settings)
def test_open_calls_are_never_touched(data, chosen):
    things, waiting = opened(data.draw, data.draw(histories()))

    made = plan(things, chosen, open_groups=waiting)

    assert broken(made, things, waiting=waiting) == []


def reduced(things, **values):
    made = plan(things, Compaction(**values))
    assert broken(made, things) == []
    return made


def turns(items):
    return sorted({item.turn for item in items})


def test_none_keeps_everything():
    made = plan(turns_of(*[1000] * 50), Compaction(strategy="none", trigger_tokens=1))

    assert (made.changes, made.before) == (False, made.after)


@pytest.mark.parametrize(
    ("trigger", "at", "below"),
    [("trigger_tokens", 80, 81), ("trigger_messages", 8, 9), ("trigger_turns", 4, 5)],
)
def test_each_trigger_alone_starts_at_its_number(trigger, at, below):
    things = turns_of(10, 10, 10, 10)

    assert turns(reduced(things, strategy="sliding_window", **{trigger: at}).dropped) == [1]
    assert reduced(things, strategy="sliding_window", **{trigger: below}).dropped == []


def test_any_of_several_triggers_is_enough():
    made = reduced(turns_of(10, 10, 10, 10), strategy="sliding_window", trigger_tokens=10_000, trigger_turns=3, trigger_messages=500)

    assert turns(made.kept) == [3, 4]


def test_trigger_is_held_against_what_the_provider_counts():
    things = turns_of(10, 10, 10, 10)
    chosen = Compaction(strategy="sliding_window", trigger_tokens=100)

    assert not plan(things, chosen).changes
    assert plan(things, chosen, factor=1.25).changes


def test_sliding_window_keeps_the_newest_turns_whatever_they_cost():
    made = reduced(turns_of(500, 500, 500, 500), strategy="sliding_window", trigger_tokens=10, minimum_preserved_turns=3)

    assert turns(made.kept) == [2, 3, 4]


def test_sliding_window_begins_at_the_same_turn_for_a_while():
    """A view that lost its first turn with each new one would never be found in a provider's prompt cache."""
    beginnings = [
        reduced(turns_of(*[10] * number), strategy="sliding_window", trigger_turns=33).kept[0].turn for number in range(33, 65)
    ]

    assert len(set(beginnings)) <= 9
    assert all(number - begin >= 27 for number, begin in zip(range(33, 65), beginnings, strict=True))


def test_truncation_drops_answers_before_their_question():
    things = turns_of(100, 100, results=100)

    made = reduced(things, strategy="truncation", trigger_tokens=600, minimum_preserved_groups=2)

    assert [(item.turn, item.kind, item.role) for item in made.dropped] == [(1, "tool_call", "assistant"), (1, "tool_result", "tool")]
    assert (made.kept[0].turn, made.kept[0].role, made.kept[1].role) == (1, "user", "assistant")


def test_truncation_takes_the_question_with_its_last_answer():
    made = reduced(turns_of(100, 100, 100), strategy="truncation", trigger_tokens=450, minimum_preserved_groups=1)

    assert turns(made.dropped) == [1]
    assert len(made.dropped) == 2


def test_tool_results_become_lines_oldest_first():
    things = turns_of(*[10] * 6, results=1000)

    made = reduced(things, strategy="tool_result", trigger_tokens=5000)

    assert [item.turn for item in made.kept if item.seq in made.shortened] == [1, 2]
    assert made.after == made.before - 2 * (1000 - SHORTENED_TOKENS)
    assert made.kept == things


def test_summary_stands_for_all_turns_but_the_preserved_ones():
    made = reduced(turns_of(*[100] * 10), strategy="summarization", trigger_turns=10, minimum_preserved_groups=3)

    assert turns(made.summarised) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert made.after < made.before


def test_next_summary_is_as_far_away_as_the_first():
    """What is left after a summary is far from the trigger, so summaries cost as many calls as windows are filled."""
    made = reduced(turns_of(*[100] * 50), strategy="summarization", trigger_tokens=10_000)

    assert made.after < 3_000


def test_few_words_are_not_worth_a_summary():
    assert not reduced(turns_of(*[4] * 10), strategy="summarization", trigger_turns=3).changes


def test_context_window_shortens_first_and_drops_later():
    half = turns_of(*[10] * 5, results=1000)
    full = turns_of(*[500] * 8, results=100)
    chosen = {"strategy": "context_window", "max_context_window_tokens": 10_000, "max_output_tokens": 2_000}

    first, then = reduced(half, **chosen), reduced(full, **chosen)

    assert (len(first.shortened), first.dropped) == (2, [])
    assert turns(then.dropped) == [1, 2]
    assert then.after <= 0.8 * 8_000


def test_context_window_counts_what_is_not_history():
    things = turns_of(*[10] * 5, results=700)
    chosen = Compaction(strategy="context_window", max_context_window_tokens=10_000, max_output_tokens=2_000)

    assert not plan(things, chosen).changes
    assert plan(things, chosen, fixed=1_000).changes


def test_pipeline_goes_on_only_while_the_trigger_is_reached():
    tools = turns_of(*[100] * 6, results=1000)
    words = turns_of(*[1000] * 6)
    chosen = {"strategy": "pipeline", "trigger_tokens": 5000, "minimum_preserved_turns": 2}

    first, then, last = reduced(tools, **chosen), reduced(words, **chosen), reduced(turns_of(*[3000] * 6), **chosen)

    assert (bool(first.shortened), first.dropped, first.summarised) == (True, [], [])
    assert (turns(then.dropped), then.summarised) == ([1, 2, 3, 4], [])
    assert (turns(last.dropped), turns(last.kept)) == ([1, 2, 3, 4], [5, 6])


def test_pipeline_summarises_what_the_window_had_to_keep():
    things = turns_of(*[1000] * 6)
    chosen = {"strategy": "pipeline", "trigger_tokens": 5000, "minimum_preserved_turns": 4, "minimum_preserved_groups": 2}

    made = reduced(things, **chosen)

    assert (turns(made.dropped), turns(made.summarised), turns(made.kept)) == ([1, 2], [3, 4, 5], [6])


def test_history_without_items_has_a_plan():
    assert plan([], Compaction(strategy="pipeline", trigger_turns=1)).kept == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_planning_is_linear(strategy):
    """Ten times the items cost about ten times as much: compared with itself, not with a clock."""
    chosen = Compaction(strategy=strategy, trigger_tokens=2000, max_context_window_tokens=8000, max_output_tokens=1000)
    small, large = turns_of(*[20] * 250, results=200), turns_of(*[20] * 2500, results=200)

    def cost(things):
        best = float("inf")
        for _ in range(5):
            started = time.process_time()
            plan(things, chosen)
            best = min(best, time.process_time() - started)
        return best

    assert cost(large) < 40 * cost(small)


def test_long_session_never_overflows_and_is_summarised_once_a_window():
    short, long = live(300), live(1200)

    for lived in (short, long):
        assert lived.misfits == 0
        assert lived.most <= lived.limit
        # Each summary takes in most of what fits between the preserved turns and the trigger.
        assert 1 <= lived.summaries <= 2 * lived.said / SETTINGS.trigger_tokens
    assert long.summaries / long.said <= 1.3 * short.summaries / short.said
