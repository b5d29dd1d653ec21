"""One agent with everything that is available switched on: exported, imported into an empty tenant, it behaves the same."""

import pytest

from agents.compile import compile_definition
from agents.domain import definitions, transfer
from agents.domain.demo import MODELS
from agents.queries import agent_named
from agents.schema import all_fields
from governance.actors import system
from governance.domain import subjects, tenants
from sessions.domain import events, runs
from sessions.domain.runs import RunRequest
from sessions.models import Item, ModelCall
from tests.factories import agents as factory
from tests.sessions.domain.conftest import finished, rested

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = {"provider": "demo", "model": "demo-1-fast"}
EVERYTHING = {
    "name": "whole",
    "display_name": "Whole",
    "description": "Everything is switched on.",
    "instructions": "Answer in a {{tone}} tone.",
    "instructions_by_culture": {"de": "Antworte in {{tone}}em Ton."},
    "parameters": [{"name": "tone", "default": "calm"}],
    "response_format": {"kind": "text"},
    "model": {
        **MODEL, "temperature": 0.2, "top_p": 0.9, "max_output_tokens": 1000, "keep_reasoning": True,
        "fallbacks": [{"provider": "demo", "model": "demo-1"}],
    },
    "tools": ["calculate", "count_text"],
    "tool_settings": {"calculate": {"approval": "never", "max_output_chars": 500, "timeout_s": 5}},
    "skills": ["greeting"],
    "callable_agents": ["helper"],
    "harness": {
        "max_context_window_tokens": 20_000, "max_output_tokens": 1000, "maximum_iterations_per_request": 10,
        "harness_instructions": "Plan before you act.", "initial_mode": "execute", "loop": {"max_iterations": 3},
    },
    "compaction": {
        "strategy": "summarization", "trigger_tokens": 5000, "trigger_messages": 30, "trigger_turns": 4, "minimum_preserved_turns": 1,
        "minimum_preserved_groups": 2, "summarization_prompt": "Keep names and numbers.", "summarization_model": MODEL,
        "background": False, "keep_dropped": True,
    },
    "memory": {"enable_todo": True, "enable_file_memory": True, "enable_text_search": True, "scope": "agent"},
    "workspace": {"enabled": True, "disable_read_approval": True},
    "layer_caps": {"recall": 2000, "working_memory": 2000, "history": 8000, "summary": 500},
    "assembly": [
        {"kind": "working_memory", "transparent": True}, {"kind": "episodic_memory", "max_episodes": 2, "transparent": True},
        {"kind": "alert", "transparent": True}, {"kind": "conversation", "transparent": True},
        {"kind": "sliding_window", "max_items": 30, "transparent": True}, {"kind": "token_budget", "max_tokens": 8000, "transparent": True},
    ],
    "aggregation": [
        {"kind": "working_memory", "model": MODEL, "every_n_turns": 1, "on_end": True},
        {"kind": "conversation_summary", "every_n_items": 2, "on_end": True},
    ],
    "sessions": {"version_policy": "pin", "on_busy": "enqueue", "idle_expiry_days": 30},
    "limits": {"max_tokens_per_run": 100_000, "max_cost_per_run": 5, "max_seconds_per_run": 300, "max_tool_calls": 20},
    "metadata": {"team": "tests"},
}  # fmt: skip
# Available, and yet not in it: what only takes away, what excludes something else, what a demo provider does not have,
# and what names a server.
LEFT_OUT = {
    *(path for path in all_fields() if path.startswith("harness.disable_")),
    "compaction.max_context_window_tokens", "compaction.max_output_tokens", "compaction.tool_eviction_threshold",
    "compaction.truncation_threshold", "response_format.json_schema", "model.reasoning_effort", "model.settings",
    "harness.enable_web_search", "workspace.read_only", "mcp_resource_uris", "model.provider", "model.model",
}  # fmt: skip
MESSAGES = [
    "The kettle with number 7 is blue and stands in the kitchen; Ada wants it back by Friday. " * 3,
    "What is 2 + 3?",
    "Count the words: one two three",
    "Bring the ladder to Ada as well. " * 4,
    "What do you know about the kettle?",
]


