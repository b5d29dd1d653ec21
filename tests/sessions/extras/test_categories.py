"""What sessions keep about a person: counted, exported, erased and verified, and nobody else touched."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.db.models.functions import Now

from governance.domain import clock, erasure, fences, groups, previews, registry, requests, retention_runs
from governance.domain import retention as retention_verbs
from governance.domain.registry import Scope
from governance.models import RetentionPolicy, RetentionRun, Subject, SubjectRequest
from governance.waivers import waivers
from sessions.categories import CATEGORIES, stop_runs
from sessions.domain import blobs, history, quotas
from sessions.domain import sessions as session_verbs
from sessions.models import (
    Approval,
    Blob,
    Item,
    ModelCall,
    Quota,
    QuotaCounter,
    QuotaReservation,
    Run,
    RunEvent,
    Session,
)
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.governance.snapshots import rows_of, tables_with

pytestmark = pytest.mark.django_db
KEYS = [category.key for category in CATEGORIES]


def fill(agent, subject, lethe):
    """Something of the subject in every category; texts carry the subject's id as a canary."""
    session = made.conversation(agent, subject, title=f"About {subject.id.hex}")
    made.item(session, content={"text": f"I am {subject.id.hex}"})
    quota = quotas.create_quota(
        tenant_id=agent.tenant_id, scope="subject", scope_ref=subject.id.hex, measure="runs", period="day", limit=50, by=lethe
    )
    run = made.run(session=session, cost=Decimal("0.25"), metadata={"who": subject.id.hex}, started_by=f"key of {subject.id.hex}")
    made.model_call(run, cost=Decimal("0.25"), context=[{"layer": "history", "tokens": 5, "sources": [subject.id.hex]}])
    quotas.reserve(tenant_id=agent.tenant_id, agent_id=agent.id, actor=lethe, subject_id=subject.id, run_id=run.id)
    assert QuotaCounter.objects.filter(quota=quota).exists()
    return session


@pytest.fixture
def scope(agent, subject, lethe):
    fill(agent, subject, lethe)
    return Scope(subject.tenant_id, subject.id)


@pytest.fixture
def neighbours(agent, tenant, stranger, lethe):
    """Somebody else of the tenant, and somebody of another tenant."""
    near = people.subject(tenant)
    fill(agent, near, lethe)
    far = people.subject(stranger)
    fill(made.agent(stranger), far, people.lethe(stranger))
    return near, far


def kept_of(subjects):
    return [rows_of("subject_id", subject.id) for subject in subjects]


def anonymises(category):
    return category.method == "anonymise"


@pytest.fixture
def erase_all(scope):
    """Erase every category in order, as the worker does, without its fence; returns what each came to."""

    def erase():
        done = {}
        for category in registry.erase_order():
            if category.key in KEYS:
                chunks = list(category.plan(scope=scope))
                with transaction.atomic():
                    done[category.key] = [category.erase(scope=scope, chunk=chunk) for chunk in chunks]
                    connection.check_constraints()
        return done

    return erase


# The contract that every category keeps


def test_every_table_of_sessions_is_in_a_category_or_waived():
    declared = {store.name for category in registry.categories().values() for store in category.stores}

    tables = {model._meta.db_table for model in apps.get_app_config("agent_sessions").get_models()}

    assert tables - declared - set(waivers()) == set()


@pytest.mark.parametrize("category", CATEGORIES, ids=KEYS)
def test_category_shows_what_it_finds(category, scope, neighbours):
    plan = list(category.plan(scope=scope))
    exported = list(category.export(scope=scope))

    assert category.count(plan=plan).rows == len(exported) == category.verify(scope=scope) > 0
    assert sum(category.count(plan=plan).buckets.values()) == len(exported)
    assert len(category.sample(scope=scope)) == len(exported)
    assert all(sample.title for sample in category.sample(scope=scope))


