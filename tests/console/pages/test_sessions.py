"""The list of sessions and the page of one."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from console import reading
from governance.ids import shown
from governance.models import AuditEvent
from sessions.domain import sessions as session_verbs
from sessions.errors import NoSummaries
from sessions.models import Item, Run, Session
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return sessions.agent(tenant, "research")


@pytest.fixture
def subject(tenant):
    return governance.subject(tenant, "ada")


@pytest.fixture
def conversation(agent, subject):
    return sessions.conversation(agent, subject, key="case-1", title="The lost order")


def address(name, session, *more):
    return reverse(name, args=[shown("ses", session.id), *more])


def listed(response):
    return [session.key for session in response.context["listing"].results]


# The list


def test_session_list_shows_newest_first(viewer, agent, subject):
    old = sessions.session(agent, subject, "old")
    Session.objects.filter(pk=old.pk).update(last_active_at=timezone.now() - timedelta(days=2))
    sessions.session(agent, subject, "new", labels=["billing"])

    response = viewer.get(reverse("sessions"))

    assert listed(response) == ["new", "old"]
    text = response.content.decode()
    assert subject.display_ref in text
    assert "billing" in text


def test_session_list_hides_other_tenants_sessions(stranger, conversation):
    response = stranger.get(reverse("sessions"))

    assert listed(response) == []
    assert "No sessions yet" in response.content.decode()


def test_session_list_needs_a_role_that_reads(tenant, sign_in):
    assert sign_in(tenant, "records_manager").get(reverse("sessions")).status_code == 403


def test_session_list_is_filtered_by_each_field(viewer, tenant, agent, subject):
    other = sessions.agent(tenant, "billing")
    sessions.session(agent, subject, "wanted", title="About an invoice", labels=["vip"])
    sessions.session(other, governance.subject(tenant), "other", status="closed", ended_at=timezone.now())
    filters = [
        {"q": "INVOICE"}, {"agent": "research"}, {"state": "open"}, {"label": "vip"}, {"subject": subject.display_ref.lower()},
    ]  # fmt: skip

    found = [listed(viewer.get(reverse("sessions"), given)) for given in filters]

    assert found == [["wanted"]] * len(filters)


def test_session_list_is_filtered_by_days_of_the_tenants_zone(sign_in):
    # 23:30 UTC on the first is already the second in Berlin.
    tenant = governance.tenant(timezone="Europe/Berlin")
    made = sessions.session(sessions.agent(tenant), key="late")
    Session.objects.filter(pk=made.pk).update(last_active_at="2026-02-01T23:30:00Z")
    client = sign_in(tenant, "viewer")

    first = client.get(reverse("sessions"), {"active_to": "2026-02-01"})
    second = client.get(reverse("sessions"), {"active_from": "2026-02-02", "active_to": "2026-02-02"})

    assert (listed(first), listed(second)) == ([], ["late"])


def test_session_list_shows_archived_ones_only_when_asked(viewer, agent):
    sessions.session(agent, key="put-away", archived_at=timezone.now())
    sessions.session(agent, key="at-hand")

    assert listed(viewer.get(reverse("sessions"))) == ["at-hand"]
    assert listed(viewer.get(reverse("sessions"), {"state": "archived"})) == ["put-away"]


@pytest.mark.parametrize("given", [{"state": "nonsense"}, {"agent": "nobody"}, {"subject": "S-XXXX-XXXX"}, {"active_from": "soon"}])
def test_session_list_refuses_a_filter_that_is_none(viewer, conversation, given):
    response = viewer.get(reverse("sessions"), given)

    assert response.status_code == 400
    assert listed(response) == []
    assert "Nothing matches" in response.content.decode()


def test_session_list_refuses_a_cursor_of_another_list(viewer, conversation):
    assert viewer.get(reverse("sessions"), {"before": "made-up"}).status_code == 400


def test_session_filters_in_force_are_pills_that_take_them_away(viewer, agent, conversation):
    response = viewer.get(reverse("sessions"), {"agent": "research", "q": "lost", "state": ""})

    assert [(pill.label, pill.value, pill.url) for pill in response.context["listing"].pills] == [
        ("Title or key contains", "lost", "?agent=research"),
        ("Agent", "research", "?q=lost"),
    ]


def test_session_list_refreshes_its_table_only(viewer, conversation):
    response = viewer.get(reverse("sessions"), {"q": "lost", "agent": ""}, headers={"HX-Request": "true"})

    text = response.content.decode()
    assert text.strip().startswith('<div class="stack" id="table">')
    assert "<html" not in text
    assert response["HX-Push-Url"] == "/sessions?q=lost"


def test_session_list_pages_by_key_and_counts(viewer, agent):
    for number in range(51):
        sessions.session(agent, key=f"case-{number:02}")

    first = viewer.get(reverse("sessions"))
    second = viewer.get(reverse("sessions"), {"before": first.context["listing"].page.next_cursor})

    assert (len(listed(first)), first.context["listing"].count) == (50, 51)
    assert listed(second) == ["case-00"]
    assert second.context["listing"].page.previous_cursor


def test_session_list_costs_the_same_for_1_and_3_rows(viewer, agent, subject, queries_of):
    sessions.session(agent, subject)
    one = queries_of(viewer, reverse("sessions"))
    sessions.session(agent, subject)
    sessions.session(agent, governance.subject(viewer.membership.tenant))

    assert queries_of(viewer, reverse("sessions")) == one


# One session


def test_session_shows_its_conversation(viewer, conversation):
    response = viewer.get(address("session", conversation))

    user, answer, mark = response.context["transcript"].blocks
    assert (user.kind, user.parts[0].text) == ("user", "Where is my order?")
    assert [(part.kind, getattr(part, "name", part.text)) for part in answer.parts] == [("card", "find_order"), ("message", "It is on its way.")]
    assert answer.parts[0].text == "on its way"
    assert [part.kind for part in mark.parts] == ["summary"]
    assert "The lost order" in response.content.decode()


def test_each_look_into_a_session_is_audited_with_ids_only(viewer, conversation):
    viewer.get(address("session", conversation))
    viewer.get(address("session", conversation), {"before": "3"}, headers={"HX-Request": "true"})
    viewer.get(address("session-item", conversation, 1))

    events = AuditEvent.objects.filter(action="content.read").order_by("id")
    assert {(event.actor_label, event.object_type, event.object_ref, event.object_label) for event in events} == {
        (viewer.member.username, "session", shown("ses", conversation.id), "")
    }
    assert [event.payload for event in events] == [{}, {}, {"item": 1}]


def test_session_of_another_tenant_is_not_there(stranger, conversation):
    assert stranger.get(address("session", conversation)).status_code == 404
    assert not AuditEvent.objects.filter(action="content.read").exists()


def test_session_needs_a_role_that_reads(tenant, sign_in, conversation):
    assert sign_in(tenant, "auditor").get(address("session", conversation)).status_code == 403


def test_session_opens_on_its_last_page_and_goes_back_by_cursor(viewer, agent):
    made = sessions.session(agent)
    sessions.turns(made, 100)

    last = viewer.get(address("session", made)).context["transcript"]
    older = viewer.get(address("session", made), {"before": last.older}, headers={"HX-Request": "true"})

    assert (last.blocks[0].first_seq, last.blocks[-1].last_seq) == (141, 200)
    assert [block.first_seq for block in reading.transcript(made, before=last.older).blocks] == list(range(81, 141))
    assert older.content.decode().count('class="msg') == 60
    assert "<html" not in older.content.decode()


def test_session_page_begins_with_a_whole_turn(viewer, agent):
    made = sessions.session(agent)
    sessions.item(made)
    for number in range(40):
        sessions.item(made, "tool_call", "assistant", {"id": f"c{number}", "name": "look", "arguments": {}})
    sessions.item(made)
    for _ in range(30):
        sessions.item(made, role="assistant")

    transcript = viewer.get(address("session", made)).context["transcript"]

    assert transcript.blocks[0].kind == "user"
    assert transcript.older == "42"


def test_session_does_not_show_what_a_rollback_has_hidden(viewer, agent):
    made = sessions.session(agent)
    sessions.item(made, content={"text": "Forget that I said this"})
    Item.objects.filter(session=made).update(is_hidden=True)

    response = viewer.get(address("session", made))

    assert response.context["transcript"].blocks == []
    assert "Forget that I said this" not in response.content.decode()


def test_session_never_draws_what_was_written_as_markup(viewer, agent):
    made = sessions.session(agent, title="<b>title</b>")
    for role in ("user", "assistant"):
        sessions.item(made, role=role, content={"text": "<script>alert(1)</script> ![x](https://evil.test/x.png)"})
    sessions.item(made, "tool_call", "assistant", {"id": "c", "name": "<i>tool</i>", "arguments": {"a": "<script>2</script>"}})

    text = viewer.get(address("session", made)).content.decode()

    assert "<script>alert" not in text
    assert "<script>2" not in text
    assert "<i>tool" not in text
    assert "<b>title" not in text
    assert 'src="https://evil.test' not in text


def test_session_gates_long_texts(viewer, agent):
    made = sessions.session(agent)
    sessions.item(made, role="assistant", content={"text": "word " * 2000 + "the very end"})

    page = viewer.get(address("session", made)).content.decode()
    whole = viewer.get(address("session-item", made, 1), headers={"HX-Request": "true"}).content.decode()

    assert "the very end" not in page
    assert "Show all 10,012 characters" in page
    assert "the very end" in whole
    assert "<html" not in whole


def test_session_item_is_a_page_without_a_script(viewer, conversation):
    response = viewer.get(address("session-item", conversation, 3))

    assert "on its way" in response.content.decode()
    assert viewer.get(address("session-item", conversation, 99)).status_code == 404


def test_session_item_of_another_tenant_is_not_there(stranger, conversation):
    assert stranger.get(address("session-item", conversation, 1)).status_code == 404


def test_session_shows_todos_mode_and_task(viewer, agent):
    made = sessions.session(
        agent, state={"mode": "execute", "todos": [{"id": 1, "title": "Find the invoice", "done": True}]}, task={"cart": ["A-1"]}, task_version=2
    )

    text = viewer.get(address("session", made)).content.decode()

    assert "mode: execute" in text
    assert "Find the invoice" in text
    assert "A-1" in text


def test_session_shows_what_the_chosen_run_saw(viewer, conversation):
    run = Run.objects.get(session=conversation)
    sessions.event(run, 3, "context.assembled", {"call": 1, "tokens": 906, "window": 64000, "layers": [{"layer": "instructions", "tokens": 906}]})

    report = viewer.get(address("session", conversation), {"run": shown("run", run.id)}).context["report"]

    assert (report.heading, [(layer.label, layer.tokens) for layer in report.layers]) == ("906 of 64,000 tokens", [("Instructions", 906)])


def test_session_does_not_show_the_run_of_another_one(viewer, agent, conversation):
    other = sessions.run(session=sessions.session(agent))

    assert viewer.get(address("session", conversation), {"run": shown("run", other.id)}).status_code == 404


def test_session_page_costs_the_same_for_1_and_3_turns(viewer, agent, subject, queries_of):
    made = sessions.session(agent, subject)
    sessions.turns(made, 1, sessions.run(session=made))
    one = queries_of(viewer, address("session", made))
    for _ in range(2):
        sessions.turns(made, 1, sessions.run(session=made))

    assert queries_of(viewer, address("session", made)) == one


def test_session_shows_a_run_that_failed_before_it_said_anything(viewer, agent):
    made = sessions.session(agent)
    run = sessions.run(session=made, status="failed", error={"class": "provider", "code": "provider_auth", "message": "The provider refused the key."})
    sessions.item(made, run_id=run.id)

    response = viewer.get(address("session", made))

    assert [block.kind for block in response.context["transcript"].blocks] == ["user", "agent"]
    assert "The provider refused the key." in response.content.decode()


def test_session_without_a_script_loads_itself_while_a_run_lasts(viewer, agent):
    made = sessions.session(agent)
    run = sessions.run(session=made, status="running")
    sessions.item(made, run_id=run.id)

    watched, plain = viewer.get(address("session", made) + "?watch"), viewer.get(address("session", made))
    Run.objects.filter(pk=run.pk).update(status="completed")
    over = viewer.get(address("session", made) + "?watch")

    assert [response.headers.get("Refresh") for response in (watched, plain, over)] == ["2", None, None]


# What can be done with it


def test_session_is_renamed_and_labelled(owner, conversation):
    response = owner.post(address("session-details", conversation), {"title": "Order 7", "labels": "vip, late ,vip"})

    conversation.refresh_from_db()
    assert response.url == address("session", conversation)
    assert (conversation.title, conversation.labels) == ("Order 7", ["vip", "late"])


def test_session_details_that_do_not_fit_change_nothing(owner, conversation):
    response = owner.post(address("session-details", conversation), {"title": "New", "labels": "x" * 65})

    conversation.refresh_from_db()
    assert response.status_code == 422
    assert response.context["details_form"].errors == {"labels": ["At most 20, 1 to 64 characters each."]}
    assert (conversation.title, conversation.labels) == ("The lost order", [])


def test_session_is_forked_at_a_turn(owner, agent):
    made = sessions.session(agent, key="case-1")
    sessions.turns(made, 3)

    response = owner.post(address("session-fork", made), {"at_seq": "4"})

    child = Session.objects.get(forked_from=made.id)
    assert response.url == address("session", child)
    assert child.key.startswith("case-1-fork-")
    assert [block.last_seq for block in owner.get(response.url).context["transcript"].blocks] == [1, 2, 3, 4]


def test_session_fork_goes_back_to_the_playground(owner, conversation):
    response = owner.post(address("session-fork", conversation), {"to": "playground"})

    child = Session.objects.get(forked_from=conversation.id)
    assert response.url == f"/playground?session={shown('ses', child.id)}"


def test_session_fork_under_a_taken_key_says_so_in_its_dialog(owner, conversation):
    response = owner.post(address("session-fork", conversation), {"key": conversation.key})

    assert response.status_code == 422
    assert "exists already" in response.content.decode()
    assert '<dialog id="fork" aria-labelledby="fork-title" data-open>' in response.content.decode()


def test_fork_and_original_name_each_other(owner, conversation):
    owner.post(address("session-fork", conversation), {"key": "branch", "at_seq": "4"})
    child = Session.objects.get(key="branch")

    assert address("session", child) in owner.get(address("session", conversation)).content.decode()
    assert address("session", conversation) in owner.get(address("session", child)).content.decode()


def test_summaries_are_shown_with_what_became_of_them(viewer, conversation):
    sessions.summary(conversation, 2, text="", is_stale=True, tokens=0)
    sessions.summary(conversation, 4, text="", failure="provider_overloaded")

    page = viewer.get(address("session", conversation)).content.decode()

    assert "Items 1 to 4: 5 tokens instead of 50" in page
    assert "They talked." in page
    assert "Items 1 to 2: an item changed, so this summary is not used any more." in page
    assert "not written (provider overloaded)" in page


def marks(client, session, **given):
    """The marks of summaries on a page: (where it stands, its state, messages, cursor of the page that begins with its range, later one)."""
    blocks = client.get(address("session", session), given).context["transcript"].blocks
    parts = [part for block in blocks for part in block.parts if part.kind == "summary"]
    return [(part.summary.to_seq, part.state, part.messages, part.after, part.later) for part in parts]


def test_transcript_marks_where_summaries_stand(viewer, agent):
    made = sessions.session(agent)
    sessions.turns(made, 4)
    sessions.summary(made, 2, text="", is_stale=True, tokens=0)
    sessions.summary(made, 4, text="Early.")
    sessions.summary(made, 4, text="", failure="empty", tokens=0)
    sessions.summary(made, 6, text="They **agreed** on <b>blue</b>.", tokens=1_200, source_tokens=34_567)

    response = viewer.get(address("session", made))

    assert [(block.kind, block.last_seq) for block in response.context["transcript"].blocks] == [
        ("user", 1), ("agent", 2), ("mark", 2), ("user", 3), ("agent", 4), ("mark", 4), ("user", 5), ("agent", 6), ("mark", 6),
        ("user", 7), ("agent", 8),
    ]  # fmt: skip
    assert marks(viewer, made) == [(2, "stale", 2, None, None), (4, "replaced", 4, None, 6), (6, "current", 6, None, None)]
    page = response.content.decode()
    assert "6 messages summarised here, 1,200 tokens instead of 34,567" in page
    assert "2 messages were summarised here, and one changed since" in page
    assert "They <strong>agreed</strong> on &lt;b&gt;blue&lt;/b&gt;." in page
    assert 'href="#item-1"' in page
    assert '<article class="msg user" id="item-1"' in page


def test_place_of_a_stale_summary_shows_the_one_that_was_written_again(viewer, agent):
    made = sessions.session(agent)
    sessions.turns(made, 2)
    sessions.summary(made, 2, text="", is_stale=True, tokens=0)
    sessions.summary(made, 2)
    sessions.summary(made, 2, text="", is_stale=True, tokens=0)

    assert marks(viewer, made) == [(2, "current", 2, None, None)]


def test_summary_that_ends_on_another_page_is_marked_there_and_pointed_to(viewer, agent):
    made = sessions.session(agent)
    sessions.turns(made, 100)
    sessions.summary(made, 4)
    sessions.summary(made, 100)

    last = viewer.get(address("session", made))
    middle = viewer.get(address("session", made), {"before": 141})
    first = viewer.get(address("session", made), {"before": 61})

    assert marks(viewer, made) == []
    assert f'{address("session", made)}?before=101#summary-100' in last.content.decode()
    assert marks(viewer, made, before=141) == [(100, "current", 100, 0, None)]
    assert f'{address("session", made)}?after=0#item-1' in middle.content.decode()
    assert marks(viewer, made, before=101) == [(100, "current", 100, 0, None)]
    assert marks(viewer, made, before=61) == [(4, "replaced", 4, None, 100)]
    assert f'{address("session", made)}?before=101#summary-100' in first.content.decode()


def test_transcript_is_read_forwards_without_a_gap(viewer, agent):
    made = sessions.session(agent)
    for size in (3, 40, 50, 70, 2, 30):
        sessions.item(made)
        for _ in range(size - 1):
            sessions.item(made, role="assistant")
    pages, at = [], {"before": 20}
    while at is not None:
        response = viewer.get(address("session", made), at)
        page = response.context["transcript"]
        pages.append((page.blocks[0].first_seq, page.blocks[-1].last_seq, "This is an earlier part" in response.content.decode()))
        at = {"after": page.newer} if page.newer else None

    assert pages == [(1, 19, True), (20, 79, True), (80, 139, True), (140, 195, False)]


def test_fork_marks_the_summaries_of_what_it_shares(viewer, owner, agent):
    made = sessions.session(agent, key="case-1")
    sessions.turns(made, 3)
    sessions.summary(made, 2)
    sessions.summary(made, 6)

    owner.post(address("session-fork", made), {"at_seq": "4"})

    assert marks(viewer, Session.objects.get(forked_from=made.id)) == [(2, "current", 2, None, None)]


def test_marks_of_summaries_cost_the_same_for_1_and_3(viewer, agent, queries_of):
    made = sessions.session(agent)
    sessions.turns(made, 4)
    sessions.summary(made, 2)
    one = queries_of(viewer, address("session", made))
    sessions.summary(made, 4)
    sessions.summary(made, 6)

    assert queries_of(viewer, address("session", made)) == one


def test_session_that_cannot_be_compacted_says_why(owner, conversation, monkeypatch):
    def refuse(session, by):
        raise NoSummaries

    monkeypatch.setattr("console.views.sessions.compacting.compact", refuse)

    response = owner.post(address("session-compact", conversation), follow=True)

    assert [str(message) for message in response.context["messages"]] == [
        "This agent's compaction does not summarise. Choose the strategy summary or pipeline for it and publish that."
    ]


def test_session_is_compacted_from_its_page(owner, conversation, monkeypatch):
    stored = sessions.summary(conversation, 2)
    monkeypatch.setattr("console.views.sessions.compacting.compact", lambda session, by: stored)

    response = owner.post(address("session-compact", conversation), follow=True)

    (message,) = [str(message) for message in response.context["messages"]]
    assert message.startswith("Compacted: a summary stands for items 1 to 2")


def test_session_is_closed_and_reopened(owner, conversation):
    owner.post(address("session-close", conversation))
    conversation.refresh_from_db()
    closed = conversation.status
    owner.post(address("session-reopen", conversation))
    conversation.refresh_from_db()

    assert (closed, conversation.status) == ("closed", "open")


def test_busy_session_is_not_closed_and_says_why(owner, conversation):
    Session.objects.filter(pk=conversation.pk).update(lease_run_id=conversation.id, lease_expires_at=timezone.now() + timedelta(minutes=1))

    response = owner.post(address("session-close", conversation), follow=True)

    conversation.refresh_from_db()
    assert conversation.status == "open"
    assert [str(message) for message in response.context["messages"]] == ["Another turn of this session is running. Wait for it to end, or cancel it, and send the message again."]


def test_session_is_archived_and_listed_again(owner, conversation):
    owner.post(address("session-archive", conversation))
    hidden = listed(owner.get(reverse("sessions")))
    owner.post(address("session-unarchive", conversation))

    assert (hidden, listed(owner.get(reverse("sessions")))) == ([], ["case-1"])


def test_session_deletion_names_what_goes_and_does_it(owner, conversation):
    page = owner.get(address("session", conversation))
    response = owner.post(address("session-delete", conversation), follow=True)

    assert page.context["goes"] == [
        (4, "items of history"), (1, "run with its events and costs"), (1, "attachment"), (1, "file of its workspace"), (1, "summary"), (1, "approval"),
    ]  # fmt: skip
    assert not Session.objects.filter(pk=conversation.pk).exists()
    assert [str(message) for message in response.context["messages"]] == ["Session The lost order is deleted."]


def test_session_deletion_names_what_was_written_of_it(owner, conversation):
    sessions.aggregation(conversation)
    sessions.aggregation(conversation, kind="working_memory")

    page = owner.get(address("session", conversation))

    assert (2, "files that were written of it") in page.context["goes"]


@pytest.mark.parametrize("name", ["session-details", "session-todos", "session-fork", "session-compact", "session-close", "session-reopen", "session-archive", "session-unarchive", "session-delete"])
def test_session_is_not_changed_by_strangers_and_viewers(name, viewer, stranger, conversation):
    assert stranger.post(address(name, conversation)).status_code == 404
    assert viewer.post(address(name, conversation)).status_code == 403
    conversation.refresh_from_db()
    assert (conversation.status, conversation.archived_at, conversation.title) == ("open", None, "The lost order")


def test_transcript_is_exported_and_audited(viewer, conversation):
    markdown = viewer.get(address("session-markdown", conversation))
    document = viewer.get(address("session-json", conversation))

    assert "It is on its way." in markdown.content.decode()
    assert [entry["kind"] for entry in json.loads(document.content)["items"]] == ["message", "tool_call", "tool_result", "message"]
    assert f'filename="session-{conversation.id.hex}.md"' in markdown["Content-Disposition"]
    assert [event.payload for event in AuditEvent.objects.filter(action="session.exported").order_by("id")] == [{"format": "md"}, {"format": "json"}]


def test_transcript_of_another_tenant_is_not_there(stranger, conversation):
    assert stranger.get(address("session-markdown", conversation)).status_code == 404


def test_attachment_is_a_download(viewer, stranger, conversation):
    blob = sessions.blob(conversation, b"<script>1</script>", name="a note.txt")

    response = viewer.get(address("session-file", conversation, blob.sha256))

    assert response.content == b"<script>1</script>"
    assert response["Content-Disposition"] == 'attachment; filename="a note.txt"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert viewer.get(address("session-file", conversation, "0" * 64)).status_code == 404
    assert stranger.get(address("session-file", conversation, blob.sha256)).status_code == 404


def test_forked_session_reads_items_of_its_original(viewer, conversation, owner):
    child = session_verbs.fork(session=conversation, at_seq=4, key="branch", by=owner.actor)

    response = viewer.get(address("session-item", child, 3))

    assert "on its way" in response.content.decode()
