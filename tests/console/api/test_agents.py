"""Agents over the API: drafts, versions, import and export."""

import json

import pytest

from agents.models import Agent, AgentVersion
from sessions.models import Session
from tests.console.api.conftest import problem
from tests.factories import sessions

DOCUMENT = {"name": "helper", "description": "Helps", "model": {"provider": "demo", "model": "demo"}}


def test_list_shows_agents_by_name_without_their_definitions(api, world):
    sessions.agent(world.tenant, "a-first", published=False)

    answer = api.get("/agents").json()

    assert [(row["name"], row["published_version"]) for row in answer["results"]] == [("a-first", None), ("support", 1)]
    assert "definition" not in answer["results"][0]
    assert (answer["next_cursor"], answer["previous_cursor"]) == (None, None)


def test_list_filters(api, world):
    sessions.agent(world.tenant, "hidden", published=False)
    api.post("/agents/hidden/archive")
    sessions.agent(world.tenant, "off")
    api.post("/agents/off/disable")

    names = {
        query: [row["name"] for row in api.get(f"/agents?{query}").json()["results"]]
        for query in ("archived=true", "disabled=true", "published=true", "q=SUPP", "q=blue", "q=%25")
    }

    assert names == {
        "archived=true": ["hidden"], "disabled=true": ["off"], "published=true": ["off", "support"], "q=SUPP": ["support"],
        "q=blue": ["support"], "q=%25": [],
    }  # fmt: skip


def test_create_keeps_the_document_as_draft(api, world):
    answer = api.post("/agents", DOCUMENT)

    assert answer.status_code == 201
    assert (answer["Location"], answer["ETag"]) == ("/api/agents/helper", '"1"')
    assert answer.json()["definition"] == DOCUMENT
    assert Agent.objects.get(tenant=world.tenant, name="helper").draft == DOCUMENT


def test_create_takes_camel_case_and_an_envelope(api):
    answer = api.post("/agents", {"definition": {**DOCUMENT, "displayName": "Helper"}})

    assert answer.json()["definition"] == {**DOCUMENT, "display_name": "Helper"}


def test_create_refuses_a_name_that_is_taken(api):
    answer = api.post("/agents", {**DOCUMENT, "name": "support"})

    assert answer.status_code == 409
    assert (problem(answer)["code"], list(problem(answer)["errors"])) == ("agent_exists", ["name"])


@pytest.mark.parametrize("name", [None, "", "a/b", "~a", "x" * 65, "..", 7, {"a": 1}])
def test_create_refuses_names_that_are_none(api, name):
    answer = api.post("/agents", {**DOCUMENT, "name": name})

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["name"]


def test_create_keeps_a_draft_with_problems(api):
    answer = api.post("/agents", {"name": "helper", "tools": ["no_such_tool"], "unknown": 1})

    assert answer.status_code == 201


def test_agents_called_like_an_address_can_be_read(api, world):
    sessions.agent(world.tenant, "validate")
    sessions.agent(world.tenant, "import")

    assert [api.get(f"/agents/{name}").json()["name"] for name in ("validate", "import")] == ["validate", "import"]


# Saving


def test_saving_needs_the_etag_that_was_read(api):
    answer = api.put("/agents/support", {**DOCUMENT, "name": "support"})

    assert answer.status_code == 428
    assert problem(answer)["code"] == "precondition_required"


@pytest.mark.parametrize("tag", ["1", "x", '"x"', '""', '"1", "2"', '"99999999999"'])
def test_saving_refuses_a_header_that_is_no_etag_of_ours(api, tag):
    answer = api.put("/agents/support", {**DOCUMENT, "name": "support"}, if_match=tag)

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["If-Match"]


def test_saving_replaces_the_draft(api):
    read = api.get("/agents/support")

    saved = api.put("/agents/support", {**DOCUMENT, "name": "support"}, if_match=read["ETag"])

    assert saved.json()["definition"] == {**DOCUMENT, "name": "support"}
    assert (read["ETag"], saved["ETag"]) == ('"1"', '"2"')


def test_saving_over_somebody_elses_change_shows_both_texts(api):
    api.patch("/agents/support", {"description": "Theirs"}, if_match='"1"')

    answer = api.put("/agents/support", {**DOCUMENT, "name": "support", "description": "Mine"}, if_match='"1"')

    assert answer.status_code == 409
    document = problem(answer)
    assert document["code"] == "version_conflict"
    assert document["current"]["document"]["description"] == "Theirs"
    assert document["yours"]["description"] == "Mine"


