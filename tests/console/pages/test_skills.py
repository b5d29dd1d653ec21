import pytest
from django.urls import reverse

from agents.models import Skill
from tests.factories import agents

pytestmark = pytest.mark.django_db


def form(counter=1, resources=(), **values):
    data = {"counter": counter, "description": "Refunds.", "instructions": "Ask for the order.", **values}
    data |= {"resources-TOTAL_FORMS": str(len(resources)), "resources-INITIAL_FORMS": "0"}
    for number, resource in enumerate(resources):
        data |= {f"resources-{number}-{name}": value for name, value in resource.items()}
    return data


@pytest.fixture
def skill(tenant):
    return agents.skill(tenant, "refunds", resources=[{"name": "rules.md", "text": "Thirty days."}])


def test_skill_is_written_published_and_changed(owner, tenant):
    made = owner.post(reverse("skill-new"), form(0, [{"name": "rules.md", "text": "Thirty days.\r\nNo more."}, {"name": ""}], name="refunds"))
    published = owner.post(reverse("skill-publish", args=["refunds"]), {"counter": 1, "note": "First"})
    changed = owner.post(reverse("skill-edit", args=["refunds"]), form(1, instructions="Refund at once."))

    skill = Skill.objects.get(tenant=tenant)
    assert {response.url for response in (made, published, changed)} == {reverse("skill", args=["refunds"])}
    assert skill.published.document["resources"] == [{"name": "rules.md", "text": "Thirty days.\nNo more."}]
    assert (skill.draft, skill.draft_counter) == ({"description": "Refunds.", "instructions": "Refund at once."}, 2)


def test_skill_that_cannot_be_is_said_at_the_field(owner, skill):
    taken = owner.post(reverse("skill-new"), form(0, name="refunds"))
    unnamed = owner.post(reverse("skill-new"), form(0, [{"name": "", "text": "x"}], name="other"))

    assert (taken.status_code, list(taken.context["form"].errors)) == (422, ["name"])
    assert (unnamed.status_code, unnamed.context["resources"].errors) == (422, [{"name": ["Name the resource."]}])


def test_skill_saved_by_two_shows_both_texts(owner, skill):
    owner.post(reverse("skill-edit", args=["refunds"]), form(1, instructions="Mine."))

    page = owner.post(reverse("skill-edit", args=["refunds"]), form(1, instructions="Yours."))

    assert page.status_code == 409
    assert b"Mine." in page.content
    assert b"Yours." in page.content


def test_skill_without_words_is_not_published(owner, tenant):
    agents.skill(tenant, "empty", published=False, instructions="")

    page = owner.post(reverse("skill-publish", args=["empty"]), {"counter": 1, "note": "First"})

    assert page.status_code == 422
    assert b"Say how the task is done." in page.content


def test_earlier_version_is_published_again(owner, skill):
    owner.post(reverse("skill-edit", args=["refunds"]), form(1))
    owner.post(reverse("skill-publish", args=["refunds"]), {"counter": 2, "note": "Shorter"})
    shown = owner.get(reverse("skill-version", args=["refunds", 1])).content.decode()
    owner.post(reverse("skill-rollback", args=["refunds", 1]))

    skill.refresh_from_db()
    assert "What has changed since" in shown
    assert (skill.published.number, skill.published.document["resources"][0]["text"]) == (3, "Thirty days.")


def test_skill_is_switched_off_and_on(owner, skill):
    owner.post(reverse("skill-disable", args=["refunds"]))
    off = Skill.objects.get(pk=skill.pk).is_disabled
    owner.post(reverse("skill-enable", args=["refunds"]))

    assert (off, Skill.objects.get(pk=skill.pk).is_disabled) == (True, False)


def test_skill_in_use_is_not_deleted(owner, tenant, skill):
    agents.published(tenant, "desk", skills=["refunds"])

    owner.post(reverse("skill-delete", args=["refunds"]))
    page = owner.get(reverse("skill", args=["refunds"])).content.decode()

    assert Skill.objects.filter(pk=skill.pk).exists()
    assert "Published agents use it: desk." in page


def test_unused_skill_is_deleted(owner, skill):
    assert owner.post(reverse("skill-delete", args=["refunds"])).url == reverse("skills")
    assert not Skill.objects.exists()


def test_list_filters_and_costs_the_same_for_three(owner, tenant, queries_of, skill):
    before = queries_of(owner, reverse("skills"))
    agents.skill(tenant, "claims")
    agents.skill(tenant, "greeting")

    assert queries_of(owner, reverse("skills")) == before
    found = owner.get(reverse("skills"), {"q": "claim"}).context["skills"]
    assert [entry.name for entry in found] == ["claims"]
    assert b"No skill matches" in owner.get(reverse("skills"), {"q": "zzz"}).content


def test_list_is_empty_at_first(owner):
    assert b"No skills yet" in owner.get(reverse("skills")).content


@pytest.mark.parametrize("name", ["skill", "skill-edit", "skill-publish", "skill-disable", "skill-delete"])
def test_skill_of_another_tenant_is_not_there(stranger, skill, name):
    method = stranger.get if name in ("skill", "skill-edit") else stranger.post

    assert method(reverse(name, args=["refunds"])).status_code == 404


def test_viewer_reads_and_changes_nothing(viewer, skill):
    assert viewer.get(reverse("skill", args=["refunds"])).status_code == 200
    assert viewer.get(reverse("skill-edit", args=["refunds"])).status_code == 403
    assert viewer.post(reverse("skill-disable", args=["refunds"])).status_code == 403


def test_editor_offers_published_skills_only(owner, tenant, skill):
    agents.skill(tenant, "unfinished", published=False)
    agents.draft(tenant, "desk")

    page = owner.get(reverse("agent-edit", args=["desk"])).content.decode()

    assert 'value="refunds"' in page
    assert "unfinished" not in page
