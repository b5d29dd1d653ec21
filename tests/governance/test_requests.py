from datetime import timedelta

import pytest

from governance.domain import erasure, fences, previews, registry, requests
from governance.domain.previews import SubjectErased
from governance.errors import Invalid, MissingPermission, NotFound, SubjectFenced
from governance.ids import shown
from governance.models import AuditEvent, Fence, PlanChunk, Subject, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture
def previewed(conversation, subject, officer):
    return previews.preview(subject=subject, by=officer)


def erase(subject, token, by, **values):
    return requests.erase(
        **{"subject": subject, "token": token, "confirm": subject.display_ref, "reason": "subject_request", "by": by, **values}
    )


def test_erase_hands_the_request_to_a_worker(previewed, subject, officer):
    request, token = previewed

    confirmed = erase(subject, token, officer)

    assert (confirmed.id, confirmed.state, confirmed.reason) == (request.id, "fencing", "subject_request")
    assert confirmed.lease_until is None
    assert AuditEvent.objects.get(action="request.confirmed").payload == {
        "subject": subject.id.hex, "reason": "subject_request", "digest": request.digest,
    }  # fmt: skip


def test_erase_with_the_same_token_returns_the_same_request(previewed, subject, officer):
    request, token = previewed
    first = erase(subject, token, officer)

    again = erase(subject, token, officer)

    assert again == first == request
    assert AuditEvent.objects.filter(action="request.confirmed").count() == 1


@pytest.mark.parametrize("confirm", ["ref", "ref in lower case", "uuid", "shown", "external"])
def test_erase_takes_the_reference_or_the_id_as_given(previewed, subject, officer, confirm):
    text = {
        "ref": subject.display_ref,
        "ref in lower case": subject.display_ref.lower(),
        "uuid": str(subject.id),
        "shown": shown("sub", subject.id),
        "external": "anna",
    }[confirm]

    assert erase(subject, previewed[1], officer, confirm=text).state == "fencing"


@pytest.mark.parametrize("confirm", ["", " ", "yes", "bert", "S-0000-0000", None])
def test_erase_refuses_another_confirmation(previewed, subject, officer, confirm):
    make.subject(subject.tenant, "bert")

    with pytest.raises(requests.ConfirmationMismatch):
        erase(subject, previewed[1], officer, confirm=confirm)
    assert SubjectRequest.objects.get().state == "previewed"


def test_erase_refuses_an_old_preview(previewed, subject, officer, monkeypatch):
    monkeypatch.setattr(previews, "TOKEN_LIFE", timedelta(seconds=-1))
    _, token = previews.preview(subject=subject, by=officer)

    with pytest.raises(requests.PreviewExpired):
        erase(subject, token, officer)


def test_erase_refuses_a_replaced_preview(previewed, subject, officer):
    _, token = previewed
    previews.preview(subject=subject, by=officer)

    with pytest.raises(requests.PreviewUsed):
        erase(subject, token, officer)


def test_erase_refuses_a_token_of_another_actor_subject_or_maker(previewed, subject, officer, tenant):
    _, token = previewed
    other = make.subject(tenant, "bert")

    with pytest.raises(Invalid):
        erase(subject, token, make.actor(tenant, "privacy_officer"))
    with pytest.raises(Invalid):
        erase(other, token, officer)
    with pytest.raises(Invalid):
        erase(subject, token + "x", officer)


def test_erase_refuses_after_the_register_changed(previewed, subject, officer, monkeypatch):
    monkeypatch.setattr(registry, "_categories", dict(list(registry.categories().items())[:-1]))

    with pytest.raises(requests.PreviewStale):
        erase(subject, previewed[1], officer)


def test_erase_refuses_after_the_rules_changed(previewed, subject, officer, tenant):
    tenant.settings = {"policy_version": 2}
    tenant.save(update_fields=["settings"])

    with pytest.raises(requests.PreviewStale):
        erase(subject, previewed[1], officer)


def test_erase_refuses_after_a_fence_came_and_went(previewed, subject, officer):
    fences.restrict(subject=subject, by=officer)
    fences.lift_restriction(subject=subject, by=officer)

    with pytest.raises(requests.PreviewStale):
        erase(subject, previewed[1], officer)


