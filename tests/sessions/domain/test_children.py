"""Agents that call agents: real runs of the demo model, one inside the other."""

import json
import threading
from decimal import Decimal

import pytest

from agents.tools import register_tool, unregister_tool
from governance.actors import Actor
from governance.permissions import PERMISSIONS
from sessions.domain import children, quotas, runs
from sessions.models import Item, ModelCall, Run, RunEvent
from tests.factories import agents
from tests.sessions.domain.conftest import finished

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = {"provider": "demo", "model": "demo-1-fast"}


@pytest.fixture
def tools():
    """Registers tools for one test; `events` by name let them wait."""
    names = []

    def register(effect, function):
        register_tool(effect)(function)
        names.append(function.__name__)

    yield register
    for name in names:
        unregister_tool(name)


@pytest.fixture
def helper(tenant):
    return agents.published(tenant, "helper", model=MODEL, description="Knows sums.", tools=["calculate"])


def boss(tenant, *names, **values):
    return agents.published(tenant, "boss", model=MODEL, callable_agents=list(names), **values)


def call(name="helper", task="What is 6 * 7?", **more):
    return f"agent_{name} {json.dumps({'task': task, **more})}"


def result(run):
    (found,) = Item.objects.filter(run_id=run.id, kind="tool_result")
    return found.content["text"], found.content["outcome"]


def child_of(run):
    return Run.objects.get(parent_id=run.id)


def test_called_agent_answers_in_a_run_of_its_own(say, tenant, helper, subject):
    boss(tenant, "helper")

    run = say(call(), agent_name="boss", subject=subject)

    child = child_of(run)
    text, outcome = result(run)
    assert (run.status, child.status, outcome) == ("completed", "completed", "success")
    assert "The result is 42." in text
    assert (child.session_id, child.root_id, child.subject_id, child.epoch) == (None, run.id, subject.id, subject.epoch)
    assert (child.started_by, child.actor_kind, child.actor_ref) == (run.started_by, run.actor_kind, run.actor_ref)
    assert (child.tool_calls, child.model_calls) == (1, 2)
    told = list(RunEvent.objects.filter(run=run, type__startswith="child_run").order_by("seq").values_list("type", "data"))
    about = {"run_id": f"run_{child.id.hex}", "agent": "helper"}
    assert told == [("child_run.started", about), ("child_run.completed", {**about, "status": "completed"})]


def test_tool_of_an_agent_says_what_it_is_for(tenant, helper):
    from agents.definition import Definition
    from sessions.engine.budget import Budget
    from sessions.engine.children import build
    from tests.sessions.engine.memory_store import MemoryStore

    agents.published(tenant, "wri.ter", instructions="{{tone}}", parameters=[{"name": "tone", "required": True}, {"name": "n", "kind": "number"}], tools=[])
    definition = Definition.model_validate(agents.document("boss", callable_agents=["helper", "wri.ter", "gone"]))
    store = MemoryStore()
    run = Run(tenant_id=tenant.id)

    helping, writing = build(run, definition, store, Budget(None, store), 20_000)

    assert helping.name == "agent_helper"
    assert helping.description.startswith("Knows sums.")
    assert writing.name.startswith("agent_wri_ter_")
    assert writing.schema["required"] == ["task", "parameters"]
    assert writing.schema["properties"]["parameters"]["properties"] == {"tone": {"type": "string"}, "n": {"type": "number"}}
    assert (helping.effect, helping.asks, helping.origin) == ("read", False, "agent:helper")


def test_settings_of_the_tool_hold_for_an_agent(say, tenant, helper):
    settings = {"agent_helper": {"max_output_chars": 10}}
    boss(tenant, "helper", tool_settings=settings)

    text, _ = result(say(call(), agent_name="boss"))

    assert text.startswith("The result\n[truncated:")