def test_star_means_whatever_is_stored(api):
    api.patch("/agents/support", {"description": "Theirs"}, if_match='"1"')

    assert api.put("/agents/support", {**DOCUMENT, "name": "support"}, if_match="*").status_code == 200


def test_patch_merges_and_null_removes(api):
    answer = api.patch("/agents/support", {"description": None, "model": {"temperature": 0.5}}, if_match='"1"')

    assert answer.json()["definition"] == {"name": "support", "model": {"provider": "demo", "model": "demo", "temperature": 0.5}}


def test_unchanged_agent_is_not_sent_again(api):
    answer = api.get("/agents/support", if_none_match='"1"')

    assert (answer.status_code, answer.content) == (304, b"")


def test_name_cannot_change(api):
    answer = api.put("/agents/support", DOCUMENT, if_match='"1"')

    assert answer.status_code == 400
    assert list(problem(answer)["errors"]) == ["name"]


# Publishing


def test_publish_makes_a_version_once(api, world):
    api.patch("/agents/support", {"description": "New"}, if_match='"1"')

    first = api.post("/agents/support/publish", {"note": "Now with a description"})
    again = api.post("/agents/support/publish")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["number"] == again.json()["number"] == 2
    assert first.json()["note"] == "Now with a description"
    assert AgentVersion.objects.filter(agent=world.agent).count() == 2


def test_publish_of_another_state_than_was_read_is_refused(api):
    api.patch("/agents/support", {"description": "New"}, if_match='"1"')

    answer = api.post("/agents/support/publish", {}, if_match='"1"')

    assert answer.status_code == 409
    assert problem(answer)["code"] == "version_conflict"


def test_publish_with_problems_lists_them_all(api):
    api.patch("/agents/support", {"tools": ["no_such_tool"], "model": {"provider": "nobody"}}, if_match='"1"')

    answer = api.post("/agents/support/publish", {})

    assert answer.status_code == 422
    document = problem(answer)
    assert document["code"] == "definition_invalid"
    assert {"tools.0", "model.provider"} <= set(document["errors"])
    assert document["report"]["valid"] is False


def test_rollback_publishes_the_old_definition_again(api):
    api.patch("/agents/support", {"description": "New"}, if_match='"1"')
    api.post("/agents/support/publish", {})

    answer = api.post("/agents/support/rollback", {"number": 1})

    assert answer.status_code == 201
    assert (answer.json()["number"], answer.json()["definition"]["description"]) == (3, "blue")
    assert [row["number"] for row in api.get("/agents/support/versions").json()["results"]] == [3, 2, 1]


@pytest.mark.parametrize("number", ["0", "2", "-1", "x", "1.0", "99999999999999999999", "%C2%B2"])
def test_version_that_is_not_there_is_not_found(api, number):
    assert api.get(f"/agents/support/versions/{number}").status_code == 404
    assert api.get(f"/agents/support/versions/1/diff/{number}").status_code == 404


def test_diff_compares_versions_and_the_draft(api):
    api.patch("/agents/support", {"description": "New"}, if_match='"1"')

    answer = api.get("/agents/support/versions/1/diff/draft").json()

    assert answer == {
        "old": "1",
        "new": "draft",
        "changes": [{"path": "description", "kind": "changed", "old": "blue", "new": "New", "lines": None}],
    }


@pytest.mark.parametrize("verb, field", [("disable", "is_disabled"), ("archive", "archived_at")])
def test_switches_are_idempotent_and_reversible(api, verb, field):
    back = {"disable": "enable", "archive": "restore"}[verb]

    on = [api.post(f"/agents/support/{verb}").json()[field] for _ in range(2)]
    off = [api.post(f"/agents/support/{back}").json()[field] for _ in range(2)]

    assert all(on)
    assert not any(off)


def test_delete_refuses_while_sessions_exist_and_takes_them_along_when_asked(api, world):
    kept = api.delete("/agents/support")
    gone = api.delete("/agents/support?with_sessions=true")

    assert (kept.status_code, problem(kept)["code"]) == (409, "agent_in_use")
    assert (gone.status_code, gone.content) == (204, b"")
    assert not Session.objects.filter(tenant=world.tenant).exists()
    assert api.get("/agents/support").status_code == 404


# Checking, export and import


def test_validate_answers_with_every_problem_at_once(api):
    answer = api.post("/agents/validate", {"name": "x", "model": {"provider": "nobody", "model": "m"}, "tols": []})

    assert answer.status_code == 200
    report = answer.json()
    assert report["valid"] is False
    assert {message["path"] for message in report["messages"] if message["severity"] == "error"} == {"tols", "model.provider"}


