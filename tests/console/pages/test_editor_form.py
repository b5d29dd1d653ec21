"""The form of a definition: whatever a draft says, the form says it too, and nothing is lost on the way."""

import pytest
from django.http import QueryDict
from django.template.loader import render_to_string
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents import schema
from agents.compile import Report
from agents.definition import normalise
from agents.errors import DefinitionUnreadable
from console.forms.definition import DefinitionForm
from console.forms.definition.choices import Catalogue, Choice
from console.forms.definition.codecs import EXTRA
from console.forms.definition.drawing import Drawing
from console.forms.definition.merge import differences, merged
from governance.errors import Invalid
from governance.ids import uuid7
from tests.agents.test_definition import DOCUMENTS
from tests.console.pages.definitions import Browser, definitions

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
BASE = {"name": "research", "model": {"provider": "demo", "model": "demo-1"}}


class Offered(Catalogue):
    """What a tenant offers, without a database."""

    providers = [Choice("demo", "demo")]
    models = [Choice("demo-1", "demo")]
    tools = [Choice("calculate", "calculate", "Calculates", "read"), Choice("send", "send", "Sends", "external")]
    skills = [Choice("refunds", "refunds", "Money back.")]
    agents = [Choice("helper", "helper")]


def posted(**names):
    data = QueryDict(mutable=True)
    for name, texts in {"name": "research", "model.provider": "demo", "model.model": "demo-1", **names}.items():
        data.setlist(name, texts if isinstance(texts, list) else [texts])
    return DefinitionForm.of_post(data)


def drawn(form):
    """What the page shows of a form about which the checks have nothing to say."""
    return Drawing(form, Report([]), Offered(tenant_id=uuid7()))


def submitted(form):
    """The form as a browser sends it back when nobody touched it."""
    page = {"drawing": drawn(form), "counter": 1, "panel": "problems", "edit_url": "/edit", "agent": {"name": "research"}}
    html = render_to_string("agents/edit.html#form", page)
    data = QueryDict(mutable=True)
    for name, text in Browser(html, "editor").names:
        data.appendlist(name, text)
    return DefinitionForm.of_post(data)


@given(definitions())
@QUICK
def test_valid_definition_is_the_same_in_the_form(document):
    form = DefinitionForm.of_document(document)

    assert form.problems == {}
    assert form.document == normalise(document)


@given(definitions())
@settings(QUICK, max_examples=25)
def test_valid_definition_survives_the_page_and_the_browser(document):
    form = submitted(DefinitionForm.of_document(document))

    assert form.problems == {}
    assert form.document == normalise(document)


@given(DOCUMENTS)
@QUICK
def test_any_draft_keeps_every_value(document):
    try:
        draft = normalise(document)
    except DefinitionUnreadable:
        return

    assert DefinitionForm.of_document(draft).document == draft


@given(DOCUMENTS)
@settings(QUICK, max_examples=25)
def test_any_draft_survives_the_page_and_the_browser(document):
    try:
        draft = normalise(document)
    except DefinitionUnreadable:
        return

    assert submitted(DefinitionForm.of_document(draft)).document == draft


def test_every_setting_has_a_control():
    drawing = drawn(DefinitionForm.of_document(BASE))

    names = {control.name for control in drawing.controls()}

    assert set(schema.all_fields()) - names == set()


def test_unknown_keys_are_shown_where_they_are():
    document = BASE | {"color": "red", "harness": {"speed": 3}, "parameters": [{"name": "a", "size": 1}]}

    form = DefinitionForm.of_document(document)

    assert form.extras == {EXTRA: {"color"}, f"harness.{EXTRA}": {"speed"}, f"parameters.0.{EXTRA}": {"size"}}
    assert drawn(form).control(f"harness.{EXTRA}").value == '{\n  "speed": 3\n}'


