"""First answers, extensions, pauses, alarms, and refusals."""

from datetime import UTC, date, datetime, timedelta

import pytest

from governance.domain import clock, clocks, deadlines, exports, notes, previews, requests, rules, sweeping
from governance.errors import Conflict, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, AuditNote, Fence, RequestAlarm, SubjectRequest
from tests.factories import governance as make

pytestmark = pytest.mark.usefixtures("declared", "archives")


def receive(subject, by, **values):
    return requests.receive(**{"subject": subject, "kind": "erase", "by": by, **values})


@pytest.fixture
def received(subject, officer):
    return receive(subject, officer)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


# Arithmetic


@pytest.mark.parametrize(
    ("profile", "received", "zone", "due"),
    [
        ("gdpr", "2026-11-02T09:14:00+00:00", "Europe/Zurich", "2027-02-02T23:00:00+00:00"),
        ("gdpr", "2026-11-30T12:00:00+00:00", "UTC", "2027-03-01T00:00:00+00:00"),
        ("gdpr", "2027-11-30T12:00:00+00:00", "UTC", "2028-03-01T00:00:00+00:00"),
        ("ccpa", "2026-01-01T12:00:00+00:00", "UTC", "2026-04-02T00:00:00+00:00"),
    ],
)
def test_extension_counts_from_receipt(profile, received, zone, due):
    assert deadlines.extended(profile=profile, received_at=at(received), zone=zone) == at(due)


def test_extension_of_a_profile_without_one_is_a_mistake():
    with pytest.raises(ValueError, match="no extension"):
        deadlines.extended(profile="lgpd", received_at=at("2026-01-01T00:00:00+00:00"), zone="UTC")


@pytest.mark.parametrize(
    ("profile", "received", "days_off", "due"),
    [
        ("gdpr", "2026-11-02T09:00:00+00:00", (), None),
        # Ten business days after a Monday: the Monday two weeks on.
        ("ccpa", "2026-11-02T09:00:00+00:00", (), "2026-11-17T00:00:00+00:00"),
        ("ccpa", "2026-11-02T09:00:00+00:00", (date(2026, 11, 11), date(2026, 11, 14)), "2026-11-18T00:00:00+00:00"),
        # Received on a Saturday.
        ("ccpa", "2026-11-07T09:00:00+00:00", (), "2026-11-21T00:00:00+00:00"),
        ("lgpd", "2026-11-02T09:00:00+00:00", (), "2026-11-03T00:00:00+00:00"),
    ],
)
def test_first_answer_is_due_in_business_days(profile, received, days_off, due):
    found = deadlines.first_due_at(profile=profile, received_at=at(received), zone="UTC", days_off=days_off)

    assert found == (at(due) if due else None)


@pytest.mark.parametrize(
    ("pause", "due"),
    [
        (timedelta(0), "2026-12-02T23:00:00+00:00"),
        (timedelta(seconds=1), "2026-12-03T23:00:00+00:00"),
        (timedelta(days=2), "2026-12-04T23:00:00+00:00"),
        (timedelta(days=2, hours=3), "2026-12-05T23:00:00+00:00"),
    ],
)
def test_pause_moves_a_deadline_to_the_end_of_a_day(pause, due):
    assert deadlines.shifted(at("2026-12-02T23:00:00+00:00"), by=pause, zone="Europe/Zurich") == at(due)


@pytest.mark.parametrize(("hours", "paused", "share"), [(0, 0, 0), (50, 0, 0.5), (100, 0, 1), (150, 0, 1.5), (60, 20, 0.5), (-5, 0, 0)])
def test_share_used_leaves_pauses_out(hours, paused, share):
    start = at("2026-01-01T00:00:00+00:00")
    due = start + timedelta(hours=100)

    found = deadlines.share_used(received_at=start, due_at=due, now=start + timedelta(hours=hours), paused=timedelta(hours=paused))

    assert found == pytest.approx(share)


# Receiving


def test_receive_starts_the_clock_and_looks_at_nothing(received, officer):
    assert (received.state, received.kind, received.digest, received.preview) == ("received", "erase", "", None)
    assert received.due_at is not None
    assert AuditEvent.objects.get(action="request.received").payload["kind"] == "erase"


def test_receive_again_returns_the_open_request_and_a_preview_goes_on_with_it(received, subject, officer):
    assert receive(subject, officer) == received
    assert previews.preview(subject=subject, by=officer)[0] == received


@pytest.mark.parametrize("values, field", [({"kind": "forget"}, "kind"), ({"profile": "mars"}, "profile"), ({"received_at": datetime(2999, 1, 1, tzinfo=UTC)}, "received_at")])
def test_receive_refuses_what_makes_no_sense(subject, officer, values, field):
    with pytest.raises(Invalid) as caught:
        receive(subject, officer, **values)
    assert list(caught.value.errors) == [field]


