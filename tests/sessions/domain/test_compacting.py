"""Compaction in real runs on the demo model: summaries after runs, in runs, on request, and when they fail."""

import time
from contextlib import ExitStack
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import F

from agents.definition import Definition
from agents.domain import definitions as catalogue
from agents.domain import providers, utility
from agents.models import Provider
from agents.queries import agent_named
from governance.actors import Actor
from governance.domain import fences
from governance.errors import MissingPermission, SubjectFenced
from sessions import dispatch
from sessions.context.compaction import texts
from sessions.domain import compacting, events, history, quotas
from sessions.domain import sessions as session_verbs
from sessions.errors import NoSummaries, NothingToCompact, QuotaExceeded, SummaryFailed
from sessions.models import Item, ModelCall, QuotaCounter, Run, RunEvent, Session, Summary
from tests.sessions.domain.conftest import rested
from tests.wire.replies import HTML, OVERLOADED, UNAUTHORIZED, Hang, Reset, said
from tests.wire.threaded import serving

pytestmark = pytest.mark.django_db(transaction=True)

LONG = "Please remember this for later: the kettle with number {0} is blue, it stands in the kitchen, and Ada wants it back. " * 4


@pytest.fixture
def compacts(agent, actor):
    """Publish compaction settings for the agent, as its builder would."""

    def publish(agent_name=None, harness=None, assembly=(), **settings):
        current = agent_named(tenant_id=agent.tenant_id, name=agent_name or agent.name)
        document = {**current.draft, "compaction": {"minimum_preserved_groups": 2, **settings}, "assembly": list(assembly)}
        if harness is not None:
            document["harness"] = harness
        changed = catalogue.save_draft(agent=current, document=document, expected=current.draft_counter, by=actor)
        catalogue.publish(agent=changed, note="compaction", by=actor)

    return publish


@pytest.fixture
def talk(say):
    """Take turns that are long enough to be worth a summary; returns their runs."""

    def turns(number, **more):
        return [say(LONG.format(index), **more) for index in range(number)]

    return turns


@pytest.fixture(autouse=True)
def nothing_left_running(db):
    """No summary is still being written when the tables are emptied."""
    yield
    rested()


