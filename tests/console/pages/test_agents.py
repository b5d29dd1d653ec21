"""The catalogue's pages: the list, one agent, its versions, comparing, going back, the danger zone, moving agents."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from agents import code_defined
from agents.domain import definitions, providers
from agents.models import Agent, AgentVersion
from sessions.models import Session
from tests.factories import agents, governance, sessions

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return agents.published(tenant, "research", display_name="Research", description="Finds things out.")


@pytest.fixture
def provider(tenant):
    return agents.provider(tenant)


def text(response):
    return response.content.decode()


def messages_of(response):
    return [str(message) for message in response.context["messages"]]


def save(agent, **values):
    """Change the draft and return the agent as it is stored."""
    by = governance.lethe(agent.tenant)
    definitions.save_draft(agent=agent, document=agent.draft | values, expected=agent.draft_counter, by=by)
    return Agent.objects.select_related("published").get(pk=agent.pk)


# The list


def test_list_shows_agents_with_model_version_state_and_last_run(owner, tenant, agent):
    sessions.run(agent)
    agents.draft(tenant, "alpha")

    response = owner.get(reverse("agents"))

    rows = [(row.name, row.model, row.state, row.published and row.published.number, bool(row.last_run)) for row in response.context["listing"].results]
    assert rows == [("alpha", "demo-1", "draft", None, False), ("research", "demo-1", "published", 1, True)]


def test_list_hides_other_tenants_agents(owner, agent, stranger):
    agents.published(stranger.membership.tenant, "secret")

    assert [row.name for row in owner.get(reverse("agents")).context["listing"].results] == ["research"]


def test_list_shows_the_last_run_of_the_own_tenant_only(owner, agent, stranger):
    sessions.run(agents.published(stranger.membership.tenant, "research"))

    assert owner.get(reverse("agents")).context["listing"].results[0].last_run is None


@pytest.mark.parametrize(
    "state, names", [("", ["changed", "draft", "off", "plain"]), ("published", ["plain"]), ("changed", ["changed"]), ("draft", ["draft"]), ("disabled", ["off"]), ("archived", ["old"])]
)
def test_list_filters_by_state(owner, tenant, state, names):
    by = governance.lethe(tenant)
    agents.published(tenant, "plain")
    save(agents.published(tenant, "changed"), description="New")
    agents.draft(tenant, "draft")
    definitions.disable(agent=agents.published(tenant, "off"), by=by)
    definitions.archive(agent=agents.published(tenant, "old"), by=by)

    found = owner.get(reverse("agents"), {"state": state}).context["listing"].results

    assert [row.name for row in found] == names


@pytest.mark.parametrize("words", ["SEAR", "finds things"])
def test_list_searches_name_and_description(owner, tenant, agent, words):
    agents.draft(tenant, "other")

    assert [row.name for row in owner.get(reverse("agents"), {"q": words}).context["listing"].results] == ["research"]


def test_list_has_two_empty_states(owner, viewer):
    assert "No agents yet" in text(owner.get(reverse("agents")))
    assert "A builder can create the first one." in text(viewer.get(reverse("agents")))
    assert "Nothing matches" in text(owner.get(reverse("agents"), {"q": "zzz"}))


def test_list_costs_the_same_for_one_and_three_agents(owner, tenant, agent, queries_of):
    one = queries_of(owner, reverse("agents"))
    for _number in range(2):
        sessions.run(agents.published(tenant))

    assert queries_of(owner, reverse("agents")) == one


def test_list_for_htmx_is_the_table_alone(owner, agent):
    response = owner.get(reverse("agents"), {"q": "res"}, headers={"HX-Request": "true"})

    assert "<html" not in text(response)
    assert response["HX-Push-Url"] == "/agents?q=res"


def test_list_needs_a_role_that_reads_agents(tenant, sign_in):
    assert sign_in(tenant, "privacy_officer").get(reverse("agents")).status_code == 403


# Creating


def test_new_agent_is_a_draft_and_opens_in_the_editor(owner, tenant, provider):
    response = owner.post(reverse("agent-new"), {"name": "helper", "display_name": "Helper", "provider": "demo", "model": "demo-1"})

    assert response.url == reverse("agent-edit", args=["helper"])
    made = Agent.objects.get(tenant=tenant, name="helper")
    assert made.draft == {"name": "helper", "display_name": "Helper", "model": {"provider": "demo", "model": "demo-1"}}
    assert made.published is None


@pytest.mark.parametrize("name", ["research", "a/b", "~new", "..", "x" * 65, ""])
def test_new_agent_with_a_wrong_name_is_asked_again(owner, agent, name):
    response = owner.post(reverse("agent-new"), {"name": name, "provider": "demo", "model": "demo-1"})

    assert response.status_code == 422
    assert response.context["form"].errors["name"]
    assert Agent.objects.count() == 1


def test_new_agent_needs_a_provider_first(owner):
    assert "There is no provider of models yet" in text(owner.get(reverse("agent-new")))


# One agent


def test_agent_page_shows_summary_use_versions_runs_and_sessions(owner, agent):
    session = sessions.session(agent, key="case-7")
    sessions.run(session=session, input_tokens=1200, output_tokens=34)

    page = text(owner.get(reverse("agent", args=["research"])))

    for words in ("Finds things out.", "1,234", "1,200 in, 34 out", "Version 1", "case-7", "demo-1", "Danger zone"):
        assert words in page


def test_agent_page_is_read_by_a_viewer_without_the_danger_zone(viewer, agent):
    page = text(viewer.get(reverse("agent", args=["research"])))

    assert "Danger zone" not in page
    assert "Needs the role builder." in page


def test_agent_defined_in_code_is_shown_and_not_edited(owner, tenant, provider):
    code_defined.register_agent(agents.document("coded"))
    try:
        owner.get(reverse("agents"))
        page = text(owner.get(reverse("agent", args=["coded"])))
        edit = owner.get(reverse("agent-edit", args=["coded"]))
    finally:
        code_defined.unregister_agent("coded")

    assert "defined in code" in page
    assert "Danger zone" not in page
    assert edit.status_code == 409


def test_agent_with_a_draft_that_holds_anything_still_has_a_page(owner, agent):
    save(agent, model="gpt", memory=[1], compaction="yes", tools=3, display_name=7)

    assert owner.get(reverse("agent", args=["research"])).status_code == 200


PAGES = [
    ("agent", []), ("agent-edit", []), ("agent-publish", []), ("agent-compare", []), ("agent-export", []), ("agent-versions", []),
    ("agent-version", [1]),
]  # fmt: skip
ACTS = [
    ("agent-edit", []), ("agent-check", []), ("agent-try", []), ("agent-resolve", []), ("agent-publish", []), ("agent-disable", []),
    ("agent-enable", []), ("agent-archive", []), ("agent-restore", []), ("agent-delete", []), ("agent-rollback", [1]),
]  # fmt: skip


@pytest.mark.parametrize("name, rest", PAGES)
def test_stranger_finds_no_page(stranger, agent, name, rest):
    assert stranger.get(reverse(name, args=["research", *rest])).status_code == 404


@pytest.mark.parametrize("name, rest", ACTS)
def test_stranger_can_do_nothing(stranger, agent, name, rest):
    response = stranger.post(reverse(name, args=["research", *rest]), {"counter": 1, "name": "research", "confirm": "research", "note": "x"})

    assert response.status_code == 404
    agent.refresh_from_db()
    assert (agent.draft_counter, agent.is_disabled, agent.archived_at) == (1, False, None)


@pytest.mark.parametrize("name, rest", ACTS)
def test_reader_may_change_nothing(viewer, agent, name, rest):
    response = viewer.post(reverse(name, args=["research", *rest]), {"counter": 1, "name": "research", "confirm": "research", "note": "x"})

    assert response.status_code == 403
    agent.refresh_from_db()
    assert (agent.draft_counter, agent.is_disabled, agent.archived_at) == (1, False, None)


@pytest.mark.parametrize("name", ["agent-edit", "agent-publish"])
def test_reader_opens_no_page_for_writing(viewer, agent, name):
    assert viewer.get(reverse(name, args=["research"])).status_code == 403


@pytest.mark.parametrize("name", ["agent-new", "agent-import"])
def test_reader_makes_no_agent(viewer, name):
    assert viewer.get(reverse(name)).status_code == 403


# Versions


@pytest.fixture
def second(agent):
    """The agent with a second version that says something else."""
    changed = save(agent, instructions="Help quickly.", tools=["calculate"])
    definitions.publish(agent=changed, note="Faster", by=governance.lethe(agent.tenant))
    return Agent.objects.select_related("published").get(pk=agent.pk)


def test_version_page_shows_what_it_says(owner, second):
    page = owner.get(reverse("agent-version", args=["research", 2]))

    said = {entry.label: entry.text for part in page.context["sections"] for entry in part.settings}
    assert said["Instructions"] == "Help quickly."
    assert said["Tools"] == "calculate"
    assert "Faster" in text(page)


@pytest.mark.parametrize("number", [0, 3, 2**40])
def test_version_that_is_none_is_not_found(owner, second, number):
    assert owner.get(reverse("agent-version", args=["research", number])).status_code == 404


def test_versions_page_lists_all(owner, second):
    page = owner.get(reverse("agent-versions", args=["research"]))

    assert [version.number for version in page.context["listing"].results] == [2, 1]


def test_compare_shows_words_that_came_and_went(owner, second):
    page = owner.get(reverse("agent-compare", args=["research"]), {"from": 1, "to": 2})

    found = {change.path: [(piece.kind, piece.text) for piece in change.pieces] for change in page.context["changes"]}
    assert found == {
        "instructions": [("same", "Help"), ("added", " quickly"), ("same", ".")],
        "tools": [("added", "calculate")],
    }
    assert '<ins><span class="visually-hidden">added: </span>calculate</ins>' in text(page)


def test_compare_takes_the_draft_and_what_is_published_by_itself(owner, second):
    save(second, description="Other")

    page = owner.get(reverse("agent-compare", args=["research"]))

    assert (page.context["old"], page.context["new"]) == ("2", "draft")
    assert [change.where for change in page.context["changes"]] == ["Identity: Description"]


@pytest.mark.parametrize("side", ["9", "x", "-1", "9" * 30])
def test_compare_with_what_is_not_there_is_not_found(owner, second, side):
    assert owner.get(reverse("agent-compare", args=["research"]), {"from": side}).status_code == 404


def test_rollback_publishes_the_old_text_again(owner, second):
    response = owner.post(reverse("agent-rollback", args=["research", 1]), {"note": "It was better"}, follow=True)

    published = Agent.objects.get(pk=second.pk).published
    assert (published.number, published.note, published.document["instructions"]) == (3, "It was better", "Help.")
    assert messages_of(response) == ["Version 3 is published; it says what version 1 said."]


def test_rollback_needs_a_note(owner, second):
    owner.post(reverse("agent-rollback", args=["research", 1]), {"note": " "})

    assert AgentVersion.objects.filter(agent=second).count() == 2


def test_rollback_to_what_no_longer_compiles_is_refused(owner, tenant):
    old = agents.provider(tenant, "old")
    agent = save(agents.published(tenant, "research", model={"provider": "old", "model": "demo-1"}), **agents.document("research"))
    definitions.publish(agent=agent, note="Another provider", by=governance.lethe(tenant))
    providers.delete_provider(provider=old, by=governance.lethe(tenant))

    response = owner.post(reverse("agent-rollback", args=["research", 1]), {"note": "Back"}, follow=True)

    assert messages_of(response) == ["Version 1 cannot run any more: The definition has 1 problem to solve first."]
    assert "Today it would not compile" in text(response)
    assert Agent.objects.get(pk=agent.pk).published.number == 2


# The danger zone


@pytest.mark.parametrize(
    "verb, before, after",
    [
        ("disable", {}, {"is_disabled": True}),
        ("enable", {"is_disabled": True}, {"is_disabled": False}),
        ("archive", {}, {"archived": True}),
        ("restore", {"archived": True}, {"archived": False}),
    ],
)
def test_switches(owner, agent, verb, before, after):
    by = governance.lethe(agent.tenant)
    if before.get("is_disabled"):
        definitions.disable(agent=agent, by=by)
    if before.get("archived"):
        definitions.archive(agent=agent, by=by)

    response = owner.post(reverse(f"agent-{verb}", args=["research"]))

    agent.refresh_from_db()
    now = {"is_disabled": agent.is_disabled, "archived": agent.archived_at is not None}
    assert response.url == reverse("agent", args=["research"])
    assert {name: now[name] for name in after} == after


def test_delete_names_what_goes_with_the_agent(owner, agent):
    sessions.session(agent)
    sessions.session(agent)

    page = text(owner.get(reverse("agent", args=["research"])))

    assert "Delete research?" in page
    assert "<li>2 sessions</li>" in page


def test_delete_takes_the_agent_and_its_sessions_when_told_so(owner, agent):
    sessions.session(agent)

    response = owner.post(reverse("agent-delete", args=["research"]), {"confirm": "research", "with_sessions": "on"})

    assert response.url == reverse("agents")
    assert (Agent.objects.count(), Session.objects.count()) == (0, 0)


@pytest.mark.parametrize("data", [{"confirm": "research"}, {"confirm": "Research", "with_sessions": "on"}, {"with_sessions": "on"}])
def test_delete_without_the_whole_confirmation_deletes_nothing(owner, agent, data):
    sessions.session(agent)

    owner.post(reverse("agent-delete", args=["research"]), data)

    assert (Agent.objects.count(), Session.objects.count()) == (1, 1)


def test_delete_of_sessions_needs_the_role_for_it(tenant, sign_in, agent):
    sessions.session(agent)
    builder = sign_in(tenant, "builder")

    response = builder.post(reverse("agent-delete", args=["research"]), {"confirm": "research", "with_sessions": "on"})

    assert response.status_code == 403
    assert "deleting those needs the role operator" in text(builder.get(reverse("agent", args=["research"])))
    assert Session.objects.count() == 1


# Moving agents


def exported(client, name="research"):
    return json.loads(client.get(reverse("agent-export", args=[name])).content)


def test_export_is_a_file(owner, second):
    response = owner.get(reverse("agent-export", args=["research"]))

    file = json.loads(response.content)
    assert response["Content-Disposition"] == 'attachment; filename="research.agent.json"'
    assert (file["name"], file["published"], [version["number"] for version in file["versions"]]) == ("research", 2, [1, 2])


def test_import_looks_first_and_writes_then(owner, second, sign_in):
    there = governance.tenant("fabrikam")
    agents.provider(there)
    other = sign_in(there, "builder")
    upload = SimpleUploadedFile("research.agent.json", json.dumps(exported(owner)).encode())

    looked = other.post(reverse("agent-import"), {"file": upload})

    assert looked.status_code == 200
    assert "Everything it needs is here." in text(looked)
    assert not Agent.objects.filter(tenant=there).exists()
    done = other.post(reverse("agent-import"), {"text": looked.context["text"], "write": "1"})
    assert done.url == reverse("agent", args=["research"])
    made = Agent.objects.get(tenant=there)
    assert (made.published.number, made.published.document) == (2, second.published.document)


def test_import_lists_what_is_missing_before_anything_is_written(owner, tenant, agent, sign_in):
    there = governance.tenant("fabrikam")
    other = sign_in(there, "builder")
    data = {"text": json.dumps(exported(owner))}

    looked = other.post(reverse("agent-import"), data)
    refused = other.post(reverse("agent-import"), data | {"write": "1"})

    assert "Missing here: provider demo" in text(looked)
    assert refused.status_code == 422
    assert "Something is missing. Add it first, or tick this." in text(refused)
    assert not Agent.objects.filter(tenant=there).exists()
    other.post(reverse("agent-import"), data | {"write": "1", "allow_missing": "on"})
    assert Agent.objects.get(tenant=there).published is None


def test_import_of_a_name_that_is_taken_asks_for_another(owner, tenant, agent):
    data = {"text": json.dumps(exported(owner))}

    refused = owner.post(reverse("agent-import"), data | {"write": "1"})
    done = owner.post(reverse("agent-import"), data | {"write": "1", "name": "research-2"})

    assert refused.status_code == 422
    assert "There is already an agent named research. Give this one another name." in text(refused)
    assert done.url == reverse("agent", args=["research-2"])


@pytest.mark.parametrize(
    "data, said",
    [
        ({}, "Choose a file, or paste its text."),
        ({"text": "{"}, "This is not JSON"),
        ({"text": "[1]"}, "object"),
        ({"text": '{"format": "lethe.agent/1"}'}, "not an agent exported by Lethe|Field required"),
    ],
)
def test_import_of_something_else_is_refused(owner, data, said):
    response = owner.post(reverse("agent-import"), data)

    assert response.status_code == 422
    assert any(words in text(response) for words in said.split("|"))


def test_import_of_a_file_that_is_no_text_is_refused(owner):
    response = owner.post(reverse("agent-import"), {"file": SimpleUploadedFile("x.json", b"\xff\xfe\x00")})

    assert response.status_code == 422
    assert "The file is not text in UTF-8." in text(response)