def test_value_of_another_kind_is_shown_as_json():
    form = DefinitionForm.of_document(BASE | {"workspace": "yes", "tools": "calculate"})

    assert form.extras == {EXTRA: {"workspace", "tools"}}


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("model.temperature", "warm", "Write a number, such as 0.5."),
        ("model.temperature", "1e999", "Write a number, such as 0.5."),
        ("model.max_output_tokens", "2.5", "Write a whole number, such as 2048."),
        ("model.max_output_tokens", "many", "Write a whole number, such as 2048."),
        ("metadata", "{", "This is not JSON: line 1, column 2: Expecting property name enclosed in double quotes."),
        ("metadata", '{"a": 1, "a": 2}', "This is not JSON: the key a appears twice."),
        ("metadata", '{"a": NaN}', "This is not JSON: NaN is no JSON number."),
        ("metadata", '{"a": 1e999}', "This is not JSON: 1e999 is no JSON number."),
        ("_extra", "[1]", "Write a JSON object here, or leave it empty."),
    ],
)
def test_text_that_cannot_be_read_is_a_problem_at_its_field(name, text, said):
    form = posted(**{name: text})

    assert form.problems == {name: [said]}
    drawing = drawn(form)
    assert [(problem.path, problem.text) for problem in drawing.problems] == [(name, said)]


def test_number_that_cannot_be_read_never_becomes_a_blank():
    form = posted(**{"model.temperature": "warm"})

    assert form.document["model"]["temperature"] == "warm"
    assert drawn(form).control("model.temperature").value == "warm"


@pytest.mark.parametrize("text", ["61952", " 61952 ", "61,952", "61 952", "61_952"])
def test_whole_number_is_read_as_it_is_shown(text):
    assert posted(**{"model.max_output_tokens": text}).document["model"]["max_output_tokens"] == 61952


def test_deep_json_is_a_problem_and_no_crash():
    form = posted(metadata="[" * 100_000)

    assert form.problems["metadata"][0].startswith("This is not JSON")


def test_switch_off_leaves_the_object_out_and_keeps_what_was_typed():
    form = posted(**{"harness.max_output_tokens": "2048"})

    assert "harness" not in form.document
    assert drawn(form).control("harness.max_output_tokens").value == "2048"


def test_switch_on_alone_is_an_empty_object():
    assert posted(harness="on").document["harness"] == {}


def test_default_is_left_out():
    form = posted(**{"memory": "on", "memory.conversation_memory_max_results": "3", "memory.scope": "subject"})

    assert form.document["memory"] == {}


def test_default_that_is_true_can_be_switched_off():
    form = posted(compaction="on")

    assert form.document["compaction"] == {"background": False, "keep_dropped": False}


def test_rows_that_say_nothing_are_no_rows():
    form = posted(
        **{
            "parameters.0.name": "", "parameters.0.kind": "text", "parameters.0.default": "",
            "parameters.3.name": "customer", "parameters.3.kind": "text", "parameters.3.default": "",
        }
    )  # fmt: skip

    assert form.document["parameters"] == [{"name": "customer"}]
    assert form.places == {"parameters.0": "parameters.3"}


@pytest.mark.parametrize(
    "kind, text, value", [("text", "5", "5"), ("number", "5", 5), ("number", "0.5", 0.5), ("boolean", "true", True), ("boolean", "no", False)]
)
def test_default_of_a_parameter_is_read_by_its_kind(kind, text, value):
    form = posted(**{"parameters.0.name": "a", "parameters.0.kind": kind, "parameters.0.default": text})

    assert form.document["parameters"][0]["default"] == value
    assert type(form.document["parameters"][0]["default"]) is type(value)


def test_key_that_appears_twice_in_a_map_is_a_problem():
    form = posted(
        **{
            "instructions_by_culture.0._key": "de", "instructions_by_culture.0._value": "Hallo",
            "instructions_by_culture.1._key": "de", "instructions_by_culture.1._value": "Servus",
        }
    )  # fmt: skip

    assert form.problems == {"instructions_by_culture.1._key": ["de is here twice."]}
    assert [row.controls[1].value for row in drawn(form).control("instructions_by_culture").rows] == ["Hallo", "Servus", ""]


def test_value_without_a_key_is_a_problem():
    form = posted(**{"instructions_by_culture.0._key": "", "instructions_by_culture.0._value": "Hallo"})

    assert form.problems == {"instructions_by_culture.0._key": ["Say what this belongs to."]}


def test_names_beside_the_boxes_are_added():
    form = posted(tools=["calculate"], **{"tools._more": "send, fetch\n"})

    assert form.document["tools"] == ["calculate", "send", "fetch"]


