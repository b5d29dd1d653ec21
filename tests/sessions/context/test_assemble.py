from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from agents.definition import Compaction, LayerCaps
from sessions.context.assemble import KEPT_TURNS, assemble, input_limit
from sessions.context.view import RECALL, WORKING_MEMORY, Note, SummaryView, ranges
from sessions.context.working_memory import text


@dataclass(frozen=True)
class Thing:
    seq: int
    kind: str
    turn: int
    tokens: int
    group: int = 0
    role: str = "user"


KINDS = ["message", "tool_call", "tool_result", "reasoning", "note", "approval_request"]


@st.composite
def histories(draw):
    turns = draw(st.lists(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 50)), max_size=5), min_size=1, max_size=12))
    things, seq = [], draw(st.integers(0, 5))
    for turn, contents in enumerate(turns, 1):
        for kind, size in [("message", draw(st.integers(1, 40))), *contents]:
            seq += 1
            things.append(Thing(seq, kind, turn, size))
    return things


notes = st.lists(
    st.builds(Note, st.sampled_from([RECALL, WORKING_MEMORY]), st.sampled_from(["a", "b", "c"]), st.just("text"), st.integers(1, 60)),
    max_size=4,
)
limits = st.none() | st.integers(0, 800)


@given(histories(), notes, limits, st.integers(0, 100), st.floats(1, 2))
def test_view_keeps_its_promises(things, notes, limit, instructions, factor):
    view = assemble(things, instructions=instructions, notes=notes, limit=limit, factor=factor)

    last = things[-1].turn
    shown = [thing for thing in things if thing.kind in KINDS[:3] or (thing.kind == "reasoning" and thing.turn == last)]
    # The current turn is whole, and the history is the newest whole turns before it, in order.
    assert view.current == [thing for thing in shown if thing.turn == last]
    older = [thing for thing in shown if thing.turn != last]
    assert view.history == older[len(older) - len(view.history) :]
    assert {thing.turn for thing in view.history}.isdisjoint(thing.turn for thing in older[: len(older) - len(view.history)])
    # What fits is right, what was counted is what is there.
    assert view.tokens == instructions + sum(entry.tokens for entry in (*view.history, *view.notes, *view.current))
    room = None if limit is None else int(limit / factor)
    assert view.fits == (room is None or view.tokens <= room)
    # Nothing is left out without need.
    if room is None or instructions + sum(entry.tokens for entry in (*shown, *notes)) <= room:
        assert (view.history, view.notes) == (older, notes)
    if not view.fits:
        assert view.history == []


@given(histories(), notes, limits)
def test_report_accounts_for_everything(things, notes, limit):
    view = assemble(things, notes=notes, limit=limit)

    layers = {layer["layer"]: layer for layer in view.report()}
    left_out = sum(entry["tokens"] for layer in layers.values() for entry in layer["left_out"])
    last = things[-1].turn
    shown = [thing for thing in things if thing.kind in KINDS[:3] or (thing.kind == "reasoning" and thing.turn == last)]
    assert view.tokens + left_out == sum(entry.tokens for entry in (*shown, *notes))
    assert layers["history"]["sources"] == list(ranges(view.history))


@given(histories(), limits)
def test_planning_again_changes_nothing(things, limit):
    view = assemble(things, limit=limit)

    again = assemble([*view.history, *view.current], limit=limit)

    assert (again.history, again.current) == (view.history, view.current)


def _turns(*sizes):
    return [Thing(seq, "message", seq, size) for seq, size in enumerate(sizes, 1)]


def test_oldest_turns_go_before_recall_and_recall_before_the_last_turns():
    recall, memory = Note(RECALL, "found", "", 30), Note(WORKING_MEMORY, "todos", "", 10)
    things = _turns(10, 10, 10, 10, 10, 10)

    def kept(limit):
        view = assemble(things, notes=[recall, memory], limit=limit)
        return len(view.history), [note.layer for note in view.notes]

    assert kept(100) == (5, [RECALL, WORKING_MEMORY])
    assert kept(85) == (3, [RECALL, WORKING_MEMORY])
    assert kept(70) == (KEPT_TURNS, [RECALL, WORKING_MEMORY])
    assert kept(69) == (KEPT_TURNS, [WORKING_MEMORY])
    assert kept(39) == (KEPT_TURNS, [])
    assert kept(20) == (1, [])
    assert kept(10) == (0, [])
    assert not assemble(things, limit=9).fits