@pytest.mark.parametrize("category", CATEGORIES, ids=KEYS)
def test_category_says_in_words_what_it_is_and_why(category):
    assert category.title[0].isupper()
    assert category.about.purposes
    assert category.about.legal_basis
    assert category.limit is not None or category.group_of is not None


@pytest.mark.parametrize("category", CATEGORIES, ids=KEYS)
def test_category_plans_nothing_of_anybody_else(category, neighbours, tenant):
    nobody = people.subject(tenant)
    near, far = neighbours

    assert list(category.plan(scope=Scope(tenant.id, nobody.id))) == []
    assert list(category.plan(scope=Scope(tenant.id, far.id))) == []
    assert list(category.export(scope=Scope(far.tenant_id, near.id))) == []


def test_erasing_everything_erases_what_was_planned(scope, neighbours, erase_all):
    before = kept_of(neighbours)
    planned = {category.key: category.count(plan=list(category.plan(scope=scope))).rows for category in CATEGORIES}

    done = erase_all()

    assert {key: sum(erased.rows for erased in parts) for key, parts in done.items()} == planned
    assert sum(erased.already_absent for parts in done.values() for erased in parts) == 0
    assert {category.key: category.verify(scope=scope) for category in CATEGORIES} == dict.fromkeys(KEYS, 0)
    assert kept_of(neighbours) == before


def test_erasing_a_second_time_finds_everything_absent(scope, erase_all):
    plans = {category.key: list(category.plan(scope=scope)) for category in CATEGORIES}
    erase_all()

    for category in CATEGORIES:
        for chunk in plans[category.key]:
            again = category.erase(scope=scope, chunk=chunk)
            assert (again.rows, again.already_absent) == (0, chunk.rows)


@pytest.mark.parametrize("category", [category for category in CATEGORIES if not anonymises(category)], ids=lambda category: category.key)
def test_category_refuses_to_erase_a_row_that_was_not_shown(category, scope, agent, subject, lethe, erase_all):
    """A row between the bounds of a chunk that came after the plan."""
    [chunk] = list(category.plan(scope=scope))
    if category.key == "quotas":
        Quota.objects.filter(subject_id=subject.id).update(limit=49)
    elif category.key == "quota_counters":
        QuotaCounter.objects.create(
            tenant_id=agent.tenant_id, subject_id=subject.id, quota=Quota.objects.get(subject_id=subject.id), ref=subject.id.hex,
            period_start="2026-01-01",
        )  # fmt: skip
    else:
        fill_more(agent, subject)
    widened = registry.Chunk(
        chunk.number, chunk.low, last_bound(category, scope), chunk.rows, chunk.size, chunk.sha256, chunk.fingerprints
    )

    with pytest.raises(registry.Drift):
        erase_in_a_batch(category, scope, widened)


@transaction.atomic
def erase_in_a_batch(category, scope, chunk):
    return category.erase(scope=scope, chunk=chunk)


def fill_more(agent, subject):
    session = made.conversation(agent, subject)
    counter = QuotaCounter.objects.filter(subject_id=subject.id).first()
    QuotaReservation.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, counter=counter, run_id=session.runs.first().id, amount=1
    )


def last_bound(category, scope):
    return list(category.plan(scope=scope))[-1].high


def test_a_neighbour_with_the_same_attachment_keeps_it(agent, subject, tenant, erase_all):
    near = people.subject(tenant)
    for owner in (subject, near):
        blobs.store(
            tenant_id=tenant.id, subject_id=owner.id, session=made.session(agent, owner),
            attachments=[{"name": "a.txt", "media_type": "text/plain", "data": "c2FtZQ=="}],
        )  # fmt: skip

    erase_all()

    assert list(Blob.objects.values_list("subject_id", flat=True)) == [near.id]


# What an erasure keeps