def test_agent_that_asks_waits_for_a_person(tenant, actor, helper):
    boss(tenant, "helper", tool_settings={"agent_helper": {"approval": "always"}})
    run = runs.start(agent_name="boss", request=runs.RunRequest(message=call(), session_key="k"), by=actor)

    assert finished(run, statuses=("awaiting_approval",)).status == "awaiting_approval"
    assert not Run.objects.filter(parent_id=run.id).exists()


def test_slow_agent_is_given_up_in_time_and_its_run_ends(say, tenant, tools):
    async def wait_long(context) -> str:
        """Waits."""
        import asyncio

        await asyncio.sleep(60)
        return "late"

    tools("read", wait_long)
    agents.published(tenant, "slow", model=MODEL, tools=["wait_long"], tool_settings={"wait_long": {"timeout_s": 60}})
    boss(tenant, "slow", tool_settings={"agent_slow": {"timeout_s": 0.5}})

    run = say(call("slow", "wait_long please"), agent_name="boss")

    text, outcome = result(run)
    assert (run.status, outcome, child_of(run).status) == ("completed", "failed", "budget_exceeded")
    assert "slow reached a limit before it was done" in text


def test_failing_agent_fails_the_call_and_not_the_caller(say, tenant, helper):
    helper.is_disabled = True
    boss(tenant, "helper")
    helper.save(update_fields=["is_disabled"])

    text, outcome = result(say(call(), agent_name="boss"))

    assert (outcome, text) == ("failed", "helper was not called: This agent is switched off. Switch it on to run it.")


def test_agents_call_each_other_only_so_deep(say, tenant, settings):
    settings.LETHE = {**settings.LETHE, "agent_depth": 2}
    agents.published(tenant, "d", model=MODEL, tools=["calculate"])
    for name, below in (("c", "d"), ("b", "c"), ("a", "b")):
        agents.published(tenant, name, model=MODEL, callable_agents=[below])
    task = "What is 1 + 1?"
    for name in ("d", "c", "b"):
        task = call(name, task)

    run = say(task, agent_name="a")

    family = list(Run.objects.filter(root_id=run.id).order_by("id").select_related("agent"))
    assert [entry.agent.name for entry in family] == ["b", "c"]
    assert "agents call each other at most 2 deep" in family[-1].output["text"]
    assert [entry.parent_id for entry in family] == [run.id, family[0].id]


def test_called_runs_spend_from_the_purse_of_their_caller(say, tenant, helper):
    boss(tenant, "helper", limits={"max_tokens_per_run": 400})
    free = say(call(task="What is 6 * 7? " + "word " * 50), agent_name="boss")
    spent = children.spent_below(free)

    assert (free.status, free.input_tokens + free.output_tokens < 400) == ("budget_exceeded", True)
    assert spent[0] == sum(row.input_tokens + row.output_tokens for row in ModelCall.objects.filter(run=child_of(free)))
    assert spent[0] + free.input_tokens + free.output_tokens >= 400
    assert spent[1:] == (Decimal(0), child_of(free).tool_calls)


def test_run_that_goes_on_counts_what_it_had_called(say, tenant, helper):
    from agents.definition import Definition
    from sessions.engine.children import budget_for
    from tests.sessions.engine.memory_store import MemoryStore

    boss(tenant, "helper")
    run = say(call(), agent_name="boss")
    child, definition = child_of(run), Definition.model_validate(agents.document("boss", callable_agents=["helper"]))

    again = budget_for(run, definition, MemoryStore(), is_fresh=False)
    fresh = budget_for(run, definition, MemoryStore(), is_fresh=True)

    assert (again.spent().tokens, again.spent().tool_calls) == (child.input_tokens + child.output_tokens, 1)
    assert fresh.spent().tokens == 0


