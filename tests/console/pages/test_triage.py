import pytest
from django.urls import reverse

from governance.domain import subjects
from governance.models import UnattributedWaiver
from sessions.models import Session
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def officer(tenant, sign_in):
    return sign_in(tenant, "privacy_officer")


@pytest.fixture
def person(tenant):
    return governance.subject(tenant, "customer-7")


@pytest.fixture
def orphan(tenant):
    return sessions.conversation(sessions.agent(tenant, "research"), None, key="customer-7")


def rows(category="sessions"):
    return reverse("unattributed-rows", args=[category])


def act(name, category="sessions"):
    return reverse(f"unattributed-{name}", args=[category])


def test_rows_are_listed_with_whose_they_may_be_and_given(officer, orphan, person):
    listed = officer.get(reverse("unattributed"))
    page = officer.get(rows())

    assert {one.key for one in listed.context["standing"]} == {"sessions", "idempotency_records"}
    assert [(row.id, row.suggestion) for row in page.context["rows"]] == [(orphan.id, person)]
    response = officer.post(act("assign"), {"ids": [orphan.id.hex], "subject": person.display_ref}, follow=True)

    assert "belong to" in response.content.decode()
    assert Session.objects.get().subject_id == person.id
    assert list(officer.get(rows()).context["rows"]) == []


def test_rows_are_waived_and_reopened(officer, orphan):
    officer.post(act("waive"), {"ids": [orphan.id.hex], "reason": "not_personal"})
    waived = UnattributedWaiver.objects.get()
    officer.post(act("reopen"), {"ids": [orphan.id.hex]})

    assert waived.row_id == str(orphan.id)
    assert not UnattributedWaiver.objects.exists()
    officer.post(act("waive"), {"whole": "on", "reason": "not_personal"})
    assert "waived as a whole" in officer.get(reverse("unattributed")).content.decode()
    officer.post(act("reopen"))
    assert not UnattributedWaiver.objects.exists()


@pytest.mark.parametrize(
    ("name", "values"),
    [("assign", {"subject": "nobody"}), ("assign", {"subject": ""}), ("waive", {"reason": "because"}), ("waive", {"reason": "other", "ids": []})],
)
def test_what_cannot_be_is_told_on_the_page(officer, orphan, person, name, values):
    response = officer.post(act(name), {"ids": [orphan.id.hex], **values})

    assert response.status_code == 422
    assert Session.objects.get().subject_id is None


def test_pages_need_their_roles_and_stay_in_the_tenant(sign_in, tenant, orphan, person, viewer, stranger):
    approver = sign_in(tenant, "privacy_approver")
    given = {"ids": [orphan.id.hex], "subject": person.display_ref, "reason": "other"}

    assert viewer.get(reverse("unattributed")).status_code == 403
    assert viewer.get(rows()).status_code == 403
    assert approver.get(rows()).status_code == 200
    assert [approver.post(act(name), given).status_code for name in ("assign", "waive", "reopen")] == [403] * 3
    assert list(stranger.get(rows()).context["rows"]) == []
    assert stranger.post(act("assign"), given).status_code == 422
    assert stranger.get(rows("items")).status_code == 404


def test_list_costs_the_same_for_one_and_for_three(officer, orphan, tenant, person, queries_of):
    one = queries_of(officer, rows())
    for number in range(2):
        sessions.conversation(orphan.agent, None, key=f"s-{number}")

    assert queries_of(officer, rows()) == one


def test_preview_leads_to_the_rows(officer, orphan, person):
    response = officer.post(reverse("subject-preview", args=[person.display_ref]), {"profile": "gdpr"}, follow=True)

    assert reverse("unattributed") in response.content.decode()


# Split


def test_subject_is_split_by_identifier_and_session(officer, tenant, person):
    agent = sessions.agent(tenant, "second")
    theirs, kept = sessions.conversation(agent, person, key="a"), sessions.conversation(agent, person, key="b")
    mail = subjects.add_identifier(subject=person, kind="email", value="bert@example.com", by=officer.actor)

    page = officer.get(reverse("subject-split", args=[person.display_ref]))
    response = officer.post(
        reverse("subject-split", args=[person.display_ref]), {"identifiers": [str(mail.pk)], "sessions": [str(theirs.pk)]}, follow=True
    )

    assert "bert@example.com" not in page.content.decode()
    other = Session.objects.get(pk=theirs.pk).subject
    assert (other.display_ref in response.content.decode(), other != person) == (True, True)
    assert Session.objects.get(pk=kept.pk).subject_id == person.pk
    assert list(other.identifiers.values_list("kind", flat=True)) == ["email"]


def test_split_of_nothing_and_of_foreign_rows_is_refused(officer, tenant, person, stranger):
    foreign = sessions.conversation(sessions.agent(tenant, "second"), governance.subject(tenant, "bert"))
    address = reverse("subject-split", args=[person.display_ref])

    assert officer.post(address, {}).status_code == 422
    assert officer.post(address, {"sessions": [str(foreign.pk)]}).status_code == 422
    assert stranger.get(address).status_code == 404


def test_split_needs_the_role(sign_in, tenant, person):
    assert sign_in(tenant, "privacy_approver").get(reverse("subject-split", args=[person.display_ref])).status_code == 403
