from datetime import timedelta
from uuid import UUID

import pytest
from django.db.models import F

from governance import tasks
from governance.domain import clock, erasure, jobs, previews, requests, retention, sweeping
from governance.models import Export, Fence, PlanChunk, RetentionPolicy, RetentionRun, Subject, SubjectRequest
from sessions.models import Session
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared", "archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def sent(monkeypatch):
    """What is handed to Celery, instead of the broker."""
    sent = []
    monkeypatch.setattr(jobs, "enqueue", lambda task, row_id: sent.append((task, row_id)))
    return sent


@pytest.fixture
def confirmed(conversation, subject, officer):
    _, token = previews.preview(subject=subject, by=officer)
    return requests.erase(subject=subject, token=token, confirm="anna", reason="other", by=officer)


def test_sweep_takes_up_requests_that_nobody_holds(confirmed, sent):
    assert sweeping.sweep()["requests"] == 1
    assert sent == [("governance.work_request", confirmed.id)]


@pytest.mark.parametrize(("seconds", "taken"), [(-1, 1), (20, 0)])
def test_sweep_waits_for_a_living_lease(confirmed, sent, seconds, taken):
    SubjectRequest.objects.update(state="executing", lease_until=clock.now() + timedelta(seconds=seconds))

    assert sweeping.sweep()["requests"] == taken


def test_sweep_leaves_what_has_ended_or_waits_for_a_person(confirmed, sent):
    for state in ("previewed", "completed", "cancelled", "awaiting_approval"):
        SubjectRequest.objects.update(state=state)
        assert sweeping.sweep()["requests"] == 0


def test_sweep_fires_retention_once_and_hands_it_out_until_it_runs(records_manager, sent):
    retention.create_policy(
        tenant_id=records_manager.tenant_id, category="sessions", age_basis="ended", days=1, by=records_manager
    )
    RetentionPolicy.objects.update(created_at=F("created_at") - timedelta(days=2))

    assert [sweeping.sweep()["retention"] for _ in range(2)] == [1, 1]
    assert RetentionRun.objects.count() == 1
    assert {task for task, _ in sent} == {"governance.work_retention"}


def test_sweep_lifts_a_fence_that_waited_a_day_for_a_second_look(confirmed, conversation, subject, sent):
    talk.item(conversation)
    erasure.work(request_id=confirmed.id)
    assert sweeping.sweep()["fences"] == 0

    SubjectRequest.objects.update(progress_at=clock.now() - timedelta(hours=25))

    assert sweeping.sweep()["fences"] == 1
    assert not Fence.objects.filter(lifted_at=None).exists()
    assert Subject.objects.get(pk=subject.pk).state == "active"
    assert sweeping.sweep()["fences"] == 0


def test_sweep_lifts_the_fence_of_a_request_that_was_cancelled_by_a_process_that_died(confirmed, conversation, sent):
    talk.item(conversation)
    erasure.work(request_id=confirmed.id)
    SubjectRequest.objects.update(state="cancelled")

    assert sweeping.sweep()["fences"] == 1


def test_sweep_never_lifts_the_fence_of_a_finished_erasure(confirmed, sent):
    erasure.work(request_id=confirmed.id)

    assert sweeping.sweep()["fences"] == 0
    assert Fence.objects.get().lifted_at is None


def test_sweep_forgets_the_rows_of_old_previews(conversation, subject, officer, sent):
    previews.preview(subject=subject, by=officer)
    SubjectRequest.objects.update(token_expires_at=clock.now() - timedelta(hours=23))
    assert sweeping.sweep()["previews"] == 0

    SubjectRequest.objects.update(token_expires_at=clock.now() - timedelta(hours=25))

    assert sweeping.sweep()["previews"] == 1
    assert not PlanChunk.objects.exists()
    assert "samples" not in SubjectRequest.objects.get().preview


def test_tasks_do_the_work_of_their_row(confirmed, conversation, subject, officer, records_manager, sent):
    export = requests.export(subject=subject, by=officer)
    tasks.work_request(str(export.id))
    assert Export.objects.get().request_id == export.id

    talk.item(conversation)
    tasks.work_request(str(confirmed.id))
    assert SubjectRequest.objects.get(pk=confirmed.pk).state == "previewed"

    policy = retention.create_policy(
        tenant_id=records_manager.tenant_id, category="sessions", age_basis="created", days=1, by=records_manager
    )
    run = retention.run_policy(policy=policy, expected_version=1, by=records_manager)
    tasks.work_retention(str(run.id))
    assert RetentionRun.objects.get().state == "completed"
    assert Session.objects.count() == 1


def test_task_for_a_row_that_is_gone_does_nothing(db):
    nobody = str(UUID(int=1))

    assert tasks.work_request(nobody) is None
    assert tasks.work_retention(nobody) is None


def test_tasks_have_the_names_that_beat_and_verbs_use(settings):
    from celery import current_app

    names = {"governance.sweep", "governance.work_request", "governance.work_retention"}
    assert names <= set(current_app.tasks)
    assert settings.CELERY_BEAT_SCHEDULE["sweep-governance"]["task"] == "governance.sweep"


@pytest.mark.django_db(transaction=True)
def test_unreachable_broker_loses_nothing(monkeypatch):
    from kombu.exceptions import OperationalError

    from tests.factories import governance as make

    def fail(*args, **kwargs):
        raise OperationalError("no broker")

    monkeypatch.setattr(jobs.current_app, "send_task", fail)
    tenant = make.tenant("acme")
    subject = make.subject(tenant)

    request = requests.export(subject=subject, by=make.lethe(tenant))

    assert SubjectRequest.objects.get().state == request.state == "executing"
