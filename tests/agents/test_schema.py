"""The editor's sections: every setting once, with what a form needs to know."""

from agents.definition import Definition, hints_of
from agents.definition.base import bare, choices_of, part_in
from agents.schema import all_fields, sections
from tests.agents.test_definition import WHOLE, walk


def paths_of_fields():
    """Every path that a field edits, those inside lists, maps and optional objects included."""
    for section in sections():
        for entry in section.fields:
            yield entry.path
            yield from inside(entry, entry.path)


def inside(entry, path):
    for item in entry.item_fields:
        yield f"{path}.{item.path}"
        yield from inside(item, f"{path}.{item.path}")


def plain_parts() -> set[str]:
    """Objects that are always there: their fields stand for them."""
    return {
        path
        for path, part, name in walk()
        if bare(part.model_fields[name].annotation) is part_in(part.model_fields[name].annotation)
        and part.model_fields[name].annotation is part_in(part.model_fields[name].annotation)
    }


def test_every_setting_is_in_exactly_one_place():
    shown = list(paths_of_fields())

    assert len(shown) == len(set(shown))
    assert set(shown) == {path for path, _, _ in walk()} - plain_parts()
    assert plain_parts() == {"model", "sessions", "response_format", "memory.injection", "layer_caps"}


def test_sections_come_in_the_editors_order():
    assert [section.title for section in sections()] == [
        "Identity",
        "Instructions",
        "Model",
        "Tools and skills",
        "Harness",
        "Context",
        "Memory",
        "Workspace",
        "Assembly",
        "Limits",
        "Metadata",
    ]
    assert {section.key: section.toggle for section in sections() if section.toggle} == {
        "harness": "harness",
        "context": "compaction",
        "memory": "memory",
        "workspace": "workspace",
    }


def test_fields_say_what_the_definition_says():
    for path, part, name in walk():
        entry = all_fields().get(path)
        if entry is None:
            continue
        info = part.model_fields[name]
        assert (entry.label, entry.help, entry.required) == (info.title, info.description, info.is_required()), path
        assert {value for value, _ in entry.choices} == set(choices_of(info.annotation).values()), path
        assert entry.unit == hints_of(info).get("unit", ""), path


def test_every_choice_has_its_label():
    for path, part, name in walk():
        info = part.model_fields[name]
        assert set(hints_of(info).get("labels", {})) == set(choices_of(info.annotation).values()), path


def test_kinds_bounds_and_defaults():
    fields = all_fields()

    temperature, iterations = fields["model.temperature"], fields["harness.maximum_iterations_per_request"]
    assert (temperature.kind, temperature.minimum, temperature.maximum, temperature.optional) == ("number", 0, 2, True)
    assert (iterations.kind, iterations.minimum, iterations.placeholder) == ("integer", 1, "40")
    assert (fields["model.top_p"].minimum, fields["model.top_p"].above) == (0, True)
    assert (fields["instructions"].kind, fields["instructions"].max_length) == ("long_text", 200_000)
    assert (fields["name"].kind, fields["name"].max_length, fields["name"].required) == ("text", 64, True)
    assert fields["sessions.on_busy"].default == "reject"
    assert fields["memory.fact_categories"].default == ["name", "preference", "goal", "circumstance"]
    assert (fields["model.provider"].choices_from, fields["model.model"].choices_from) == ("providers", "models")
    assert (fields["tools"].kind, fields["tools"].choices_from) == ("texts", "tools")
    assert (fields["callable_agents"].choices_from, fields["skills"].choices_from) == ("agents", "skills")
    assert {path: entry.kind for path, entry in fields.items() if entry.kind not in ("text", "boolean", "integer", "number")} == {
        "description": "long_text",
        "instructions": "long_text",
        "instructions_by_culture": "text_map",
        "parameters": "objects",
        "response_format.kind": "choice",
        "response_format.json_schema": "json",
        "model.provider": "choice",
        "model.model": "choice",
        "model.reasoning_effort": "choice",
        "model.fallbacks": "objects",
        "model.settings": "json",
        "tools": "texts",
        "tool_settings": "object_map",
        "skills": "texts",
        "callable_agents": "texts",
        "mcp_resource_uris": "texts",
        "harness": "toggle",
        "harness.harness_instructions": "long_text",
        "harness.initial_mode": "choice",
        "harness.loop": "object",
        "compaction": "toggle",
        "compaction.strategy": "choice",
        "compaction.summarization_prompt": "long_text",
        "compaction.summarization_model": "object",
        "memory": "toggle",
        "memory.vector_collections": "texts",
        "memory.conversation_memory_search": "choice",
        "memory.fact_categories": "texts",
        "memory.unknown_subject_instructions": "long_text",
        "memory.known_subject_instructions": "long_text",
        "memory.extraction_topics": "texts",
        "memory.extraction_model": "object",
        "memory.scope": "choice",
        "memory.injection.facts": "choice",
        "memory.injection.memories": "choice",
        "memory.injection.playbooks": "choice",
        "memory.injection.knowledge": "choice",
        "workspace": "toggle",
        "assembly": "objects",
        "aggregation": "objects",
        "limits": "toggle",
        "sessions.version_policy": "choice",
        "sessions.on_busy": "choice",
        "metadata": "json",
    }


def test_fields_inside_a_switched_object_name_its_toggle():
    for path, entry in all_fields().items():
        above = path.partition(".")[0]
        switched = above in ("harness", "compaction", "memory", "workspace", "limits") and path != above
        assert entry.section_toggle == (above if switched else ""), path


def test_settings_that_are_not_built_are_marked():
    fields = all_fields()

    assert not fields["memory.enable_facts"].available
    assert fields["assembly"].available
    assert fields["memory.enable_todo"].available
    assert fields["compaction.strategy"].available


def test_items_of_lists_have_fields_of_their_own():
    parameter = {entry.path: entry.kind for entry in all_fields()["parameters"].item_fields}
    setting = {entry.path: entry.kind for entry in all_fields()["tool_settings"].item_fields}

    assert parameter == {"name": "text", "kind": "choice", "required": "boolean", "default": "value"}
    assert setting == {"max_output_chars": "integer", "timeout_s": "number", "approval": "choice"}


def test_a_document_of_all_fields_is_a_definition():
    """What the editor can build from these fields is what the schema takes."""
    assert Definition.model_validate(WHOLE)