def test_receive_refuses_an_erased_subject_a_stranger_and_a_viewer(subject, officer, stranger_tenant, tenant):
    with pytest.raises(NotFound):
        receive(subject, make.actor(stranger_tenant, "privacy_officer"))
    with pytest.raises(MissingPermission):
        receive(subject, make.actor(tenant, "viewer"))
    with pytest.raises(MissingPermission):
        receive(subject, make.actor(tenant, "privacy_approver"), kind="rectify")
    type(subject).objects.update(state="erased")
    with pytest.raises(previews.SubjectErased):
        receive(subject, officer)


# First answer


def test_first_answer_is_recorded_once(subject, officer):
    request = receive(subject, officer, profile="ccpa")

    first = clocks.answer_first(request=request, by=officer)
    again = clocks.answer_first(request=request, by=officer)

    assert first.first_answered_at == again.first_answered_at is not None
    assert AuditEvent.objects.filter(action="request.first_answered").count() == 1


def test_first_answer_of_a_profile_without_one_is_refused(received, officer):
    with pytest.raises(Conflict, match="no first answer"):
        clocks.answer_first(request=received, by=officer)


# Extension


def extend(request, by, **values):
    return clocks.extend(**{"request": request, "reason": "complex", "notice_ref": "MAIL-2026/118", "by": by, **values})


def test_extend_moves_the_deadline_once(subject, officer):
    day = clock.now() - timedelta(days=3)
    request = receive(subject, officer, received_at=day)
    before = request.due_at

    extended = extend(request, officer)

    assert extended.due_at == extended.extended_until == deadlines.extended(profile="gdpr", received_at=day, zone="UTC")
    assert extended.due_at > before
    assert AuditEvent.objects.get(action="request.extended").payload["notice"] == "MAIL-2026/118"
    with pytest.raises(clocks.AlreadyExtended):
        extend(request, officer)


def test_extend_is_too_late_once_it_is_due(subject, officer):
    request = receive(subject, officer, received_at=clock.now() - timedelta(days=60))

    with pytest.raises(clocks.ExtensionTooLate):
        extend(request, officer)


def test_extend_is_not_offered_by_every_law(subject, officer):
    with pytest.raises(clocks.ExtensionNotOffered):
        extend(receive(subject, officer, profile="lgpd"), officer)


def test_extend_of_an_ended_request_is_refused(received, officer):
    requests.cancel(request=received, reason="withdrawn", by=officer)

    with pytest.raises(Conflict, match="has ended"):
        extend(received, officer)


@pytest.mark.parametrize(
    "values, fields",
    [
        ({"reason": "we are on holiday"}, ["reason"]), ({"notice_ref": ""}, ["notice_ref"]), ({"notice_ref": None}, ["notice_ref"]),
        ({"notice_ref": "Dear Anna, we are sorry"}, ["notice_ref"]), ({"notice_ref": "x" * 65}, ["notice_ref"]),
        ({"reason": "", "notice_ref": ""}, ["reason", "notice_ref"]),
    ],
)  # fmt: skip
def test_extend_needs_a_reason_and_a_notice_on_file(received, officer, values, fields):
    with pytest.raises(Invalid) as caught:
        extend(received, officer, **values)
    assert list(caught.value.errors) == fields
    assert SubjectRequest.objects.get().extended_until is None


def test_clock_verbs_need_the_officer_of_the_tenant(received, tenant, stranger_tenant):
    for act in (extend, lambda request, by: clocks.ask_identity(request=request, by=by), lambda request, by: clocks.answer_first(request=request, by=by)):
        with pytest.raises(MissingPermission):
            act(received, make.actor(tenant, "privacy_approver"))
        with pytest.raises(NotFound):
            act(received, make.actor(stranger_tenant, "privacy_officer"))


# Identity


@pytest.mark.parametrize(("profile", "pause", "rests"), [("gdpr", True, True), ("gdpr", False, False), ("ccpa", True, False), ("lgpd", True, False)])
def test_identity_rests_the_clock_only_where_law_and_tenant_allow_it(subject, officer, admin, tenant, profile, pause, rests):
    rules.change(tenant=tenant, pause_for_identity=pause, by=admin)

    request = clocks.ask_identity(request=receive(subject, officer, profile=profile), by=officer)

    assert request.state == "identity_pending"
    assert (request.paused_at is not None) is rests


@pytest.mark.parametrize("how", ["preview", "export"])
def test_looking_at_what_is_held_ends_the_pause(subject, officer, admin, tenant, how):
    rules.change(tenant=tenant, pause_for_identity=True, by=admin)
    kind = "erase" if how == "preview" else "export"
    request = clocks.ask_identity(request=receive(subject, officer, kind=kind), by=officer)
    due = request.due_at
    SubjectRequest.objects.update(paused_at=clock.now() - timedelta(days=3))

    if how == "preview":
        previews.preview(subject=subject, by=officer)
    else:
        exports.work(request_id=requests.export(subject=subject, by=officer).id)

    after = SubjectRequest.objects.get()
    assert after.paused_at is None
    assert after.paused_seconds == pytest.approx(3 * 86400, abs=60)
    assert after.due_at == due + timedelta(days=4)


