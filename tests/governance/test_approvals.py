"""Four eyes: when a second person is needed, who may be it, and what voids an agreement."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from governance.domain import erasure, exports, fences, keys, previews, registry, requests, rules, sweeping
from governance.errors import Forbidden, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, AuditNote, RequestAlarm, SubjectRequest
from governance.permissions import ROLES
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def tenant(db):
    return make.tenant("acme", requests={"four_eyes": "always"})


@pytest.fixture
def approver(tenant):
    return make.actor(tenant, "privacy_approver", username="second")


def ask(subject, by, **values):
    """Preview and confirm."""
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(
        **{"subject": subject, "token": token, "confirm": subject.display_ref, "reason": "subject_request", "by": by, **values}
    )


@pytest.fixture
def waiting(conversation, subject, officer):
    return ask(subject, officer)


def stored():
    return SubjectRequest.objects.get()


def test_erase_waits_for_a_second_person(waiting):
    assert waiting.state == "awaiting_approval"
    assert timedelta(hours=71) < waiting.approval_expires_at - waiting.previewed_at <= timedelta(hours=72, minutes=1)
    assert erasure.work(request_id=waiting.id) is None


def test_approve_hands_the_request_over_and_shows_in_the_receipt(waiting, approver):
    approved = requests.approve(request=waiting, digest=waiting.digest, by=approver)

    assert (approved.state, approved.approver, approved.approver_label) == ("fencing", approver.ref, "second")
    receipt = erasure.work(request_id=waiting.id).receipt
    assert receipt["approval"]["four_eyes"] is True
    assert receipt["approval"]["break_glass"] is False
    event = AuditEvent.objects.get(action="request.approved")
    assert event.payload == {"subject": waiting.subject_id.hex, "digest": waiting.digest}
    assert event.actor_label == "second"


@pytest.mark.parametrize("policy, expected", [
    ({}, "fencing"),
    ({"four_eyes": "off"}, "fencing"),
    ({"four_eyes": "always"}, "awaiting_approval"),
    ({"four_eyes": "above", "four_eyes_rows": 0}, "fencing"),
    ({"four_eyes": "above", "four_eyes_rows": -1}, "awaiting_approval"),
    ({"four_eyes": "api_keys"}, "fencing"),
])  # fmt: skip
def test_four_eyes_depends_on_the_tenants_rules(tenant, conversation, subject, officer, policy, expected):
    """The number of rows is counted from what the preview shows."""
    shown = previews.rows_of(previews.preview(subject=subject, by=officer)[0])
    if "four_eyes_rows" in policy:
        policy = {**policy, "four_eyes_rows": policy["four_eyes_rows"] + shown}
    tenant.settings = {"requests": policy}
    tenant.save(update_fields=["settings"])

    request = ask(subject, officer)

    assert previews.rows_of(request) == shown > 10
    assert request.state == expected


def test_four_eyes_for_keys_asks_a_person(tenant, conversation, subject, officer, approver):
    tenant.settings = {"requests": {"four_eyes": "api_keys"}}
    tenant.save(update_fields=["settings"])
    key = key_of(tenant, make.lethe(tenant))

    assert ask(subject, key).state == "awaiting_approval"
    assert requests.approve(request=stored(), digest=stored().digest, by=approver).state == "fencing"


def key_of(tenant, by, *scopes):
    name = f"key of {by.label}"
    return keys.authenticate(
        secret=keys.create_key(tenant_id=tenant.id, name=name, scopes=list(scopes or ["governance:write"]), by=by)[1]
    )


# Nobody on both sides


def test_approve_by_the_requester_is_refused(tenant, conversation, subject):
    both = make.actor(tenant, "privacy_officer", "privacy_approver", username="both")
    request = ask(subject, both)

    for act in (
        lambda: requests.approve(request=request, digest=request.digest, by=both),
        lambda: requests.decline(request=request, reason="other", by=both),
    ):
        with pytest.raises(requests.SelfApproval):
            act()
    assert stored().state == "awaiting_approval"


def test_approve_by_the_owner_of_the_key_that_asked_is_refused(tenant, conversation, subject, approver):
    """Whoever acts through a key they own counts as themselves."""
    owner = make.actor(tenant, "tenant_admin", "privacy_approver", username="owner")
    request = ask(subject, key_of(tenant, owner))

    with pytest.raises(requests.SelfApproval):
        requests.approve(request=request, digest=request.digest, by=owner)
    assert requests.approve(request=request, digest=request.digest, by=approver).state == "fencing"


@pytest.mark.parametrize("scopes", [["governance:write"], ["governance:read", "admin"]])
def test_approve_by_a_key_is_refused(tenant, waiting, admin, scopes):
    with pytest.raises(MissingPermission, match="API keys cannot"):
        requests.approve(request=waiting, digest=waiting.digest, by=key_of(tenant, admin, *scopes))


@pytest.mark.parametrize("role", [role for role in ROLES if role != "privacy_approver"])
def test_approve_needs_its_role(tenant, waiting, role):
    by = make.actor(tenant, role)

    with pytest.raises(MissingPermission):
        requests.approve(request=waiting, digest=waiting.digest, by=by)
    with pytest.raises(MissingPermission):
        requests.decline(request=waiting, reason="other", by=by)


def test_approve_stays_in_the_tenant(waiting, stranger_tenant):
    by = make.actor(stranger_tenant, "privacy_approver")

    with pytest.raises(NotFound):
        requests.approve(request=waiting, digest=waiting.digest, by=by)


@pytest.mark.parametrize("column", ["requester", "requester_person"])
def test_database_refuses_an_approver_who_asked(waiting, column):
    """EX-05: documents promise two approvers while one member can approve."""
    with pytest.raises(IntegrityError, match="request_approver_is_another"), transaction.atomic():
        SubjectRequest.objects.update(**{column: "a" * 32, "approver": "a" * 32})


# What an agreement is worth


def test_approve_refuses_another_digest(waiting, approver):
    with pytest.raises(requests.PreviewStale):
        requests.approve(request=waiting, digest="sha256:" + "0" * 64, by=approver)
    assert stored().state == "awaiting_approval"


def test_new_preview_ends_the_wait_and_voids_what_was_looked_at(waiting, conversation, subject, officer, approver):
    talk.item(conversation)
    _, token = previews.preview(subject=subject, by=officer)

    assert stored().state == "previewed"
    with pytest.raises(requests.NotAwaiting):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)
    requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)
    with pytest.raises(requests.PreviewStale):
        requests.approve(request=stored(), digest=waiting.digest, by=approver)
    assert requests.approve(request=stored(), digest=stored().digest, by=approver).state == "fencing"


def test_preview_by_somebody_who_cannot_confirm_leaves_the_wait_alone(waiting, subject, approver, tenant):
    reader = key_of(tenant, make.lethe(tenant), "governance:read")

    for by in (approver, reader):
        with pytest.raises(SubjectFenced):
            previews.preview(subject=subject, by=by)
    assert stored().state == "awaiting_approval"


def test_drift_after_an_approval_voids_it(waiting, conversation, subject, officer, approver):
    requests.approve(request=waiting, digest=waiting.digest, by=approver)
    talk.item(conversation)

    assert erasure.work(request_id=waiting.id).state == "previewed"
    request, _ = previews.preview(subject=subject, by=approver)

    assert (request.approver, request.requester) == ("", approver.ref)


def test_approve_refuses_after_the_rules_changed(waiting, approver, admin, tenant):
    rules.change(tenant=tenant, accept_added_rows=5, by=admin)

    with pytest.raises(requests.PreviewStale):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)


def test_approve_refuses_after_the_register_changed(waiting, approver, monkeypatch):
    monkeypatch.setattr(registry, "_categories", dict(list(registry.categories().items())[:-1]))

    with pytest.raises(requests.PreviewStale):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)


def test_approve_of_a_subject_restricted_meanwhile_is_refused(waiting, subject, officer, approver):
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced, match="Lift the restriction"):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)


@pytest.mark.parametrize("state", ["previewed", "fencing", "executing", "completed", "cancelled"])
def test_approve_needs_the_waiting_state(waiting, approver, state):
    SubjectRequest.objects.update(state=state)

    for act in (
        lambda: requests.approve(request=waiting, digest=waiting.digest, by=approver),
        lambda: requests.decline(request=waiting, reason="other", by=approver),
    ):
        with pytest.raises(requests.NotAwaiting):
            act()


def test_wait_ends_after_72_hours(waiting, subject, officer, approver, monkeypatch):
    sent = []
    monkeypatch.setattr("governance.domain.jobs.enqueue", lambda task, row_id: sent.append(row_id))
    assert sweeping.sweep()["approvals"] == 0
    SubjectRequest.objects.update(approval_expires_at=waiting.previewed_at - timedelta(seconds=1))
    with pytest.raises(requests.ApprovalExpired):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)

    assert sweeping.sweep()["approvals"] == 1

    assert (stored().state, stored().approval_expires_at) == ("previewed", None)
    assert AuditEvent.objects.get(action="request.expired").payload["what"] == "approval"
    assert sent == []
    with pytest.raises(requests.NotAwaiting):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)


def test_confirmation_again_after_the_wait_needs_a_new_preview(conversation, subject, officer):
    _, token = previews.preview(subject=subject, by=officer)
    confirm = {"subject": subject, "token": token, "confirm": "anna", "reason": "other", "by": officer}
    first = requests.erase(**confirm)
    assert requests.erase(**confirm) == first
    SubjectRequest.objects.update(approval_expires_at=first.previewed_at)
    requests.expire_approvals()

    with pytest.raises(requests.PreviewUsed):
        requests.erase(**confirm)


def test_decline_sends_it_back_and_keeps_the_words_out_of_the_trail(waiting, approver):
    declined = requests.decline(request=waiting, reason="too_much", text="Keep Anna's invoices, please.", by=approver)

    assert (declined.state, declined.approver) == ("previewed", "")
    payload = AuditEvent.objects.get(action="request.declined").payload
    assert payload["reason"] == "too_much"
    assert "Anna" not in str(payload)
    assert payload["note"] == AuditNote.objects.get().id.hex


def test_decline_needs_a_known_reason(waiting, approver):
    with pytest.raises(Invalid):
        requests.decline(request=waiting, reason="I do not like it", by=approver)


def test_cancel_ends_the_wait(waiting, officer, approver):
    requests.cancel(request=waiting, reason="withdrawn", by=officer)

    with pytest.raises(requests.NotAwaiting):
        requests.approve(request=waiting, digest=waiting.digest, by=approver)


# Exports


def test_export_waits_for_a_second_person_too(conversation, subject, officer, approver, archives):
    waiting = requests.export(subject=subject, by=officer)
    again = requests.export(subject=subject, by=officer)

    assert (waiting.kind, waiting.state, again) == ("export", "awaiting_approval", waiting)
    assert exports.work(request_id=waiting.id) is None
    approved = requests.approve(request=waiting, digest=waiting.digest, by=approver)
    assert (approved.state, approved.approver) == ("executing", approver.ref)
    assert exports.work(request_id=waiting.id).state == "completed"


def test_export_is_not_approved_by_whoever_asked_and_can_be_declined(tenant, conversation, subject, approver):
    both = make.actor(tenant, "privacy_officer", "privacy_approver", username="both")
    waiting = requests.export(subject=subject, by=both)

    with pytest.raises(requests.SelfApproval):
        requests.approve(request=waiting, digest=waiting.digest, by=both)
    assert requests.decline(request=waiting, reason="wrong_person", by=approver).state == "previewed"
    assert requests.export(subject=subject, by=both).state == "awaiting_approval"


def test_export_of_a_restricted_subject_is_approved(conversation, subject, officer, approver):
    fences.restrict(subject=subject, by=officer)
    waiting = requests.export(subject=subject, by=officer)

    assert requests.approve(request=waiting, digest=waiting.digest, by=approver).state == "executing"


@pytest.mark.parametrize("policy, expected", [
    ({"four_eyes": "above", "four_eyes_rows": 1000}, "executing"), ({"four_eyes": "above", "four_eyes_rows": 1}, "awaiting_approval"),
    ({"four_eyes": "api_keys"}, "executing"), ({}, "executing"),
])  # fmt: skip
def test_export_depends_on_the_tenants_rules(tenant, conversation, subject, admin, policy, expected):
    tenant.settings = {"requests": policy}
    tenant.save(update_fields=["settings"])
    subject.refresh_from_db()

    assert requests.export(subject=subject, by=key_of(tenant, admin)).state == expected


# One person alone


def test_break_glass_goes_on_alone_and_tells_everybody(conversation, subject, officer):
    request = ask(subject, officer, break_glass=True)

    assert (request.state, request.break_glass) == ("fencing", True)
    assert RequestAlarm.objects.get().kind == "break_glass"
    assert AuditEvent.objects.filter(action="request.break_glass").count() == 1
    assert erasure.work(request_id=request.id).receipt["approval"] == {
        "four_eyes": False, "approved_at": None, "break_glass": True,
    }  # fmt: skip


def test_break_glass_by_a_key_is_refused(tenant, conversation, subject, admin):
    with pytest.raises(Forbidden, match="Only a person"):
        ask(subject, key_of(tenant, admin), break_glass=True)
    assert stored().state == "previewed"


def test_break_glass_where_one_person_is_enough_is_nothing_special(tenant, conversation, subject, officer):
    tenant.settings = {}
    tenant.save(update_fields=["settings"])

    assert ask(subject, officer, break_glass=True).break_glass is False
    assert not RequestAlarm.objects.exists()


# The rules


def test_change_rules_is_audited_and_makes_previews_stale(tenant, admin, conversation, subject, officer):
    _, token = previews.preview(subject=subject, by=officer)

    changed = rules.change(tenant=tenant, four_eyes="above", four_eyes_rows=10, by=admin)

    assert (changed.four_eyes, changed.four_eyes_rows) == ("above", 10)
    payload = AuditEvent.objects.get(action="tenant.settings_changed").payload
    assert payload["fields"] == ["four_eyes", "four_eyes_rows"]
    with pytest.raises(requests.PreviewStale):
        requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)


def test_change_rules_keeps_what_others_keep_in_the_settings(tenant, admin):
    tenant.settings = {"other": 1}
    tenant.save(update_fields=["settings"])

    rules.change(tenant=tenant, holidays=["2026-12-25", "2026-12-25"], by=admin)
    rules.change(tenant=tenant, pause_for_identity=True, by=admin)

    assert tenant.settings["other"] == 1
    assert rules.of(tenant).holidays == ("2026-12-25",)
    assert rules.of(tenant).pause_for_identity is True
    # Neither of these decides what an erasure does.
    assert "policy_version" not in tenant.settings


@pytest.mark.parametrize("changes", [
    {"four_eyes": "sometimes"}, {"four_eyes_rows": -1}, {"four_eyes_rows": True}, {"accept_added_rows": "3"},
    {"accept_added_rows": 3 * 10**9}, {"holidays": ["Christmas"]}, {"holidays": [3]},
])  # fmt: skip
def test_change_rules_refuses_what_makes_no_sense(tenant, admin, changes):
    with pytest.raises(Invalid) as caught:
        rules.change(tenant=tenant, by=admin, **changes)
    assert list(caught.value.errors) == list(changes)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "tenant_admin"])
def test_change_rules_is_for_administrators(tenant, role):
    with pytest.raises(MissingPermission):
        rules.change(tenant=tenant, four_eyes="off", by=make.actor(tenant, role))


def test_change_rules_by_a_key_or_a_stranger_is_refused(tenant, admin, stranger_tenant):
    with pytest.raises(MissingPermission):
        rules.change(tenant=tenant, four_eyes="off", by=key_of(tenant, admin, "admin"))
    with pytest.raises(NotFound):
        rules.change(tenant=tenant, four_eyes="off", by=make.actor(stranger_tenant, "tenant_admin"))