def test_accounts_keep_tokens_and_cost_and_lose_the_person(scope, subject, erase_all):
    before = list(ModelCall.objects.order_by("id").values_list("id", "run_id", "model", "input_tokens", "output_tokens", "cost"))
    assert before

    erase_all()

    assert list(ModelCall.objects.order_by("id").values_list("id", "run_id", "model", "input_tokens", "output_tokens", "cost")) == before
    assert set(ModelCall.objects.values_list("subject_id", flat=True)) == {None}
    assert list(ModelCall.objects.values_list("context", flat=True)) == [[]] * len(before)
    run = Run.objects.get(cost=Decimal("0.25"))
    assert (run.status, run.subject_id, run.session_id, run.metadata, run.started_by, run.actor_ref) == (
        "completed", None, None, {}, "", "",
    )  # fmt: skip


def test_no_table_holds_the_persons_words_afterwards(scope, subject, erase_all):
    assert {"agent_sessions_item", "agent_sessions_session", "agent_sessions_run"} <= set(tables_with(subject.id.hex))

    erase_all()

    sessions_own = [table for table in tables_with(subject.id.hex) if table.startswith("agent_sessions_")]
    assert sessions_own == []


def test_limits_get_back_what_an_erased_run_held(agent, subject, tenant, lethe, erase_all):
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="month", limit=50, by=lethe)
    neighbour = people.subject(tenant)
    for person in (subject, subject, neighbour):
        run = made.run(agent, subject=person, status=Run.Status.RUNNING)
        quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=person.id, run_id=run.id)
    before = QuotaCounter.objects.get(quota=quota).reserved

    erase_all()

    assert (before, QuotaCounter.objects.get(quota=quota).reserved) == (3, 1)
    assert list(QuotaReservation.objects.values_list("subject_id", flat=True)) == [neighbour.id]


def test_attachments_are_exported_with_their_bytes(scope, agent, subject):
    made.blob(made.session(agent, subject), b"\x89PNG\r\n\x1a\n...", name="face.png")

    files = {file.name: file.data for file in registry.get("blobs").files(scope=scope)}

    assert files["face.png"] == b"\x89PNG\r\n\x1a\n..."
    assert all("data" not in row for row in registry.get("blobs").export(scope=scope))


def test_exported_rows_are_json_and_name_nobody_else(scope, neighbours):
    for category in CATEGORIES:
        text = json.dumps(list(category.export(scope=scope)))
        assert [other.id.hex for other in neighbours if other.id.hex in text] == []


# The whole way, through governance


@pytest.mark.django_db(transaction=True)
def test_erasure_from_preview_to_receipt(scope, subject, neighbours, agent, tenant):
    before = kept_of(neighbours)
    officer = people.actor(tenant, "privacy_officer")
    request, token = previews.preview(subject=subject, kind="erase", by=officer)
    shown = {entry["key"]: entry["rows"] for entry in previews.describe(request=request)["categories"]}

    requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=officer)
    request = erasure.work(request_id=request.id)

    assert (request.state, request.drift, request.failure) == (SubjectRequest.State.COMPLETED, None, None)
    receipt = {entry["key"]: entry for entry in request.receipt["categories"]}
    done = {key: receipt[key]["erased"] + receipt[key]["anonymised"] for key in KEYS}
    # The run had ended, so its share of the limits was settled before the fence.
    assert (done.pop("quota_reservations"), receipt["quota_reservations"]["already_absent"]) == (0, 1)
    assert done == {key: shown[key] for key in KEYS if key != "quota_reservations"}
    assert Subject.objects.get(id=subject.id).state == "erased"
    assert kept_of(neighbours) == before


@pytest.mark.django_db(transaction=True)
def test_erasure_stops_what_runs_and_shows_what_changed(scope, subject, agent, tenant, lethe, settings):
    """A run that waits for a person ends before the fence; its end is a change that has to be shown again."""
    waiting = made.run(session=made.session(agent, subject), status=Run.Status.AWAITING_APPROVAL)
    made.approval(waiting)
    officer = people.actor(tenant, "privacy_officer")
    request, token = previews.preview(subject=subject, kind="erase", by=officer)

    requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=officer)
    request = erasure.work(request_id=request.id)

    assert request.state == SubjectRequest.State.PREVIEWED
    assert {entry["key"] for entry in request.drift["categories"]} >= {"approvals", "runs", "run_events"}
    assert Run.objects.get(id=waiting.id).status == "cancelled"

    request, token = previews.preview(subject=subject, kind="erase", by=officer)
    requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=officer)
    assert erasure.work(request_id=request.id).state == SubjectRequest.State.COMPLETED


