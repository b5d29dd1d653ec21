"""The list of runs, the page of one, and its stream of frames."""

import json
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from console import live, reading
from governance.ids import shown
from governance.models import AuditEvent
from sessions.models import Run, RunEvent
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(tenant):
    return sessions.agent(tenant, "research")


@pytest.fixture
def session(agent, tenant):
    return sessions.session(agent, governance.subject(tenant), "case-1")


@pytest.fixture
def run(session):
    """A finished run: a call of the model, a tool, another call, an answer."""
    made = sessions.run(session=session, model_name="demo-1", input_tokens=700, output_tokens=60, model_calls=2, cost="0.0011")
    sessions.item(session, content={"text": "Where is my order?"}, run_id=made.id)
    sessions.item(session, "tool_call", "assistant", {"id": "c1", "name": "find_order", "arguments": {"id": 7}}, run_id=made.id)
    sessions.item(
        session, "tool_result", "tool", {"id": "c1", "name": "find_order", "text": "on its way", "outcome": "success", "duration_ms": 312}, run_id=made.id
    )
    sessions.item(session, role="assistant", content={"text": "It is on its way."}, run_id=made.id)
    layers = [{"layer": "instructions", "tokens": 300, "sources": ["definition"]}, {"layer": "message", "tokens": 50, "sources": ["1"]}]
    for seq, (kind, data) in enumerate(
        [
            ("run.started", {"agent": "research"}),
            ("context.assembled", {"call": 1, "tokens": 350, "window": 32768, "layers": layers}),
            ("tool.called", {"call_id": "c1", "item_seq": 2}),
            ("tool.completed", {"call_id": "c1", "item_seq": 3}),
            ("context.assembled", {"call": 2, "tokens": 350, "window": 32768, "layers": layers}),
            ("message.delta", {"text": "It is "}),
            ("message.completed", {"item_seq": 4, "model": "demo-1"}),
            ("run.completed", {"status": "completed"}),
        ],
        start=1,
    ):
        sessions.event(made, seq, kind, data)
    prices = {"source": "operator", "input": "0.25", "output": "2.00"}
    for number in (1, 2):
        sessions.model_call(made, number, context=layers, duration_ms=400, prices=prices, cost="0.0011")
    return made


def address(name, run, *more):
    return reverse(name, args=[shown("run", run.id), *more])


def listed(response):
    return [run.id for run in response.context["listing"].results]


# The list


def test_run_list_shows_newest_first_with_costs(viewer, agent, run):
    newer = sessions.run(agent, status="failed", error={"code": "provider_auth"})

    response = viewer.get(reverse("runs"))

    text = response.content.decode()
    assert listed(response) == [newer.id, run.id]
    assert "$0.0011" in text
    assert "case-1" in text


def test_run_list_hides_other_tenants_runs(stranger, run):
    response = stranger.get(reverse("runs"))

    assert listed(response) == []
    assert "No runs yet" in response.content.decode()


def test_run_list_needs_a_role_that_reads(tenant, sign_in):
    assert sign_in(tenant, "records_manager").get(reverse("runs")).status_code == 403


def test_run_list_is_filtered_by_each_field(viewer, tenant, session, run):
    old = sessions.run(sessions.agent(tenant, "billing"), status="failed")
    Run.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=3))
    today = timezone.now().date().isoformat()
    filters = [
        {"agent": "research"}, {"status": "completed"}, {"session": shown("ses", session.id)}, {"started_from": today, "started_to": today},
    ]  # fmt: skip

    assert [listed(viewer.get(reverse("runs"), given)) for given in filters] == [[run.id]] * len(filters)


def test_run_list_names_the_session_it_is_filtered_by(viewer, session, run):
    response = viewer.get(reverse("runs"), {"session": shown("ses", session.id)})

    assert [(pill.label, pill.value, pill.url) for pill in response.context["listing"].pills] == [("Session", "case-1", "/runs")]


@pytest.mark.parametrize("given", [{"status": "nonsense"}, {"agent": "nobody"}, {"started_from": "soon"}])
def test_run_list_refuses_a_filter_that_is_none(viewer, run, given):
    response = viewer.get(reverse("runs"), given)

    assert response.status_code == 400
    assert listed(response) == []


