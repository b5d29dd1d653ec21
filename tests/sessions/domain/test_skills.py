"""A run with skills: what the model is told, what it opens, and that others pay nothing for it."""

import pytest

from agents.domain import skills
from sessions.models import Item, ModelCall, Run
from tests.factories import agents

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refunds(tenant):
    return agents.skill(
        tenant, "refunds", description="Money back.", instructions="Ask for the order.",
        resources=[{"name": "rules.md", "description": "The law", "text": "Thirty days."}],
    )  # fmt: skip


@pytest.fixture
def desk(tenant, refunds):
    return agents.published(tenant, "desk", model={"provider": "demo", "model": "demo-1-fast"}, skills=["refunds"])


def results(run):
    return [(item.content["name"], item.content["text"], item.content["outcome"]) for item in Item.objects.filter(run_id=run.id, kind="tool_result")]


def test_model_is_told_of_its_skills_and_no_more(say, desk):
    run = say("Hello.", agent_name="desk")

    (report,) = [layer for layer in ModelCall.objects.get(run=run).context if layer["layer"] == "skills"]
    assert (run.status, report["sources"]) == (Run.Status.COMPLETED, ["refunds v1"])
    assert 20 < report["tokens"] < 80


def test_skill_is_opened_with_its_resources(say, desk):
    opened = say('skill_open {"name": "refunds"}', agent_name="desk")
    read = say('skill_read {"name": "refunds", "resource": "rules.md"}', agent_name="desk")
    missing = say('skill_read {"name": "refunds", "resource": "other.md"}', agent_name="desk")
    unknown = say('skill_open {"name": "secrets"}', agent_name="desk")

    text = "Ask for the order.\n\nResources, to be read with skill_read when needed:\n- rules.md: The law"
    assert results(opened) == [("skill_open", text, "success")]
    assert results(read) == [("skill_read", "Thirty days.", "success")]
    assert results(missing) == [("skill_read", "The skill refunds has no resource 'other.md'. It has: rules.md.", "failed")]
    assert [outcome for _, _, outcome in results(unknown)] == ["failed"]


def test_long_skill_is_read_whole(say, tenant, actor, refunds, desk):
    skills.save_draft(skill=refunds, document={"description": "Long.", "instructions": "word " * 9000}, expected=1, by=actor)
    skills.publish(skill=refunds, by=actor)

    (result,) = results(say('skill_open {"name": "refunds"}', agent_name="desk"))

    assert len(result[1]) == 45_000


def test_new_version_is_used_by_the_next_run(say, actor, refunds, desk):
    say("Hello.", agent_name="desk")
    skills.save_draft(skill=refunds, document={"description": "New.", "instructions": "Refund at once."}, expected=1, by=actor)
    skills.publish(skill=refunds, by=actor)

    assert results(say('skill_open {"name": "refunds"}', agent_name="desk")) == [("skill_open", "Refund at once.", "success")]