def settled(session, wanted=lambda found: found, seconds=60.0):
    """The session's summaries once `wanted` holds: they are written after the run."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = list(Summary.objects.filter(session_id=session.id).order_by("created_at"))
        if wanted(found):
            return found
        connection.close()
        time.sleep(0.02)
    raise AssertionError(f"no such summaries: {found}")


def told(run, kind):
    return [event.data for event in events.read(run=run) if event.type == kind]


def layers(run):
    call = ModelCall.objects.filter(run_id=run.id).order_by("number").first()
    return {layer["layer"]: layer for layer in call.context}


def test_summary_is_written_after_the_run_and_used_by_the_next(compacts, talk, say):
    compacts(strategy="summarization", trigger_turns=4)

    *_, last = talk(4)
    session = Session.objects.get()
    (stored,) = settled(session)
    following = say("And what now?")

    assert (stored.from_seq, stored.to_seq, stored.run_id, stored.model) == (1, 4, last.id, "demo/demo-1")
    assert 0 < stored.tokens < stored.source_tokens
    assert layers(following)["summary"]["sources"] == ["1-4"]
    assert layers(following)["history"]["sources"] == ["5-8"]
    (compacted,) = told(following, "history.compacted")
    assert compacted["after"] < compacted["before"]
    assert (compacted["strategy"], compacted["summarised"]) == ("summarization", "1-4")


def test_summary_is_paid_like_any_other_call(compacts, talk, actor, tenant):
    compacts(strategy="summarization", trigger_turns=4)
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="tokens", period="day", limit=1_000_000, by=actor)

    runs = talk(4)
    settled(Session.objects.get())
    run = Run.objects.get(id=runs[-1].id)

    calls = list(ModelCall.objects.filter(run_id=run.id).order_by("number"))
    assert [call.context[0]["layer"] for call in calls] == ["instructions", "summarised"]
    assert (run.model_calls, run.input_tokens) == (2, sum(call.input_tokens for call in calls))
    assert run.cost == sum(call.cost for call in calls)
    used = QuotaCounter.objects.get(quota=quota).used
    assert used == sum(one.input_tokens + one.output_tokens for one in ModelCall.objects.all())


def test_quota_without_room_writes_no_summary(compacts, talk, actor, tenant, monkeypatch):
    compacts(strategy="summarization", trigger_turns=4)
    talk(3)
    # Used up by the run itself: what comes after it finds nothing left.
    quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="tokens", period="day", limit=1, by=actor)

    talk(1)
    session = Session.objects.get()

    with pytest.raises(QuotaExceeded):
        compacting.compact(session=session, by=actor)
    assert not Summary.objects.exists()


def test_next_summary_carries_on_and_reads_only_what_is_new(compacts, talk):
    compacts(strategy="summarization", trigger_turns=4)

    talk(4)
    session = Session.objects.get()
    (first,) = settled(session)
    talk(2)
    first, second = settled(session, lambda found: len(found) == 2)

    assert (second.parent_id, second.from_seq, second.to_seq) == (first.id, 1, 8)
    assert second.source_tokens > first.source_tokens
    call = ModelCall.objects.filter(run_id=second.run_id).order_by("-number").first()
    assert call.context[0]["sources"] == ["5-8"]


def test_run_writes_a_summary_itself_only_when_there_is_no_room(compacts, talk, agent):
    compacts(
        strategy="summarization", trigger_tokens=1500, harness={"max_context_window_tokens": 4_000, "max_output_tokens": 500},
    )  # fmt: skip
    runs = talk(3)
    Summary.objects.all().delete()

    assert not any(run_wrote_summary(run) for run in runs)


def run_wrote_summary(run):
    calls = ModelCall.objects.filter(run_id=run.id).order_by("number")
    return [call.context[0]["layer"] for call in calls][0] == "summarised"


def test_without_background_the_run_waits_for_its_summary(compacts, talk, say):
    compacts(strategy="summarization", trigger_turns=4, background=False)

    runs = talk(4)

    assert [run_wrote_summary(run) for run in runs] == [False, False, False, True]
    (stored,) = Summary.objects.all()
    assert stored.run_id == runs[-1].id
    # The fourth message itself is not in it, and its run saw the summary.
    assert stored.to_seq == 4
    calls = ModelCall.objects.filter(run_id=runs[-1].id).order_by("-number")
    assert "summary" in {layer["layer"] for layer in calls.first().context}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("", "empty"), ("Error: 503 Service Unavailable", "error_text"), ("word " * 3000, "longer_than_its_source")],
)
def test_what_is_no_summary_is_not_kept_and_the_run_goes_on(compacts, talk, monkeypatch, answer, reason):
    compacts(strategy="summarization", trigger_turns=4, background=False)
    monkeypatch.setattr("sessions.engine.demo_text._summary", lambda message, earlier: answer)
    monkeypatch.setattr("sessions.engine.demo.SIGNATURE", "")

    run = talk(4)[-1]

    assert run.status == "completed"
    (row,) = Summary.objects.all()
    assert (row.failure, row.text) == (reason, "")
    (alert,) = told(run, "alert")
    assert (alert["code"], alert["reason"]) == ("summary_failed", reason)


@pytest.fixture
def summariser(tenant, actor, settings, monkeypatch):
    """`summariser(reply)`: a provider for summaries that answers everything so, until the end of the test."""
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True}
    with ExitStack() as stack:

        def answers(reply):
            if isinstance(reply, Hang):
                # Silence is given up after a minute; here sooner, but only where it is what happens.
                monkeypatch.setattr("sessions.engine.compacting._SILENCE", 0.3)
            provider = stack.enter_context(serving("chat", *[reply] * 20))
            providers.create_provider(tenant_id=tenant.id, by=actor, name="small", kind="openai_compatible", base_url=provider.base_url)
            return {"provider": "small", "model": "m"}

        yield answers


@pytest.mark.parametrize(
    ("reply", "reason", "background"),
    [
        (OVERLOADED, "provider_overloaded", True),
        (Hang(), "provider_timeout", True),
        (Reset(), "provider_unreachable", False),
        (UNAUTHORIZED, "provider_auth", False),
        (HTML, "provider_bad_response", True),
        (said("  "), "empty", False),
        (said("They talked of", end="reset"), "provider_unreachable", False),
        (said("They talked of", finish="length"), "cut_off", True),
    ],
)
def test_provider_that_fails_a_summary_is_a_reason_and_no_failure_of_the_run(compacts, talk, say, summariser, monkeypatch, reply, reason, background):
    monkeypatch.setattr("sessions.domain.summaries.FIRST_WAIT", timedelta(minutes=30))
    compacts(strategy="summarization", trigger_turns=4, background=background, summarization_model=summariser(reply))

    runs = talk(4)
    rested()
    after = say("And now?")

    assert {run.status for run in [*runs, after]} == {"completed"}
    (row,) = Summary.objects.all()
    assert (row.failure, row.text) == (reason, "")
    assert "summary" not in layers(after)
    assert [event["reason"] for event in told(runs[-1], "alert")] == ([] if background else [reason])


def test_failing_summariser_is_left_alone_for_a_while(compacts, talk, monkeypatch):
    # Longer than any machine takes for five turns.
    monkeypatch.setattr("sessions.domain.summaries.FIRST_WAIT", timedelta(minutes=30))
    compacts(strategy="summarization", trigger_turns=3, background=False)
    monkeypatch.setattr("sessions.engine.demo_text._summary", lambda message, earlier: "")
    monkeypatch.setattr("sessions.engine.demo.SIGNATURE", "")

    talk(5)
    rested()

    assert Summary.objects.count() == 1
    Summary.objects.update(created_at=F("created_at") - timedelta(minutes=31))
    talk(1)
    assert Summary.objects.count() == 2


def test_summary_model_that_is_gone_is_a_reason_and_no_failure_of_the_run(compacts, talk, actor, agent):
    compacts(
        strategy="summarization", trigger_turns=4, background=False, summarization_model={"provider": "demo", "model": "demo-1"},
    )  # fmt: skip
    talk(3)
    from_elsewhere = agent_named(tenant_id=agent.tenant_id, name=agent.name).published
    document = {**from_elsewhere.document}
    document["compaction"] = {**document["compaction"], "summarization_model": {"provider": "gone", "model": "m"}}
    session = Session.objects.get()
    run = Run.objects.order_by("-id").first()

    reason = write_by(document, session, run)

    assert reason == "model_not_found"
    assert Summary.objects.get().failure == "model_not_found"


def write_by(document, session, run):
    return dispatch.summarise(session=session, run=run, definition=Definition.model_validate(document), seq=2, seconds=20)


# The tenant's utility model


def test_utility_model_writes_summaries_where_the_definition_names_none(compacts, talk, utility_model):
    compacts(strategy="summarization", trigger_turns=4)

    *_, last = talk(4)
    (stored,) = settled(Session.objects.get())

    assert (stored.model, stored.text) == ("small/gpt-4o-2026", "They talked about kettles.")
    assert [body["model"] for body in utility_model.bodies] == ["gpt-4o"]
    # The turns themselves are still the agent's own model's.
    assert list(ModelCall.objects.exclude(run_id=last.id).values_list("provider", flat=True)) == ["demo"] * 3


def test_call_of_the_utility_model_is_priced_by_its_provider_and_paid_by_the_run(compacts, talk, utility_model):
    compacts(strategy="summarization", trigger_turns=4)

    *_, last = talk(4)
    settled(Session.objects.get())

    own, call = ModelCall.objects.filter(run_id=last.id).order_by("number")
    assert (own.provider, call.provider, call.context[0]["layer"]) == ("demo", "small", "summarised")
    assert (call.prices["source"], call.prices["input"], call.prices["output"]) == ("operator", "1", "2")
    assert call.cost == Decimal(call.input_tokens + 2 * call.output_tokens) / 1_000_000
    assert Run.objects.get(id=last.id).cost == call.cost


def test_model_of_the_definition_comes_before_the_utility_model(compacts, talk, utility_model):
    compacts(
        strategy="summarization", trigger_turns=4, background=False, summarization_model={"provider": "demo", "model": "demo-1"},
    )  # fmt: skip

    talk(4)

    assert (Summary.objects.get().model, utility_model.bodies) == ("demo/demo-1", [])


UNUSABLE = {
    "deleted": lambda small, by: small.delete(),
    "disabled": lambda small, by: providers.update_provider(provider=small, by=by, is_disabled=True),
    "circuit open": lambda small, by: Provider.objects.filter(pk=small.pk).update(open_until="2100-01-01T00:00Z"),
    "no key": lambda small, by: providers.update_provider(provider=small, by=by, key_env="NOT_SET_HERE_API_KEY"),
    "not allowed": lambda small, by: providers.set_egress(tenant_id=small.tenant_id, hosts=["models.example.com"], by=by),
}


@pytest.mark.parametrize("state", UNUSABLE)
def test_agents_own_model_stands_in_for_a_utility_model_that_cannot_be_asked(compacts, talk, utility_model, actor, state):
    UNUSABLE[state](Provider.objects.get(name="small"), actor)
    compacts(strategy="summarization", trigger_turns=4, background=False)

    runs = talk(4)

    assert {run.status for run in runs} == {"completed"}
    assert (Summary.objects.get().model, utility_model.bodies) == ("demo/demo-1", [])
    assert told(runs[-1], "alert") == []


def test_agents_own_model_stands_in_for_a_utility_model_that_fails(compacts, talk, utility_model):
    utility_model.script[:] = [OVERLOADED] * 20
    compacts(strategy="summarization", trigger_turns=4, background=False)

    run = talk(4)[-1]

    assert (run.status, Summary.objects.get().model) == ("completed", "demo/demo-1")
    assert len(utility_model.bodies) == 2


def test_utility_model_of_another_tenant_is_never_asked(compacts, talk, stranger, settings):
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True}
    with serving("chat", said("They talked about kettles.")) as theirs:
        for name in ("small", "demo"):
            providers.create_provider(tenant_id=stranger.tenant_id, by=stranger, name=name, kind="openai_compatible", base_url=theirs.base_url)
        utility.set_utility_model(tenant_id=stranger.tenant_id, provider="demo", model="demo-1", by=stranger)
        compacts(strategy="summarization", trigger_turns=4, background=False)

        talk(4)

        assert (Summary.objects.get().model, theirs.bodies) == ("demo/demo-1", [])


def test_turn_that_needs_no_summary_does_not_look_for_the_utility_model(compacts, talk, say, utility_model, monkeypatch):
    compacts(strategy="summarization", trigger_turns=50)
    monkeypatch.setattr("sessions.domain.definitions._FRESH_SECONDS", 3600.0)
    talk(2)
    statements, execute = [], CursorWrapper.execute

    def seen(cursor, sql, params=None):
        statements.append(str(sql))
        return execute(cursor, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", seen)
    run = say("Tell me something more.")
    rested()

    assert run.status == "completed"
    assert statements
    assert [sql for sql in statements if "governance_tenant" in sql] == []


def test_recalled_text_is_never_summarised(compacts, say, monkeypatch):
    asked = []
    original = texts.request
    monkeypatch.setattr("sessions.engine.summariser.texts.request", lambda text, **more: asked.append(text) or original(text, **more))
    compacts(strategy="summarization", trigger_turns=3, background=False)
    say(LONG.format(1))
    session = Session.objects.get()
    add(session, "tool_call", "assistant", {"id": "c1", "name": "search_conversation_memory", "arguments": {}})
    add(session, "tool_result", "tool", {"id": "c1", "name": "search_conversation_memory", "text": "CANARY of another day", "outcome": "success"})
    say(LONG.format(2))
    say(LONG.format(3))

    assert len(asked) == 1
    assert "CANARY" not in asked[0]
    assert "[recalled text, not repeated here]" in asked[0]


def add(session, kind, role, content):
    session.refresh_from_db()
    entry = history.NewItem(kind, role, content, turn=session.turns, group=session.head_seq + 1, tokens=20)
    history.insert(session=session, first_seq=session.head_seq + 1, entries=[entry])
    Session.objects.filter(id=session.id).update(head_seq=session.head_seq + 1, version=session.version + 1)


def test_fenced_subject_gets_no_summary_and_costs_nothing(compacts, say, subject, actor, tenant, monkeypatch):
    compacts(strategy="summarization", trigger_turns=4)
    for index in range(3):
        say(LONG.format(index), subject=subject)
    session = Session.objects.get()
    run = Run.objects.order_by("-id").first()
    definition = agent_named(tenant_id=tenant.id, name=session.agent.name).published.document
    fences.open_fence(subject=subject, mode="restrict", by=actor)

    with pytest.raises(SubjectFenced):
        write_by(definition, session, run)
    assert ModelCall.objects.filter(run_id=run.id).count() == 1
    assert not Summary.objects.exists()


# On request


def test_compact_now_covers_all_but_the_preserved_turns(compacts, talk, actor):
    compacts(strategy="summarization", trigger_turns=50)
    talk(4)
    session = Session.objects.get()

    stored = compacting.compact(session=session, by=actor)

    assert (stored.from_seq, stored.to_seq) == (1, 4)
    with pytest.raises(NothingToCompact):
        compacting.compact(session=session, by=actor)


def test_compact_now_of_a_fork_is_paid_by_what_it_shares(compacts, talk, actor):
    compacts(strategy="summarization", trigger_turns=50)
    runs = talk(4)
    child = session_verbs.fork(session=Session.objects.get(), key="child", by=actor)

    stored = compacting.compact(session=child, by=actor)

    assert (stored.session_id, stored.run_id) == (child.id, runs[-1].id)


def test_compact_now_says_why_it_cannot(compacts, talk, actor, monkeypatch, reader):
    compacts(strategy="sliding_window", trigger_turns=50)
    talk(3)
    session = Session.objects.get()
    with pytest.raises(NoSummaries):
        compacting.compact(session=session, by=actor)
    with pytest.raises(MissingPermission):
        compacting.compact(session=session, by=reader)

    compacts(strategy="summarization", trigger_turns=50)
    monkeypatch.setattr("sessions.engine.demo_text._summary", lambda message, earlier: "")
    monkeypatch.setattr("sessions.engine.demo.SIGNATURE", "")
    with pytest.raises(SummaryFailed) as failed:
        compacting.compact(session=session, by=actor)
    assert failed.value.extra["reason"] == "empty"


@pytest.fixture
def reader(tenant):
    return Actor(kind="api_key", tenant_id=tenant.id, ref="0" * 32, label="reader", permissions=frozenset({"sessions.read"}))


# Looking back


def test_agent_looks_back_at_what_was_left_out(compacts, talk, say):
    compacts(strategy="sliding_window", trigger_turns=3)
    talk(4)

    run = say('history_read {"query": "kettle with number 0"}')

    (result,) = [event["text"] for event in told(run, "tool.completed")]
    assert result.startswith("#1 Person: Please remember this for later: the kettle with number 0")
    again = say('history_read {"from_seq": 3, "to_seq": 4}')
    (result,) = [event["text"] for event in told(again, "tool.completed")]
    assert [line[:9] for line in result.split("\n")[:2]] == ["#3 Person", "#4 Agent:"]


@pytest.mark.parametrize("chosen", [{"strategy": "none"}, {"strategy": "sliding_window", "trigger_turns": 3, "keep_dropped": False}])
def test_agent_that_may_not_look_back_is_not_offered_to(compacts, say, chosen):
    compacts(**chosen)

    run = say("Hello")

    assert "history_read" not in layers(run).get("tools", {}).get("sources", [])


# What does not change


def test_history_is_the_same_with_compaction_on_and_off(compacts, say, monkeypatch):
    """Reported failure: microsoft/agent-framework#8441, the stored log differed with compaction on."""
    monkeypatch.setattr("sessions.engine.demo_text._default", lambda message, earlier: f"You wrote {len(message)} characters. {message}")
    messages = [LONG.format(index) for index in range(6)] + ["What is 2 + 3?", "Count the words: one two three"]
    kept = {}
    for key, settings in [
        ("off", {"strategy": "none"}),
        ("summaries", {"strategy": "summarization", "trigger_turns": 3, "background": False}),
        ("window", {"strategy": "sliding_window", "trigger_turns": 3}),
        ("tools", {"strategy": "pipeline", "trigger_tokens": 300, "minimum_preserved_turns": 1}),
    ]:
        compacts(**settings)
        for message in messages:
            assert say(message, key=key).status == "completed"
        rows = Item.objects.filter(session__key=key).order_by("seq")
        kept[key] = [
            (item.seq, item.kind, item.role, item.turn, item.group, item.tokens, stable(item.content), item.is_hidden) for item in rows
        ]

    assert kept["off"] == kept["summaries"] == kept["window"] == kept["tools"]
    assert Summary.objects.filter(failure="").exists()
    assert RunEvent.objects.filter(type="history.compacted").count() >= 6