def test_recall_and_working_memory_go_before_what_compaction_left():
    """Compaction decides what stays of a history; what is only recalled gives way to it."""
    recall, memory = Note(RECALL, "found", "", 30), Note(WORKING_MEMORY, "todos", "", 10)
    things = _turns(10, 10, 10, 10, 10, 10)
    settings = Compaction(strategy="sliding_window", trigger_turns=100)

    def kept(limit):
        view = assemble(things, notes=[recall, memory], limit=limit, compaction=settings)
        return len(view.history), [note.layer for note in view.notes]

    assert kept(100) == (5, [RECALL, WORKING_MEMORY])
    assert kept(99) == (5, [WORKING_MEMORY])
    assert kept(69) == (5, [])
    assert kept(59) == (4, [])
    assert kept(10) == (0, [])


def test_each_layer_is_held_to_its_own_cap():
    notes = [Note(WORKING_MEMORY, "todos", "", 10), Note(WORKING_MEMORY, "notes", "", 30), Note(RECALL, "far", "", 50), Note(RECALL, "near", "", 5)]
    summary = SummaryView("sum_1", 1, 3, "text", 40)
    caps = LayerCaps(working_memory=35, recall=20, history=25, summary=30)
    things = [Thing(seq + 3, "message", seq, 10) for seq in range(1, 7)]

    view = assemble(things, notes=notes, summary=summary, caps=caps)

    layers = {layer["layer"]: layer for layer in view.report()}
    assert [note.title for note in view.notes] == ["todos", "near"]
    assert [item.seq for item in view.history] == [7, 8]
    assert view.summary is None
    assert {name: layer["left_out"] for name, layer in layers.items() if layer["left_out"]} == {
        "working_memory": [{"items": "notes", "tokens": 30, "reason": "beyond the layer's limit of 35 tokens"}],
        "recall": [{"items": "far", "tokens": 50, "reason": "beyond the layer's limit of 20 tokens"}],
        "history": [{"items": "4-6", "tokens": 30, "reason": "beyond the layer's limit of 25 tokens"}],
        "summary": [{"items": "1-3", "tokens": 40, "reason": "beyond the layer's limit of 30 tokens"}],
    }


def test_caps_are_measured_by_what_the_provider_counts():
    assert len(assemble(_turns(10, 10, 10), caps=LayerCaps(history=20)).history) == 2
    assert len(assemble(_turns(10, 10, 10), caps=LayerCaps(history=20), factor=1.5).history) == 1


def test_turn_with_an_open_call_is_never_left_out():
    things = [Thing(seq, "message", seq, 10, group=seq) for seq in range(1, 7)]

    small = assemble(things, limit=30, open_groups=frozenset({2}))
    capped = assemble(things, caps=LayerCaps(history=20), open_groups=frozenset({2}))
    none = assemble(things, limit=5, open_groups=frozenset({2}))

    assert [item.seq for item in small.history] == [2, 5]
    assert [item.seq for item in capped.history] == [2, 5]
    assert ([item.seq for item in none.history], none.fits) == ([2], False)


def test_only_the_texts_of_own_notes_are_in_the_ledger():
    notes = [Note(WORKING_MEMORY, "todos", "Todos: none.", 10, own=True), Note(WORKING_MEMORY, "notes", "of a file", 30)]

    view = assemble(_turns(10), notes=notes)

    assert [layer.get("text") for layer in view.report(texts=True)] == [None, None, "Todos: none.", None]
    assert all("text" not in layer for layer in view.report())


def test_left_out_turns_are_reported_with_their_items():
    view = assemble(_turns(10, 10, 10, 10, 5), limit=30)

    (history,) = [layer for layer in view.report() if layer["layer"] == "history"]
    assert history == {
        "layer": "history",
        "tokens": 20,
        "sources": ["3-4"],
        "left_out": [{"items": "1-2", "tokens": 20, "reason": "does not fit the model's context window"}],
    }


def test_nothing_to_assemble():
    view = assemble([])

    assert (view.history, view.current, view.tokens, view.fits) == ([], [], 0, True)


def test_input_limit_keeps_room_for_the_answer():
    assert input_limit(None, 1000) is None
    assert input_limit(10_000, 1000) == 9000
    assert input_limit(10_000, None) == 5904
    assert input_limit(4_000, None) == 2_000
    assert input_limit(1_000, 5_000) == 500


def test_ranges_are_few():
    assert ranges(_turns(1, 1, 1)) == ("1-3",)
    assert ranges([]) == ()
    odd = [Thing(seq, "message", 1, 1) for seq in range(1, 101, 2)]
    assert len(ranges(odd)) == 20
    assert ranges(odd)[-1] == "39-99"


def test_working_memory_says_the_mode_and_the_todos():
    todos = [{"id": 1, "title": "call", "done": True}, {"id": 2, "title": "write", "done": False}]

    assert text(mode=None, todos=None) == ""
    assert text(mode=None, todos=[]) == "Todos: none."
    assert text(mode="plan", todos=todos).splitlines()[1:] == ["Todos:", "[x] 1 call", "[ ] 2 write"]
    assert text(mode="execute", todos=None).startswith("Mode: execute.")