def means_something(path: str) -> bool:
    """Whether a setting does not wait for another one that is not available yet."""
    gates = {
        "memory.vector_collections": "memory.enable_vector_search",
        "memory.conversation_memory_search": "memory.enable_conversation_memory",
        "memory.conversation_memory_max_results": "memory.enable_conversation_memory",
        "memory.fact_categories": "memory.enable_facts",
        "memory.unknown_subject_instructions": "memory.enable_facts",
        "memory.known_subject_instructions": "memory.enable_facts",
        "memory.extraction_topics": "memory.enable_extraction",
        "memory.extraction_model": "memory.enable_extraction",
        "memory.memory_pool": "memory.enable_extraction",
    }
    return path not in gates or all_fields()[gates[path]].available


def is_set(path: str) -> bool:
    value = EVERYTHING
    for step in path.split("."):
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return True


def test_every_available_setting_is_switched_on():
    """Whoever makes a setting available adds it to the agent above."""
    expected = {path for path, entry in all_fields().items() if entry.available and means_something(path)} - LEFT_OUT

    assert {path for path in expected if not is_set(path)} == set()


@pytest.fixture
def source(db):
    """A tenant with the agent, its skill and its provider."""
    tenant = tenants.create_tenant(slug="source", name="Source")
    factory.provider(tenant, models=MODELS)
    factory.skill(tenant, "greeting")
    factory.published(tenant, "helper", description="Helps.")
    agent = definitions.create_agent(tenant_id=tenant.id, document=EVERYTHING, by=system(tenant.id))
    definitions.publish(agent=agent, note="First", by=system(tenant.id))
    agent.refresh_from_db()
    return agent


@pytest.fixture
def target(source):
    """The same agent, imported into a tenant that has nothing but a provider. Agents that it calls come first."""
    tenant = tenants.create_tenant(slug="target", name="Target")
    factory.provider(tenant, models=MODELS)
    by = system(source.tenant_id)
    files = [transfer.export_agent(agent=agent, by=by) for agent in (agent_named(tenant_id=source.tenant_id, name="helper"), source)]
    lacking = transfer.check_import(tenant_id=tenant.id, document=files[1])["missing"]
    assert [(entry["kind"], entry["name"]) for entry in lacking] == [("agent", "helper")]
    return [transfer.import_agent(tenant_id=tenant.id, document=file, by=system(tenant.id)) for file in files][1]


def converse(agent):
    """Talk to the agent; what can be seen of each run, without ids and times."""
    subject = subjects.resolve(tenant_id=agent.tenant_id, value="person-1")
    return [turn(agent, subject, message, key) for key in ("case-1", "case-2") for message in MESSAGES]


def turn(agent, subject, message, key):
    request = RunRequest(message=message, session_key=key, parameters={"tone": "warm"})
    run = finished(runs.start(agent_name="whole", request=request, by=system(agent.tenant_id), subject=subject))
    rested()
    items = Item.objects.filter(run_id=run.id).order_by("seq")
    calls = ModelCall.objects.filter(run_id=run.id).order_by("number")
    return {
        "status": run.status,
        "said": [(item.kind, item.role, item.content.get("text"), item.content.get("arguments")) for item in items],
        "saw": [[_seen(layer) for layer in call.context] for call in calls],
        "told": [event.type for event in events.read(run=run) if not event.type.endswith(".delta")],
        "wrote": [call.output_tokens for call in calls],
    }


def _seen(layer):
    """Conversations are recalled under names with ids and times, which have a size of their own."""
    tokens = layer["tokens"] if layer["layer"] != "recall" else bool(layer["tokens"])
    return layer["layer"], tokens, len(layer["sources"]), len(layer["left_out"])


def test_imported_agent_behaves_as_the_one_it_was_exported_from(source, target):
    assert target.published.document == source.published.document
    assert target.published.digest == source.published.digest

    there, here = converse(source), converse(target)

    assert here == there
    assert {run["status"] for run in there} == {"completed"}
    layers = {layer[0] for run in there for call in run["saw"] for layer in call}
    assert {"instructions", "skills", "tools", "summary", "history", "working_memory", "recall", "assembly", "message", "written_down"} <= layers
    told = {kind for run in there for kind in run["told"]}
    assert {"history.compacted", "aggregation.completed", "tool.completed"} <= told


def test_agent_with_everything_has_no_errors(source):
    assert compile_definition(EVERYTHING, tenant_id=source.tenant_id, agent_name="whole").errors == []
