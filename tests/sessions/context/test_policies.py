"""Assembly policies: what they add, what they take away, and what every reduction must keep to."""

from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from agents.definition import Compaction, Policy
from sessions.context.assemble import assemble
from sessions.context.compaction import Plan
from sessions.context.policies import Text, Texts, added, reduce
from sessions.context.view import ALERTS, RECALL, WORKING_MEMORY
from tests.sessions.context.histories import broken, histories, opened, settings, shown, turns_of

policies = st.lists(
    st.builds(Policy, kind=st.just("conversation"))
    | st.builds(Policy, kind=st.just("sliding_window"), max_items=st.integers(1, 40))
    | st.builds(Policy, kind=st.just("token_budget"), max_tokens=st.integers(1, 4000)),
    max_size=4,
)


def window(most, **more):
    return Policy(kind="sliding_window", max_items=most, **more)


def budget(most, **more):
    return Policy(kind="token_budget", max_tokens=most, **more)


TALK = Policy(kind="conversation")


def as_plan(reduced, things):
    """The same checks hold for a reduction as for a plan: here everything that went was dropped."""
    dropped = [item for gone in reduced.taken for item in gone]
    sizes = sum(thing.tokens for thing in things)
    return Plan(reduced.kept, frozenset(), dropped, [], sizes, sum(thing.tokens for thing in reduced.kept))


@example_settings(max_examples=150)
@given(st.data(), policies)
def test_reductions_keep_the_promises_of_compaction(data, chosen):
    things, waiting = opened(data.draw, data.draw(histories()))

    reduced = reduce(things, chosen, open_groups=waiting)

    found = broken(as_plan(reduced, things), things, waiting=waiting)
    # What was said beside a call stays when only the conversation does.
    assert [problem for problem in found if problem != "a group was split"] == []
    assert reduce(reduced.kept, chosen, open_groups=waiting).kept == reduced.kept


@example_settings(max_examples=100)
@given(histories(), policies, settings, st.none() | st.integers(100, 4000))
def test_view_accounts_for_compaction_and_policies_together(things, chosen, compaction, limit):
    view = assemble(things, policies=chosen, compaction=compaction, limit=limit, as_if_summarised=True)

    seen = [thing for thing in things if thing.kind != "reasoning" or thing.turn == things[-1].turn]
    gone = view.not_shown | {thing.seq for thing in view.plan.summarised}
    assert [thing.seq for thing in (*view.history, *view.current)] == [thing.seq for thing in seen if thing.seq not in gone]
    left_out = {entry["reason"] for layer in view.report() for entry in layer["left_out"]}
    assert bool(view.reduced) == any(reason.startswith("left out by the step") for reason in left_out)


def test_window_keeps_the_newest_entries_with_their_question():
    reduced = reduce(turns_of(10, 10, 10), [window(3)])

    assert [(item.turn, item.role) for item in reduced.kept] == [(3, "user"), (3, "assistant")]
    assert [str(step) for step in reduced.steps] == ["[sliding_window] showing 2 of 6 entries"]


def test_budget_covers_what_earlier_steps_added_and_not_what_later_ones_add():
    things = turns_of(50, 50, 50)
    notes = Texts(working=Text("/memory/working.md", "x" * 400))

    def kept(*order):
        chosen = [{"notes": Policy(kind="working_memory"), "budget": budget(250)}[name] for name in order]
        return len(reduce(things, chosen, notes=added(chosen, notes, count=lambda text: len(text) // 4)).kept)

    assert kept("budget") == 4
    assert kept("notes", "budget") == 2
    assert kept("budget", "notes") == 4


def test_budget_is_held_against_what_the_provider_counts():
    assert len(reduce(turns_of(50, 50, 50), [budget(210)]).kept) == 4
    assert len(reduce(turns_of(50, 50, 50), [budget(210)], factor=1.5).kept) == 2


def test_conversation_takes_tools_away_but_not_from_the_current_turn():
    reduced = reduce(turns_of(10, 10, results=500), [TALK])

    assert [(item.turn, item.kind) for item in reduced.kept if item.turn == 1] == [(1, "message"), (1, "message")]
    assert [item.kind for item in reduced.kept if item.turn == 2] == ["message", "tool_call", "tool_result", "message"]


def test_each_step_works_on_what_the_one_before_left():
    reduced = reduce(turns_of(*[10] * 6, results=500), [TALK, window(6)])

    assert [(step.shown, step.total) for step in reduced.steps] == [(14, 24), (6, 14)]


def test_policies_work_on_shortened_results_at_the_size_they_are_shown():
    things = turns_of(*[10] * 6, results=1000)
    compaction = Compaction(strategy="tool_result", trigger_tokens=1000, minimum_preserved_groups=1, minimum_preserved_turns=1)

    view = assemble(things, compaction=compaction, policies=[budget(1500)])

    assert view.reduced == ()
    assert len(view.shortened) == 5


def test_what_is_added_comes_in_the_order_of_the_steps():
    texts = Texts(Text("/memory/working.md", "notes"), tuple(Text(f"/memory/conversations/{n}.md", f"talk {n}") for n in (3, 2, 1)), 7)
    chosen = [Policy(kind="episodic_memory", max_episodes=2, transparent=True), Policy(kind="working_memory"), Policy(kind="alert")]

    notes = added(chosen, texts, count=len)

    assert [(note.layer, note.sources, note.step) for note in notes] == [
        (RECALL, ("/memory/conversations/3.md", "/memory/conversations/2.md"), 0),
        (WORKING_MEMORY, ("/memory/working.md",), 1),
    ]
    assert notes[0].text.endswith("[episodic_memory] showing 2 of 7 conversations")
    assert notes[1].text == "/memory/working.md:\nnotes"


def test_alerts_are_added_while_there_are_some():
    chosen = [Policy(kind="alert", transparent=True)]

    (with_one,) = added(chosen, Texts(alerts=(Text("budget_near", "[budget_near] Come to an end."),)), count=len)
    (without,) = added(chosen, Texts(), count=len)

    assert (with_one.layer, with_one.own) == (ALERTS, True)
    assert with_one.text == "[budget_near] Come to an end.\n\n[alert] showing 1 of 1 alerts"
    assert without.text == "[alert] showing 0 of 0 alerts"


def test_transparent_reductions_tell_the_model_what_it_is_shown():
    things = turns_of(*[10] * 6)

    told = assemble(things, policies=[window(6, transparent=True), budget(30)])
    silent = assemble(things, policies=[window(6), budget(30)])

    assert [note.text for note in told.notes] == ["[sliding_window] showing 6 of 12 entries"]
    assert silent.notes == []
    (line,) = [layer for layer in told.report(texts=True) if layer["layer"] == "assembly"]
    assert line["text"] == "[sliding_window] showing 6 of 12 entries"


def test_report_says_which_step_left_what_out():
    view = assemble(turns_of(*[10] * 6, results=500), policies=[TALK, window(6)])

    (history,) = [layer for layer in view.report() if layer["layer"] == "history"]
    assert [(entry["items"].split(",")[0], entry["reason"]) for entry in history["left_out"]] == [
        ("2-3", "left out by the step conversation"),
        ("1", "left out by the step sliding_window"),
    ]


def test_compaction_without_policies_is_as_it_was():
    things = turns_of(*[100] * 10)
    compaction = Compaction(strategy="sliding_window", trigger_turns=5)

    with_none = assemble(things, compaction=compaction)

    assert shown(with_none.plan) == [*with_none.history, *with_none.current]
    assert with_none.steps == ()
