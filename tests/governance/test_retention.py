"""A policy takes what is past its cut-off, whole groups, and nothing that something stands in the way of."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection, connections, transaction
from django.db.models import F
from django.utils import timezone

from governance import queries
from governance.domain import clock, fences, groups, retention, retention_runs, sweeping
from governance.errors import Conflict, Invalid, MissingPermission, NotFound, VersionConflict
from governance.models import AuditEvent, RetentionPolicy, RetentionRun
from sessions.models import Approval, Item, ModelCall, Run, RunEvent, Session
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


def policy_for(by, **values) -> RetentionPolicy:
    """Past its trial, and approved."""
    made = retention.create_policy(
        **{"tenant_id": by.tenant_id, "category": "sessions", "age_basis": "ended", "days": 30, "by": by, **values}
    )
    RetentionPolicy.objects.filter(pk=made.pk).update(dry_run_until=None, approved_version=1)
    made.refresh_from_db()
    return made


def ended(agent, subject, days: float, **values) -> Session:
    """A conversation that ended so many days ago."""
    return talk.conversation(agent, subject, ended_at=timezone.now() - timedelta(days=days), **values)


def run(policy, by) -> RetentionRun:
    return retention_runs.work(run_id=retention.run_policy(policy=policy, expected_version=policy.version, by=by).id)


@pytest.fixture
def policy(records_manager):
    return policy_for(records_manager)


# -- policies


def test_create_policy_runs_dry_for_a_week(tenant, records_manager):
    policy = retention.create_policy(
        tenant_id=tenant.id, category="sessions", age_basis="ended", days=30, by=records_manager
    )

    assert (policy.version, policy.enabled, policy.action) == (1, True, "delete")
    assert timedelta(days=6, hours=23) < policy.dry_run_until - clock.now() <= timedelta(days=7)
    assert AuditEvent.objects.get(action="retention_policy.created").payload == {
        "version": 1, "days": 30, "months": None, "min_keep": 0, "policy_action": "delete",
    }  # fmt: skip


def test_dry_run_is_the_tenants_choice(records_manager, tenant):
    tenant.settings = {"retention_dry_run_days": 0}
    tenant.save(update_fields=["settings"])

    policy = retention.create_policy(
        tenant_id=tenant.id, category="sessions", age_basis="ended", days=30, by=records_manager
    )

    assert policy.dry_run_until is None


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"category": "nothing"}, "category"),
        ({"category": "items"}, "category"),
        ({"category": "subject_identifiers"}, "category"),
        ({"age_basis": "event"}, "age_basis"),
        ({"category": "model_calls", "age_basis": "ended"}, "age_basis"),
        ({"category": "model_calls", "age_basis": "created", "agent": "helper"}, "agent"),
        ({"days": 0}, "days"),
        ({"days": 40_000}, "days"),
        ({"days": True}, "days"),
        ({"days": "30"}, "days"),
        ({"action": "burn"}, "action"),
        ({"action": "anonymise"}, "action"),
    ],
)
def test_create_policy_refuses(records_manager, values, field):
    with pytest.raises(Invalid) as caught:
        policy_for(records_manager, **values)
    assert list(caught.value.errors) == [field]
    assert not RetentionPolicy.objects.exists()


def test_one_enabled_policy_per_category_and_agent(policy, records_manager):
    with pytest.raises(Conflict):
        policy_for(records_manager, days=10)
    policy_for(records_manager, agent="helper")
    retention.update_policy(policy=policy, expected_version=1, enabled=False, by=records_manager)
    policy_for(records_manager, days=10)

    assert RetentionPolicy.objects.count() == 3


def test_update_policy_counts_versions_and_refuses_the_second_of_two(policy, records_manager):
    retention.update_policy(policy=policy, expected_version=1, days=60, by=records_manager)

    with pytest.raises(VersionConflict) as caught:
        retention.update_policy(policy=policy, expected_version=1, days=90, by=records_manager)
    assert caught.value.extra["current"]["days"] == 60
    assert RetentionPolicy.objects.get().version == 2


@pytest.mark.parametrize(
    ("changes", "is_dry"),
    [
        ({"days": 60}, False),
        ({"days": 29}, True),
        ({"age_basis": "created"}, True),
        ({"enabled": False}, False),
        ({"days": 30}, False),
    ],
)
def test_update_that_takes_more_runs_dry_again(policy, records_manager, changes, is_dry):
    updated = retention.update_policy(policy=policy, expected_version=1, by=records_manager, **changes)

    assert (updated.dry_run_until is not None) == is_dry


def test_switching_a_policy_on_runs_dry_again(policy, records_manager):
    policy = retention.update_policy(policy=policy, expected_version=1, enabled=False, by=records_manager)

    policy = retention.update_policy(policy=policy, expected_version=2, enabled=True, by=records_manager)

    assert policy.dry_run_until is not None


def test_update_policy_refuses_other_fields(policy, records_manager):
    with pytest.raises(Invalid) as caught:
        retention.update_policy(policy=policy, expected_version=1, by=records_manager, category="runs")
    assert list(caught.value.errors) == ["category"]


def test_delete_policy_keeps_the_history_of_its_runs(policy, agent, subject, records_manager):
    run(policy, records_manager)

    retention.delete_policy(policy=policy, expected_version=1, by=records_manager)

    assert list(queries.policies_of(policy.tenant_id)) == []
    assert queries.retention_runs_of(policy.tenant_id).count() == 1
    with pytest.raises(NotFound):
        retention.update_policy(policy=policy, expected_version=2, days=1, by=records_manager)
    with pytest.raises(NotFound):
        retention.preview_policy(policy=policy, by=records_manager)
    policy_for(records_manager)


def test_verbs_need_the_role_and_stay_in_the_tenant(policy, tenant, stranger_tenant):
    officer = make.actor(tenant, "privacy_officer")
    stranger = make.actor(stranger_tenant, "records_manager")
    calls = [
        lambda by: retention.update_policy(policy=policy, expected_version=1, days=3, by=by),
        lambda by: retention.delete_policy(policy=policy, expected_version=1, by=by),
        lambda by: retention.run_policy(policy=policy, expected_version=1, by=by),
    ]

    for call in calls:
        with pytest.raises(MissingPermission):
            call(officer)
    for call in [*calls, lambda by: retention.preview_policy(policy=policy, by=by)]:
        with pytest.raises(NotFound):
            call(stranger)
    with pytest.raises(NotFound):
        retention.create_policy(tenant_id=tenant.id, category="sessions", age_basis="ended", days=3, by=stranger)
    with pytest.raises(MissingPermission):
        retention.preview_policy(policy=policy, by=make.actor(tenant, "operator"))


# -- preview


def test_preview_shows_what_goes_what_stays_and_why(policy, agent, subject, tenant, records_manager):
    for days in (40, 40, 41):
        ended(agent, subject, days)
    ended(agent, subject, 29)
    talk.conversation(agent, subject)
    ended(agent, subject, 50, lease_run_id=agent.id, lease_expires_at=timezone.now())
    waiting = ended(agent, subject, 50)
    Approval.objects.filter(session=waiting).update(status="pending")
    parent = ended(agent, subject, 50)
    ended(agent, subject, 1, forked_from=parent.id)
    fenced = make.subject(tenant, "bert")
    ended(agent, fenced, 50)
    fences.open_fence(subject=fenced, mode="restrict", by=make.lethe(tenant))

    answer = retention.preview_policy(policy=policy, by=records_manager)

    assert answer["policy_version"] == 1
    assert answer["eligible"]["rows"] == 3
    assert answer["eligible"]["bytes"] > 300
    assert answer["share_of_table"] == round(3 / 10, 4)
    assert answer["excluded"] == {
        "held": 0, "min_keep": 0, "active_run": 1, "pending_approval": 1, "referenced": 1, "fenced": 1, "null_time": 1,
    }  # fmt: skip
    days = [(timezone.now() - timedelta(days=days)).date().isoformat() for days in (41, 40)]
    assert answer["by_day"] == [{"day": days[0], "rows": 1}, {"day": days[1], "rows": 2}]
    assert answer["cutoff"].endswith("Z")


def test_preview_leaves_other_tenants_out(policy, agent, subject, stranger_tenant, records_manager):
    ended(talk.agent(stranger_tenant), make.subject(stranger_tenant), 40)

    answer = retention.preview_policy(policy=policy, by=records_manager)

    assert (answer["eligible"]["rows"], answer["share_of_table"], answer["by_day"]) == (0, 0, [])


def test_preview_deletes_nothing(policy, agent, subject, records_manager):
    ended(agent, subject, 40)

    retention.preview_policy(policy=policy, by=records_manager)

    assert Session.objects.count() == 1


# -- runs


def test_run_takes_whole_groups_past_the_cutoff(policy, agent, subject, stranger_tenant, records_manager):
    for days in (31, 40, 400):
        ended(agent, subject, days)
    kept = ended(agent, subject, 29)
    foreign = ended(talk.agent(stranger_tenant), make.subject(stranger_tenant), 400)

    done = run(policy, records_manager)

    assert (done.state, done.failure) == ("completed", None)
    assert set(Session.objects.values_list("id", flat=True)) == {kept.id, foreign.id}
    assert set(Item.objects.values_list("session_id", flat=True)) == {kept.id, foreign.id}
    assert (Run.objects.count(), RunEvent.objects.count(), ModelCall.objects.count()) == (2, 4, 2)
    assert (done.counts["deleted"], done.counts["by_category"]["items"], done.counts["rows"]) == (3, 12, 42)
    assert done.counts["bytes"] > 1000


def test_run_decides_at_exactly_the_cutoff(policy, agent, subject, records_manager):
    just, exactly = ended(agent, subject, 1), ended(agent, subject, 1)
    started = retention.run_policy(policy=policy, expected_version=1, by=records_manager)
    Session.objects.filter(pk=just.pk).update(ended_at=started.cutoff - timedelta(microseconds=1))
    Session.objects.filter(pk=exactly.pk).update(ended_at=started.cutoff)

    retention_runs.work(run_id=started.id)

    assert list(Session.objects.all()) == [exactly]
    assert started.cutoff <= clock.now() - timedelta(days=30)


def test_run_leaves_what_something_stands_in_the_way_of(policy, agent, subject, tenant, records_manager):
    leased = ended(agent, subject, 50, lease_run_id=agent.id, lease_expires_at=timezone.now())
    waiting = ended(agent, subject, 50)
    Approval.objects.filter(session=waiting).update(status="pending")
    restricted = make.subject(tenant, "bert")
    fenced = ended(agent, restricted, 50)
    fences.open_fence(subject=restricted, mode="restrict", by=make.lethe(tenant))
    ended(agent, subject, 50)

    done = run(policy, records_manager)

    assert set(Session.objects.all()) == {leased, waiting, fenced}
    assert done.counts["skipped"] == {"active_run": 1, "pending_approval": 1, "fenced": 1}


def test_parent_goes_after_its_fork(policy, agent, subject, records_manager):
    parent = ended(agent, subject, 50)
    fork = ended(agent, subject, 40, forked_from=parent.id)

    run(policy, records_manager)
    assert list(Session.objects.all()) == [parent]

    run(policy, records_manager)
    assert fork not in Session.objects.all()
    assert not Session.objects.exists()


def test_dry_run_counts_and_deletes_nothing(agent, subject, tenant, records_manager):
    policy = retention.create_policy(
        tenant_id=tenant.id, category="sessions", age_basis="ended", days=30, by=records_manager
    )
    ended(agent, subject, 40)
    preview = retention.preview_policy(policy=policy, by=records_manager)

    done = run(policy, records_manager)

    assert (done.state, done.dry_run) == ("completed", True)
    assert done.counts == {"would_delete": 1, "bytes": preview["eligible"]["bytes"], "deleted": 0, "skipped": {}}
    assert Session.objects.count() == 1


def test_policy_of_an_agent_wins_over_the_tenants(policy, tenant, subject, records_manager):
    quick, slow = talk.agent(tenant, "quick"), talk.agent(tenant, "slow")
    narrow = policy_for(records_manager, agent="slow", days=100)
    ended(quick, subject, 50)
    kept, old = ended(slow, subject, 50), ended(slow, subject, 150)

    run(policy, records_manager)
    assert set(Session.objects.all()) == {kept, old}

    run(narrow, records_manager)
    assert list(Session.objects.all()) == [kept]


def test_anonymise_keeps_totals_and_finds_each_row_once(agent, subject, tenant, records_manager):
    policy = policy_for(records_manager, category="runs", action="anonymise")
    talk.conversation(agent, subject)
    Run.objects.update(ended_at=timezone.now() - timedelta(days=40), request={"message": "secret"})

    first, second = run(policy, records_manager), run(policy, records_manager)

    stored = Run.objects.get()
    assert (stored.subject_id, stored.request, stored.input_tokens) == (None, {}, 120)
    assert (first.counts["deleted"], second.counts["deleted"]) == (1, 0)
    assert ModelCall.objects.get().subject_id is None
    assert Item.objects.count() == 4


def test_archive_without_a_sink_fails_and_deletes_nothing(agent, subject, records_manager, settings):
    settings.ARCHIVE_DIR = None
    policy = policy_for(records_manager, action="archive_then_delete")
    ended(agent, subject, 40)

    done = run(policy, records_manager)

    assert (done.state, done.failure["code"]) == ("failed", "no_archive")
    assert Session.objects.count() == 1
    assert AuditEvent.objects.get(action="retention_run.failed").payload["code"] == "no_archive"


def test_policy_changed_before_its_run_stops_it(policy, agent, subject, records_manager):
    ended(agent, subject, 40)
    started = retention.run_policy(policy=policy, expected_version=1, by=records_manager)
    retention.update_policy(policy=policy, expected_version=1, days=100, by=records_manager)

    done = retention_runs.work(run_id=started.id)

    assert (done.state, done.failure["code"]) == ("failed", "policy_changed")
    assert Session.objects.count() == 1


def test_run_policy_is_one_at_a_time_and_of_an_enabled_policy(policy, records_manager):
    retention.run_policy(policy=policy, expected_version=1, by=records_manager)
    with pytest.raises(Conflict):
        retention.run_policy(policy=policy, expected_version=1, by=records_manager)

    RetentionRun.objects.all().delete()
    with pytest.raises(VersionConflict):
        retention.run_policy(policy=policy, expected_version=9, by=records_manager)
    retention.update_policy(policy=policy, expected_version=1, enabled=False, by=records_manager)
    with pytest.raises(Conflict):
        retention.run_policy(policy=policy, expected_version=2, by=records_manager)


def test_killed_run_is_resumed_after_its_last_batch(policy, agent, subject, records_manager, monkeypatch):
    class Killed(BaseException):
        pass

    monkeypatch.setattr(retention_runs, "FIRST_BATCH", 2)
    monkeypatch.setattr(retention_runs, "LARGEST_BATCH", 2)
    for days in range(40, 47):
        ended(agent, subject, days)
    started = retention.run_policy(policy=policy, expected_version=1, by=records_manager)
    delete, batches = groups.delete, []

    def die_in_the_third(**arguments):
        done = delete(**arguments)
        batches.append(done)
        if len(batches) == 3:
            raise Killed
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "delete", die_in_the_third)
        with pytest.raises(Killed):
            retention_runs.work(run_id=started.id)
    assert Session.objects.count() == 3
    assert RetentionRun.objects.get().counts["deleted"] == 4
    assert retention_runs.work(run_id=started.id) is None
    RetentionRun.objects.update(lease_until=clock.now())

    done = retention_runs.work(run_id=started.id)

    assert (done.state, done.counts["deleted"], done.counts["by_category"]["items"]) == ("completed", 7, 28)
    assert not Session.objects.exists()


def test_run_out_of_time_goes_on_later(policy, agent, subject, records_manager, monkeypatch):
    monkeypatch.setattr(retention_runs, "FIRST_BATCH", 1)
    monkeypatch.setattr(retention_runs, "LARGEST_BATCH", 1)
    monkeypatch.setattr(retention_runs, "BUDGET_SECONDS", 0)
    for days in (40, 41):
        ended(agent, subject, days)
    started = retention.run_policy(policy=policy, expected_version=1, by=records_manager)

    paused = retention_runs.work(run_id=started.id)
    assert (paused.state, paused.lease_until, Session.objects.count()) == ("running", None, 1)

    for _ in range(2):
        done = retention_runs.work(run_id=started.id)
    assert (done.state, done.counts["deleted"]) == ("completed", 2)


def test_run_that_keeps_failing_ends_as_failed(policy, agent, subject, records_manager, monkeypatch):
    ended(agent, subject, 40)
    started = retention.run_policy(policy=policy, expected_version=1, by=records_manager)

    def fail(**arguments):
        raise RuntimeError("no")

    monkeypatch.setattr(groups, "delete", fail)

    states = []
    for _ in range(5):
        states.append(retention_runs.work(run_id=started.id).state)
        RetentionRun.objects.update(lease_until=None)
    assert states == ["running"] * 4 + ["failed"]
    assert RetentionRun.objects.get().failure["code"] == "error"
    assert Session.objects.count() == 1


def test_run_is_audited_with_counts(policy, agent, subject, records_manager):
    ended(agent, subject, 40)

    done = run(policy, records_manager)

    started, completed = AuditEvent.objects.filter(action__startswith="retention_run.").order_by("id")
    assert (started.actor_label, started.payload["category"]) == ("keeper", "sessions")
    assert (completed.actor_kind, completed.payload["rows"]) == ("system", done.counts["rows"])


def test_two_failures_in_a_row_raise_an_alarm(policy, agent, subject, records_manager, monkeypatch, settings):
    told = []
    monkeypatch.setattr(retention_runs.log, "error", lambda event, **facts: told.append((event, facts.get("failures"))))
    RetentionPolicy.objects.update(action="archive_then_delete")
    settings.ARCHIVE_DIR = None

    for _ in range(3):
        run(policy, records_manager)

    assert told == [("retention_alarm", 2), ("retention_alarm", 3)]


ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia")


@pytest.mark.parametrize("zone", ZONES)
def test_cutoff_is_the_same_instant_in_every_zone(zone, tenant, policy, agent, subject, records_manager):
    """Days are 24 hours each, whatever the zones of tenant and connection do meanwhile."""
    type(tenant).objects.update(timezone=zone)
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))
    gone = ended(agent, subject, 30 + 1 / 1440)
    kept = ended(agent, subject, 30 - 1 / 1440)
    with connection.cursor() as cursor:
        # As from a schedule on another connection: Django reads times on the understanding that this one is in UTC.
        cursor.execute("SELECT set_config('TimeZone', %s, true)", [zone])
        retention.schedule_due()
        cursor.execute("SELECT set_config('TimeZone', 'UTC', true)")

    answer = retention.preview_policy(policy=policy, by=records_manager)

    scheduled = RetentionRun.objects.get()
    now = clock.now()
    assert abs(scheduled.cutoff - (now - timedelta(hours=30 * 24))) < timedelta(seconds=30)
    assert abs(retention.cutoff_of(policy) - scheduled.cutoff) < timedelta(seconds=30)
    assert (answer["eligible"]["rows"], 0 < answer["oldest_overdue_seconds"] < 90) == (1, True)
    retention_runs.work(run_id=scheduled.id)
    assert list(Session.objects.all()) == [kept]
    assert gone != kept


# -- schedule


def test_schedule_fires_once_a_day_at_midnight_of_the_tenant(records_manager, tenant):
    tenant.timezone = "Asia/Kolkata"
    tenant.save(update_fields=["timezone"])
    policy = policy_for(records_manager)
    assert retention.schedule_due() == 0

    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))

    assert retention.schedule_due() == 1
    assert retention.schedule_due() == 0
    scheduled = RetentionRun.objects.get()
    assert (scheduled.policy, scheduled.started_by, scheduled.state) == (policy, "schedule", "queued")
    assert (scheduled.scheduled_for.hour, scheduled.scheduled_for.minute) == (18, 30)
    assert abs(scheduled.cutoff - (clock.now() - timedelta(days=30))) < timedelta(minutes=1)


def test_schedule_leaves_out_policies_that_are_off(policy, records_manager):
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))
    retention.update_policy(policy=policy, expected_version=1, enabled=False, by=records_manager)

    assert retention.schedule_due() == 0


def test_missed_days_coalesce_into_one_run(policy):
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=20))

    assert (retention.schedule_due(), RetentionRun.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_schedule_from_four_processes_makes_exactly_one_run(settings):
    tenant = make.tenant("acme")
    by = make.lethe(tenant)
    for category in ("sessions", "runs"):
        policy_for(by, category=category)
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))
    barrier = Barrier(4)

    def fire(_):
        barrier.wait()
        try:
            return sweeping.retention.schedule_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(fire, range(4))) == 2
    assert RetentionRun.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_locked_session_is_left_for_the_next_run():
    tenant = make.tenant("acme")
    by, agent, subject = make.lethe(tenant), talk.agent(tenant), make.subject(tenant)
    policy = policy_for(by)
    busy = ended(agent, subject, 40)
    ended(agent, subject, 41)

    def work():
        try:
            return run(policy, by)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Session.objects.select_for_update().get(pk=busy.pk)
        done = pool.submit(work).result(timeout=30)

    assert (done.state, done.counts["deleted"], done.counts["skipped"]) == ("completed", 1, {"locked": 1})
    assert list(Session.objects.all()) == [busy]


@pytest.mark.django_db(transaction=True)
def test_fence_that_comes_during_a_run_is_respected(monkeypatch):
    tenant = make.tenant("acme")
    by, agent, subject = make.lethe(tenant), talk.agent(tenant), make.subject(tenant)
    policy = policy_for(by)
    ended(agent, subject, 40)
    other = ended(agent, make.subject(tenant), 40)
    delete, fenced = groups.delete, []

    def fence_first(**arguments):
        if not fenced:

            def fence():
                try:
                    fences.open_fence(subject=subject, mode="restrict", by=by)
                finally:
                    connections.close_all()

            with ThreadPoolExecutor(1) as pool:
                pool.submit(fence).result(timeout=30)
            fenced.append(True)
        return delete(**arguments)

    monkeypatch.setattr(groups, "delete", fence_first)

    done = run(policy, by)

    assert (done.state, done.counts["deleted"]) == ("completed", 1)
    assert not Session.objects.filter(pk=other.pk).exists()
    assert Session.objects.filter(subject=subject).count() == 1
