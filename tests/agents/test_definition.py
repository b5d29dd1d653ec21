"""The document: every spelling is read, one is written, nothing crashes it."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.definition import Definition, digest, normalise
from agents.definition.base import Part, bare, hints_of, part_in
from agents.definition.reading import canonical
from agents.errors import DefinitionUnreadable

MINIMAL = {"name": "a", "model": {"provider": "p", "model": "m"}}

WHOLE = {
    "name": "whole",
    "display_name": "Whole",
    "description": "Everything is set.",
    "instructions": "Hello {{city}}",
    "instructions_by_culture": {"de-AT": "Servus {{city}}"},
    "parameters": [{"name": "city", "kind": "number", "required": True, "default": 1.5}],
    "model": {
        "provider": "p",
        "model": "m",
        "temperature": 0.2,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "reasoning_effort": "low",
        "keep_reasoning": True,
        "fallbacks": [{"provider": "q", "model": "n"}],
        "settings": {"seed": 1, "camelCase": {"Inner_Key": [1]}},
    },
    "tools": ["current_time"],
    "tool_settings": {"current_time": {"max_output_chars": 10, "timeout_s": 1.5, "approval": "always"}},
    "skills": ["s"],
    "callable_agents": ["b"],
    "mcp_resource_uris": ["docs:file:///readme.md"],
    "harness": {
        "max_context_window_tokens": 1000,
        "max_output_tokens": 100,
        "maximum_iterations_per_request": 5,
        "harness_instructions": "Plan.",
        "disable_compaction": True,
        "disable_todo_provider": True,
        "disable_file_memory": True,
        "disable_agent_skills_provider": True,
        "disable_agent_mode_provider": True,
        "disable_web_search": True,
        "disable_tool_auto_approval": True,
        "enable_web_search": True,
        "initial_mode": "execute",
        "loop": {"criteria": ["completion_marker", "judge"], "max_iterations": 3, "fresh_context": True},
    },
    "compaction": {
        "strategy": "context_window",
        "trigger_tokens": 1,
        "trigger_messages": 2,
        "trigger_turns": 3,
        "minimum_preserved_turns": 1,
        "minimum_preserved_groups": 2,
        "max_context_window_tokens": 500,
        "max_output_tokens": 50,
        "tool_eviction_threshold": 0.4,
        "truncation_threshold": 0.7,
        "summarization_prompt": "Short.",
        "summarization_model": {"provider": "p", "model": "small"},
        "background": False,
        "keep_dropped": False,
    },
    "memory": {
        "enable_file_memory": True,
        "enable_todo": True,
        "enable_text_search": True,
        "enable_vector_search": True,
        "vector_collections": ["manuals"],
        "enable_conversation_memory": True,
        "conversation_memory_search": "on_demand",
        "conversation_memory_max_results": 20,
        "enable_facts": True,
        "fact_categories": ["name"],
        "unknown_subject_instructions": "Ask.",
        "known_subject_instructions": "Greet.",
        "enable_extraction": True,
        "extraction_topics": ["food"],
        "extraction_model": {"provider": "p", "model": "small"},
        "memory_pool": "shared",
        "enable_playbooks": True,
        "scope": "tenant",
        "injection": {"facts": "instructions", "memories": "tool", "playbooks": "before_message", "knowledge": "tool"},
    },
    "workspace": {"enabled": True, "read_only": True, "disable_read_approval": True},
    "layer_caps": {"recall": 1, "working_memory": 2, "history": 3, "summary": 4},
    "assembly": [{"kind": "episodic_memory", "max_episodes": 2, "max_items": 3, "max_tokens": 4, "transparent": True}],
    "aggregation": [
        {"kind": "conversation_summary", "model": {"provider": "p", "model": "s"}, "every_n_turns": 1, "every_n_items": 2, "on_end": True}
    ],
    "sessions": {"version_policy": "pin", "on_busy": "rollback", "idle_expiry_days": 30},
    "limits": {"max_tokens_per_run": 1, "max_cost_per_run": 0.5, "max_seconds_per_run": 2.5, "max_tool_calls": 3},
    "response_format": {"kind": "json_schema", "json_schema": {"type": "object"}},
    "metadata": {"anyCase": {"Inner_Key": None}},
}  # fmt: skip


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def pascal(name: str) -> str:
    return "".join(part.title() for part in name.split("_"))


def respelled(part: type[Part], value: dict, spell) -> dict:
    """A document with keys and choices of another case style; keys of maps stay."""
    result = {}
    for key, entry in value.items():
        info = part.model_fields[key]
        inner = part_in(info.annotation)
        if inner and bare(info.annotation) is inner:
            entry = respelled(inner, entry, spell)
        elif inner and isinstance(entry, list):
            entry = [respelled(inner, one, spell) for one in entry]
        elif inner:
            entry = {name: respelled(inner, one, spell) for name, one in entry.items()}
        elif hints_of(info).get("labels"):
            entry = [spell(one) for one in entry] if isinstance(entry, list) else spell(entry)
        result[spell(key)] = entry
    return result


def walk(part: type[Part] = Definition, above: str = ""):
    """Every field of the document, as (path, part, name)."""
    for name, info in part.model_fields.items():
        yield f"{above}{name}", part, name
        if inner := part_in(info.annotation):
            yield from walk(inner, f"{above}{name}.")


def test_whole_document_covers_every_field():
    """The other tests here say something about all settings only if this document has them all."""
    given = set()

    def collect(value, part, above=""):
        for key, entry in value.items():
            given.add(f"{above}{key}")
            if inner := part_in(part.model_fields[key].annotation):
                is_one = bare(part.model_fields[key].annotation) is inner
                for one in [entry] if is_one else entry.values() if isinstance(entry, dict) else entry:
                    collect(one, inner, f"{above}{key}.")

    collect(WHOLE, Definition)

    assert given == {path for path, _, _ in walk()}


@pytest.mark.parametrize("spell", [camel, pascal, str, lambda name: name.replace("_", "-")])
def test_every_case_style_is_read_as_snake_case(spell):
    spelled = respelled(Definition, WHOLE, spell)

    assert normalise(spelled) == normalise(WHOLE)
    assert Definition.model_validate(spelled) == Definition.model_validate(WHOLE)


def test_document_survives_reading_and_writing():
    assert Definition.model_validate(WHOLE).as_document() == normalise(WHOLE) == WHOLE


def test_keys_of_maps_keep_their_spelling():
    read = normalise(WHOLE)

    assert read["metadata"] == {"anyCase": {"Inner_Key": None}}
    assert read["model"]["settings"]["camelCase"] == {"Inner_Key": [1]}


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("tool_names", "tools", ["t"]),
        ("toolNames", "tools", ["t"]),
        ("skill_names", "skills", ["s"]),
        ("callableAgentNames", "callable_agents", ["b"]),
    ],
)
def test_names_of_other_systems_are_aliases(alias, name, value):
    assert normalise(MINIMAL | {alias: value}) == MINIMAL | {name: value}


def test_enumerations_take_any_case():
    read = normalise(
        MINIMAL
        | {
            "memory": {"conversationMemorySearch": "OnDemand"},
            "sessions": {"OnBusy": "ENQUEUE"},
            "assembly": ["SlidingWindow", {"type": "TokenBudget", "maxTokens": 9}],
            "responseFormat": "JSON",
        }
    )

    assert read["memory"] == {"conversation_memory_search": "on_demand"}
    assert read["sessions"] == {"on_busy": "enqueue"}
    assert read["assembly"] == [{"kind": "sliding_window"}, {"kind": "token_budget", "max_tokens": 9}]
    assert read["response_format"] == {"kind": "json"}


def test_defaults_are_left_out_and_digests_agree():
    spelled_out = MINIMAL | {
        "display_name": "",
        "tools": [],
        "harness": None,
        "sessions": {"version_policy": "follow", "on_busy": "reject", "idle_expiry_days": None},
        "response_format": {"kind": "text"},
        "metadata": {},
    }

    assert normalise(spelled_out) == MINIMAL
    assert digest(spelled_out) == digest(MINIMAL)


def test_an_object_of_defaults_is_not_nothing():
    assert normalise(MINIMAL | {"harness": {"initial_mode": "plan"}}) == MINIMAL | {"harness": {}}
    assert Definition.model_validate(MINIMAL | {"harness": {}}).harness is not None


def test_unknown_and_repeated_keys_stay_for_the_report():
    read = normalise(MINIMAL | {"tool": 1, "displayName": "x", "display_name": "y"})

    assert read == MINIMAL | {"display_name": "y", "tool": 1, "displayName": "x"}


def test_whole_numbers_are_written_one_way():
    assert digest(MINIMAL | {"metadata": {"n": 1.0}}) == digest(MINIMAL | {"metadata": {"n": 1}})
    assert normalise({"model": {"max_output_tokens": 5.0}})["model"]["max_output_tokens"] == 5
    assert canonical({"b": 1.0, "a": True}) == '{"a":true,"b":1}'


def test_text_that_no_database_can_store_is_replaced():
    read = normalise(MINIMAL | {"instructions": "a\x00b\ud800c", "metadata": {"k\x00": "\udfff"}})

    assert read["instructions"] == "a\ufffdb\ufffdc"
    assert read["metadata"] == {"k\ufffd": "\ufffd"}


def nested(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        [],
        "text",
        5,
        nested(100_000),
        {"metadata": {"n": math.nan}},
        {"metadata": {"n": math.inf}},
        {"metadata": {"n": 10**400}},
        {"metadata": {"n": object()}},
        {"metadata": {1: "key is a number"}},
        {"instructions": "x" * 2_000_001},
    ],
)
def test_what_is_no_document_is_refused_with_a_sentence(hostile):
    with pytest.raises(DefinitionUnreadable) as refused:
        normalise(hostile)

    assert refused.value.detail.endswith(".")


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": {"provider": "p", "model": "m", "max_output_tokens": "5"}},
        {"model": {"provider": "p", "model": "m", "max_output_tokens": True}},
        {"harness": {"disable_compaction": "true"}},
        {"harness": {"disable_compaction": 1}},
        {"name": "a/b"},
        {"name": "~a"},
        {"name": ".."},
        {"name": "a\n"},
        {"name": "x" * 65},
        {"skills": [f"s{number}" for number in range(11)]},
        {"memory": {"memory_pool": "../../etc"}},
    ],
)
def test_definition_is_strict(wrong):
    with pytest.raises(ValidationError):
        Definition.model_validate(MINIMAL | wrong)


def test_every_field_explains_itself():
    """A title, one sentence of help that ends as one, and bounds on every number."""
    schema = json.dumps(Definition.model_json_schema())
    for path, part, name in walk():
        info = part.model_fields[name]
        assert info.title, path
        assert info.title[0].isupper(), path
        assert len(info.description) > 15, path
        assert info.description.endswith("."), path
        if bare(info.annotation) in (int, float):
            assert len([mark for mark in info.metadata if hasattr(mark, "ge") or hasattr(mark, "gt")]) == 1, path
        assert json.dumps(info.title)[1:-1] in schema


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NAMES = sorted({name for _, _, name in walk()} | {camel(name) for _, _, name in walk()})
DOCUMENTS = st.recursive(
    JSON,
    lambda inner: st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=8)
    | st.lists(inner, max_size=3),
    max_leaves=40,
)


@given(DOCUMENTS)
@settings(max_examples=150, deadline=None)
def test_no_json_crashes_reading(document):
    try:
        read = normalise(document)
    except DefinitionUnreadable:
        return
    assert normalise(read) == read
    try:
        definition = Definition.model_validate(document)
    except ValidationError:
        return
    assert definition.as_document() == read


def valid(part: type[Part]):
    """Documents of any subset of the whole one, down to single settings."""

    def subsets(value, current: type[Part]):
        required = {name for name, info in current.model_fields.items() if info.is_required()}
        options = {}
        for key, entry in value.items():
            inner = part_in(current.model_fields[key].annotation)
            is_one = inner and bare(current.model_fields[key].annotation) is inner
            options[key] = subsets(entry, inner) if is_one else st.just(entry)
        return st.fixed_dictionaries(
            {key: options[key] for key in required}, optional={key: options[key] for key in options.keys() - required}
        )

    return subsets(WHOLE, part)


@given(valid(Definition), st.sampled_from([camel, pascal, str]))
@settings(max_examples=60, deadline=None)
def test_case_styles_round_trip(document, spell):
    spelled = respelled(Definition, document, spell)

    assert normalise(spelled) == normalise(document)
    assert digest(spelled) == digest(document)
    assert Definition.model_validate(spelled).as_document() == normalise(document)
