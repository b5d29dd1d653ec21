"""The playground: whom one talks to, starting a run, and refusals."""

import json
import time

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.urls import reverse

from agents.domain.demo import seed_demo_agents
from agents.models import Agent
from governance.actors import system
from governance.domain import subjects
from governance.ids import parse, shown
from governance.models import AuditEvent, Subject, SubjectIdentifier
from sessions import dispatch
from sessions.domain import definitions, quotas
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Run, Session
from tests.factories import governance, sessions

# Runs are executed by the engine's threads, which see committed rows only.
pytestmark = pytest.mark.django_db(transaction=True)

JSON = {"Accept": "application/json"}
HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def fresh_definitions():
    definitions.forget()
    yield
    definitions.forget()


@pytest.fixture
def agent(tenant):
    seed_demo_agents(tenant_id=tenant.id, by=system(tenant.id))
    return Agent.objects.select_related("published").get(tenant=tenant, name="research")


def start(client, **given):
    headers = given.pop("headers", {})
    return client.post(reverse("playground-run"), {"agent": "research", "version": "published", "message": "Hello", **given}, headers=headers)


def finished(run_id, *, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run = Run.objects.get(id=run_id)
        if run.is_finished:
            return run
        connection.close()
        time.sleep(0.02)
    raise AssertionError(f"the run is still {run.status}")


def ended():
    """The only run, when it is over: no test leaves one behind."""
    return finished(Run.objects.get().id)


# The page


def test_playground_offers_agents_and_a_new_session(owner, agent):
    response = owner.get(reverse("playground"), {"agent": "research"})

    choice = response.context["choice"]
    assert [entry.name for entry in response.context["agents"]] == ["assistant", "careful", "research"]
    assert (choice.agent.name, choice.version, choice.session, choice.model) == ("research", "published", None, "demo-1")
    assert response.context["new_key"].startswith("play-")


def test_playground_without_agents_says_what_to_do(owner):
    assert "There is no agent to talk to" in owner.get(reverse("playground")).content.decode()


def test_playground_needs_a_role_that_runs(viewer, agent):
    assert viewer.get(reverse("playground")).status_code == 403
    assert start(viewer).status_code == 403
    assert not Run.objects.exists()


def test_playground_does_not_know_strangers_agents_and_sessions(stranger, agent):
    session = sessions.session(agent)

    assert stranger.get(reverse("playground"), {"agent": "research"}).status_code == 404
    assert stranger.get(reverse("playground"), {"session": shown("ses", session.id)}).status_code == 404
    assert start(stranger).status_code == 404
    assert start(stranger, session=shown("ses", session.id)).status_code == 404


def test_playground_opens_a_session_and_audits_it(owner, agent):
    session = sessions.conversation(agent, governance.subject(agent.tenant))

    response = owner.get(reverse("playground"), {"session": shown("ses", session.id)})

    assert [block.kind for block in response.context["transcript"].blocks] == ["user", "agent", "mark"]
    assert [event.object_ref for event in AuditEvent.objects.filter(action="content.read")] == [shown("ses", session.id)]


def test_playground_offers_the_draft_to_builders_only(tenant, sign_in, agent):
    builder, operator = sign_in(tenant, "builder"), sign_in(tenant, "operator")

    chosen = [client.get(reverse("playground"), {"agent": "research", "version": "draft"}).context["choice"].version for client in (builder, operator)]

    assert chosen == ["draft", "published"]


def test_playground_costs_the_same_for_1_and_3_recent_sessions(owner, agent, queries_of):
    url = reverse("playground") + "?agent=research"
    sessions.session(agent, governance.subject(agent.tenant))
    one = queries_of(owner, url)
    sessions.session(agent, governance.subject(agent.tenant))
    sessions.session(agent)

    assert queries_of(owner, url) == one


def test_playground_resumes_a_running_turn_from_its_first_event(owner, agent):
    session = sessions.session(agent)
    run = sessions.run(session=session, status="running")
    sessions.item(session, run_id=run.id)

    text = owner.get(reverse("playground"), {"session": shown("ses", session.id)}).content.decode()

    assert f'data-stream="{reverse("run-events", args=[shown("run", run.id)])}"' in text
    assert f'data-turn="{reverse("run-turn", args=[shown("run", run.id)])}"' in text


def test_playground_shows_a_queued_message_before_it_is_an_item(owner, agent):
    session = sessions.session(agent)
    sessions.run(session=session, status="queued", request={"message": "I wait for my turn"})

    blocks = owner.get(reverse("playground"), {"session": shown("ses", session.id)}).context["transcript"].blocks

    assert [(block.kind, [part.text for part in block.parts], block.is_live) for block in blocks] == [("user", ["I wait for my turn"], False), ("agent", [], True)]


# Starting a run


def test_run_starts_as_the_member_in_a_new_session(owner, agent):
    response = start(owner, key="my-key", headers=JSON)

    answer = response.json()
    run = finished(parse("run", answer["run_id"]))
    subject = subjects.find(tenant_id=agent.tenant_id, value=owner.actor.ref, kind="member")
    assert response.status_code == 201
    assert (answer["events_url"], answer["session_url"]) == (f"/runs/{answer['run_id']}/events", f"/sessions/{answer['session_id']}")
    assert (run.status, run.session.key, run.session.subject, run.started_by) == ("completed", "my-key", subject, owner.member.username)
    assert [item.role for item in Item.objects.filter(session=run.session)] == ["user", "assistant"]


def test_run_starts_as_another_subject(owner, agent):
    start(owner, subject="customer-7")

    assert ended().session.subject == subjects.find(tenant_id=agent.tenant_id, value="customer-7")
    assert list(SubjectIdentifier.objects.values_list("kind", flat=True)) == ["external"]


def test_run_goes_on_in_a_session_as_its_own_subject(owner, agent):
    session = sessions.session(agent, governance.subject(agent.tenant, "ada"), "case-1")

    start(owner, session=shown("ses", session.id), agent="careful", subject="somebody-else", key="other")

    run = ended()
    assert (run.session, run.agent, Session.objects.count()) == (session, agent, 1)
    assert subjects.find(tenant_id=agent.tenant_id, value="somebody-else") is None


def test_run_with_htmx_answers_with_the_new_turn(owner, agent):
    response = start(owner, message="How are you?", headers=HTMX)

    run = Run.objects.get()
    text = response.content.decode()
    assert "How are you?" in text
    assert "<html" not in text
    assert 'id="composer-where" hx-swap-oob="true"' in text
    assert f'name="session" value="{shown("ses", run.session_id)}"' in text
    assert response["HX-Push-Url"] == f"/playground?session={shown('ses', run.session_id)}&version=published"
    finished(run.id)


def test_run_without_a_script_leads_to_the_session(owner, agent):
    response = start(owner)

    run = ended()
    assert response.url == f"/sessions/{shown('ses', run.session_id)}?watch"


def test_run_of_the_draft_follows_the_draft(owner, agent):
    agent.draft = {**agent.draft, "display_name": "Edited"}
    agent.save()

    start(owner, version="draft")

    run = ended()
    assert (run.version, run.document["display_name"]) == (None, "Edited")


def test_run_takes_parameters_of_their_kind(owner, agent):
    agent.draft = {
        **agent.draft,
        "instructions": "Answer {{name}} in {{words}} words. Polite: {{polite}}. {{extra}}",
        "parameters": [
            {"name": "name", "kind": "text", "required": True}, {"name": "words", "kind": "number", "required": True},
            {"name": "polite", "kind": "boolean", "required": True}, {"name": "extra", "kind": "text", "default": "Thanks."},
        ],
    }  # fmt: skip
    agent.save()
    given = {"parameter.name": "Ada", "parameter.words": "12", "parameter.polite": "true", "parameter.extra": ""}

    page = owner.get(reverse("playground"), {"agent": "research", "version": "draft"}).content.decode()
    response = start(owner, version="draft", headers=HTMX, **given)

    assert 'name="parameter.words"' in page
    assert response.status_code == 200
    assert ended().status == "completed"


def test_parameter_that_is_no_number_is_refused(owner, agent):
    agent.draft = {**agent.draft, "instructions": "{{words}}", "parameters": [{"name": "words", "kind": "number", "required": True}]}
    agent.save()

    response = start(owner, version="draft", headers=JSON, **{"parameter.words": "many"})

    assert (response.status_code, response.json()["errors"]) == (400, {"parameters.words": ["A number is expected."]})


def test_attachment_is_stored_with_the_message(owner, agent):
    file = SimpleUploadedFile("note.md", b"# A note", content_type="application/octet-stream")

    response = start(owner, attachments=file, headers=HTMX)

    run = ended()
    (kept,) = Item.objects.get(session=run.session, role="user").content["attachments"]
    assert (kept["name"], kept["media_type"], kept["size"]) == ("note.md", "text/markdown", 8)
    assert reverse("session-file", args=[shown("ses", run.session_id), kept["sha256"]]) in response.content.decode()


def test_attachment_of_another_kind_is_refused(owner, agent):
    file = SimpleUploadedFile("tool.exe", b"MZ", content_type="application/x-msdownload")

    response = start(owner, attachments=file, headers=JSON)

    assert (response.status_code, response.json()["code"]) == (400, "attachment_invalid")
    assert not Run.objects.exists()


# Refusals


def test_empty_message_is_refused_and_leaves_nothing(owner, agent):
    response = start(owner, message="  ", headers=HTMX, subject="nobody-yet")

    assert response.status_code == 400
    assert response["HX-Retarget"] == "#composer-problem"
    assert "Write a message first." in response.content.decode()
    assert (Session.objects.count(), Subject.objects.count()) == (0, 0)


def test_busy_session_says_so_and_links_to_what_runs(owner, agent):
    subject = governance.subject(agent.tenant)
    session = sessions.session(agent, subject)
    running = sessions.run(session=session, status="queued", request={"message": "first"})

    response = start(owner, session=shown("ses", session.id), headers=HTMX)

    text = response.content.decode()
    assert response.status_code == 409
    assert "Another turn of this session is running." in text
    assert reverse("run", args=[shown("run", running.id)]) in text


def test_used_up_quota_says_so(owner, agent):
    quotas.create_quota(tenant_id=agent.tenant_id, scope="tenant", measure="runs", period="day", limit=0, by=owner.actor)

    response = start(owner, headers=JSON)

    assert (response.status_code, response.json()["code"]) == (429, "quota_exceeded")
    assert not Run.objects.exists()


def test_invalid_draft_says_what_is_wrong_with_it(owner, agent):
    agent.draft = {**agent.draft, "model": {"provider": "nowhere", "model": "x"}}
    agent.save()

    response = start(owner, version="draft", headers=HTMX)

    text = response.content.decode()
    assert response.status_code == 422
    assert "The definition has 1 problem to solve first." in text
    assert "model.provider" in text


def test_disabled_agent_says_so(owner, agent):
    Agent.objects.filter(pk=agent.pk).update(is_disabled=True)

    response = start(owner, headers=JSON)

    assert (response.status_code, json.loads(response.content)["detail"]) == (409, "This agent is switched off. Switch it on to run it.")


def test_closed_session_says_so(owner, agent):
    session = sessions.session(agent)
    session_verbs.close(session=session, by=owner.actor)

    response = start(owner, session=shown("ses", session.id), headers=JSON)

    assert (response.status_code, response.json()["code"]) == (409, "session_closed")


@pytest.fixture
def shutting_down():
    dispatch.draining.set()
    yield
    dispatch.draining.clear()


def test_process_that_shuts_down_says_so(owner, agent, shutting_down):
    response = start(owner, headers=JSON)

    assert (response.status_code, response.json()["code"]) == (503, "draining")


def test_refusal_without_a_script_keeps_what_was_written(owner, agent):
    response = start(owner, message="My long message", key="x" * 201)

    text = response.content.decode()
    assert response.status_code == 400
    assert "A session id has 1 to 200 characters." in text
    assert "My long message</textarea>" in text
