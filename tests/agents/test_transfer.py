"""Differences between definitions, agents as files, and the demo agents."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings

from agents import queries
from agents.compile import compile_definition
from agents.domain import definitions, diffs, transfer
from agents.domain.demo import seed_demo_agents
from agents.errors import AgentExists, ImportIncomplete, ImportInvalid
from agents.models import Agent, AgentVersion, Provider
from governance.actors import system
from governance.errors import LetheError, MissingPermission, NotFound
from governance.models import AuditEvent
from tests.agents.test_definition import DOCUMENTS, WHOLE, nested
from tests.factories import agents, governance


def change(path, kind, old=None, new=None):
    return diffs.Change(path, kind, old, new)


# --- Differences ----------------------------------------------------------------------------------------------------


def test_diff_lists_changed_paths():
    old = {"name": "a", "model": {"provider": "p", "temperature": 0.2}, "tools": ["x"], "harness": {}, "memory": {"enable_todo": True}}
    new = {"name": "a", "model": {"provider": "q", "top_p": 1}, "tools": ["x", "y"], "memory": {"enable_todo": True}, "limits": {}}

    assert diffs.diff(old, new) == [
        change("model.provider", "changed", "p", "q"),
        change("model.top_p", "added", None, 1),
        change("model.temperature", "removed", 0.2),
        change("tools", "changed", ["x"], ["x", "y"]),
        change("limits", "added", None, {}),
        change("harness", "removed", {}),
    ]


def test_diff_of_objects_in_lists_names_the_entry():
    old = {"parameters": [{"name": "a"}, {"name": "b"}]}
    new = {"parameters": [{"name": "a", "required": True}, {"name": "c"}, {"name": "d"}]}

    assert diffs.diff(old, new) == [
        change("parameters.0.required", "added", None, True),
        change("parameters.1.name", "changed", "b", "c"),
        change("parameters.2", "added", None, {"name": "d"}),
    ]


def test_diff_knows_true_from_one():
    assert diffs.diff({"a": True, "b": "1"}, {"a": 1, "b": "1"}) == [change("a", "changed", True, 1)]


def test_diff_of_long_texts_is_by_line():
    old = "\n".join(f"line {number}" for number in range(40))
    new = old.replace("line 5\n", "line five\n").replace("line 30", "line thirty\nand more")

    (found,) = diffs.diff({"instructions": old}, {"instructions": new})

    assert ["removed", "line 5"] in found.lines
    assert ["added", "line five"] in found.lines
    assert ["added", "and more"] in found.lines
    assert ["same", "line 0"] not in found.lines
    assert ["same", "..."] in found.lines
    assert [line for kind, line in found.lines if kind == "removed"] == ["line 5", "line 30"]
    assert diffs.diff({"a": "short"}, {"a": "text"})[0].lines is None


def test_nothing_changed():
    assert diffs.diff(WHOLE, copy.deepcopy(WHOLE)) == []


# --- Files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(tenant, builder):
    """An agent with two versions, the first of them published again as the third."""
    agent = agents.published(tenant, "a", instructions="One", tools=["calculate"])
    definitions.save_draft(agent=agent, document=agents.document("a", instructions="Two"), expected=1, by=builder)
    definitions.publish(agent=agent, note="Second", by=builder)
    definitions.rollback(agent=agent, number=1, by=builder)
    return transfer.export_agent(agent=agent, by=builder)


def test_export_has_everything_and_no_secret(tenant, exported):
    assert json.loads(json.dumps(exported)) == exported
    assert (exported["format"], exported["name"], exported["published"]) == ("lethe.agent/1", "a", 3)
    assert exported["draft"]["instructions"] == "Two"
    assert [(version["number"], version["note"]) for version in exported["versions"]] == [
        (1, "First"),
        (2, "Second"),
        (3, "Back to version 1"),
    ]
    assert AuditEvent.objects.filter(tenant_id=tenant.id, action="agent.exported").get().payload == {"versions": 3}


def test_import_brings_everything_back(stranger, exported):
    agents.provider(stranger)
    by = governance.actor(stranger, "builder", username="bob")

    agent = transfer.import_agent(tenant_id=stranger.id, document=exported, by=by)

    again = transfer.export_agent(agent=Agent.objects.get(pk=agent.pk), by=by)
    for version in again["versions"]:
        assert version["published_by"].endswith(" (imported)")
        version["published_by"] = version["published_by"].removesuffix(" (imported)")
    assert again == exported
    assert queries.runnable(tenant_id=stranger.id, name="a")[1].number == 3
    assert definitions.publish(agent=agent, note="", by=by).number == 4


def test_import_says_first_what_is_missing(stranger, exported):
    by = governance.actor(stranger, "builder")

    found = transfer.check_import(tenant_id=stranger.id, document=exported)

    assert {key: found[key] for key in ("name", "exists", "versions", "publishes")} == {
        "name": "a",
        "exists": False,
        "versions": 3,
        "publishes": False,
    }
    missing = [
        {"kind": "provider", "name": "demo", "path": "model.provider", "message": "There is no provider named demo."}
    ]
    assert found["missing"] == missing
    with pytest.raises(ImportIncomplete) as refused:
        transfer.import_agent(tenant_id=stranger.id, document=exported, by=by)
    assert refused.value.extra["missing"] == missing
    assert not Agent.objects.filter(tenant=stranger).exists()

    agent = transfer.import_agent(tenant_id=stranger.id, document=exported, by=by, allow_missing=True)
    assert (agent.published, agent.versions.count()) == (None, 3)


def test_missing_things_are_named(stranger):
    agents.provider(stranger)
    document = agents.document("a", tools=["send_mail"], callable_agents=["helper"], memory={"enable_facts": True})
    file = {"format": "lethe.agent/1", "name": "a", "draft": document}

    found = transfer.check_import(tenant_id=stranger.id, document=file)

    assert {(entry["kind"], entry["name"]) for entry in found["missing"]} == {
        ("tool", "send_mail"),
        ("agent", "helper"),
        ("setting", "memory.enable_facts"),
    }


def test_import_of_a_name_that_is_taken(tenant, builder, exported):
    assert transfer.check_import(tenant_id=tenant.id, document=exported)["exists"]
    with pytest.raises(AgentExists):
        transfer.import_agent(tenant_id=tenant.id, document=exported, by=builder)

    renamed = transfer.import_agent(tenant_id=tenant.id, document=exported, by=builder, name="b")

    assert (renamed.name, renamed.draft["name"], renamed.published.document["name"]) == ("b", "b", "b")
    assert definitions.check(agent=renamed).valid
    assert AgentVersion.objects.filter(agent__name="a").count() == 3


def damaged(file, **changes):
    file = copy.deepcopy(file)
    for path, value in changes.items():
        *way, last = path.split("__")
        inner = file
        for step in way:
            inner = inner[int(step) if step.isdigit() else step]
        inner[last] = value
    return file


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"format": "lethe.agent/9"}, "format"),
        ({"extra": 1}, "extra"),
        ({"name": "../etc"}, "name"),
        ({"name": 5}, "name"),
        ({"draft": []}, "draft"),
        ({"published": 9}, "published"),
        ({"published": "3"}, "published"),
        ({"versions": {}}, "versions"),
        ({"versions__0__number": 0}, "versions.0.number"),
        ({"versions__0__number": 2**40}, "versions.0.number"),
        ({"versions__1__number": 1}, "versions.1.number"),
        ({"versions__0__document__instructions": "Forged"}, "versions.0.digest"),
        ({"versions__0__digest": "short"}, "versions.0.digest"),
        ({"versions__0__note": "x" * 2001}, "versions.0.note"),
        ({"versions__0__tenant_id": "other"}, "versions.0.tenant_id"),
    ],
)
def test_file_that_was_tampered_with_is_refused(stranger, exported, changes, path):
    agents.provider(stranger)

    with pytest.raises(ImportInvalid) as refused:
        transfer.import_agent(tenant_id=stranger.id, document=damaged(exported, **changes), by=system(stranger.id))

    assert path in refused.value.errors
    assert not Agent.objects.filter(tenant=stranger).exists()


@pytest.mark.parametrize("file", [None, [], "x", {}, {"format": "lethe.agent/1"}, nested(100_000), {"draft": nested(60)}])
def test_what_is_no_file_is_refused(tenant, builder, file):
    with pytest.raises(ImportInvalid):
        transfer.check_import(tenant_id=tenant.id, document=file)
    with pytest.raises(ImportInvalid):
        transfer.import_agent(tenant_id=tenant.id, document=file, by=builder)


@given(DOCUMENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_draft_crashes_an_import(tenant, document):
    file = {"format": "lethe.agent/1", "name": "a", "draft": document}
    try:
        found = transfer.check_import(tenant_id=tenant.id, document=file)
    except LetheError:
        return
    json.dumps(found)


def test_file_with_a_forged_name_inside_becomes_the_agents_own(stranger, exported):
    agents.provider(stranger)
    file = damaged(exported, draft__name="other")

    agent = transfer.import_agent(tenant_id=stranger.id, document=file, by=system(stranger.id))

    assert (agent.name, agent.draft["name"]) == ("a", "a")


def test_transfer_needs_permissions_and_the_own_tenant(tenant, stranger, viewer, exported):
    agent = Agent.objects.get(tenant=tenant, name="a")
    nobody = governance.actor(tenant, "auditor")

    assert transfer.export_agent(agent=agent, by=viewer) == exported
    with pytest.raises(MissingPermission):
        transfer.export_agent(agent=agent, by=nobody)
    with pytest.raises(NotFound):
        transfer.export_agent(agent=agent, by=system(stranger.id))
    with pytest.raises(MissingPermission):
        transfer.import_agent(tenant_id=tenant.id, document=exported, by=viewer, name="b")
    with pytest.raises(NotFound):
        transfer.import_agent(tenant_id=stranger.id, document=exported, by=system(tenant.id))


# --- Demo -----------------------------------------------------------------------------------------------------------


def test_demo_agents_are_published_without_a_finding(tenant):
    seeded = seed_demo_agents(tenant_id=tenant.id, by=system(tenant.id))

    assert [agent.name for agent in seeded] == ["research", "assistant", "careful"]
    for agent in seeded:
        _, version = queries.runnable(tenant_id=tenant.id, name=agent.name)
        report = compile_definition(version.document, tenant_id=tenant.id, agent_name=agent.name)
        assert [entry.code for entry in report.messages] == ["uncapped_tool_output"]
    research, assistant, careful = (queries.definition_of(agent.published) for agent in queries.agents_of(tenant.id).order_by("id"))
    assert (research.harness, research.tools) == (None, ["current_time", "count_text"])
    assert assistant.harness.initial_mode == "execute"
    assert careful.tool_settings["calculate"].approval == "always"
    assert queries.model_limits(Provider.objects.get(), "demo-1") == {"context_window": 32_768, "max_output_tokens": 4096}


def test_seeding_twice_changes_nothing(tenant, builder):
    by = system(tenant.id)
    first = seed_demo_agents(tenant_id=tenant.id, by=by)
    document = first[0].draft | {"instructions": "Mine now."}
    definitions.save_draft(agent=first[0], document=document, expected=1, by=builder)
    before = (list(Agent.objects.values()), list(AgentVersion.objects.values()), AuditEvent.objects.count())

    again = seed_demo_agents(tenant_id=tenant.id, by=by)

    assert again == first
    assert (list(Agent.objects.values()), list(AgentVersion.objects.values()), AuditEvent.objects.count()) == before