def test_run_list_does_not_filter_by_a_strangers_session(stranger, session, run):
    assert stranger.get(reverse("runs"), {"session": shown("ses", session.id)}).status_code == 404


def test_run_list_costs_the_same_for_1_and_3_rows(viewer, agent, session, queries_of):
    sessions.run(session=session)
    one = queries_of(viewer, reverse("runs"))
    sessions.run(session=session)
    sessions.run(agent)

    assert queries_of(viewer, reverse("runs")) == one


# One run


def test_timeline_says_what_compaction_made_of_the_history(viewer, run):
    told = {"strategy": "pipeline", "before": 9120, "after": 1204, "summarised": "1-40", "shortened": ["43"], "dropped": ["44-45", "48"]}
    sessions.event(run, 9, "history.compacted", told)

    step = viewer.get(address("run", run)).context["steps"][-1]

    assert (step.title, step.detail) == (
        "History compacted", "9,120 tokens shown as 1,204; items 1–40 by a summary; shortened: 43; left out: 44–45, 48",
    )  # fmt: skip


def test_run_shows_its_timeline_without_contents(viewer, run):
    response = viewer.get(address("run", run))

    assert [(step.title, step.tone, [label for label, _ in step.payloads]) for step in response.context["steps"]] == [
        ("Started", "info", []),
        ("demo", "model", []),
        ("find_order", "tool", ["arguments", "result"]),
        ("demo", "model", []),
        ("Answer", "ok", ["text"]),
        ("Completed", "ok", []),
    ]
    text = response.content.decode()
    assert "312 ms" in text
    assert "It is on its way." not in text
    assert "Where is my order?" not in text


def test_run_that_waited_for_a_person_begins_at_its_first_event(viewer, session):
    now = timezone.now()
    run = sessions.run(session=session, started_at=now - timedelta(seconds=1), ended_at=now)
    sessions.approval(run, call_id="c1", status="approved", decided_by="ada", decided_at=now - timedelta(seconds=1))
    sessions.event(run, 1, "run.started")
    sessions.event(run, 2, "approval.requested", {"call_id": "c1", "tool": "send_mail", "arguments": {}})
    sessions.event(run, 3, "run.started")
    sessions.event(run, 4, "run.completed", {"status": "completed"})
    for seq, seconds in ((1, 3603), (2, 3601), (3, 1), (4, 0)):
        RunEvent.objects.filter(run=run, seq=seq).update(at=now - timedelta(seconds=seconds))

    steps = viewer.get(address("run", run)).context["steps"]

    assert [(step.title, step.offset, step.took) for step in steps] == [
        ("Started", "+0 ms", ""),
        ("Approval of send_mail", "+2.0 s", "1 h 0 min"),
        ("Went on", "+1 h 0 min", ""),
        ("Completed", "+1 h 0 min", ""),
    ]
    # An hour of waiting takes a quarter of the bar, so that the three seconds of work can be seen.
    assert [round(step.start) for step in steps] == [0, 500, 750, 1000]
    assert round(steps[1].width) == 250


def test_run_shows_tokens_cost_and_prices_of_each_call(viewer, run):
    response = viewer.get(address("run", run))

    totals = response.context["totals"]
    assert (totals["input"], totals["output"], str(totals["cost"])) == (200, 40, "0.00220000")
    assert "in 0.25, out 2.00 · operator" in " ".join(response.content.decode().split())


def test_run_shows_what_the_model_saw_newest_first(viewer, run):
    reports = [report for _, report in viewer.get(address("run", run)).context["reports"]]

    assert [report.call for report in reports] == [2, 1]
    assert reports[0].heading == "350 of 32,768 tokens"
    assert [(layer.label, layer.tokens, layer.note) for layer in reports[0].layers] == [("Instructions", 300, ""), ("This turn", 50, "item 1")]


def test_run_says_what_to_do_about_its_error(viewer, session):
    run = sessions.run(session=session, status="failed", error={"class": "configuration", "code": "provider_auth", "message": "The key was refused."})

    text = viewer.get(address("run", run)).content.decode()

    assert "The key was refused." in text
    assert "Enter a valid one and test the connection" in text
    assert "provider_auth" in text


