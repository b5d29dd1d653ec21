"""Placing and releasing holds, and what erasures and every other deletion make of them."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from governance.domain import (
    audit,
    clock,
    coverage,
    erasure,
    fences,
    groups,
    holds,
    keeping,
    keys,
    ledger,
    previews,
    registry,
    replay,
    requests,
    retention,
    retention_runs,
    sweeping,
)
from governance.domain.holds import SelfRelease, Target
from governance.errors import Conflict, Held, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.ids import uuid7
from governance.models import (
    AuditEvent,
    Fence,
    HeldCopy,
    HeldRow,
    Hold,
    LedgerEntry,
    RetentionPolicy,
    Subject,
    SubjectIdentifier,
    SubjectRequest,
)
from sessions.domain import events, idempotency
from sessions.domain import sessions as session_verbs
from sessions.models import IdempotencyRecord, Item, ModelCall, Run, RunEvent, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.owner import as_owner

pytestmark = pytest.mark.usefixtures("archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def second(tenant):
    """Another records manager, who may release."""
    return make.actor(tenant, "records_manager", username="second")


def place(target, by, matter="M-17", **values) -> Hold:
    return holds.place(target=target, matter=matter, reason="litigation", by=by, **values)


def confirmed(subject, by) -> SubjectRequest:
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)


def erased(subject, by) -> SubjectRequest:
    return erasure.work(request_id=confirmed(subject, by).id)


def balanced(request) -> bool:
    names = ("erased", "anonymised", "regenerated", "already_absent", "held", "retained", "skipped")
    return all(entry["previewed"] == sum(entry[name] for name in names) for entry in request.receipt["categories"])


def of_receipt(request, column) -> dict:
    return {entry["key"]: entry[column] for entry in request.receipt["categories"] if entry[column]}


# -- placing


def test_place_says_what_it_covers_and_what_was_gone(agent, subject, records_manager):
    talk.conversation(agent, subject)

    hold = place(Target("subject", subject=subject), records_manager, until=timezone.now() + timedelta(days=90))

    by_category = holds.rows_by_category(hold=hold)
    assert by_category["items"] == 4
    assert (hold.covered_rows, hold.already_absent) == (sum(by_category.values()), 0)
    event = AuditEvent.objects.get(action="hold.placed")
    assert (event.object_label, event.payload["scope"], event.payload["reason"]) == ("M-17", "subject", "litigation")


def test_place_on_an_erased_subject_says_what_was_gone(agent, subject, officer, records_manager):
    talk.conversation(agent, subject)
    done = erased(subject, officer)

    hold = place(Target("subject", subject=subject), records_manager)

    gone = sum(entry["erased"] + entry["anonymised"] for entry in done.receipt["categories"])
    assert (hold.covered_rows, hold.already_absent) == (0, gone)


def test_query_holds_the_groups_it_met_and_no_later_ones(agent, subject, records_manager):
    met = talk.conversation(agent, subject)
    run = Run.objects.get(session=met)

    hold = place(Target("query", query={"category": "runs", "ids": [run.id, uuid7()]}), records_manager)
    talk.conversation(agent, subject)

    assert (hold.already_absent, [row.row_id for row in hold.rows.all()]) == (1, [met.id])
    assert holds.rows_by_category(hold=hold)["items"] == 4


def test_query_by_time_and_subject(agent, tenant, subject, records_manager):
    old = talk.conversation(agent, subject)
    Session.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=9))
    talk.conversation(agent, subject)
    talk.conversation(agent, make.subject(tenant))
    week_ago = timezone.now() - timedelta(days=7)

    hold = place(Target("query", query={"category": "sessions", "before": week_ago, "subject_id": subject.id}), records_manager)

    assert [row.row_id for row in hold.rows.all()] == [old.id]
    assert hold.query["subject_id"] == subject.id.hex


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"matter": "two words"}, "matter"),
        ({"matter": ""}, "matter"),
        ({"reason": "spite"}, "reason"),
        ({"until": timezone.now() - timedelta(days=1)}, "until"),
        ({"target": Target("planet")}, "scope.type"),
        ({"target": Target("category", category="nothing")}, "scope.category"),
        ({"target": Target("category", category="quota_counters")}, "scope.category"),
        ({"target": Target("query", query={"category": "items", "ids": []})}, "scope.category"),
        ({"target": Target("query", query={"category": "runs"})}, "scope"),
        ({"target": Target("query", query={"category": "runs", "colour": "red"})}, "scope.colour"),
        ({"target": Target("query", query={"category": "runs", "ids": ["x"]})}, "scope.ids"),
        ({"target": Target("query", query={"category": "api_keys", "agent": "helper"})}, "scope.agent"),
    ],
)
def test_place_refuses(records_manager, values, field):
    given = {"target": Target("category", category="items"), "matter": "M-1", "reason": "audit", **values}
    with pytest.raises(Invalid) as caught:
        holds.place(by=records_manager, **given)
    assert list(caught.value.errors) == [field]
    assert not Hold.objects.exists()


def test_place_stays_in_the_tenant(agent, stranger_tenant, subject, records_manager):
    session = talk.conversation(talk.agent(stranger_tenant), None)
    stranger = make.subject(stranger_tenant)

    for target in (Target("subject", subject=stranger), Target("session", session_id=session.id), Target("agent")):
        with pytest.raises(NotFound):
            place(target, records_manager)


def test_roles_of_placing_and_releasing(tenant, subject, records_manager, officer, stranger_tenant, second):
    hold = place(Target("subject", subject=subject), records_manager)
    key, secret = keys.create_key(tenant_id=tenant.id, name="keeper", scopes=["governance:write"], by=make.lethe(tenant))
    by_key = keys.authenticate(secret=secret)

    with pytest.raises(MissingPermission):
        place(Target("subject", subject=subject), officer)
    with pytest.raises(MissingPermission):
        holds.release(hold=hold, by=officer)
    with pytest.raises(MissingPermission):
        holds.release(hold=hold, by=by_key)
    with pytest.raises(NotFound):
        holds.release(hold=hold, by=make.actor(stranger_tenant, "records_manager"))
    assert place(Target("subject", subject=subject), by_key).placed_by_label == key.name


# -- releasing


def test_release_needs_another_person(tenant, subject, records_manager, second):
    hold = place(Target("subject", subject=subject), records_manager)

    with pytest.raises(SelfRelease):
        holds.release(hold=hold, by=records_manager)
    released, started = holds.release(hold=hold, by=second)

    assert (released.released_by, released.released_by_label, started) == (second.ref, second.label, [])
    with pytest.raises(Conflict):
        holds.release(hold=hold, by=second)


def test_release_needs_another_person_than_the_maker_of_the_key(tenant, subject, second):
    maker = make.actor(tenant, "records_manager", "tenant_admin", username="maker")
    _, secret = keys.create_key(tenant_id=tenant.id, name="keeper", scopes=["governance:write"], by=maker)
    hold = place(Target("subject", subject=subject), keys.authenticate(secret=secret))

    with pytest.raises(SelfRelease):
        holds.release(hold=hold, by=maker)
    holds.release(hold=hold, by=second)


def test_tenant_may_let_one_person_release(tenant, subject, records_manager):
    keeping.change(tenant=tenant, hold_release_alone=True, by=make.lethe(tenant))
    hold = place(Target("subject", subject=subject), records_manager)

    holds.release(hold=hold, by=records_manager)

    assert coverage.in_force(tenant.id) == []


def test_hold_ends_with_its_date(subject, records_manager):
    hold = place(Target("subject", subject=subject), records_manager, until=timezone.now() + timedelta(hours=1))
    assert sweeping.sweep()["holds"] == 0
    Hold.objects.update(until=clock.now() - timedelta(seconds=1))

    assert sweeping.sweep()["holds"] == 1

    hold.refresh_from_db()
    assert (hold.released_by, AuditEvent.objects.filter(action="hold.expired").count()) == ("system", 1)


def test_copies_go_with_the_last_hold_over_them(agent, subject, records_manager, second):
    session = talk.conversation(agent, subject, title="Before")
    first = place(Target("subject", subject=subject), records_manager)
    other = place(Target("session", session_id=session.id), records_manager)
    Session.objects.filter(pk=session.pk).update(title="After")

    holds.release(hold=first, by=second)
    assert HeldCopy.objects.get().content["title"] == "Before"

    holds.release(hold=other, by=second)
    assert not HeldCopy.objects.exists()


# -- erasures


def test_preview_shows_what_is_held_and_why(agent, subject, officer, records_manager):
    held, free = talk.conversation(agent, subject), talk.conversation(agent, subject)
    place(Target("session", session_id=held.id), records_manager)

    request, _ = previews.preview(subject=subject, by=officer)

    entries = {entry["key"]: entry for entry in request.preview["categories"]}
    items = entries["items"]
    assert (items["rows"], items["buckets"]["erase"], items["buckets"]["held"]) == (8, 4, 4)
    assert items["grounds"] == [{"bucket": "held", "rows": 4, "matter": "M-17", "reason": "litigation", "until": None}]
    assert entries["subject_identifiers"]["buckets"]["held"] == 1
    assert all(entry["rows"] == sum(entry["buckets"].values()) for entry in entries.values())
    assert free.id != held.id


def test_preview_of_an_export_takes_what_is_held(agent, subject, officer, records_manager):
    talk.conversation(agent, subject)
    place(Target("subject", subject=subject), records_manager)

    request, _ = previews.preview(subject=subject, kind="export", by=officer)

    items = {entry["key"]: entry for entry in request.preview["categories"]}["items"]
    assert (items["rows"], items["buckets"]["held"]) == (4, 0)


def test_erasure_takes_the_rest_and_leaves_a_request_for_what_is_held(agent, subject, officer, records_manager, second):
    held, free = talk.conversation(agent, subject), talk.conversation(agent, subject)
    hold = place(Target("session", session_id=held.id), records_manager)

    done = erased(subject, officer)

    assert (done.state, done.failure) == ("completed_with_exceptions", None)
    assert not Session.objects.filter(pk=free.pk).exists()
    assert Item.objects.filter(session=held).count() == 4
    assert balanced(done)
    assert of_receipt(done, "held")["items"] == 4
    assert {"category": "items", "rows": 4, "reason": "hold", "basis": "litigation", "until": None} in done.receipt["exceptions"]
    assert SubjectIdentifier.objects.filter(subject=subject).exists()
    follow_up = done.follow_ups.get()
    assert (follow_up.state, follow_up.reason, follow_up.kind) == ("previewed", "subject_request", "erase")
    assert follow_up.due_at > done.due_at - timedelta(days=1)
    fence = Fence.objects.get(subject=subject, lifted_at=None)
    assert (fence.mode, fence.request_id) == ("erase", follow_up.id)
    assert holds.waiting_for(hold=hold) == [follow_up]
    with pytest.raises(SubjectFenced):
        previews.preview(subject=subject, by=officer)
    with pytest.raises(requests.NotCancellable):
        requests.cancel(request=follow_up, reason="mistake", by=officer)

    _, started = holds.release(hold=hold, by=second)

    assert [(request.id, request.state) for request in started] == [(follow_up.id, "fencing")]
    last = erasure.work(request_id=follow_up.id)
    assert (last.state, last.failure) == ("completed", None)
    assert balanced(last)
    assert of_receipt(last, "erased")["items"] == 4
    assert Subject.objects.get(pk=subject.pk).state == "erased"
    assert not Session.objects.filter(subject=subject).exists()
    assert not SubjectIdentifier.objects.filter(subject=subject).exists()
    connection.check_constraints()


def test_erasure_of_a_wholly_held_subject_waits(agent, subject, officer, records_manager, second):
    talk.conversation(agent, subject)
    hold = place(Target("subject", subject=subject), records_manager)

    done = erased(subject, officer)

    assert (done.state, of_receipt(done, "erased")) == ("completed_with_exceptions", {})
    assert balanced(done)
    holds.release(hold=hold, by=second)
    assert erasure.work(request_id=done.follow_ups.get().id).state == "completed"


def test_follow_up_waits_for_the_last_of_two_holds(agent, subject, officer, records_manager, second):
    session = talk.conversation(agent, subject)
    one = place(Target("session", session_id=session.id), records_manager)
    two = place(Target("category", category="items"), records_manager, matter="M-18")
    done = erased(subject, officer)

    assert holds.release(hold=one, by=second)[1] == []
    assert [request.follows_id for request in holds.release(hold=two, by=second)[1]] == [done.id]


def test_expiry_starts_the_follow_up_as_a_release_does(agent, subject, officer, records_manager):
    talk.conversation(agent, subject)
    place(Target("subject", subject=subject), records_manager, until=timezone.now() + timedelta(days=1))
    done = erased(subject, officer)
    Hold.objects.update(until=clock.now() - timedelta(seconds=1))

    sweeping.sweep()

    assert done.follow_ups.get().state == "fencing"


def test_hold_that_arrives_mid_job_keeps_what_is_left(agent, subject, officer, records_manager, monkeypatch):
    """The batch that meets it is planned again without its rows; what went before is gone, and told so."""
    first, second_one = talk.conversation(agent, subject), talk.conversation(agent, subject)
    request = confirmed(subject, officer)
    inner, seen = erasure._erase_batch, []

    def hold_before_items(lease, request, scope, category, chunks):
        if category.key == "items" and not seen:
            seen.append(place(Target("session", session_id=first.id), records_manager))
        return inner(lease, request, scope, category, chunks)

    monkeypatch.setattr(erasure, "_erase_batch", hold_before_items)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure) == ("completed_with_exceptions", None)
    assert set(Session.objects.values_list("id", flat=True)) == {first.id}
    assert Item.objects.filter(session=first).count() == 4
    assert not Item.objects.filter(session=second_one).exists()
    assert balanced(done)
    assert of_receipt(done, "held")["items"] == 4


def test_hold_released_mid_job_frees_its_rows_for_this_request(agent, subject, officer, records_manager, second, monkeypatch):
    held = talk.conversation(agent, subject)
    talk.conversation(agent, subject)
    hold = place(Target("session", session_id=held.id), records_manager)
    request = confirmed(subject, officer)
    inner, seen = erasure._erase_batch, []

    def release_before_items(lease, request, scope, category, chunks):
        if category.key == "items" and not seen:
            seen.append(holds.release(hold=hold, by=second))
        return inner(lease, request, scope, category, chunks)

    monkeypatch.setattr(erasure, "_erase_batch", release_before_items)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure) == ("completed", None)
    assert not Session.objects.filter(subject=subject).exists()
    assert balanced(done)
    assert done.receipt["verification"]["found_by_verification"] == {}


def test_hold_placed_after_the_preview_is_no_drift(agent, subject, officer, records_manager):
    session = talk.conversation(agent, subject)
    request = confirmed(subject, officer)
    place(Target("session", session_id=session.id), records_manager)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure, done.drift) == ("completed_with_exceptions", None, None)
    assert balanced(done)
    assert Item.objects.filter(session=session).count() == 4


def test_what_is_added_to_held_rows_is_told_before_anything_is_erased(agent, subject, officer, records_manager):
    held = talk.conversation(agent, subject)
    talk.conversation(agent, subject)
    place(Target(scope="session", session_id=held.id), records_manager)
    request = confirmed(subject, officer)
    talk.item(held)

    asked_again = erasure.work(request_id=request.id)

    assert asked_again.state == "previewed"
    assert {"key": "items", "added": 1, "changed": 0} in asked_again.drift["categories"]
    done = erased(subject, officer)
    assert done.state == "completed_with_exceptions", done.failure
    assert balanced(done)
    assert Item.objects.filter(session=held).count() == 5


def test_hold_released_after_the_preview_is_no_drift(agent, subject, officer, records_manager, second):
    held = talk.conversation(agent, subject)
    hold = place(Target(scope="session", session_id=held.id), records_manager)
    request = confirmed(subject, officer)
    holds.release(hold=hold, by=second)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.drift) == ("completed", None)
    assert balanced(done)
    assert not Item.objects.filter(subject_id=subject.id).exists()


def test_holds_on_others_change_nothing(agent, subject, officer, tenant, records_manager):
    neighbour = make.subject(tenant, "bert")
    talk.conversation(agent, subject)
    talk.conversation(agent, neighbour)
    place(Target("subject", subject=neighbour), records_manager)

    done = erased(subject, officer)

    assert (done.state, done.receipt["exceptions"]) == ("completed", [])
    assert Item.objects.filter(subject_id=neighbour.id).count() == 4


# -- every destructive path


def _erase(subject, session, by):
    return erased(subject, by).state == "completed_with_exceptions"


def _delete_session(subject, session, by):
    with pytest.raises(Held):
        session_verbs.delete(session=session, by=make.lethe(subject.tenant))
    return True


def _delete_agent(subject, session, by):
    from agents.domain import definitions

    with pytest.raises(Held):
        definitions.delete_agent(agent=session.agent, with_sessions=True, by=make.lethe(subject.tenant))
    return True


def _delete_group(subject, session, by):
    with pytest.raises(Held), transaction.atomic(), fences.told():
        groups.delete(category="sessions", tenant_id=subject.tenant_id, ids=[session.id])
    return True


def _anonymise_group(subject, session, by):
    with pytest.raises(Held), transaction.atomic(), fences.told():
        groups.anonymise(category="runs", tenant_id=subject.tenant_id, ids=list(Run.objects.values_list("id", flat=True)))
    return True


def _raw(subject, session, by):
    with pytest.raises(Held), transaction.atomic(), fences.told(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_sessions_item WHERE tenant_id = %s", [subject.tenant_id])
    return True


def _orm(subject, session, by):
    for model in (Item, Run, RunEvent, ModelCall):
        with pytest.raises(Held), transaction.atomic(), fences.told():
            model.objects.all().delete()
    return True


def _fold(subject, session, by):
    run = Run.objects.get()
    Run.objects.update(ended_at=timezone.now() - timedelta(hours=1))
    talk.event(run, 9, "message.delta", {"text": "a"})
    RunEvent.objects.filter(seq=9).update(at=timezone.now() - timedelta(hours=1))
    return events.fold() == 0


def _expire_keys(subject, session, by):
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(days=3))
    return idempotency.expire() == 0


def _retention(subject, session, by):
    keeper = make.lethe(subject.tenant)
    Session.objects.update(ended_at=timezone.now() - timedelta(days=90))
    policy = retention.create_policy(
        tenant_id=subject.tenant_id, category="sessions", age_basis="ended", days=30, by=keeper
    )
    RetentionPolicy.objects.update(dry_run_until=None)
    preview = retention.preview_policy(policy=policy, by=keeper)
    run = retention.run_policy(policy=policy, expected_version=1, by=keeper)
    done = retention_runs.work(run_id=run.id)
    return (preview["eligible"]["rows"], preview["excluded"]["held"], done.counts["skipped"]) == (0, 1, {"held": 1})


def _sweep(subject, session, by):
    sweeping.sweep()
    return True


PATHS = (_retention, _erase, _delete_session, _delete_agent, _delete_group, _anonymise_group, _raw, _orm, _fold, _expire_keys, _sweep)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__.strip("_"))
def test_no_destructive_path_takes_a_held_row(path, agent, subject, officer, records_manager):
    session = talk.conversation(agent, subject)
    place(Target("subject", subject=subject), records_manager)
    before = {category.key: category.verify(scope=registry.Scope(subject.tenant_id, subject.id)) for category in _held_kinds()}

    assert path(subject, session, officer)

    after = {category.key: category.verify(scope=registry.Scope(subject.tenant_id, subject.id)) for category in _held_kinds()}
    assert {key: after[key] >= rows for key, rows in before.items()} == dict.fromkeys(before, True)
    assert before["items"] == 4


def _held_kinds():
    return [category for category in registry.categories().values() if category.on_hold != "exempt"]


def test_old_idempotency_key_of_a_held_subject_goes_on_naming_its_run(agent, subject, records_manager):
    session = talk.conversation(agent, subject)
    record = IdempotencyRecord.objects.get()
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(days=3), actor_ref=records_manager.ref)
    place(Target("subject", subject=subject), records_manager)

    stored, run = idempotency.reserve(key=record.key, body_digest=record.body_sha256, by=records_manager, subject=subject)

    assert (stored.id, run.session_id) == (record.id, session.id)


def test_actions_of_holds_are_known():
    assert {"hold.placed", "hold.released", "hold.expired", "request.resumed"} <= audit.ACTIONS


# -- after a restore


def test_ledger_gives_a_restored_database_its_holds_back(agent, subject, records_manager, second):
    session = talk.conversation(agent, subject)
    kept = place(Target("query", query={"category": "sessions", "ids": [session.id]}), records_manager)
    ended = place(Target("subject", subject=subject), records_manager, until=timezone.now() + timedelta(days=9))
    holds.release(hold=ended, by=second)
    entries = [ledger._body(entry) for entry in LedgerEntry.objects.order_by("id")]
    HeldRow.objects.all().delete()
    Hold.objects.all().delete()

    words = [replay._handlers[entry["kind"]](entry) for entry in [*entries, *entries]]

    assert words == ["placed again", "placed again", "released again", "was there", "was there", "was released"]
    assert [hold.id for hold in coverage.in_force(subject.tenant_id)] == [kept.id]
    with pytest.raises(Held), transaction.atomic(), fences.told():
        Item.objects.filter(session=session).delete()


@pytest.mark.parametrize("is_more", [False, True])
def test_follow_up_that_is_previewed_again_stays_approved_for_what_was_shown(
    agent, subject, officer, records_manager, second, tenant, is_more
):
    """More than that has to be confirmed, and no release starts it by itself."""
    tenant.settings = {"requests": {"four_eyes": "always"}}
    tenant.save()
    approver = make.actor(tenant, "privacy_approver")
    session = talk.conversation(agent, subject)
    hold = place(Target("session", session_id=session.id), records_manager)
    request = confirmed(subject, officer)
    requests.approve(request=request, digest=request.digest, by=approver)
    follow_up = erasure.work(request_id=request.id).follow_ups.get()
    SubjectRequest.objects.filter(pk=follow_up.pk).update(drift={"categories": []})
    if is_more:
        as_owner("SET LOCAL session_replication_role = 'replica'")
        talk.conversation(agent, subject)
        as_owner("SET LOCAL session_replication_role = 'origin'")

    again, _ = previews.preview(subject=subject, by=officer)

    assert again.pk == follow_up.pk
    assert (again.approver, again.reason) == (("", "") if is_more else (approver.ref, "subject_request"))
    # What is held is still in it, and shown as such.
    assert entry_of(again, "items")["buckets"]["held"] == 4
    started = holds.release(hold=hold, by=second)[1]
    assert bool(started) != is_more
    if started:
        assert erasure.work(request_id=started[0].id).state == "completed"


def entry_of(request, key):
    return next(entry for entry in request.preview["categories"] if entry["key"] == key)
