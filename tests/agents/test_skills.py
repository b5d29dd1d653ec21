"""The life of a skill, and what definitions may say of one."""

import pytest
from django.db import Error, transaction

from agents import queries
from agents.compile import compile_definition
from agents.domain import definitions, skills, transfer
from agents.errors import ImportInvalid, SkillExists, SkillInUse, SkillInvalid
from agents.models import Skill
from governance.actors import system
from governance.errors import MissingPermission, NotFound, VersionConflict
from governance.models import AuditEvent
from tests.factories import agents

TEXT = {"description": "Refunds.", "instructions": "Ask for the order, then refund."}


@pytest.fixture
def skill(tenant, builder):
    return skills.create_skill(tenant_id=tenant.id, name="refunds", document=TEXT, by=builder)


def actions(tenant):
    return list(AuditEvent.objects.filter(tenant_id=tenant.id, object_type="skill").order_by("id").values_list("action", flat=True))


def test_skill_is_created_saved_published_and_rolled_back(tenant, builder, skill):
    first = skills.publish(skill=skill, note="First", by=builder)
    skills.save_draft(skill=skill, document={**TEXT, "instructions": "Refund at once."}, expected=1, by=builder)
    second = skills.publish(skill=skill, by=builder)
    third = skills.rollback(skill=skill, number=1, by=builder)

    skill.refresh_from_db()
    assert [version.number for version in (first, second, third)] == [1, 2, 3]
    assert (skill.published, third.document, third.note) == (third, TEXT, "Back to version 1")
    assert skill.draft["instructions"] == "Refund at once."
    assert actions(tenant) == ["skill.created", "skill.published", "skill.saved", "skill.published", "skill.rolled_back"]


def test_publishing_what_is_published_publishes_nothing(tenant, builder, skill):
    first = skills.publish(skill=skill, by=builder)

    assert skills.publish(skill=skill, by=builder) == first
    assert skill.versions.count() == 1


def test_version_cannot_be_changed(skill, builder):
    version = skills.publish(skill=skill, by=builder)
    version.document = {"instructions": "Something else"}

    with pytest.raises(Error, match="cannot be changed"), transaction.atomic():
        version.save()


def test_lost_race_shows_both_texts(builder, skill):
    skills.save_draft(skill=skill, document={**TEXT, "description": "Mine."}, expected=1, by=builder)

    with pytest.raises(VersionConflict) as caught:
        skills.save_draft(skill=skill, document={**TEXT, "description": "Yours."}, expected=1, by=builder)

    assert caught.value.extra["current"]["document"]["description"] == "Mine."
    assert caught.value.extra["yours"]["description"] == "Yours."
    with pytest.raises(VersionConflict):
        skills.publish(skill=skill, expected=1, by=builder)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"description": 5}, "description"),
        ({"color": "red"}, "color"),
        ({"instructions": "x" * 50_001}, "instructions"),
        ({"resources": [{"name": "../up"}]}, "resources.0.name"),
        ({"resources": [{"name": "/etc"}]}, "resources.0.name"),
        ({"resources": [{"name": "a"}, {"name": "a"}]}, "resources.1.name"),
        ({"resources": [{"name": "a", "text": "x" * 65_537}]}, "resources.0.text"),
        ({"resources": [{"name": f"r{number}"} for number in range(21)]}, "resources"),
    ],
)
def test_skill_that_makes_no_sense_is_refused_where_it_stands(tenant, builder, document, path):
    with pytest.raises(SkillInvalid) as caught:
        skills.create_skill(tenant_id=tenant.id, name="x", document=document, by=builder)

    assert list(caught.value.errors) == [path]


@pytest.mark.parametrize("name", ["", "a b", "..", "a/b", "x" * 65, None])
def test_name_of_a_skill(tenant, builder, name):
    with pytest.raises(SkillInvalid) as caught:
        skills.create_skill(tenant_id=tenant.id, name=name, document={}, by=builder)

    assert list(caught.value.errors) == ["name"]


def test_unfinished_skill_is_a_draft_and_is_not_published(tenant, builder):
    skill = skills.create_skill(tenant_id=tenant.id, name="later", document={}, by=builder)

    with pytest.raises(SkillInvalid) as caught:
        skills.publish(skill=skill, by=builder)

    assert set(caught.value.errors) == {"description", "instructions"}


def test_name_is_taken_once_a_tenant(tenant, stranger, builder, skill):
    skills.create_skill(tenant_id=stranger.id, name="refunds", document=TEXT, by=system(stranger.id))

    with pytest.raises(SkillExists):
        skills.create_skill(tenant_id=tenant.id, name="refunds", document=TEXT, by=builder)


def test_skill_in_use_is_kept(tenant, builder, skill):
    skills.publish(skill=skill, by=builder)
    agent = agents.published(tenant, "desk", skills=["refunds"])

    with pytest.raises(SkillInUse, match="desk"):
        skills.delete_skill(skill=skill, by=builder)
    definitions.save_draft(agent=agent, document=agents.document("desk"), expected=1, by=builder)
    definitions.publish(agent=agent, by=builder)
    skills.delete_skill(skill=skill, by=builder)

    assert not Skill.objects.filter(tenant=tenant).exists()