def test_run_links_to_the_run_that_called_it(viewer, session):
    parent = sessions.run(session=session)
    child = sessions.run(session=session, parent_id=parent.id, root_id=parent.id)

    below, above = viewer.get(address("run", parent)).context["family"], viewer.get(address("run", child)).context["family"]

    assert ([entry.id for _, entry in below], [entry.id for _, entry in above]) == ([child.id], [parent.id])


def test_live_run_asks_again_and_a_finished_one_does_not(viewer, session, run):
    ongoing = sessions.run(session=session, status="running", started_at=timezone.now())

    while_it_runs = viewer.get(address("run", ongoing), headers={"HX-Request": "true"}).content.decode()
    afterwards = viewer.get(address("run", run), headers={"HX-Request": "true"}).content.decode()

    assert 'hx-trigger="every 2s"' in while_it_runs
    assert "<html" not in while_it_runs
    assert "every 2s" not in afterwards


def test_run_of_another_tenant_is_not_there(stranger, run):
    names = ["run", "run-turn", "run-saw", "run-events"]

    assert [stranger.get(address(name, run)).status_code for name in names] == [404] * 4
    assert stranger.get(address("run-event", run, 3)).status_code == 404
    assert stranger.post(address("run-cancel", run)).status_code == 404


def test_run_needs_a_role_that_reads(tenant, sign_in, run):
    assert sign_in(tenant, "auditor").get(address("run", run)).status_code == 403


def test_run_page_costs_the_same_for_1_and_3_calls(viewer, run, queries_of):
    one = queries_of(viewer, address("run", run))
    sessions.model_call(run, 3)
    sessions.model_call(run, 4)

    assert queries_of(viewer, address("run", run)) == one


def test_opening_a_payload_is_audited(viewer, run):
    arguments = viewer.get(address("run-event", run, 3), headers={"HX-Request": "true"}).content.decode()
    result = viewer.get(address("run-event", run, 4)).content.decode()

    assert "&quot;id&quot;: 7" in arguments
    assert "<html" not in arguments
    assert "on its way" in result
    assert [event.object_ref for event in AuditEvent.objects.filter(action="content.read")] == [shown("run", run.id)] * 2


@pytest.fixture
def call_with_layers(run, session):
    """A third call, with a part of every kind."""
    summary = sessions.summary(session, 2)
    layers = [
        {"layer": "instructions", "tokens": 300, "sources": ["definition"], "left_out": []},
        {"layer": "skills", "tokens": 20, "sources": ["greeting v1"], "left_out": [], "text": "- greeting"},
        {"layer": "tools", "tokens": 40, "sources": ["current_time", "mode_set"], "left_out": []},
        {"layer": "summary", "tokens": 20, "sources": [f"{summary.from_seq}-{summary.to_seq}"], "left_out": []},
        {"layer": "history", "tokens": 30, "sources": ["2-3"], "left_out": [{"items": "3", "tokens": 9, "reason": "shortened to one line each"}]},
        {"layer": "working_memory", "tokens": 9, "sources": ["session state"], "left_out": [], "text": "Mode: plan."},
        {"layer": "message", "tokens": 9, "sources": ["4"], "left_out": []},
        {"layer": "written_down", "tokens": 9, "sources": ["4"], "left_out": []},
    ]
    sessions.model_call(run, 3, context=layers)
    return summary


def pieces(browser, run, layer, **more):
    found = browser.get(reverse("run-behind", args=[shown("run", run.id), 3, layer]), **more).context["behind"]
    return [(piece.source, piece.text) for piece in found.pieces]


def test_each_part_of_the_bar_leads_to_its_text(viewer, run, call_with_layers):
    assert pieces(viewer, run, "summary") == [("1-2", call_with_layers.text)]
    assert pieces(viewer, run, "history") == [
        ("2", 'Agent calls find_order: {"id": 7}'),
        ("3", "[shortened] find_order answered with 10 characters, item 3 of this session."),
    ]
    assert pieces(viewer, run, "message") == pieces(viewer, run, "written_down") == [("4", "Agent: It is on its way.")]
    assert pieces(viewer, run, "skills") == [("call", "- greeting")]
    assert pieces(viewer, run, "working_memory") == [("call", "Mode: plan.")]
    ((name, described), own) = pieces(viewer, run, "tools")
    assert (name, own) == ("current_time", ("mode_set", ""))
    assert described
    page = viewer.get(address("run", run)).content.decode()
    assert all(reverse("run-behind", args=[shown("run", run.id), 3, layer]) in page for layer in ("instructions", "tools", "summary", "history", "message"))