def test_unknown_name_stays_chosen_and_says_so():
    control = drawn(DefinitionForm.of_document(BASE | {"tools": ["fax", "send"]})).control("tools")

    assert [(option.value, option.is_chosen, option.is_unknown) for option in control.options] == [
        ("fax", True, True),
        ("send", True, False),
        ("calculate", False, False),
    ]


def test_field_of_another_strategy_is_aside_unless_it_says_something():
    form = posted(**{"compaction": "on", "compaction.strategy": "none", "compaction.trigger_turns": "30"})
    drawing = drawn(form)

    assert drawing.control("compaction.trigger_tokens").is_aside
    assert not drawing.control("compaction.trigger_turns").is_aside


# Acts


def test_fix_changes_its_field_and_nothing_else():
    form = posted(**{"harness": "on", "harness.disable_file_memory": "on", "model.temperature": "warm", "limits.max_tool_calls": "9"})

    touched = form.fix({"harness.disable_file_memory": False})

    assert touched == {"harness.disable_file_memory", f"harness.{EXTRA}"}
    assert form.document["harness"] == {}
    assert form.data["model.temperature"] == ["warm"]
    # What stands behind a switch that is off is kept until it is saved.
    assert form.data["limits.max_tool_calls"] == ["9"]


def test_fix_switches_its_object_on():
    form = DefinitionForm.of_document(BASE)

    form.fix({"compaction.strategy": "none"})

    assert form.document["compaction"] == {}
    assert form.data["compaction.background"] == ["on"]


def test_fix_renames_an_unknown_key():
    form = DefinitionForm.of_document(BASE | {"harness": {"max_output_token": 5}})

    form.fix({"harness.max_output_tokens": 5, "harness.max_output_token": None})

    assert form.document["harness"] == {"max_output_tokens": 5}
    assert form.extras == {}


def test_fix_of_a_row_that_is_gone_is_refused():
    form = posted(tools=["a"])

    with pytest.raises(Invalid, match="has changed since"):
        form.fix({"parameters.4.required": False})


def test_fix_never_drops_a_doubled_key():
    form = posted(**{"tool_settings.0._key": "a", "tool_settings.1._key": "a", "tool_settings.1.timeout_s": "3"})

    with pytest.raises(Invalid, match="by hand"):
        form.fix({"tool_settings.a": None})

    assert form.data["tool_settings.1.timeout_s"] == ["3"]


def test_row_is_removed_and_moved():
    form = DefinitionForm.of_document(BASE | {"parameters": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})

    form.move_row_up("parameters.2")
    form.remove_row("parameters.0")

    assert form.document["parameters"] == [{"name": "c"}, {"name": "b"}]


def test_first_row_stays_where_it_is():
    form = DefinitionForm.of_document(BASE | {"parameters": [{"name": "a"}, {"name": "b"}]})

    form.move_row_up("parameters.0")

    assert form.document["parameters"] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("row", ["", "parameters", "parameters.", "parameters.x", "..0"])
def test_row_that_is_none_is_refused(row):
    with pytest.raises(Invalid):
        posted().remove_row(row)


def test_one_more_row_is_one_more_than_there_are():
    form = posted(**{"parameters.0.name": "a", "parameters.1.name": ""})

    form.add_row("parameters")

    rows = drawn(form).control("parameters").rows
    assert [(row.name, row.is_new) for row in rows] == [("parameters.0", False), ("parameters.2", True), ("parameters.3", True)]


# Two drafts


def test_differences_are_settings():
    theirs = BASE | {"description": "x", "harness": {"max_output_tokens": 5}, "tools": ["a"]}
    mine = BASE | {"description": "y", "harness": {"max_output_tokens": 6}, "tools": ["a"], "memory": {}}

    assert [difference.path for difference in differences(theirs, mine)] == ["description", "harness.max_output_tokens", "memory"]


@given(definitions(), definitions(), st.booleans())
@settings(QUICK, max_examples=20)
def test_taking_all_of_one_side_gives_that_side(theirs, mine, take_theirs):
    theirs, mine = normalise(theirs), normalise(mine)
    every = set(range(len(differences(theirs, mine))))

    document = merged(theirs, mine, every if take_theirs else set())

    assert normalise(document) == (theirs if take_theirs else mine)