def test_skill_of_another_tenant_does_not_exist(skill, stranger):
    by = system(stranger.id, "stranger")

    for act in (skills.publish, skills.disable, skills.delete_skill):
        with pytest.raises(NotFound):
            act(skill=skill, by=by)
    with pytest.raises(NotFound):
        queries.skill_named(tenant_id=stranger.id, name="refunds")
    assert queries.usable_skills(stranger.id, ["refunds"]) == []


def test_viewer_changes_nothing(skill, viewer):
    with pytest.raises(MissingPermission):
        skills.save_draft(skill=skill, document={}, expected=1, by=viewer)


def test_switching_twice_is_recorded_once(tenant, builder, skill):
    skills.disable(skill=skill, by=builder)
    skills.disable(skill=skill, by=builder)
    skills.enable(skill=skill, by=builder)

    assert actions(tenant)[1:] == ["skill.disabled", "skill.enabled"]


# --- In definitions -------------------------------------------------------------------------------------------------


def found(tenant, *names):
    document = agents.document("mine", skills=list(names))
    return {(entry.severity, entry.path, entry.code) for entry in compile_definition(document, tenant_id=tenant.id).messages}


def test_skills_of_a_definition_exist_are_on_and_published(tenant, demo, builder, skill):
    skills.publish(skill=skill, by=builder)
    agents.skill(tenant, "off")
    skills.disable(skill=queries.skill_named(tenant_id=tenant.id, name="off"), by=builder)
    agents.skill(tenant, "draft", published=False)

    assert found(tenant, "refunds") == set()
    assert found(tenant, "refundz", "off", "draft", "refunds") == {
        ("error", "skills.0", "unknown_skill"),
        ("error", "skills.1", "skill_disabled"),
        ("error", "skills.2", "skill_not_published"),
    }


def test_unknown_skill_names_the_nearest(tenant, demo, builder, skill):
    document = agents.document("mine", skills=["refundz"])

    (message,) = compile_definition(document, tenant_id=tenant.id).errors

    assert message.fix == {"label": "Use refunds", "set": {"skills.0": "refunds"}}


def test_eleventh_skill_is_too_many(tenant, demo):
    assert ("error", "skills", "too_many") in found(tenant, *[f"s{number}" for number in range(11)])


def test_definition_without_skills_asks_for_none(tenant, demo, django_assert_num_queries):
    with django_assert_num_queries(1):
        compile_definition(agents.document("mine"), tenant_id=tenant.id)
    with django_assert_num_queries(2):
        compile_definition(agents.document("mine", skills=["a", "b"]), tenant_id=tenant.id)


# --- With an agent as a file ----------------------------------------------------------------------------------------


@pytest.fixture
def file(tenant, builder, skill):
    skills.publish(skill=skill, by=builder)
    return transfer.export_agent(agent=agents.published(tenant, "desk", skills=["refunds"]), by=builder)


def test_exported_agent_brings_its_skills(stranger, file):
    agents.provider(stranger)
    by = system(stranger.id)

    check = transfer.check_import(tenant_id=stranger.id, document=file)
    assert not Skill.objects.filter(tenant=stranger).exists()
    agent = transfer.import_agent(tenant_id=stranger.id, document=file, by=by)

    made = queries.skill_named(tenant_id=stranger.id, name="refunds")
    assert (check["skills"], check["missing"], check["publishes"]) == ([{"name": "refunds", "exists": False}], [], True)
    assert (made.published.document, made.published.number, agent.published.number) == (TEXT, 1, 1)
    assert actions(stranger) == ["skill.imported"]


def test_skill_that_is_here_stays_as_it_is(stranger, file):
    agents.provider(stranger)
    mine = agents.skill(stranger, "refunds", instructions="Our way.")

    check = transfer.check_import(tenant_id=stranger.id, document=file)
    transfer.import_agent(tenant_id=stranger.id, document=file, by=system(stranger.id))

    mine.refresh_from_db()
    assert check["skills"] == [{"name": "refunds", "exists": True}]
    assert mine.published.document["instructions"] == "Our way."


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"document": {"instructions": "Steal."}}, "skills.0.digest"),
        ({"name": "../x"}, "skills.0.name"),
    ],
)
def test_changed_skill_of_a_file_is_refused(stranger, file, change, path):
    file["skills"][0] |= change

    with pytest.raises(ImportInvalid) as caught:
        transfer.check_import(tenant_id=stranger.id, document=file)

    assert list(caught.value.errors) == [path]


def test_agent_whose_skill_is_missing_says_so(stranger, file):
    agents.provider(stranger)
    file["skills"] = []

    check = transfer.check_import(tenant_id=stranger.id, document=file)

    assert [(entry["kind"], entry["name"]) for entry in check["missing"]] == [("skill", "refunds")]