def test_part_that_is_the_same_in_every_call_is_read_from_the_first(viewer, run):
    run.calls.update(context=[])
    for number, seen in ((3, {"text": "Call the person Ada."}), (4, {}), (5, {"text": "Call the person Bea."}), (6, {})):
        layers = [{"layer": "instructions", "tokens": 9, "sources": ["definition"], "left_out": [], **seen}]
        sessions.model_call(run, number, context=[*layers, {"layer": "working_memory", "tokens": 9, "sources": [], "left_out": [], **seen}])

    def texts(layer):
        found = [viewer.get(address("run-behind", run, number, layer)).context["behind"].pieces for number in (3, 4, 5, 6)]
        return [[piece.text for piece in pieces] for pieces in found]

    assert texts("instructions") == [["Call the person Ada."], ["Call the person Ada."], ["Call the person Bea."], ["Call the person Bea."]]
    # What changes from call to call is shown only where it was.
    assert texts("working_memory") == [["Call the person Ada."], [], ["Call the person Bea."], []]


def test_opening_a_part_is_audited_and_a_stranger_finds_nothing(viewer, stranger, run, call_with_layers):
    there = reverse("run-behind", args=[shown("run", run.id), 3, "message"])

    viewer.get(there)

    (event,) = AuditEvent.objects.filter(action="content.read")
    assert (event.object_ref, event.payload) == (shown("run", run.id), {"what": "context"})
    assert stranger.get(there).status_code == 404
    assert viewer.get(reverse("run-behind", args=[shown("run", run.id), 3, "recall"])).status_code == 404
    assert viewer.get(reverse("run-behind", args=[shown("run", run.id), 9, "message"])).status_code == 404


def test_event_that_does_not_exist_is_not_there(viewer, run):
    assert [viewer.get(address("run-event", run, seq)).status_code for seq in (0, 99)] == [404, 404]


def test_turn_is_the_stored_answer_with_its_acts(owner, run):
    response = owner.get(address("run-turn", run), headers={"HX-Request": "true"})

    (block,) = reading.turn(run)
    text = response.content.decode()
    assert (block.kind, [part.kind for part in block.parts], block.fork_at) == ("agent", ["card", "message"], 4)
    assert "700 in" in text
    assert "Fork from here" in text
    assert 'id="work" hx-swap-oob="true"' in text


def test_turn_without_htmx_is_the_session(viewer, session, run):
    assert viewer.get(address("run-turn", run)).url == reverse("session", args=[shown("ses", session.id)])


def test_saw_is_a_part_for_htmx_and_the_run_page_otherwise(viewer, run):
    part = viewer.get(address("run-saw", run), headers={"HX-Request": "true"}).content.decode()

    assert "350 of 32,768 tokens" in part
    assert viewer.get(address("run-saw", run)).url == f"{address('run', run)}#context"


def test_waiting_run_is_cancelled(owner, session):
    run = sessions.run(session=session, status="awaiting_approval")

    response = owner.post(address("run-cancel", run), {"next": "//evil.test/"})

    run.refresh_from_db()
    assert response.url == address("run", run)
    assert run.status == "cancelled"


def test_cancelling_from_a_transcript_leaves_the_rest_to_the_stream(owner, session):
    run = sessions.run(session=session, status="running")

    response = owner.post(address("run-cancel", run), headers={"HX-Request": "true"})

    run.refresh_from_db()
    assert (response.status_code, run.cancel_reason) == (204, "cancelled")


def test_cancelling_needs_a_role_that_runs(viewer, session):
    run = sessions.run(session=session, status="running")

    assert viewer.post(address("run-cancel", run)).status_code == 403


def test_cancelling_a_finished_run_says_so(owner, run):
    response = owner.post(address("run-cancel", run), follow=True)

    assert [str(message) for message in response.context["messages"]] == ["This run has ended, so nothing more can be done with it."]


