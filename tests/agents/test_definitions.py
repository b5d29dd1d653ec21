"""Drafts, versions and the states of an agent, by their verbs."""

import threading
from dataclasses import replace

import pytest
from django.db import Error, connection, transaction

from agents import queries
from agents.domain import definitions
from agents.errors import (
    AgentDisabled,
    AgentExists,
    AgentInUse,
    AgentNotPublished,
    AgentReadOnly,
    DefinitionInvalid,
    DefinitionUnreadable,
)
from agents.models import Agent, AgentVersion
from governance.actors import system
from governance.domain import audit
from governance.errors import Invalid, MissingPermission, NotFound, VersionConflict
from governance.models import AuditEvent
from tests.factories import agents, governance


def actions(tenant) -> list[str]:
    return list(AuditEvent.objects.filter(tenant_id=tenant.id, object_type="agent").order_by("id").values_list("action", flat=True))


def at_once(*calls):
    """Run the calls in threads of their own, at the same moment. Returns what each returned or raised."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place, call):
        try:
            barrier.wait()
            results[place] = call()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=entry) for entry in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- Creating and saving --------------------------------------------------------------------------------------------


def test_create_agent_keeps_a_draft_with_problems(tenant, builder):
    agent = definitions.create_agent(
        tenant_id=tenant.id, document={"name": "a", "displayName": "A", "modle": 1, "description": 5}, by=builder
    )

    assert agent.draft == {"name": "a", "display_name": "A", "modle": 1, "description": 5}
    assert (agent.display_name, agent.description, agent.draft_counter, agent.published) == ("A", "", 1, None)
    assert agent.draft_saved_by == "ada"
    assert actions(tenant) == ["agent.created"]


@pytest.mark.parametrize("name", [None, "", 5, "a/b", "~a", "a b", "..", "x" * 65, "a\n", ["a"]])
def test_create_agent_needs_a_name(tenant, builder, name):
    with pytest.raises(Invalid) as refused:
        definitions.create_agent(tenant_id=tenant.id, document={"name": name}, by=builder)

    assert list(refused.value.errors) == ["name"]
    assert not Agent.objects.exists()


def test_create_agent_refuses_what_is_no_document(tenant, builder):
    with pytest.raises(DefinitionUnreadable):
        definitions.create_agent(tenant_id=tenant.id, document=["name"], by=builder)


def test_name_is_unique_in_the_tenant_only(tenant, stranger, builder):
    agents.draft(stranger, "a")
    definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=builder)

    with pytest.raises(AgentExists) as refused:
        definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=builder)

    assert (refused.value.code, refused.value.kind) == ("agent_exists", "conflict")
    assert Agent.objects.filter(name="a").count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_creations_at_once_make_one_agent(tenant, builder):
    def create():
        return definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=builder)

    results = at_once(*[create] * 4)

    assert sorted(type(result).__name__ for result in results) == ["Agent", *["AgentExists"] * 3]
    assert Agent.objects.count() == 1


def test_save_draft_counts_and_copies_what_lists_show(tenant, builder):
    agent = agents.draft(tenant, "a")
    document = agents.document("a", displayName="x" * 300, description="Good.")

    saved = definitions.save_draft(agent=agent, document=document, expected=1, by=builder)

    stored = Agent.objects.get()
    assert (saved.draft_counter, stored.draft_counter) == (2, 2)
    assert (stored.display_name, stored.description, stored.draft_saved_by) == ("x" * 200, "Good.", "ada")
    assert stored.draft["display_name"] == "x" * 300
    assert actions(tenant) == ["agent.created", "agent.saved"]


def test_save_draft_of_the_same_content_changes_nothing(tenant, builder):
    agent = agents.draft(tenant, "a")

    saved = definitions.save_draft(agent=agent, document=agents.document("a", displayName=""), expected=1, by=builder)

    assert saved.draft_counter == 1
    assert actions(tenant) == ["agent.created"]


def test_save_draft_after_somebody_else_shows_both_texts(tenant, builder):
    agent = agents.draft(tenant, "a")
    definitions.save_draft(agent=agent, document=agents.document("a", instructions="Theirs"), expected=1, by=builder)

    with pytest.raises(VersionConflict) as lost:
        definitions.save_draft(agent=agent, document=agents.document("a", instructions="Mine"), expected=1, by=builder)

    assert lost.value.extra["current"]["counter"] == 2
    assert lost.value.extra["current"]["saved_by"] == "ada"
    assert lost.value.extra["current"]["document"]["instructions"] == "Theirs"
    assert lost.value.extra["yours"]["instructions"] == "Mine"
    assert Agent.objects.get().draft["instructions"] == "Theirs"


@pytest.mark.django_db(transaction=True)
def test_of_many_savers_at_once_one_wins(tenant, builder):
    agent = agents.draft(tenant, "a")

    def save(number):
        document = agents.document("a", instructions=f"Number {number}")
        return lambda: definitions.save_draft(agent=agent, document=document, expected=1, by=builder)

    results = at_once(*[save(number) for number in range(6)])

    winners = [result for result in results if isinstance(result, Agent)]
    assert len(winners) == 1
    assert sum(isinstance(result, VersionConflict) for result in results) == 5
    stored = Agent.objects.get()
    assert (stored.draft_counter, stored.draft) == (2, winners[0].draft)


def test_save_draft_cannot_rename(tenant, builder):
    agent = agents.draft(tenant, "a")

    with pytest.raises(Invalid) as refused:
        definitions.save_draft(agent=agent, document=agents.document("b"), expected=1, by=builder)
    assert list(refused.value.errors) == ["name"]

    nameless = {key: value for key, value in agents.document("a", description="x").items() if key != "name"}
    assert definitions.save_draft(agent=agent, document=nameless, expected=1, by=builder).draft["name"] == "a"


# --- Versions -------------------------------------------------------------------------------------------------------


def test_publish_makes_a_version_and_points_at_it(tenant, builder):
    agent = agents.draft(tenant, "a", displayName="A")

    version = definitions.publish(agent=agent, note="First\x00", by=builder)

    assert (version.number, version.note, version.published_by) == (1, "First\ufffd", "ada")
    assert version.document == agent.draft
    assert agent.published == version
    assert Agent.objects.get().published == version
    event = AuditEvent.objects.filter(tenant_id=tenant.id, action="agent.published").get()
    assert (event.object_label, event.payload) == ("a", {"version": 1})


def test_publish_of_identical_content_publishes_nothing(tenant, builder):
    agent = agents.published(tenant, "a")
    before = actions(tenant)

    version = definitions.publish(agent=agent, note="Again", by=builder)

    assert (version.number, AgentVersion.objects.count(), actions(tenant)) == (1, 1, before)


def test_publish_refuses_a_draft_with_problems_and_says_all(tenant, builder):
    agent = agents.draft(tenant, "a", tools=["no"], harness={"initial_mode": "x"})

    with pytest.raises(DefinitionInvalid) as refused:
        definitions.publish(agent=agent, note="", by=builder)

    assert (refused.value.code, refused.value.kind) == ("definition_invalid", "unprocessable")
    assert set(refused.value.errors) == {"tools.0", "harness.initial_mode"}
    assert refused.value.extra["report"]["valid"] is False
    assert not AgentVersion.objects.exists()


def test_publish_of_another_state_of_the_draft_is_refused(tenant, builder):
    agent = agents.draft(tenant, "a")
    definitions.save_draft(agent=agent, document=agents.document("a", instructions="New"), expected=1, by=builder)

    with pytest.raises(VersionConflict):
        definitions.publish(agent=agent, note="", by=builder, expected=1)
    assert definitions.publish(agent=agent, note="", by=builder, expected=2).document["instructions"] == "New"


@pytest.mark.django_db(transaction=True)
def test_publishers_at_once_make_one_version(tenant, builder):
    agent = agents.draft(tenant, "a")

    results = at_once(*[lambda: definitions.publish(agent=Agent.objects.get(), note="", by=builder)] * 5)

    assert [result.number for result in results] == [1] * 5
    assert AgentVersion.objects.count() == 1
    assert Agent.objects.get().published == results[0]
    assert agent.published is None


def test_rollback_publishes_the_old_definition_as_a_new_version(tenant, builder):
    agent = agents.published(tenant, "a", instructions="One")
    definitions.save_draft(agent=agent, document=agents.document("a", instructions="Two"), expected=1, by=builder)
    definitions.publish(agent=agent, note="", by=builder)

    version = definitions.rollback(agent=agent, number=1, by=builder)

    assert (version.number, version.document["instructions"], version.note) == (3, "One", "Back to version 1")
    stored = Agent.objects.get()
    assert (stored.published.number, stored.draft["instructions"]) == (3, "Two")
    assert actions(tenant)[-1] == "agent.rolled_back"


def test_rollback_to_what_is_published_changes_nothing(tenant, builder):
    agent = agents.published(tenant, "a")

    assert definitions.rollback(agent=agent, number=1, by=builder).number == 1
    assert AgentVersion.objects.count() == 1


def test_rollback_compiles_first(tenant, builder):
    agent = agents.published(tenant, "a", model={"provider": "demo", "model": "demo-1"})
    agents.provider(tenant, "other")
    document = agents.document("a", model={"provider": "other", "model": "demo-1"})
    definitions.save_draft(agent=agent, document=document, expected=1, by=builder)
    definitions.publish(agent=agent, note="", by=builder)
    agent.tenant.providers.filter(name="demo").delete()

    with pytest.raises(DefinitionInvalid):
        definitions.rollback(agent=agent, number=1, by=builder)
    assert Agent.objects.get().published.number == 2


@pytest.mark.parametrize("number", [0, -1, 2, 2**40])
def test_rollback_to_nothing(tenant, builder, number):
    with pytest.raises(NotFound):
        definitions.rollback(agent=agents.published(tenant, "a"), number=number, by=builder)


def test_version_cannot_be_changed_even_by_sql(tenant):
    agents.published(tenant, "a")

    with pytest.raises(Error, match="cannot be changed"), transaction.atomic():
        AgentVersion.objects.update(document={"name": "forged"})
    with pytest.raises(Error, match="cannot be changed"), transaction.atomic():
        AgentVersion.objects.update(number=7)
    assert AgentVersion.objects.update(note="A note may be corrected") == 1


def test_change_and_its_record_are_one(tenant, builder, monkeypatch):
    agent = agents.draft(tenant, "a")

    def fail(*args, **kwargs):
        raise RuntimeError("the trail cannot be written")

    monkeypatch.setattr(audit, "record", fail)

    with pytest.raises(RuntimeError), transaction.atomic():
        definitions.publish(agent=agent, note="", by=builder)
    assert not AgentVersion.objects.exists()
    assert Agent.objects.get().published is None


# --- States ---------------------------------------------------------------------------------------------------------


def test_runnable_follows_the_state(tenant, builder, django_assert_num_queries):
    agent = agents.published(tenant, "a")
    queries.runnable(tenant_id=tenant.id, name="a")

    # Versions never change: this one is known by now.
    with django_assert_num_queries(1):
        found, version = queries.runnable(tenant_id=tenant.id, name="a")
    assert (found, version.number) == (agent, 1)

    definitions.disable(agent=agent, by=builder)
    with pytest.raises(AgentDisabled, match="switched off"):
        queries.runnable(tenant_id=tenant.id, name="a")

    definitions.enable(agent=agent, by=builder)
    definitions.archive(agent=agent, by=builder)
    with pytest.raises(AgentDisabled, match="archived"):
        queries.runnable(tenant_id=tenant.id, name="a")

    definitions.restore(agent=agent, by=builder)
    assert queries.runnable(tenant_id=tenant.id, name="a")[0] == agent
    assert actions(tenant)[-4:] == ["agent.disabled", "agent.enabled", "agent.archived", "agent.restored"]


def test_runnable_without_a_version(tenant):
    agents.draft(tenant, "a")

    with pytest.raises(AgentNotPublished):
        queries.runnable(tenant_id=tenant.id, name="a")
    with pytest.raises(NotFound):
        queries.runnable(tenant_id=tenant.id, name="b")


def test_switching_twice_is_recorded_once(tenant, builder):
    agent = agents.published(tenant, "a")
    for verb in (definitions.disable, definitions.archive) * 2:
        verb(agent=agent, by=builder)
    archived_at = agent.archived_at

    assert actions(tenant)[-2:] == ["agent.disabled", "agent.archived"]
    assert Agent.objects.get().archived_at == archived_at


def test_archived_agents_leave_the_list(tenant, builder):
    kept, archived = agents.published(tenant, "kept"), agents.published(tenant, "gone")
    definitions.archive(agent=archived, by=builder)

    assert list(queries.agents_of(tenant.id)) == [kept]
    assert list(queries.agents_of(tenant.id, archived=True)) == [archived]


def test_list_costs_the_same_for_one_and_many(tenant, django_assert_num_queries):
    for rows in (1, 3):
        while Agent.objects.count() < rows:
            agents.published(tenant)
        with django_assert_num_queries(1):
            assert [agent.published.number for agent in queries.agents_of(tenant.id)] == [1] * rows


# --- Deleting -------------------------------------------------------------------------------------------------------


def test_delete_agent_takes_its_versions(tenant, builder):
    agent, other = agents.published(tenant, "a"), agents.published(tenant, "b")

    definitions.delete_agent(agent=agent, by=builder)

    assert list(Agent.objects.all()) == [other]
    assert list(AgentVersion.objects.values_list("agent__name", flat=True)) == ["b"]
    event = AuditEvent.objects.filter(action="agent.deleted").get()
    assert (event.object_label, event.payload) == ("a", {"versions": 1})


def test_delete_agent_refuses_while_something_belongs_to_it(tenant, registered_dependents):
    left = {"sessions": 3, "runs": 0}
    registered_dependents("sessions", count=lambda agent: left["sessions"], delete=lambda agent, by: left.update(sessions=0))
    registered_dependents("runs", count=lambda agent: left["runs"], delete=lambda agent, by: None)
    agent = agents.published(tenant, "a")
    builder = governance.actor(tenant, "builder")

    with pytest.raises(AgentInUse) as refused:
        definitions.delete_agent(agent=agent, by=builder)
    assert refused.value.extra["counts"] == {"sessions": 3}

    with pytest.raises(MissingPermission):
        definitions.delete_agent(agent=agent, with_sessions=True, by=builder)
    assert left["sessions"] == 3

    definitions.delete_agent(agent=agent, with_sessions=True, by=governance.actor(tenant, "builder", "operator"))
    assert (left["sessions"], Agent.objects.count()) == (0, 0)
    assert AuditEvent.objects.get(action="agent.deleted").payload == {"versions": 1, "sessions": 3}


# --- Who may --------------------------------------------------------------------------------------------------------

VERBS = {
    "save_draft": lambda agent, by: definitions.save_draft(agent=agent, document=agents.document("a", description="x"), expected=1, by=by),
    "publish": lambda agent, by: definitions.publish(agent=agent, note="", by=by),
    "rollback": lambda agent, by: definitions.rollback(agent=agent, number=1, by=by),
    "disable": lambda agent, by: definitions.disable(agent=agent, by=by),
    "enable": lambda agent, by: definitions.enable(agent=agent, by=by),
    "archive": lambda agent, by: definitions.archive(agent=agent, by=by),
    "restore": lambda agent, by: definitions.restore(agent=agent, by=by),
    "delete_agent": lambda agent, by: definitions.delete_agent(agent=agent, by=by),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_need_the_permission(tenant, viewer, verb):
    agent = agents.published(tenant, "a")
    before = actions(tenant)

    with pytest.raises(MissingPermission) as refused:
        VERBS[verb](agent, viewer)

    assert refused.value.extra["permission"] == "agents.write"
    assert actions(tenant) == before


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_of_another_tenant_find_nothing(tenant, stranger, verb):
    agent = agents.published(tenant, "a")
    before = Agent.objects.values().get()

    with pytest.raises(NotFound):
        VERBS[verb](agent, system(stranger.id))

    assert Agent.objects.values().get() == before


def test_create_agent_in_another_tenant_or_without_permission(tenant, stranger, builder, viewer):
    with pytest.raises(NotFound):
        definitions.create_agent(tenant_id=stranger.id, document={"name": "a"}, by=builder)
    with pytest.raises(MissingPermission):
        definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=viewer)
    with pytest.raises(MissingPermission):
        definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=replace(builder, permissions=frozenset()))


def test_queries_show_the_own_tenant_only(tenant, stranger):
    mine, theirs = agents.published(tenant, "mine"), agents.published(stranger, "theirs")

    assert list(queries.agents_of(tenant.id)) == [mine]
    assert [provider.tenant_id for provider in queries.providers_of(tenant.id)] == [tenant.id]
    assert list(queries.versions_of(mine)) == [mine.published]
    for ask in (queries.agent_named, queries.runnable):
        with pytest.raises(NotFound):
            ask(tenant_id=tenant.id, name=theirs.name)
    agents.provider(stranger, "secret")
    with pytest.raises(NotFound):
        queries.provider_named(tenant_id=tenant.id, name="secret")


def test_definition_of_a_version_is_read_once(tenant):
    version = agents.published(tenant, "a", instructions="Once").published

    assert queries.definition_of(version).instructions == "Once"
    assert queries.definition_of(version) is queries.definition_of(AgentVersion.objects.get())


# --- Defined in code ------------------------------------------------------------------------------------------------


def test_agent_of_code_appears_when_asked_for(tenant, stranger, code_agents, django_assert_num_queries):
    agents.provider(tenant)
    code_agents(agents.document("coded", displayName="Coded"))

    agent, version = queries.runnable(tenant_id=tenant.id, name="coded")

    assert (agent.origin, agent.display_name, version.number, version.published_by) == ("code", "Coded", 1, "code")
    with django_assert_num_queries(2):
        assert queries.runnable(tenant_id=tenant.id, name="coded") == (agent, version)
    assert list(queries.agents_of(stranger.id).values_list("name", flat=True)) == ["coded"]
    assert list(queries.agents_of(tenant.id)) == [agent]


def test_changed_agent_of_code_is_a_new_version(tenant, code_agents):
    code_agents(agents.document("coded"))
    queries.agent_named(tenant_id=tenant.id, name="coded")
    code_agents(agents.document("coded", instructions="Changed"))

    _, version = queries.runnable(tenant_id=tenant.id, name="coded")

    assert (version.number, version.document["instructions"]) == (2, "Changed")


@pytest.mark.parametrize("verb", ["save_draft", "publish", "rollback", "delete_agent"])
def test_agent_of_code_is_read_only(tenant, builder, code_agents, verb):
    code_agents(agents.document("a"))
    agent = queries.agent_named(tenant_id=tenant.id, name="a")

    with pytest.raises(AgentReadOnly):
        VERBS[verb](agent, builder)
    with pytest.raises(AgentExists):
        definitions.create_agent(tenant_id=tenant.id, document={"name": "a"}, by=builder)
    assert definitions.disable(agent=agent, by=builder).is_disabled


def test_agent_of_code_wins_a_clash_and_says_so(tenant, builder, code_agents, caplog):
    mine = agents.published(tenant, "clash", instructions="Mine")
    code_agents(agents.document("clash", instructions="Code"))

    agent, version = queries.runnable(tenant_id=tenant.id, name="clash")

    assert (agent, agent.origin, version.number, version.document["instructions"]) == (mine, "code", 2, "Code")
    assert agent.draft["instructions"] == "Mine"
    assert "clash" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_many_first_calls_store_an_agent_of_code_once(tenant, code_agents):
    code_agents(agents.document("coded"))

    results = at_once(*[lambda: queries.runnable(tenant_id=tenant.id, name="coded")[1].number] * 5)

    assert results == [1] * 5
    assert AgentVersion.objects.count() == 1
