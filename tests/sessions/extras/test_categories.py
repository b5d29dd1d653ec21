"""What sessions keep about a person: counted, exported, erased and verified, and nobody else touched."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.apps import apps
from django.db import connection, transaction

from governance.domain import clock, erasure, fences, previews, registry, requests
from governance.domain.registry import Scope
from governance.models import Subject, SubjectRequest
from governance.waivers import waivers
from sessions.categories import CATEGORIES, stop_runs
from sessions.domain import blobs, quotas
from sessions.models import (
    Approval,
    Blob,
    Item,
    ModelCall,
    Quota,
    QuotaCounter,
    QuotaReservation,
    Run,
    Session,
)
from tests.factories import governance as people
from tests.factories import sessions as made
from tests.governance.snapshots import rows_of, tables_with
from tests.sessions.extras.conftest import fill, kept_of

pytestmark = pytest.mark.django_db
KEYS = [category.key for category in CATEGORIES]


@pytest.fixture
def scope(agent, subject, lethe):
    fill(agent, subject, lethe)
    return Scope(subject.tenant_id, subject.id)


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
    made.agent_file(agent, subject)
    made.aggregation(session)
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