def test_compaction_and_assembly_rewrite_no_stored_row(compacts, say, agent, actor):
    """Not one row of the history has a newer version afterwards than when it was written."""

    def rows():
        with connection.cursor() as cursor:
            cursor.execute("SELECT seq, xmin::text, md5(item::text) FROM agent_sessions_item item ORDER BY seq")
            return cursor.fetchall()

    compacts(strategy="none")
    for index in range(5):
        say(LONG.format(index))
    before = rows()

    compacts(strategy="pipeline", trigger_tokens=200, minimum_preserved_turns=1)
    say("And now?")
    rested()
    compacts(strategy="none", assembly=[{"kind": "conversation"}, {"kind": "sliding_window", "max_items": 2}])
    say("And then?")
    session = Session.objects.get()
    compacts(strategy="summarization", trigger_turns=4)
    compacting.compact(session=session, by=actor)

    assert rows()[: len(before)] == before
    assert Summary.objects.filter(failure="").exists()


def stable(content):
    """Without what the clock says, and without the ids that the demo model gives its calls by what it is shown."""
    return {name: value for name, value in content.items() if name not in ("duration_ms", "id")}


def test_long_session_on_a_small_window_never_overflows_and_summarises_seldom(compacts, say):
    compacts(
        strategy="summarization", trigger_tokens=1_500, harness={"max_context_window_tokens": 3_000, "max_output_tokens": 600},
    )  # fmt: skip
    runs = [say(LONG.format(index)) for index in range(40)]

    assert {run.status for run in runs} == {"completed"}
    session = Session.objects.get()
    settled(session)
    for call in ModelCall.objects.filter(run__session=session):
        assert sum(layer["tokens"] for layer in call.context if layer["layer"] != "summarised") <= 2_400 or call.context[0]["layer"] == "summarised"
    spent = sum(item.tokens for item in Item.objects.filter(session=session))
    written = Summary.objects.filter(failure="").count()
    assert 2 <= written <= 2 * spent / 1_000