def test_tool_calls_of_called_runs_count_for_the_caller(say, tenant, helper):
    boss(tenant, "helper", limits={"max_tool_calls": 1})

    run = say(call(), agent_name="boss")

    child = child_of(run)
    assert (child.status, child.output["text"]) == ("budget_exceeded", "")
    assert result(run)[0].startswith("helper reached a limit before it was done.")
    assert RunEvent.objects.filter(run=child, type="tool.failed").get().data["text"] == "[not run] The limit of 1 tool calls in one run is reached."


def test_cancelling_the_caller_cancels_the_called(tenant, actor, tools):
    started, never = threading.Event(), threading.Event()

    async def hold_on(context) -> str:
        """Waits for ever."""
        import asyncio

        started.set()
        while not never.is_set():
            await asyncio.sleep(0.01)
        return "done"

    tools("read", hold_on)
    agents.published(tenant, "slow", model=MODEL, tools=["hold_on"], tool_settings={"hold_on": {"timeout_s": 60}})
    boss(tenant, "slow")
    run = runs.start(agent_name="boss", request=runs.RunRequest(message=call("slow", "hold_on"), session_key="k"), by=actor)
    assert started.wait(20)

    runs.cancel(run=run, by=actor)

    assert finished(run).status == "cancelled"
    assert finished(child_of(run)).status == "cancelled"


def test_cancelled_child_is_told_to_the_caller(tenant, actor, tools):
    started = threading.Event()

    async def hold_still(context) -> str:
        """Waits for ever."""
        import asyncio

        started.set()
        await asyncio.sleep(60)
        return "done"

    tools("read", hold_still)
    agents.published(tenant, "slow", model=MODEL, tools=["hold_still"], tool_settings={"hold_still": {"timeout_s": 60}})
    boss(tenant, "slow")
    run = runs.start(agent_name="boss", request=runs.RunRequest(message=call("slow", "hold_still"), session_key="k"), by=actor)
    assert started.wait(20)

    runs.cancel(run=child_of(run), by=actor)

    run = finished(run)
    assert (run.status, result(run)) == ("completed", ("slow did not finish. It was cancelled.", "failed"))


def test_plan_mode_calls_only_agents_that_read(say, tenant, tools, helper):
    async def scribble(context, *, text: str) -> str:
        """Writes."""
        return text

    tools("write", scribble)
    agents.published(tenant, "writer", model=MODEL, tools=["scribble"])
    boss(tenant, "helper", "writer", harness={})

    assert result(say(call("writer", "scribble this"), agent_name="boss", key="a"))[1] == "denied"
    assert result(say(call(), agent_name="boss", key="b"))[1] == "success"


def test_tool_that_asks_cannot_be_run_by_a_called_agent(say, tenant, tools):
    async def wreck(context) -> str:
        """Destroys."""
        return "gone"

    tools("destructive", wreck)
    agents.published(tenant, "wrecker", model=MODEL, tools=["wreck"])
    boss(tenant, "wrecker")

    run = say(call("wrecker", "wreck it"), agent_name="boss")

    assert "needs a person's approval" in result(run)[0]


def test_quota_of_the_called_agent_holds(say, tenant, actor, helper):
    boss(tenant, "helper")
    may = Actor(tenant.id, "system", "system", "test", frozenset(PERMISSIONS))
    quotas.create_quota(tenant_id=tenant.id, scope="agent", scope_ref=helper.id.hex, measure="runs", period="day", limit=1, by=may)

    first = result(say(call(), agent_name="boss", key="a"))
    second = result(say(call(), agent_name="boss", key="b"))

    assert first[1] == "success"
    assert second[1] == "failed"
    assert second[0].startswith("helper was not called:")


def test_agents_of_another_tenant_cannot_be_called(say, tenant, stranger):
    from governance.models import Tenant

    agents.published(Tenant.objects.get(id=stranger.tenant_id), "helper", model=MODEL)
    mine = agents.published(tenant, "helper", model=MODEL)
    boss(tenant, "helper")

    child = child_of(say(call(), agent_name="boss"))

    assert child.agent_id == mine.id