# The stream


async def frames_of(member, run, **headers):
    client = AsyncClient()
    await client.aforce_login(member)
    response = await client.get(address("run-events", run), headers=headers)
    assert (response.status_code, response["Content-Type"], response["Cache-Control"]) == (200, "text/event-stream; charset=utf-8", "no-store")
    text = b"".join([part async for part in response.streaming_content]).decode()
    found = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in text.strip().split("\n\n")]
    return [(frame.get("id"), json.loads(frame["data"])) for frame in found if "data" in frame]


@pytest.mark.django_db(transaction=True)
async def test_stream_tells_a_run_in_frames_of_html(viewer, run):
    frames = await frames_of(viewer.member, run)

    assert [(seq, sorted(frame)) for seq, frame in frames] == [
        ("1", ["state"]),
        ("2", ["html"]),
        ("3", ["html", "state"]),
        ("4", ["html", "state"]),
        ("5", ["html"]),
        ("6", ["text"]),
        ("7", ["done", "html"]),
        (None, ["end"]),
    ]
    assert "find_order" in frames[3][1]["html"]
    assert "312 ms" in frames[3][1]["html"]
    assert frames[6][1]["html"] == '<div class="answer gated"><p>It is on its way.</p></div>'


@pytest.mark.django_db(transaction=True)
async def test_stream_comes_back_after_the_last_event_and_knows_earlier_calls(viewer, run):
    frames = await frames_of(viewer.member, run, **{"Last-Event-ID": "3"})

    assert [seq for seq, _ in frames] == ["4", "5", "6", "7", None]
    # The result names its call only; its arguments were in an event that this reader has seen.
    assert "&quot;id&quot;: 7" in frames[0][1]["html"]


@pytest.mark.django_db(transaction=True)
async def test_stream_offers_the_decision_to_those_who_may_decide(owner, viewer, session):
    run = await sync_to_async(sessions.run)(session=session, status="cancelled")
    approval = await sync_to_async(sessions.approval)(run, "send_mail", call_id="c1")
    data = {"approval_id": shown("apr", approval.id), "call_id": "c1", "tool": "send_mail", "arguments": approval.arguments}
    await sync_to_async(sessions.event)(run, 1, "approval.requested", data)
    await sync_to_async(sessions.event)(run, 2, "run.cancelled", {})

    (_, operators), *_ = await frames_of(owner.member, run)
    (_, viewers), *_ = await frames_of(viewer.member, run)

    assert reverse("approval-decide", args=[shown("apr", approval.id)]) in operators["html"]
    assert operators["state"] == "waiting for approval"
    assert "waits for an operator" in viewers["html"]
    assert "<form" not in viewers["html"]


@pytest.mark.django_db(transaction=True)
async def test_stream_follows_a_run_until_its_end(viewer, session):
    run = await sync_to_async(sessions.run)(session=session, status="running")
    await sync_to_async(sessions.event)(run, 1, "run.started", {})
    stream = live.frames(run=run, after=0, csrf_token="", may_decide=False)
    seen = [await anext(stream), await anext(stream)]

    await sync_to_async(sessions.event)(run, 2, "run.failed", {"error": {"message": "The model is gone."}})
    await sync_to_async(Run.objects.filter(pk=run.pk).update)(status="failed")
    await sync_to_async(live.events.notify.send)(live.events.notify.EVENTS, run.id)
    seen += [part async for part in stream]

    assert seen[1] == b'id: 1\ndata: {"state": "running"}\n\n'
    assert b"The model is gone." in seen[2]
    assert seen[-1] == b'data: {"end": true}\n\n'


@pytest.mark.django_db(transaction=True)
async def test_stream_of_a_run_that_is_erased_meanwhile_ends(viewer, session):
    run = await sync_to_async(sessions.run)(session=session, status="running")
    stream = live.frames(run=run, after=0, csrf_token="", may_decide=False)
    await anext(stream)

    await sync_to_async(RunEvent.objects.filter(run_id=run.id).delete)()
    await sync_to_async(Run.objects.filter(pk=run.pk).delete)()

    assert [part async for part in stream] == [b'data: {"end": true}\n\n']
