"""Every rule by its path and code, with the definition that breaks it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.compile import Fix, apply_fix, compile_definition
from agents.compile.not_yet import NOT_YET, value_at
from agents.compile.rules.models import SETTINGS
from agents.definition import Definition
from agents.domain import definitions, providers
from agents.models import Provider
from agents.schema import all_fields
from agents.tools import register_tool
from governance.actors import system
from sessions.engine.providers import KNOWN_SETTINGS
from tests.agents.test_definition import DOCUMENTS, WHOLE
from tests.factories import agents

REASONING = {"provider": "claude", "model": "claude-sonnet-4-5"}


@pytest.fixture
def tenant(tenant):
    by = system(tenant.id)
    agents.provider(tenant)
    for name, kind in (("claude", "anthropic"), ("openai", "openai")):
        providers.create_provider(tenant_id=tenant.id, by=by, name=name, kind=kind, key="sk-12345678901234567890")
    for name, kind, api in (("google", "google", "responses"), ("chat", "openai", "chat")):
        providers.create_provider(tenant_id=tenant.id, by=by, name=name, kind=kind, api=api, key="sk-12345678901234567890")
    return tenant


@pytest.fixture
def check(tenant):
    """The findings of a definition that is right but for `changes`, as {(severity, path, code)}."""

    def found(agent_name=None, **changes):
        report = compile_definition(agents.document("mine") | changes, tenant_id=tenant.id, agent_name=agent_name)
        return {(entry.severity, entry.path, entry.code) for entry in report.messages} - {
            ("info", "tool_settings", "uncapped_tool_output")
        }

    return found


def model(**values):
    return {"provider": "demo", "model": "demo-1", **values}


def test_right_definition_has_no_findings(check):
    assert check() == set()


ERRORS = [
    # The document itself.
    ({"name": None}, "name", "not_text"),
    ({"name": "a b"}, "name", "bad_format"),
    ({"name": ""}, "name", "required"),
    ({"name": "x" * 65}, "name", "too_long"),
    ({"name": "..."}, "name", "bad_format"),
    ({"instructions": 5}, "instructions", "not_text"),
    ({"tools": "current_time"}, "tools", "not_a_list"),
    ({"tools": [f"t{number}" for number in range(129)]}, "tools", "too_many"),
    ({"model": "demo-1"}, "model", "not_an_object"),
    ({"model": {"provider": "demo"}}, "model.model", "required"),
    ({"model": model(temperature="hot")}, "model.temperature", "not_a_number"),
    ({"model": model(temperature=3)}, "model.temperature", "too_large"),
    ({"model": model(max_output_tokens=0)}, "model.max_output_tokens", "too_small"),
    ({"model": model(max_output_tokens=-5)}, "model.max_output_tokens", "too_small"),
    ({"model": model(max_output_tokens=1.5)}, "model.max_output_tokens", "not_a_whole_number"),
    ({"model": model(reasoning_effort="extreme")}, "model.reasoning_effort", "unknown_choice"),
    ({"harness": {"disable_compaction": "yes"}}, "harness.disable_compaction", "not_true_or_false"),
    ({"harness": {"loop": {"criteria": []}}}, "harness.loop.criteria", "too_few"),
    ({"limits": {"max_cost_per_run": 0}}, "limits.max_cost_per_run", "too_small"),
    ({"memory": {"conversation_memory_max_results": 21}}, "memory.conversation_memory_max_results", "too_large"),
    ({"memory": {"conversation_memory_max_results": 0}}, "memory.conversation_memory_max_results", "too_small"),
    ({"memory": {"memory_pool": "../up"}}, "memory.memory_pool", "bad_format"),
    ({"instructions_by_culture": {"not a tag": "x"}}, "instructions_by_culture.not a tag", "bad_culture"),
    ({"tool_settings": {"a b": {}}}, "tool_settings.a b", "bad_format"),
    ({"mcp_resource_uris": ["no-uri"]}, "mcp_resource_uris.0", "bad_format"),
    ({"instruction": "x"}, "instruction", "unknown_key"),
    ({"harness": {"initial_modes": "plan"}}, "harness.initial_modes", "unknown_key"),
    ({"parameters": [{"name": "a", "color": 1}]}, "parameters.0.color", "unknown_key"),
    ({"display_name": "x", "displayName": "y"}, "displayName", "duplicate_key"),
    # Instructions and parameters.
    ({"instructions": "Hello {{ city }}"}, "instructions", "undeclared_parameter"),
    ({"instructions_by_culture": {"de": "{{stadt}}"}}, "instructions_by_culture.de", "undeclared_parameter"),
    ({"instructions": "{{a}}", "parameters": [{"name": "a"}, {"name": "a"}]}, "parameters.1.name", "duplicate_parameter"),
    ({"instructions": "{{a}}", "parameters": [{"name": "a", "kind": "number", "default": "x"}]}, "parameters.0.default", "parameter_default"),
    ({"instructions": "{{a}}", "parameters": [{"name": "a", "kind": "text", "default": True}]}, "parameters.0.default", "parameter_default"),
    ({"instructions": "{{a}}", "parameters": [{"name": "a", "default": [1]}]}, "parameters.0.default", "wrong_type"),
    ({"response_format": {"kind": "json_schema"}}, "response_format.json_schema", "schema_missing"),
    ({"response_format": {"kind": "json_schema", "schema": {"type": "array"}}}, "response_format.json_schema", "schema_not_object"),
    ({"response_format": {"kind": "json_schema", "schema": {"type": "object", "required": 5}}}, "response_format.json_schema", "schema_invalid"),
    # Models.
    ({"model": {"provider": "demos", "model": "m"}}, "model.provider", "unknown_provider"),
    ({"model": model(fallbacks=[{"provider": "nobody", "model": "m"}])}, "model.fallbacks.0.provider", "unknown_provider"),
    ({"compaction": {"summarization_model": {"provider": "nobody", "model": "m"}}}, "compaction.summarization_model.provider", "unknown_provider"),
    ({"memory": {"extraction_model": {"provider": "nobody", "model": "m"}}}, "memory.extraction_model.provider", "unknown_provider"),
    ({"aggregation": [{"kind": "working_memory", "model": {"provider": "nobody", "model": "m"}}]}, "aggregation.0.model.provider", "unknown_provider"),
    ({"model": model(settings={"seed": 1})}, "model.settings.seed", "unknown_model_setting"),
    ({"model": {"provider": "openai", "model": "gpt", "settings": {"sed": 1}}}, "model.settings.sed", "unknown_model_setting"),
    ({"model": {"provider": "openai", "model": "gpt", "settings": {"top_k": 1}}}, "model.settings.top_k", "unknown_model_setting"),
    ({"model": {"provider": "openai", "model": "gpt", "settings": {"seed": "1"}}}, "model.settings.seed", "bad_model_setting"),
    ({"model": model(max_output_tokens=5000)}, "model.max_output_tokens", "output_over_limit"),
    ({"harness": {"max_output_tokens": 5000}}, "harness.max_output_tokens", "output_over_limit"),
    ({"model": {**REASONING, "temperature": 1.5}}, "model.temperature", "temperature_range"),
    ({"model": {**REASONING, "reasoning_effort": "low", "temperature": 0.2}}, "model.temperature", "sampling_with_reasoning"),
    ({"model": {**REASONING, "reasoning_effort": "low", "top_p": 0.2}}, "model.top_p", "sampling_with_reasoning"),
    ({"model": {**REASONING, "reasoning_effort": "low", "max_output_tokens": 1000}}, "model.max_output_tokens", "reasoning_budget"),
    ({"model": {**REASONING, "reasoning_effort": "high", "max_output_tokens": 16_384}}, "model.max_output_tokens", "reasoning_budget"),
    # Tools and agents.
    ({"tools": ["current_tiem"]}, "tools.0", "unknown_tool"),
    ({"tools": ["current_time", "current_time"]}, "tools.1", "duplicate"),
    ({"tools": ["mode_set"]}, "tools.0", "reserved_tool"),
    ({"tools": ["file_access_read"]}, "tools.0", "reserved_tool"),
    ({"tools": ["search_knowledge"]}, "tools.0", "reserved_tool"),
    ({"tools": ["file_memory_read"]}, "tools.0", "reserved_tool"),
    ({"tools": ["todos_add"]}, "tools.0", "reserved_tool"),
    ({"tools": ["history_read"]}, "tools.0", "reserved_tool"),
    ({"tools": ["search_conversation_memory"]}, "tools.0", "reserved_tool"),
    ({"tools": ["remember_fact"]}, "tools.0", "reserved_tool"),
    ({"tools": ["web_search"], "harness": {"enable_web_search": True}}, "tools.0", "search_twice"),
    ({"skills": ["nothing"]}, "skills.0", "unknown_skill"),
    # Web search and the loop.
    ({"harness": {"enable_web_search": True}}, "harness.enable_web_search", "web_search_unsupported"),
    ({"model": {"provider": "chat", "model": "gpt"}, "harness": {"enable_web_search": True}}, "harness.enable_web_search", "web_search_unsupported"),
    ({"model": {"provider": "google", "model": "gemini-2.5-pro"}, "harness": {"enable_web_search": True}}, "harness.enable_web_search", "web_search_unsupported"),
    ({"model": {"provider": "openai", "model": "gpt-5", "fallbacks": [model()]}, "harness": {"enable_web_search": True}}, "harness.enable_web_search", "web_search_unsupported"),
    ({"model": {"provider": "openai", "model": "gpt-5", "settings": {"extra_body": {"tools": [{"type": "web_search"}]}}}, "harness": {"enable_web_search": True}}, "model.settings.extra_body", "search_twice"),
    ({"harness": {"loop": {"criteria": ["judge", "judge"]}}}, "harness.loop.criteria.1", "duplicate"),
    ({"harness": {"loop": {}, "disable_todo_provider": True}}, "harness.loop.criteria", "loop_without_todos"),
    ({"harness": {"loop": {"criteria": ["completion_marker"]}}, "response_format": {"kind": "json"}}, "harness.loop.criteria", "marker_in_json"),
    ({"callable_agents": ["nobody"]}, "callable_agents.0", "unknown_agent"),
    ({"callable_agents": ["mine"]}, "callable_agents.0", "calls_itself"),
    ({"mcp_resource_uris": ["docs:file:///a"]}, "mcp_resource_uris.0", "unknown_mcp_server"),
    # What contradicts itself.
    ({"compaction": {"strategy": "sliding_window", "trigger_turns": 9}, "harness": {"disable_compaction": True}}, "compaction.strategy", "contradiction"),
    ({"memory": {"enable_file_memory": True}, "harness": {"disable_file_memory": True}}, "memory.enable_file_memory", "contradiction"),
    ({"memory": {"enable_todo": True}, "harness": {"disable_todo_provider": True}}, "memory.enable_todo", "contradiction"),
    ({"skills": ["s"], "harness": {"disable_agent_skills_provider": True}}, "skills", "contradiction"),
    ({"harness": {"enable_web_search": True, "disable_web_search": True}}, "harness.enable_web_search", "contradiction"),
    ({"memory": {"enable_text_search": True}}, "memory.enable_text_search", "text_search_without_files"),
    ({"name": "..", "workspace": {"enabled": True}}, "name", "bad_format"),
    ({"name": "...", "memory": {"enable_file_memory": True}}, "name", "bad_format"),
    # Compaction and the window.
    ({"harness": {"max_context_window_tokens": 1000, "max_output_tokens": 1000}}, "harness.max_output_tokens", "window_not_above_output"),
    ({"compaction": {"max_context_window_tokens": 10, "max_output_tokens": 20}}, "compaction.max_output_tokens", "window_not_above_output"),
    *[({"compaction": {"strategy": strategy}}, "compaction.trigger_tokens", "trigger_missing")
      for strategy in ("sliding_window", "truncation", "tool_result", "summarization", "pipeline")],
    ({"compaction": {"strategy": "context_window"}}, "compaction.max_context_window_tokens", "window_missing"),
    ({"compaction": {"strategy": "truncation", "trigger_tokens": 63_000}, "harness": {"max_context_window_tokens": 64_000, "max_output_tokens": 2048}}, "compaction.trigger_tokens", "trigger_too_late"),
    ({"compaction": {"strategy": "truncation", "trigger_tokens": 28_672}}, "compaction.trigger_tokens", "trigger_too_late"),
    ({"assembly": ["sliding_window"]}, "assembly.0.max_items", "policy_without_limit"),
    ({"assembly": ["token_budget"]}, "assembly.0.max_tokens", "policy_without_limit"),
    ({"assembly": ["nonsense"]}, "assembly.0.kind", "unknown_choice"),
    ({"assembly": [{"max_items": 5}]}, "assembly.0.kind", "required"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "path", "code"), ERRORS, ids=[f"{code}@{path}"[:60] for _, path, code in ERRORS])
def test_error(check, changes, path, code):
    assert ("error", path, code) in check(**changes)


# How an entry of a list or of a map is named in a path.
ENTRY = {"objects": ".0", "object_map": ".calculate", "object": ""}


def numbers():
    """(path of every number of a definition, its field, a document in which it has a place)."""
    for entry in all_fields().values():
        if entry.kind in ("integer", "number"):
            yield entry.path, entry, {}
        for inner in entry.item_fields:
            if inner.kind in ("integer", "number"):
                yield f"{entry.path}{ENTRY[entry.kind]}.{inner.path}", inner, {entry.path: [{}]} if entry.kind == "objects" else {}


NUMBERS = list(numbers())


@pytest.mark.parametrize(("path", "entry", "place"), NUMBERS, ids=[path for path, _, _ in NUMBERS])
def test_number_out_of_its_bounds_is_an_error_at_its_path(tenant, path, entry, place):
    wrong = {
        entry.minimum if entry.above else entry.minimum - 1: "too_small",
        -1: "too_small",
        entry.maximum + 1: "too_large",
        "5,5": "not_a_whole_number" if entry.kind == "integer" else "not_a_number",
    }

    for value, code in wrong.items():
        document = apply_fix(agents.document("mine") | place, Fix("", {path: value}))
        found = compile_definition(document, tenant_id=tenant.id).at(path)
        assert [(message.severity, message.code) for message in found] == [("error", code)], (value, found)


WARNINGS = [
    ({"compaction": None}, "compaction", "no_compaction"),
    ({"parameters": [{"name": "a"}]}, "parameters.0.name", "unused_parameter"),
    ({"instructions": "{{a}}", "parameters": [{"name": "a", "required": True, "default": "x"}]}, "parameters.0.required", "required_with_default"),
    ({"response_format": {"kind": "json", "json_schema": {"type": "object"}}}, "response_format.json_schema", "no_effect"),
    ({"model": model(model="demo-2")}, "model.model", "model_not_listed"),
    ({"model": model(fallbacks=[model()])}, "model.fallbacks.0", "repeated_fallback"),
    ({"model": {"provider": "openai", "model": "gpt-5", "reasoning_effort": "low", "temperature": 0.2}}, "model.temperature", "sampling_with_reasoning"),
    ({"harness": {"max_context_window_tokens": 50_000}}, "harness.max_context_window_tokens", "window_over_model"),
    ({"tool_settings": {"calculate": {"approval": "always"}}}, "tool_settings.calculate", "unused_tool_settings"),
    ({"harness": {"loop": {}, "maximum_iterations_per_request": 10}}, "harness.loop.max_iterations", "rounds_over_iterations"),
    ({"model": {"provider": "openai", "model": "unheard-of"}, "harness": {"enable_web_search": True}}, "harness.enable_web_search", "web_search_without_price"),
    ({"harness": {"disable_agent_mode_provider": True, "initial_mode": "execute"}}, "harness.initial_mode", "no_effect"),
    ({"memory": {"vector_collections": ["a"]}}, "memory.vector_collections", "no_effect"),
    ({"memory": {"known_subject_instructions": "x"}}, "memory.known_subject_instructions", "no_effect"),
    ({"memory": {"unknown_subject_instructions": "x"}}, "memory.unknown_subject_instructions", "no_effect"),
    ({"memory": {"extraction_topics": ["x"]}}, "memory.extraction_topics", "no_effect"),
    ({"memory": {"extraction_model": model()}}, "memory.extraction_model", "no_effect"),
    ({"memory": {"memory_pool": "x"}}, "memory.memory_pool", "no_effect"),
    ({"workspace": {"read_only": True}}, "workspace.read_only", "no_effect"),
    ({"workspace": {"disable_read_approval": True}}, "workspace.disable_read_approval", "no_effect"),
    ({"compaction": {"strategy": "sliding_window", "trigger_turns": 3, "minimum_preserved_turns": 3}}, "compaction.minimum_preserved_turns", "preserved_over_trigger"),
    ({"compaction": {"strategy": "context_window", "max_context_window_tokens": 9000, "tool_eviction_threshold": 0.9}}, "compaction.tool_eviction_threshold", "threshold_order"),
    ({"compaction": {"strategy": "summarization", "trigger_turns": 9}}, "compaction.summarization_model", "summaries_by_own_model"),
    ({"assembly": [{"kind": "sliding_window", "max_items": 5}, "working_memory"]}, "assembly.1", "policy_order"),
    ({"assembly": ["alert", "episodic_memory"]}, "assembly.1", "policy_order"),
    ({"assembly": [{"kind": "token_budget", "max_tokens": 5}, "alert"]}, "assembly.1", "policy_order"),
    ({"assembly": [{"kind": "token_budget", "max_tokens": 5}], "compaction": {"strategy": "truncation", "trigger_turns": 5}}, "assembly.0", "two_reductions"),
    ({"aggregation": ["working_memory"]}, "aggregation.0", "never_fires"),
    ({"assembly": ["working_memory"]}, "assembly.0", "nothing_to_add"),
    ({"assembly": ["episodic_memory"], "aggregation": [{"kind": "working_memory", "on_end": True}]}, "assembly.0", "nothing_to_add"),
    ({"layer_caps": {"history": 500}, "compaction": {"strategy": "truncation", "trigger_tokens": 600}}, "layer_caps.history", "cap_below_trigger"),
    ({"layer_caps": {"history": 20_000, "recall": 9_000}}, "layer_caps", "caps_over_window"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "path", "code"), WARNINGS, ids=[f"{code}@{path}" for _, path, code in WARNINGS])
def test_warning(check, changes, path, code):
    assert ("warning", path, code) in check(**changes)


ALLOWED = [
    {"model": model(fallbacks=[{"provider": "openai", "model": "gpt-5"}], temperature=0, max_output_tokens=4096)},
    {"model": {"provider": "openai", "model": "gpt-5", "settings": {"seed": 1, "stop_sequences": ["x"], "presence_penalty": 1}}},
    {"model": {**REASONING, "reasoning_effort": "none", "temperature": 0.2}},
    {"model": {**REASONING, "reasoning_effort": "high", "max_output_tokens": 16_385}},
    # Newer models choose their own budget.
    {"model": {"provider": "claude", "model": "claude-opus-4-6", "reasoning_effort": "high", "max_output_tokens": 1000}},
    {"harness": {"max_context_window_tokens": 20_000, "max_output_tokens": 1000, "initial_mode": "execute"}},
    {"harness": {"disable_compaction": True}, "compaction": None},
    {"harness": {"disable_todo_provider": True}, "memory": {"enable_todo": False}},
    {"memory": {"enable_todo": True}},
    {"harness": {"loop": {"criteria": ["todos_remaining", "completion_marker", "judge"]}}},
    {"model": {"provider": "openai", "model": "gpt-5"}, "harness": {"enable_web_search": True}},
    {"model": {"provider": "claude", "model": "claude-sonnet-4-5"}, "harness": {"enable_web_search": True}},
    {"model": {"provider": "google", "model": "gemini-3-pro-preview"}, "harness": {"enable_web_search": True}},
    {"sessions": {"version_policy": "pin", "on_busy": "interrupt", "idle_expiry_days": 30}},
    {"limits": {"max_tokens_per_run": 1000, "max_cost_per_run": 0.5, "max_seconds_per_run": 60, "max_tool_calls": 5}},
    {"response_format": {"kind": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    {"instructions": "{{a}} {not} {{ 1 }} {{}}", "parameters": [{"name": "a", "kind": "number", "default": 1}]},
    {"tools": ["calculate"], "tool_settings": {"calculate": {"approval": "never", "max_output_chars": 100}}},
    {"assembly": ["working_memory", {"kind": "episodic_memory", "max_episodes": 3, "transparent": True}, "alert", "conversation", {"kind": "token_budget", "max_tokens": 5000}],
     "aggregation": [{"kind": "working_memory", "every_n_turns": 3}, {"kind": "conversation_summary", "on_end": True}]},
    {"aggregation": [{"kind": "working_memory", "every_n_turns": 3}, {"kind": "conversation_summary", "on_end": True}]},
    {"layer_caps": {"recall": 1000, "working_memory": 500, "history": 10_000, "summary": 400}},
    {"metadata": {"anything": [1, {"Goes": None}]}},
]  # fmt: skip


@pytest.mark.parametrize("changes", ALLOWED)
def test_built_settings_have_no_findings(check, changes):
    assert check(**changes) == set()


def test_all_problems_come_at_once(tenant):
    report = compile_definition(
        {
            "instructions": "{{a}}",
            "model": {"provider": "nobody", "temperature": 9},
            "tools": ["no_such_tool", 5],
            "harness": {"disable_todo_provider": True, "initial_mode": "dream"},
            "memory": {"enable_todo": True, "enable_facts": True},
            "bogus": 1,
        },
        tenant_id=tenant.id,
    )

    assert {(entry.path, entry.code) for entry in report.errors} == {
        ("name", "required"),
        ("bogus", "unknown_key"),
        ("model.model", "required"),
        ("model.temperature", "too_large"),
        ("model.provider", "unknown_provider"),
        ("tools.0", "unknown_tool"),
        ("tools.1", "not_text"),
        ("harness.initial_mode", "unknown_choice"),
        ("memory.enable_todo", "contradiction"),
        ("memory.enable_facts", "not_available_yet"),
        ("instructions", "undeclared_parameter"),
    }
    assert not report.valid
    assert report.definition is None


def test_errors_come_before_warnings_and_none_twice(check, tenant):
    report = compile_definition(WHOLE, tenant_id=tenant.id)
    severities = [entry.severity for entry in report.messages]

    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert len({(entry.code, entry.path, entry.message) for entry in report.messages}) == len(report.messages)


def test_every_message_is_a_sentence_at_a_real_place(tenant):
    for changes, _, _ in ERRORS + WARNINGS:
        for entry in compile_definition(agents.document("mine") | changes, tenant_id=tenant.id).messages:
            assert entry.message.endswith("."), entry
            assert entry.hint == "" or entry.hint.rstrip()[-1] in ".?", entry
            assert "pydantic" not in entry.message.lower(), entry


def test_as_dict_is_plain_json(tenant):
    report = compile_definition(WHOLE, tenant_id=tenant.id)

    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert set(report.as_dict()) == {"valid", "inconclusive", "messages"}


def test_settings_that_are_allowed_reach_the_provider():
    """What compile lets pass, the engine hands on; what the engine knows, compile lets pass."""
    for kind, known in KNOWN_SETTINGS.items():
        assert {name for name, (_, kinds) in SETTINGS.items() if kind in kinds} == known, kind


def test_price_of_a_search_is_the_operators_first(tenant, check):
    known = Provider.objects.get(tenant=tenant, name="openai")
    providers.update_provider(provider=known, by=system(tenant.id), pricing={"web_search": "12.5"})

    assert check(model={"provider": "openai", "model": "unheard-of"}, harness={"enable_web_search": True}) == set()


# --- Files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"workspace": {"enabled": True}},
        {"workspace": {"enabled": True, "read_only": True, "disable_read_approval": True}},
        {"memory": {"enable_file_memory": True}},
        {"memory": {"enable_file_memory": True, "enable_text_search": True, "scope": "tenant"}},
        {"name": "a..b", "workspace": {"enabled": True}},
    ],
)
def test_agents_with_files_can_be_published(tenant, changes):
    assert compile_definition(agents.document("mine") | changes, tenant_id=tenant.id).errors == []


# --- What is not built yet -----------------------------------------------------------------------------------------

SWITCHED_ON = {
    **{
        f"memory.{name}": {"memory": {name: True}}
        for name in (
            "enable_vector_search",
            "enable_conversation_memory",
            "enable_facts",
            "enable_extraction",
            "enable_playbooks",
        )
    },
    **{
        f"memory.injection.{name}": {"memory": {"injection": {name: "tool"}}}
        for name in ("facts", "memories", "playbooks", "knowledge")
    },
}


@pytest.mark.parametrize("row", NOT_YET, ids=lambda row: row.path)
def test_setting_that_is_not_built_is_refused_where_it_stands(tenant, row):
    document = agents.document("mine", **SWITCHED_ON[row.path])

    (found,) = [
        entry
        for entry in compile_definition(document, tenant_id=tenant.id).messages
        if entry.code == "not_available_yet"
    ]

    assert (found.severity, found.path) == ("error", row.path)
    fixed = compile_definition(apply_fix(document, found.fix), tenant_id=tenant.id)
    assert "not_available_yet" not in {entry.code for entry in fixed.messages}


def test_every_path_of_the_table_is_a_setting():
    whole = Definition.model_validate(WHOLE)

    assert all(row.is_on(value_at(whole, row.path)) for row in NOT_YET)
    assert SWITCHED_ON.keys() == {row.path for row in NOT_YET}


# --- Fixes ---------------------------------------------------------------------------------------------------------


def test_contradiction_comes_with_both_ways_out(tenant):
    document = agents.document("mine", memory={"enable_todo": True}, harness={"disable_todo_provider": True})
    (found,) = compile_definition(document, tenant_id=tenant.id).errors

    assert found.fix == {"label": "Switch off 'Disable todos'", "set": {"harness.disable_todo_provider": False}}
    for fix in found.fixes:
        assert compile_definition(apply_fix(document, fix), tenant_id=tenant.id).valid


@pytest.mark.parametrize(("changes", "path", "code"), ERRORS + WARNINGS)
def test_every_fix_settles_its_problem(tenant, changes, path, code):
    document = agents.document("mine") | changes
    for entry in compile_definition(document, tenant_id=tenant.id).messages:
        for fix in entry.fixes:
            rest = compile_definition(apply_fix(document, fix), tenant_id=tenant.id).messages
            assert (entry.code, entry.path, entry.message) not in {(m.code, m.path, m.message) for m in rest}, fix


def test_fix_for_a_misspelled_key_keeps_its_value(tenant):
    document = agents.document("mine")
    document["instruktions"] = document.pop("instructions")
    (found,) = compile_definition(document, tenant_id=tenant.id).errors

    assert found.hint == "Did you mean instructions?"
    assert apply_fix(document, found.fix)["instructions"] == "Help."


def test_key_of_another_object_is_sent_home(tenant):
    (found,) = compile_definition(agents.document("mine", initial_mode="plan"), tenant_id=tenant.id).errors

    assert (found.code, found.hint) == ("unknown_key", "This belongs to harness.")


def test_apply_fix_makes_what_is_missing_and_leaves_the_original():
    document = {"parameters": [{"name": "a"}], "harness": None}

    fixed = apply_fix(document, {"label": "", "set": {"harness.loop.max_iterations": 3, "parameters.0": None, "x.y": None}})

    assert fixed == {"parameters": [], "harness": {"loop": {"max_iterations": 3}}, "x": {}}
    assert document == {"parameters": [{"name": "a"}], "harness": None}


# --- The tenant ----------------------------------------------------------------------------------------------------


def test_other_tenants_providers_do_not_exist(check, stranger):
    agents.provider(stranger, "theirs")

    assert ("error", "model.provider", "unknown_provider") in check(model={"provider": "theirs", "model": "demo-1"})


def test_disabled_and_keyless_providers(check, tenant):
    by = system(tenant.id)
    providers.create_provider(tenant_id=tenant.id, by=by, name="off", kind="demo", is_disabled=True)
    providers.create_provider(tenant_id=tenant.id, by=by, name="keyless", kind="google")

    assert check(model={"provider": "off", "model": "m"}) == {("error", "model.provider", "provider_disabled")}
    assert check(model={"provider": "keyless", "model": "m"}) == {("warning", "model.provider", "provider_without_key")}


def test_costly_model_without_limits(check, tenant):
    models = [{"name": "big", "output_price": "75"}, {"name": "small", "output_price": "0.4"}]
    agents.provider(tenant, "priced", models=models)
    big = {"provider": "priced", "model": "big"}

    assert check(model=big) == {("warning", "limits", "no_limits")}
    assert check(model=big, limits={"max_tool_calls": 5}) == {("warning", "limits", "no_limits")}
    assert check(model=big, limits={"max_cost_per_run": 1}) == set()
    assert check(model=big | {"model": "small"}) == set()


def test_call_cycles_are_named_with_their_way(tenant):
    by = system(tenant.id)
    agents.published(tenant, "third")
    agents.published(tenant, "second", callable_agents=["third"])
    agents.published(tenant, "first", callable_agents=["second"])
    third = definitions.create_agent(tenant_id=tenant.id, document=agents.document("fourth"), by=by)

    document = agents.document("third", callable_agents=["first", "fourth"])
    (found,) = compile_definition(document, tenant_id=tenant.id, agent_name="third").errors

    assert (found.path, found.code) == ("callable_agents.0", "call_cycle")
    assert "third to first to second to third" in found.message
    assert third.published is None


def test_agent_that_cannot_be_called_now_is_a_warning(check, tenant):
    by = system(tenant.id)
    definitions.create_agent(tenant_id=tenant.id, document=agents.document("draft"), by=by)
    definitions.disable(agent=agents.published(tenant, "off"), by=by)
    agents.published(tenant, "on")

    assert check(callable_agents=["draft", "off", "on"]) == {
        ("warning", "callable_agents.0", "agent_not_published"),
        ("warning", "callable_agents.1", "agent_not_published"),
    }


def test_settings_of_an_agents_tool_are_used(check, tenant):
    agents.published(tenant, "helper")

    assert check(callable_agents=["helper"], tool_settings={"agent_helper": {"timeout_s": 5}}) == set()
    assert check(tool_settings={"agent_helper": {"timeout_s": 5}}) == {("warning", "tool_settings.agent_helper", "unused_tool_settings")}


def test_other_tenants_agents_cannot_be_called(check, stranger):
    agents.published(stranger, "theirs")

    assert ("error", "callable_agents.0", "unknown_agent") in check(callable_agents=["theirs"])


def test_name_cannot_change(check):
    assert check(agent_name="other") == {("error", "name", "name_immutable")}
    assert check(agent_name="mine") == set()


def test_destructive_tool_that_never_asks(check, registered_tools):
    @register_tool(effect="destructive")
    async def drop_table(context, *, name: str) -> str:
        """Drop a table."""

    found = check(tools=["drop_table"], tool_settings={"drop_table": {"approval": "never", "max_output_chars": 5}})

    assert found == {("warning", "tool_settings.drop_table.approval", "destructive_without_approval")}


def test_uncapped_results_are_mentioned_once(tenant):
    document = agents.document("mine", tools=["calculate", "count_text"], tool_settings={"calculate": {"max_output_chars": 9}})
    (found,) = compile_definition(document, tenant_id=tenant.id).messages

    assert (found.severity, found.code, found.path) == ("info", "uncapped_tool_output", "tool_settings")
    assert "count_text" in found.message
    assert "calculate" not in found.message


def test_queries_do_not_grow_with_the_definition(tenant, django_assert_num_queries):
    for number in range(3):
        agents.published(tenant, f"agent{number}")
    long = agents.document(
        "mine",
        model=model(fallbacks=[{"provider": name, "model": "m"} for name in ("openai", "claude", "nobody")]),
        callable_agents=["agent0", "agent1", "agent2", "nobody"],
    )

    with django_assert_num_queries(1):
        compile_definition(agents.document("mine"), tenant_id=tenant.id)
    with django_assert_num_queries(2):
        compile_definition(long, tenant_id=tenant.id)


PLACES = [(key, None) for key in WHOLE] + [
    (key, inner) for key, value in WHOLE.items() if isinstance(value, dict) for inner in value
]


@given(DOCUMENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_json_crashes_compile(tenant, document):
    report = compile_definition(document, tenant_id=tenant.id)

    json.dumps(report.as_dict())
    assert report.valid == (not [entry for entry in report.messages if entry.severity == "error"])
    assert report.valid is False or report.definition is not None


@given(DOCUMENTS, st.sampled_from(PLACES))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_to_a_whole_definition_crashes_compile(tenant, damage, place):
    """A real document with any part of it replaced by anything."""
    key, inner = place

    report = compile_definition(
        WHOLE | {key: damage if inner is None else WHOLE[key] | {inner: damage}}, tenant_id=tenant.id
    )

    json.dumps(report.as_dict())
