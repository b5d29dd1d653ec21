"""How long a policy keeps, what stays whatever its age, and who must agree before it takes much."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone

from governance.domain import deadlines, keeping, keys, registry, retention, retention_runs, selection
from governance.errors import Invalid, MissingPermission, NotFound, VersionConflict
from governance.models import AuditEvent, RetentionPolicy, RetentionRun
from sessions.models import Session
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


def policy_for(by, **values) -> RetentionPolicy:
    """Past its trial, and nobody but `by` has looked at it."""
    length = {} if "months" in values else {"days": 30}
    made = retention.create_policy(**{"tenant_id": by.tenant_id, "category": "sessions", "age_basis": "ended", "by": by, **length, **values})
    RetentionPolicy.objects.filter(pk=made.pk).update(dry_run_until=None)
    made.refresh_from_db()
    return made


def ended(agent, subject, days: float, **values) -> Session:
    return talk.conversation(agent, subject, ended_at=timezone.now() - timedelta(days=days), **values)


def run(policy, by) -> RetentionRun:
    return retention_runs.work(run_id=retention.run_policy(policy=policy, expected_version=policy.version, by=by).id)


# -- months


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "America/Havana"])
@pytest.mark.parametrize("months", [1, 6, 12])
def test_months_are_those_of_a_deadline_in_the_tenants_zone(tenant, records_manager, zone, months):
    """A row goes as soon as the day is over on which an answer to it would have been due, and not before."""
    type(tenant).objects.update(timezone=zone)
    policy, there = policy_for(records_manager, months=months), ZoneInfo(zone)
    for number in range(0, 760, 3):
        today = date(2027, 1, 1) + timedelta(days=number)
        now = datetime.combine(today, time(13, 30), tzinfo=there)

        last = retention.cutoff_of(policy, at=now).astimezone(there)

        day = last.date()
        assert last == datetime.combine(day, last.time(), tzinfo=there).replace(fold=0)
        assert _end(day - timedelta(days=1), months, zone) <= now < _end(day, months, zone)


def _end(day, months, zone):
    return deadlines.end_of(deadlines._later(day, months=months, days=0), zone=zone)


@pytest.mark.parametrize(
    ("now", "months", "cutoff"),
    [
        ("2027-03-01T00:00", 1, "2027-02-01"),
        ("2027-02-28T23:59", 1, "2027-01-28"),
        ("2027-03-31T12:00", 1, "2027-03-01"),
        ("2028-03-01T00:00", 1, "2028-02-01"),
        ("2029-03-01T00:00", 12, "2028-03-01"),
        ("2029-02-28T12:00", 12, "2028-02-28"),
    ],
)
def test_end_of_a_month_and_leap_day_round_to_the_later(tenant, records_manager, now, months, cutoff):
    policy = policy_for(records_manager, months=months)

    answer = retention.cutoff_of(policy, at=datetime.fromisoformat(now).replace(tzinfo=UTC))

    assert answer == datetime.fromisoformat(cutoff).replace(tzinfo=UTC)


def test_midnight_that_comes_twice_counts_the_first_time(tenant, records_manager):
    """In Havana the clocks go from 1:00 back to 0:00 on 7 November 2027."""
    type(tenant).objects.update(timezone="America/Havana")
    policy = policy_for(records_manager, months=1)

    answer = retention.cutoff_of(policy, at=datetime(2027, 12, 7, 12, tzinfo=UTC))

    assert answer == datetime(2027, 11, 7, 4, tzinfo=UTC)


def test_schedule_counts_months_as_the_preview_does(tenant, records_manager):
    policy = policy_for(records_manager, months=2)
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))

    retention.schedule_due()

    assert RetentionRun.objects.get().cutoff == retention.cutoff_of(policy)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"months": 0}, "months"),
        ({"months": 1_201}, "months"),
        ({"months": 3, "days": 90}, "months"),
        ({"months": True}, "months"),
        ({"days": None}, "days"),
        ({"min_keep": -1}, "min_keep"),
        ({"min_keep": "3"}, "min_keep"),
    ],
)
def test_length_that_cannot_be_is_refused(records_manager, values, field):
    with pytest.raises(Invalid) as caught:
        policy_for(records_manager, **values)
    assert list(caught.value.errors) == [field]


def test_length_changes_between_days_and_months(records_manager):
    policy = policy_for(records_manager)

    policy = retention.update_policy(policy=policy, expected_version=1, months=24, by=records_manager)
    assert (policy.days, policy.months, policy.length, policy.dry_run_until is None) == (None, 24, "2 years", False)

    policy = retention.update_policy(policy=policy, expected_version=2, days=1, by=records_manager)
    assert (policy.days, policy.months, policy.length) == (1, None, "1 day")


# -- the newest stay


def test_newest_of_each_subject_stay(tenant, agent, subject, records_manager):
    policy, bert = policy_for(records_manager, min_keep=2), make.subject(tenant, "bert")
    old = [ended(agent, subject, days) for days in (90, 80, 70, 60)]
    Session.objects.filter(pk=ended(agent, subject, 0).pk).update(ended_at=None)
    of_bert = ended(agent, bert, 100)
    nobodys = ended(agent, None, 100)
    RetentionPolicy.objects.update(approved_version=1)
    preview = retention.preview_policy(policy=policy, by=records_manager)

    done = run(policy, records_manager)

    assert (preview["eligible"]["rows"], preview["excluded"]["min_keep"]) == (3, 3)
    assert (done.counts["deleted"], done.counts["skipped"]) == (3, {"min_keep": 3, "null_time": 1})
    assert set(Session.objects.filter(ended_at__isnull=False)) == {*old[2:], of_bert}
    assert not Session.objects.filter(pk=nobodys.pk).exists()


def test_newest_at_the_same_instant_are_as_many_as_the_policy_says(agent, subject, records_manager):
    policy = policy_for(records_manager, min_keep=2)
    for _ in range(5):
        ended(agent, subject, 60)
    Session.objects.update(ended_at=timezone.now() - timedelta(days=60))
    RetentionPolicy.objects.update(approved_version=1)

    assert (run(policy, records_manager).counts["deleted"], run(policy, records_manager).counts["deleted"]) == (3, 0)


def test_keeping_fewer_of_the_newest_runs_dry_again(records_manager):
    policy = policy_for(records_manager, min_keep=5)

    more = retention.update_policy(policy=policy, expected_version=1, min_keep=6, by=records_manager)
    assert more.dry_run_until is None
    fewer = retention.update_policy(policy=more, expected_version=2, min_keep=5, by=records_manager)
    assert fewer.dry_run_until is not None


# -- what must be kept


@pytest.mark.parametrize(
    ("minimum", "length", "is_refused"),
    [
        (31, {"days": 30}, True), (30, {"days": 30}, False), (29, {"months": 1}, True), (28, {"months": 1}, False),
        (366, {"months": 12}, True), (365, {"months": 12}, False),
    ],
)  # fmt: skip
def test_policy_shorter_than_the_minimum_is_refused(tenant, admin, records_manager, minimum, length, is_refused):
    keeping.change(tenant=tenant, retention_minimum_days={"sessions": minimum}, by=admin)
    if not is_refused:
        assert policy_for(records_manager, **length)
        return

    with pytest.raises(Invalid) as caught:
        policy_for(records_manager, **length)

    ((sentence,),) = caught.value.errors.values()
    assert f"at least {minimum} days" in sentence
    assert ("1 year" if length.get("months") == 12 else "1 month" if "months" in length else "30 days") in sentence


def test_minimum_wins_over_a_policy_that_is_there(tenant, agent, subject, admin, records_manager):
    policy = policy_for(records_manager)
    kept = ended(agent, subject, 59)
    ended(agent, subject, 61)
    keeping.change(tenant=tenant, retention_minimum_days={"sessions": 60, "runs": 400}, by=admin)
    RetentionPolicy.objects.update(approved_version=1)

    run(policy, records_manager)

    assert list(Session.objects.all()) == [kept]
    with pytest.raises(Invalid):
        retention.update_policy(policy=policy, expected_version=1, min_keep=1, by=records_manager)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"retention_dry_run_days": -1}, "retention_dry_run_days"),
        ({"retention_second_person_percent": 101}, "retention_second_person_percent"),
        ({"retention_minimum_days": {"items": 3}}, "retention_minimum_days"),
        ({"retention_minimum_days": {"sessions": 0}}, "retention_minimum_days"),
        ({"hold_release_alone": 1}, "hold_release_alone"),
    ],
)
def test_rules_that_cannot_be_are_refused(tenant, admin, changes, field):
    with pytest.raises(Invalid) as caught:
        keeping.change(tenant=tenant, by=admin, **changes)
    assert list(caught.value.errors) == [field]


def test_rules_are_the_administrators_and_audited(tenant, stranger_tenant, admin, records_manager):
    keeping.change(tenant=tenant, hold_release_alone=True, retention_minimum_days={"sessions": 60}, by=admin)
    keeping.change(tenant=tenant, hold_release_alone=True, by=admin)

    event = AuditEvent.objects.get(action="tenant.settings_changed")
    assert event.payload == {
        "fields": ["retention_minimum_days", "hold_release_alone"], "retention_dry_run_days": 7,
        "retention_second_person_percent": 20, "retention_minimum_days": {"sessions": 60}, "hold_release_alone": True,
    }  # fmt: skip
    tenant.refresh_from_db()
    assert keeping.of(tenant) == keeping.Keeping(retention_minimum_days={"sessions": 60}, hold_release_alone=True)
    with pytest.raises(MissingPermission):
        keeping.change(tenant=tenant, hold_release_alone=False, by=records_manager)
    with pytest.raises(NotFound):
        keeping.change(tenant=stranger_tenant, hold_release_alone=True, by=admin)


# -- the second person


@pytest.fixture
def backlog(agent, subject):
    """Five conversations, of which two, 40 %, are old."""
    return [ended(agent, subject, days) for days in (50, 40, 3, 2, 1)]


def test_first_large_run_needs_a_second_person(backlog, records_manager, admin):
    policy = policy_for(records_manager)
    assert retention.preview_policy(policy=policy, by=records_manager)["needs_approval"] is True
    with pytest.raises(retention.NeedsApproval) as caught:
        run(policy, records_manager)
    assert (caught.value.code, caught.value.kind, caught.value.extra) == ("needs_approval", "conflict", {"share": 0.4})
    assert not RetentionRun.objects.exists()

    approved = retention.approve_policy(policy=policy, expected_version=1, by=admin)

    assert (approved.approver, approved.approved_version, approved.is_approved) == (admin.ref, 1, True)
    assert retention.preview_policy(policy=policy, by=records_manager)["needs_approval"] is False
    assert run(policy, records_manager).counts["deleted"] == 2
    event = AuditEvent.objects.get(action="retention_policy.approved")
    assert (event.actor_ref, event.payload["version"]) == (admin.ref, 1)


def test_scheduled_run_that_needs_a_second_person_fails_and_deletes_nothing(backlog, records_manager, admin):
    policy = policy_for(records_manager)
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))
    retention.schedule_due()

    done = retention_runs.work(run_id=RetentionRun.objects.get().id)

    assert (done.state, done.failure["code"], Session.objects.count()) == ("failed", "needs_approval", 5)
    retention.approve_policy(policy=policy, expected_version=1, by=admin)
    assert run(policy, records_manager).counts["deleted"] == 2


def test_run_of_a_fifth_or_after_the_first_needs_nobody_else(agent, subject, backlog, records_manager):
    policy = policy_for(records_manager, days=45)
    assert retention.preview_policy(policy=policy, by=records_manager)["share_of_table"] == 0.2

    assert run(policy, records_manager).counts["deleted"] == 1

    Session.objects.update(ended_at=timezone.now() - timedelta(days=50))
    assert run(policy, records_manager).counts["deleted"] == 4


def test_changed_policy_has_to_be_approved_again(backlog, records_manager, admin):
    policy = retention.approve_policy(policy=policy_for(records_manager), expected_version=1, by=admin)

    policy = retention.update_policy(policy=policy, expected_version=1, days=35, by=records_manager)

    assert (policy.approver, policy.is_approved) == ("", False)
    with pytest.raises(retention.NeedsApproval):
        run(policy, records_manager)


def test_share_that_one_person_decides_about_is_the_tenants(tenant, backlog, records_manager, admin):
    policy = policy_for(records_manager)
    keeping.change(tenant=tenant, retention_second_person_percent=40, by=admin)

    assert run(policy, records_manager).counts["deleted"] == 2


def test_dry_run_needs_nobody_else(backlog, records_manager):
    policy = retention.create_policy(tenant_id=records_manager.tenant_id, category="sessions", age_basis="ended", days=30, by=records_manager)

    assert run(policy, records_manager).counts["would_delete"] == 2


def test_nobody_approves_what_they_set(tenant):
    both = make.actor(tenant, "records_manager", "tenant_admin", username="both")
    _key, secret = keys.create_key(tenant_id=tenant.id, name="crm", scopes=["governance:write"], by=both)
    through_key = keys.authenticate(secret=secret)
    for by, agent in ((both, ""), (through_key, "support")):
        policy = policy_for(by, agent=agent)
        with pytest.raises(retention.SelfApproval):
            retention.approve_policy(policy=policy, expected_version=1, by=both)
    with pytest.raises(MissingPermission):
        retention.approve_policy(policy=policy, expected_version=1, by=through_key)
    with pytest.raises(IntegrityError, match="retention_approver_is_another"), transaction.atomic():
        RetentionPolicy.objects.filter(pk=policy.pk).update(approver=both.ref)


def test_approval_is_of_the_version_that_was_looked_at(tenant, stranger_tenant, records_manager, admin):
    policy = policy_for(records_manager)
    retention.update_policy(policy=policy, expected_version=1, days=31, by=records_manager)

    with pytest.raises(VersionConflict):
        retention.approve_policy(policy=policy, expected_version=1, by=admin)
    with pytest.raises(NotFound):
        retention.approve_policy(policy=policy, expected_version=2, by=make.actor(stranger_tenant, "tenant_admin"))
    with pytest.raises(MissingPermission):
        retention.approve_policy(policy=policy, expected_version=2, by=records_manager)


# -- batches


@pytest.mark.parametrize(
    ("category", "age_basis", "index"),
    [("sessions", "ended", "session_by_end"), ("sessions", "last_activity", "session_newest"), ("runs", "ended", "run_by_end")],
)
def test_page_of_a_backlog_is_read_from_an_index_that_has_its_order(records_manager, subject, category, age_basis, index):
    policy = policy_for(records_manager, category=category, age_basis=age_basis)
    target, cutoff = registry.get(category), retention.cutoff_of(policy)
    age = target.ages[age_basis]
    behind = selection.after_cursor(target, age, (cutoff - timedelta(days=3), subject.id))
    page = selection.eligible(policy, target, cutoff).filter(behind).order_by(age, "pk").values_list(age, "pk")[:50]
    with connection.cursor() as cursor:
        # On tables as small as these, reading everything would be cheaper.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute("SET LOCAL enable_sort = off")

    plan = page.explain()

    assert f" using {index} " in plan
    assert "Sort" not in plan
    [bounds] = [line for line in plan.splitlines() if "Index Cond" in line and "tenant_id" in line and age in line]
    assert ">=" in bounds


@pytest.mark.parametrize(
    ("size", "took", "following"),
    [(50, 0.01, 100), (50, 0, 100), (1000, 0.125, 2000), (2000, 0.01, 2000), (400, 0.5, 200), (400, 0.25, 400), (1, 9.0, 1)],
)
def test_batches_aim_at_half_of_the_time_they_may_take(size, took, following):
    assert retention_runs._next_size(size, took) == following


# -- processes

SCHEDULER = """
import sys
import django
django.setup()
from django.db import connections
connections["default"].settings_dict["NAME"] = sys.argv[1]
from governance.domain import retention
from governance.models import Tenant
Tenant.objects.count()
print("ready", flush=True)
sys.stdin.readline()
print(retention.schedule_due(), flush=True)
"""


@pytest.mark.django_db(transaction=True)
def test_schedule_from_four_processes_makes_exactly_one_run_of_all_missed_days():
    policy_for(make.lethe(make.tenant("acme")))
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=9))
    command = [sys.executable, "-c", SCHEDULER, connection.settings_dict["NAME"]]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)
    ]
    ready = [process.stdout.readline() for process in processes]

    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    made = [int(process.communicate(timeout=60)[0]) for process in processes]

    assert ready == ["ready\n"] * 4
    assert (sorted(made), RetentionRun.objects.count()) == ([0, 0, 0, 1], 1)
