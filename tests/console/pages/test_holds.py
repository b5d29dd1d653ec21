import pytest
from django.urls import reverse

from governance.domain import holds
from governance.domain.holds import Target
from governance.ids import shown
from governance.models import Hold
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def manager(tenant, sign_in):
    return sign_in(tenant, "records_manager")


@pytest.fixture
def person(tenant):
    made = governance.subject(tenant, "customer-7")
    sessions.conversation(sessions.agent(tenant, "research"), made)
    return made


@pytest.fixture
def hold(manager, person):
    return holds.place(target=Target("subject", subject=person), matter="M-17", reason="litigation", by=manager.actor)


def address(name, hold):
    return reverse(name, args=[shown("hld", hold.pk)])


def test_hold_is_placed_and_shows_what_it_covers(manager, person):
    response = manager.post(
        reverse("hold-new"), {"matter": "M-17", "reason": "litigation", "scope": "subject", "named": person.display_ref}
    )

    hold = Hold.objects.get()
    assert response.url == address("hold", hold)
    page = manager.get(response.url)
    assert dict(page.context["covered"])["Messages, tool calls and their results"] == 4
    assert "You placed it, so another records manager has to release it." in page.content.decode()
    assert "M-17" in manager.get(reverse("holds")).content.decode()


@pytest.mark.parametrize(
    "values",
    [{"scope": "subject", "named": "nobody"}, {"scope": "category", "category": ""}, {"matter": "two words"}, {"until": "2020-01-01"}],
)
def test_hold_that_cannot_be_is_refused_in_the_form(manager, values):
    given = {"matter": "M-1", "reason": "audit", "scope": "category", "category": "items", **values}

    assert manager.post(reverse("hold-new"), given).status_code == 422
    assert not Hold.objects.exists()


def test_another_person_releases_it_and_is_told_the_consequence(hold, tenant, sign_in):
    second = sign_in(tenant, "records_manager")
    assert "are no longer kept by it" in second.get(address("hold", hold)).content.decode()

    page = second.post(address("hold-release", hold), follow=True)

    assert "The hold was released." in page.content.decode()
    assert Hold.objects.get().released_by_label == second.actor.label


def test_readers_and_strangers(hold, tenant, sign_in, stranger, viewer):
    auditor = sign_in(tenant, "auditor")

    assert auditor.get(address("hold", hold)).status_code == 200
    assert auditor.get(reverse("hold-new")).status_code == 403
    assert auditor.post(address("hold-release", hold)).status_code == 403
    assert viewer.get(reverse("holds")).status_code == 403
    assert stranger.get(address("hold", hold)).status_code == 404
    assert "M-17" not in stranger.get(reverse("holds")).content.decode()


def test_list_costs_the_same_for_one_and_for_three(hold, manager, person, queries_of):
    one = queries_of(manager, reverse("holds"))
    for matter in ("M-18", "M-19"):
        holds.place(target=Target("subject", subject=person), matter=matter, reason="audit", by=manager.actor)

    assert queries_of(manager, reverse("holds")) == one


def test_held_session_is_not_deleted_on_its_page(hold, person, owner):
    from sessions.models import Session

    session = Session.objects.get()
    response = owner.post(reverse("session-delete", args=[shown("ses", session.pk)]), {"confirm": session.key}, follow=True)

    assert response.status_code in (200, 409)
    assert Session.objects.count() == 1