@pytest.mark.django_db(transaction=True)
def test_a_fenced_subject_takes_no_row_of_any_kind(scope, subject, agent, lethe):
    session = Session.objects.filter(subject=subject).first()
    run = Run.objects.filter(session=session).first()
    quota = Quota.objects.get(subject_id=subject.id)
    before = rows_of("subject_id", subject.id)
    fences.open_fence(subject=subject, mode="restrict", by=lethe)

    for write in (
        lambda: made.session(agent, subject),
        lambda: made.run(agent, subject=subject),
        lambda: made.approval(run),
        lambda: made.rule(agent, session),
        lambda: made.event(run, 99),
        lambda: made.model_call(run, 99),
        lambda: made.blob(session),
        lambda: made.idempotency_record(run),
        lambda: Item.objects.filter(session=session).update(is_hidden=True),
        lambda: Item.objects.filter(session=session).delete(),
        lambda: Quota.objects.filter(id=quota.id).update(limit=1),
        lambda: QuotaCounter.objects.filter(subject_id=subject.id).update(used=1),
        lambda: QuotaReservation.objects.filter(subject_id=subject.id).delete(),
    ):
        with pytest.raises(Exception, match="fence is open") as caught, transaction.atomic():
            write()
        assert fences.translate(caught.value) is not None

    after = rows_of("subject_id", subject.id)
    assert {table: rows for table, rows in after.items() if table.startswith("agent_sessions")} == {
        table: rows for table, rows in before.items() if table.startswith("agent_sessions")
    }


# Stopping runs


@pytest.mark.django_db(transaction=True)
def test_stop_runs_ends_what_waits_and_gives_its_share_back(agent, subject, tenant, lethe):
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=9, by=lethe)
    session, neighbour = made.session(agent, subject), people.subject(tenant)
    mine = [
        made.run(session=session, status=Run.Status.AWAITING_APPROVAL), made.run(session=session, status=Run.Status.QUEUED),
    ]  # fmt: skip
    other = made.run(agent, subject=neighbour, status=Run.Status.QUEUED)
    approval = made.approval(mine[0])
    for run in (*mine, other):
        quotas.reserve(tenant_id=tenant.id, agent_id=agent.id, actor=lethe, subject_id=run.subject_id, run_id=run.id)

    left = stop_runs(scope=Scope(tenant.id, subject.id), deadline=clock.now() + timedelta(seconds=5))

    assert left == 0
    assert [Run.objects.get(id=run.id).status for run in mine] == ["cancelled", "cancelled"]
    assert (Run.objects.get(id=other.id).status, Approval.objects.get(id=approval.id).status) == ("queued", "withdrawn")
    assert list(QuotaCounter.objects.filter(quota=quota).values_list("used", "reserved")) == [(2, 1)]


@pytest.mark.django_db(transaction=True)
def test_stop_runs_says_what_does_not_stop(agent, subject, tenant):
    stuck = made.run(session=made.session(agent, subject), status=Run.Status.RUNNING)

    left = stop_runs(scope=Scope(tenant.id, subject.id), deadline=clock.now() + timedelta(seconds=0.3))

    assert left == 1
    assert Run.objects.get(id=stuck.id).cancel_requested_at is not None


def test_stop_runs_of_somebody_without_runs_returns_at_once(subject, tenant):
    assert stop_runs(scope=Scope(tenant.id, subject.id), deadline=clock.now()) == 0


# Retention