def test_erase_of_a_restricted_subject_asks_to_lift_it_first(subject, officer):
    fences.restrict(subject=subject, by=officer)
    _, token = previews.preview(subject=subject, by=officer)

    with pytest.raises(SubjectFenced, match="Lift the restriction"):
        erase(subject, token, officer)


def test_erase_needs_a_known_reason(previewed, subject, officer):
    with pytest.raises(Invalid) as caught:
        erase(subject, previewed[1], officer, reason="because she asked nicely")
    assert list(caught.value.errors) == ["reason"]


def test_token_of_an_export_erases_nothing(subject, officer):
    _, token = previews.preview(subject=subject, kind="export", by=officer)

    with pytest.raises(NotFound):
        erase(subject, token, officer)


def test_cancel_ends_a_previewed_request_and_wipes_its_plan(previewed, officer):
    request = requests.cancel(request=previewed[0], reason="withdrawn", by=officer)

    assert (request.state, request.reason) == ("cancelled", "withdrawn")
    assert request.ended_at is not None
    assert not PlanChunk.objects.exists()
    with pytest.raises(requests.NotCancellable):
        requests.cancel(request=request, reason="withdrawn", by=officer)


@pytest.mark.parametrize("state", ["fencing", "executing", "verifying", "failed_retryable", "completed"])
def test_cancel_is_too_late_once_it_is_carried_out(previewed, officer, state):
    SubjectRequest.objects.update(state=state)

    with pytest.raises(requests.NotCancellable):
        requests.cancel(request=previewed[0], reason="withdrawn", by=officer)
    assert SubjectRequest.objects.get().state == state


def test_cancel_after_drift_lifts_the_fence(previewed, conversation, subject, officer):
    request, token = previewed
    erase(subject, token, officer)
    talk.item(conversation)
    erasure.work(request_id=request.id)
    assert Fence.objects.filter(lifted_at=None).count() == 1

    requests.cancel(request=SubjectRequest.objects.get(), reason="mistake", by=officer)

    assert not Fence.objects.filter(lifted_at=None).exists()
    assert Subject.objects.get(pk=subject.pk).state == "active"
    talk.item(conversation)


def test_cancel_needs_a_known_reason(previewed, officer):
    with pytest.raises(Invalid):
        requests.cancel(request=previewed[0], reason="Anna said so", by=officer)


def test_export_is_one_request_at_a_time(subject, officer):
    first = requests.export(subject=subject, by=officer)

    assert (first.kind, first.state) == ("export", "executing")
    assert requests.export(subject=subject, by=officer) == first


def test_export_continues_its_preview(subject, officer):
    previewed, _ = previews.preview(subject=subject, kind="export", by=officer)

    request = requests.export(subject=subject, by=officer)

    assert request == previewed
    assert not PlanChunk.objects.exists()


def test_export_of_a_restricted_subject_is_allowed_and_of_an_erased_one_not(subject, officer):
    fences.restrict(subject=subject, by=officer)
    requests.export(subject=subject, by=officer)
    for state, error in (("erasing", SubjectFenced), ("erased", SubjectErased)):
        Subject.objects.update(state=state)
        with pytest.raises(error):
            requests.export(subject=subject, by=officer)


@pytest.mark.parametrize("role", ["privacy_approver", "records_manager", "auditor", "tenant_admin", "operator"])
def test_verbs_need_the_officers_role(previewed, subject, tenant, role):
    by = make.actor(tenant, role)
    request, token = previewed

    for call in (
        lambda: erase(subject, token, by),
        lambda: requests.export(subject=subject, by=by),
        lambda: requests.cancel(request=request, reason="mistake", by=by),
    ):
        with pytest.raises(MissingPermission):
            call()


def test_verbs_stay_in_the_tenant(previewed, subject, stranger_tenant):
    by = make.actor(stranger_tenant, "privacy_officer")
    request, token = previewed

    for call in (
        lambda: erase(subject, token, by),
        lambda: requests.export(subject=subject, by=by),
        lambda: requests.cancel(request=request, reason="mistake", by=by),
    ):
        with pytest.raises(NotFound):
            call()