def test_extension_keeps_the_days_of_a_pause(subject, officer):
    request = receive(subject, officer)
    SubjectRequest.objects.update(paused_seconds=2 * 86400)

    plain = deadlines.extended(profile="gdpr", received_at=request.received_at, zone="UTC")
    assert extend(request, officer).due_at == plain + timedelta(days=2)


def test_identity_is_asked_before_anything_is_looked_at(subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    with pytest.raises(Conflict, match="before anything"):
        clocks.ask_identity(request=request, by=officer)


def test_used_stands_still_in_a_pause(received):
    received.paused_at = received.received_at + timedelta(days=1)
    now = received.received_at + timedelta(days=20)

    assert clocks.used(received, now) == clocks.used(received, received.paused_at) < 0.05


# Alarms


def alarms():
    return sorted(RequestAlarm.objects.values_list("kind", flat=True))


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.4, []), (0.51, ["used_50"]), (0.76, ["used_50", "used_75"]), (0.91, ["used_50", "used_75", "used_90"]),
        (1.01, ["overdue", "used_50", "used_75", "used_90"]),
    ],
)  # fmt: skip
def test_alarms_are_raised_once_each(received, share, expected):
    age = timedelta(days=10)
    SubjectRequest.objects.update(received_at=clock.now() - age, due_at=clock.now() - age + age / share)

    assert clocks.raise_alarms() == len(expected)
    assert clocks.raise_alarms() == 0

    assert alarms() == expected
    told = AuditEvent.objects.filter(action="request.alarm").values_list("payload__kind", flat=True)
    assert sorted(told) == expected


def test_alarms_leave_pauses_out_of_the_share(received):
    """10 of 20 days, 5 of them in a pause, are a third."""
    now = clock.now()
    SubjectRequest.objects.update(received_at=now - timedelta(days=10), due_at=now + timedelta(days=10), paused_seconds=5 * 86400)

    clocks.raise_alarms()

    assert alarms() == []


@pytest.mark.parametrize("change", [{"state": "cancelled"}, {"paused_at": datetime(2026, 1, 1, tzinfo=UTC)}])
def test_alarms_of_ended_and_resting_requests_are_not_raised(received, change):
    SubjectRequest.objects.update(received_at=clock.now() - timedelta(days=50), due_at=clock.now() - timedelta(days=1), **change)

    assert clocks.raise_alarms() == 0


def test_first_answer_overdue_is_an_alarm_until_it_is_given(subject, officer):
    request = receive(subject, officer, profile="ccpa")
    SubjectRequest.objects.update(first_due_at=clock.now() - timedelta(hours=1))

    assert sweeping.sweep()["alarms"] == 1
    assert alarms() == ["first_answer_overdue"]
    RequestAlarm.objects.all().delete()
    clocks.answer_first(request=request, by=officer)
    assert clocks.raise_alarms() == 0


def test_alarm_is_seen_by_each_member_by_themselves(received, officer, tenant, stranger_tenant):
    RequestAlarm.objects.create(request=received, tenant_id=tenant.id, kind="overdue")

    clocks.see_alarm(request=received, kind="overdue", by=officer)
    clocks.see_alarm(request=received, kind="overdue", by=officer)

    assert RequestAlarm.objects.get().seen_by == [officer.ref]
    for kind, by in (("used_50", officer), ("overdue", make.actor(stranger_tenant, "privacy_officer"))):
        with pytest.raises(NotFound):
            clocks.see_alarm(request=received, kind=kind, by=by)


# Refusal


def test_refusal_keeps_its_words_erasable_and_the_trail_a_commitment(received, officer):
    cancelled = requests.cancel(request=received, reason="unfounded", text="Dear Anna, this is the third time.", by=officer)

    note = AuditNote.objects.get()
    assert (cancelled.state, note.kind, notes.read(note)) == ("cancelled", "refusal", "Dear Anna, this is the third time.")
    payload = AuditEvent.objects.get(action="request.cancelled").payload
    assert payload["commitment"] == notes.commitment(note)
    assert "Anna" not in str(payload)
    assert b"Anna" not in bytes(note.text_enc)


@pytest.mark.parametrize("text", [None, "", "  ", "x" * 10_001])
def test_refusal_needs_the_words_that_the_person_was_told(received, officer, text):
    with pytest.raises(Invalid) as caught:
        requests.cancel(request=received, reason="unfounded", text=text, by=officer)
    assert list(caught.value.errors) == ["text"]
    assert SubjectRequest.objects.get().state == "received"


def test_refusal_words_go_with_the_person(received, subject, officer):
    requests.cancel(request=received, reason="identity_not_proven", text="We could not tell who you are.", by=officer)

    request, _ = previews.preview(subject=subject, by=officer)

    assert {entry["key"]: entry["rows"] for entry in request.preview["categories"]}["audit_notes"] == 1


def test_words_are_refused_while_another_request_erases_the_person(received, subject, officer):
    Fence.objects.create(tenant=subject.tenant, subject=subject, mode="erase", request_id=officer.tenant_id)

    with pytest.raises(SubjectFenced):
        requests.cancel(request=received, reason="unfounded", text="No.", by=officer)
    assert SubjectRequest.objects.get().state == "received"