def old(session, days=100, **values):
    """The session and its runs, as if they had ended so many days ago."""
    then = Now() - timedelta(days=days)
    Session.objects.filter(id=session.id).update(created_at=then, last_active_at=then, ended_at=then, status="closed", **values)
    Run.objects.filter(session=session).update(created_at=then, ended_at=then)
    session.refresh_from_db()
    return session


@pytest.fixture
def retain(tenant):
    """Run a policy now, and return its counts."""

    def run(category="sessions", age_basis="ended", days=30, action="delete", agent=""):
        policy = RetentionPolicy.objects.create(
            tenant=tenant, category=category, age_basis=age_basis, days=days, action=action, agent=agent
        )
        now = clock.now()
        row = RetentionRun.objects.create(
            tenant=tenant, policy=policy, scheduled_for=now, policy_version=policy.version, cutoff=retention_verbs.cutoff_of(policy)
        )
        done = retention_runs.work(run_id=row.id)
        assert (done.state, done.failure) == ("completed", None)
        return done.counts

    return run


def test_retention_may_name_these():
    offered = {category.key: sorted(category.ages) for category in retention_verbs.targets() if category.key in KEYS}

    assert offered == {
        "blobs": ["created"], "approvals": ["created"], "approval_rules": ["created"], "model_calls": ["created"],
        "runs": ["created", "ended"], "sessions": ["created", "ended", "last_activity"],
    }  # fmt: skip


def test_retention_of_sessions_takes_everything_along(retain, agent, subject, neighbours):
    before = kept_of(neighbours)
    old(made.conversation(agent, subject))

    counts = retain()

    assert counts["deleted"] == 1
    for model in (Session, Item, Run, RunEvent, ModelCall, Approval, Blob):
        assert not model.objects.filter(subject_id=subject.id).exists(), model
    assert kept_of(neighbours) == before


def test_retention_leaves_what_is_young_open_or_at_work(retain, agent, tenant):
    young = made.conversation(agent, None)
    leased = old(made.conversation(agent, None), lease_run_id=young.id, lease_expires_at=Now())
    queued = old(made.conversation(agent, None))
    made.run(session=queued, status=Run.Status.QUEUED)
    asked = old(made.conversation(agent, None))
    made.approval(made.run(session=asked, status=Run.Status.AWAITING_APPROVAL))
    fresh_only = old(made.conversation(agent, None))

    counts = retain()

    assert set(Session.objects.values_list("id", flat=True)) == {young.id, leased.id, queued.id, asked.id}
    assert not Session.objects.filter(id=fresh_only.id).exists()
    assert counts["skipped"] == {"active_run": 2, "pending_approval": 1, "null_time": 1}


def test_retention_narrowed_to_one_agent(retain, agent, tenant):
    other = old(made.conversation(made.agent(tenant), None))
    old(made.conversation(agent, None))

    retain(agent=agent.name)

    assert list(Session.objects.all()) == [other]


def test_retention_keeps_what_living_forks_share(retain, agent, subject, lethe, tenant):
    """Parent and first fork are old, the second fork lives: its items and attachments pass through both."""
    parent = made.session(agent, subject)
    [reference] = blobs.store(
        tenant_id=tenant.id, subject_id=subject.id, session=parent,
        attachments=[{"name": "a.txt", "media_type": "text/plain", "data": "aGVsbG8="}],
    )  # fmt: skip
    made.item(parent, content={"text": "Read this", "attachments": [reference]})
    made.turns(parent, 2)
    first = session_verbs.fork(session=parent, key="first", by=lethe)
    made.turns(first, 1)
    second = session_verbs.fork(session=first, key="second", by=lethe)
    made.turns(second, 1)
    parent.refresh_from_db()
    read = [(item.seq, item.content) for item in history.every(session=second)]
    for number, session in enumerate((parent, first)):
        old(session, days=100 - number)

    counts = retain()

    assert counts["deleted"] == 2
    second.refresh_from_db()
    assert [(item.seq, item.content) for item in history.every(session=second)] == read
    assert bytes(blobs.load(session=second, hashes=[reference["sha256"]])[reference["sha256"]].data) == b"hello"
    assert set(Item.objects.values_list("session_id", flat=True)) == {second.id}