def test_validate_says_so_when_all_is_well(api):
    assert api.post("/agents/validate", DOCUMENT).json()["valid"] is True


def test_validate_of_no_json_is_a_bad_request(api):
    assert api.ask("POST", "/agents/validate", raw=b"name: helper").status_code == 400


def test_export_can_be_imported_elsewhere(api, stranger):
    file = api.get("/agents/support/export")
    sessions.provider(stranger.tenant, name="demo")

    answer = stranger.api.post("/agents/import", file.json())

    assert file["Content-Disposition"] == 'attachment; filename="support.json"'
    assert answer.status_code == 201, answer.content
    assert (answer.json()["name"], answer["Location"]) == ("support", "/api/agents/support")


def test_import_lists_what_is_missing_before_anything_is_written(api, stranger):
    file = api.get("/agents/support/export").json()

    check = stranger.api.post("/agents/import", {"document": file, "dryRun": True})
    refused = stranger.api.post("/agents/import", file)

    assert check.status_code == 200
    assert [(entry["kind"], entry["name"]) for entry in check.json()["missing"]] == [("provider", "demo")]
    assert check.json()["exists"] is False
    assert (refused.status_code, problem(refused)["code"]) == (422, "import_incomplete")
    assert not Agent.objects.filter(tenant=stranger.tenant).exists()


@pytest.mark.parametrize("document", [{}, {"format": "x"}, {"document": []}, {"document": {"format": "lethe.agent/1"}}], ids=json.dumps)
def test_import_of_something_else_is_refused(api, document):
    answer = api.post("/agents/import", document)

    assert answer.status_code == 400
    problem(answer)


# What it would see


def test_preview_of_a_session_uses_the_given_settings_and_saves_nothing(api, world):
    body = {
        "session_id": f"ses_{world.session.id.hex}",
        "definition": {"compaction": {"strategy": "sliding_window", "trigger_turns": 1, "minimum_preserved_turns": 1}},
    }
    draft = world.agent.draft

    answer = api.post("/agents/support/context-preview", body)

    assert answer.status_code == 200, answer.content
    assert answer.json()["strategy"] == "sliding_window"
    assert answer.json()["parts"][-1]["fate"] == "kept"
    world.agent.refresh_from_db()
    assert world.agent.draft == draft


def test_preview_of_pasted_messages(api, world):
    messages = [{"role": role, "text": "Some words of a person."} for _ in range(3) for role in ("user", "assistant")]
    settings = {"compaction": {"strategy": "truncation", "trigger_messages": 4, "minimum_preserved_groups": 2}}

    answer = api.post("/agents/support/context-preview", {"messages": messages, "definition": settings})

    assert [(part["fate"], part["from_seq"], part["to_seq"]) for part in answer.json()["parts"]] == [("dropped", 1, 4), ("kept", 5, 6)]


def test_preview_shows_assembly_steps_and_limits_of_layers(api, world):
    messages = [{"role": role, "text": "Some words of a person."} for _ in range(4) for role in ("user", "assistant")]
    settings = {"assembly": [{"kind": "sliding_window", "max_items": 4}], "layer_caps": {"history": 5}}

    answer = api.post("/agents/support/context-preview", {"messages": messages, "definition": settings}).json()

    assert answer["steps"] == [{"policy": "sliding_window", "shown": 4, "total": 8}]
    assert [(part["fate"], part["from_seq"], part["to_seq"]) for part in answer["parts"]] == [("dropped", 1, 6), ("kept", 7, 8)]
    (history,) = [layer for layer in answer["layers"] if layer["layer"] == "history"]
    assert [entry["reason"] for entry in history["left_out"]] == ["left out by the step sliding_window", "beyond the layer's limit of 5 tokens"]


@pytest.mark.parametrize("body", [{}, {"session_id": f"ses_{'0' * 32}", "messages": [{"role": "user", "text": "x"}]}])
def test_preview_takes_a_session_or_messages(api, world, body):
    answer = api.post("/agents/support/context-preview", body)

    assert answer.status_code == 400
    assert "session_id" in problem(answer)["errors"]


def test_preview_of_a_definition_with_problems_says_which(api, world):
    body = {"messages": [{"role": "user", "text": "x"}], "definition": {"compaction": {"strategy": "truncation"}}}

    answer = api.post("/agents/support/context-preview", body)

    assert answer.status_code == 422
    assert "compaction.trigger_tokens" in problem(answer)["errors"]


def test_preview_of_an_unknown_session_is_not_found(api, world):
    answer = api.post("/agents/support/context-preview", {"session_id": f"ses_{'0' * 32}"})

    assert answer.status_code == 404