def test_retention_of_runs_may_keep_the_totals(retain, agent, subject):
    session = old(made.conversation(agent, subject))
    items = Item.objects.count()

    counts = retain("runs", action="anonymise")

    run = Run.objects.get()
    assert counts["deleted"] == 1
    assert (run.subject_id, run.session_id, run.input_tokens, run.request) == (None, None, 120, {})
    assert list(ModelCall.objects.values_list("subject_id", "input_tokens")) == [(None, 100)]
    assert (RunEvent.objects.count(), Approval.objects.count()) == (0, 0)
    assert (Item.objects.count(), list(Session.objects.all())) == (items, [session])
    assert retain_again(retain)["deleted"] == 0


def retain_again(retain):
    RetentionPolicy.objects.update(enabled=False)
    return retain("runs", action="anonymise")


def test_retention_of_runs_leaves_what_has_not_ended(retain, agent):
    running = made.run(agent, status=Run.Status.RUNNING)
    asked = made.run(agent, status=Run.Status.AWAITING_APPROVAL)
    made.approval(asked)
    Run.objects.update(created_at=Now() - timedelta(days=100))

    counts = retain("runs", age_basis="created")

    assert set(Run.objects.values_list("id", flat=True)) == {running.id, asked.id}
    assert counts["skipped"] == {"active_run": 1, "pending_approval": 1}


def test_retention_of_attachments_leaves_the_conversation(retain, agent, subject):
    session = made.conversation(agent, subject)
    Blob.objects.update(created_at=Now() - timedelta(days=100))
    busy = made.session(agent, subject)
    kept = made.blob(busy)
    made.run(session=busy, status=Run.Status.RUNNING)
    Blob.objects.filter(id=kept.id).update(created_at=Now() - timedelta(days=100))

    retain("blobs", age_basis="created")

    assert list(Blob.objects.all()) == [kept]
    assert session in Session.objects.all()


def test_retention_of_standing_answers_leaves_those_in_force(retain, agent):
    in_force, revoked, expired = (made.rule(agent) for _ in range(3))
    rules = type(in_force).objects
    rules.update(created_at=Now() - timedelta(days=100))
    rules.filter(id=revoked.id).update(revoked_at=Now() - timedelta(days=50))
    rules.filter(id=expired.id).update(expires_at=Now() - timedelta(days=50))

    retain("approval_rules", age_basis="created")

    assert list(rules.all()) == [in_force]


def test_deleting_a_group_by_hand_keeps_shared_items_too(agent, subject, lethe, tenant):
    parent = made.session(agent, subject)
    made.turns(parent, 2)
    fork = session_verbs.fork(session=parent, key="fork", by=lethe)
    parent.refresh_from_db()

    groups.delete(category="sessions", tenant_id=tenant.id, ids=[parent.id])

    fork.refresh_from_db()
    assert [item.seq for item in history.every(session=fork)] == [1, 2, 3, 4]
    assert list(Session.objects.all()) == [fork]


def test_drop_past_ends_old_counters(tenant, lethe):
    quota = quotas.create_quota(tenant_id=tenant.id, scope="tenant", measure="runs", period="day", limit=9, by=lethe)
    today = clock.now().date()
    rows = [
        QuotaCounter.objects.create(tenant_id=tenant.id, quota=quota, ref="r", period_start=today - timedelta(days=days), used=1)
        for days in (0, quotas.KEPT_DAYS - 1, quotas.KEPT_DAYS + 1, quotas.KEPT_DAYS + 2)
    ]
    QuotaReservation.objects.create(tenant_id=tenant.id, counter=rows[3], run_id=quota.id, amount=1)

    assert quotas.drop_past() == 1

    assert set(QuotaCounter.objects.all()) == {rows[0], rows[1], rows[3]}
