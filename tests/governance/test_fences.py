"""A fence holds in the database, whoever writes and however."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connection, connections, transaction

from governance.actors import system
from governance.domain import fences, links
from governance.domain.fences import FenceBusy
from governance.errors import Conflict, MissingPermission, NotFound, SubjectFenced
from governance.ids import uuid7
from governance.models import AuditEvent, Fence, Subject, SubjectRequest
from sessions.models import Item, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.owner import as_owner


@pytest.fixture
def fence(subject, officer):
    return fences.restrict(subject=subject, by=officer)


def executing(subject, state="executing", lease_no=3):
    return SubjectRequest.objects.create(
        tenant=subject.tenant, subject=subject, ref=f"SR-{uuid7().hex[:12]}", kind="erase", state=state, lease_no=lease_no
    )


def test_restrict_raises_the_epoch_and_is_audited(subject, officer):
    fence = fences.restrict(subject=subject, by=officer)

    stored = Subject.objects.get(pk=subject.pk)
    assert (stored.epoch, stored.state, fence.mode) == (2, "restricted", "restrict")
    event = AuditEvent.objects.get(action="subject.restricted")
    assert event.payload == {"mode": "restrict", "reason": "other", "request": None, "epoch": 2}


def test_restrict_twice_is_one_fence(subject, officer):
    assert fences.restrict(subject=subject, by=officer) == fences.restrict(subject=subject, by=officer)
    assert Subject.objects.get(pk=subject.pk).epoch == 2


def test_lift_restriction_lets_writes_through_again(conversation, subject, officer):
    fences.restrict(subject=subject, by=officer)

    fences.lift_restriction(subject=subject, by=officer)

    talk.item(conversation)
    stored = Subject.objects.get(pk=subject.pk)
    assert (stored.epoch, stored.state) == (3, "active")
    with pytest.raises(Conflict):
        fences.lift_restriction(subject=subject, by=officer)


def test_suppress_is_never_lifted(fence, officer):
    Fence.objects.update(mode="suppress")
    fence.refresh_from_db()

    with pytest.raises(Conflict):
        fences.lift_fence(fence=fence, by=officer)


def test_another_mode_needs_the_first_to_be_lifted(subject, fence):
    with pytest.raises(Conflict) as caught:
        fences.open_fence(subject=subject, mode="erase", by=system(subject.tenant_id), request=executing(subject))
    assert caught.value.extra == {"mode": "restrict"}


def test_verbs_need_the_role_and_stay_in_the_tenant(tenant, subject, fence, stranger_tenant):
    approver, stranger = make.actor(tenant, "privacy_approver"), make.actor(stranger_tenant, "privacy_officer")

    for verb in (fences.restrict, fences.lift_restriction):
        with pytest.raises(MissingPermission):
            verb(subject=subject, by=approver)
    with pytest.raises(NotFound):
        fences.restrict(subject=subject, by=stranger)
    with pytest.raises(Conflict):
        fences.lift_restriction(subject=subject, by=stranger)
    with pytest.raises(NotFound):
        fences.lift_fence(fence=fence, by=stranger)


def test_check_and_enter_say_it_kindly(subject, fence, tenant):
    other = make.subject(tenant)
    fences.check(subject=other)
    fences.enter(subject_ids=[other.id])

    with pytest.raises(SubjectFenced):
        fences.check(subject=subject)
    with pytest.raises(SubjectFenced):
        fences.enter(subject_ids=[other.id, subject.id])
    fences.enter(subject_ids=[subject.id], restricted=True)


GUARDED = (
    "agent_sessions_session", "agent_sessions_item", "agent_sessions_blob", "agent_sessions_run", "agent_sessions_runevent",
    "agent_sessions_modelcall", "agent_sessions_idempotencyrecord", "agent_sessions_approval", "agent_sessions_approvalrule",
    "governance_subjectidentifier", "governance_apikey",
)  # fmt: skip


@pytest.mark.parametrize("table", GUARDED)
@pytest.mark.parametrize(
    "statement", ["DELETE FROM {table}", "UPDATE {table} SET subject_id = subject_id", "UPDATE {table} SET subject_id = NULL"]
)
def test_guard_refuses_raw_updates_and_deletes_on_every_table(conversation, admin, subject, officer, table, statement):
    from governance.domain import keys

    keys.create_key(tenant_id=subject.tenant_id, name="k", scopes=["runs:write"], subject="anna", by=admin)
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told(), connection.cursor() as cursor:
        cursor.execute(f"{statement} WHERE subject_id = %s".format(table=table), [subject.id])


@pytest.mark.parametrize("table", GUARDED)
def test_guard_refuses_raw_inserts_on_every_table(conversation, admin, subject, officer, table):
    from governance.domain import keys

    keys.create_key(tenant_id=subject.tenant_id, name="k", scopes=["runs:write"], subject="anna", by=admin)
    fences.restrict(subject=subject, by=officer)

    # The trigger runs before any constraint is looked at, so a copy of a row will do.
    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE subject_id = %s", [subject.id])


def test_guard_refuses_moving_a_row_to_a_fenced_subject(agent, subject, fence):
    run = talk.run(agent)

    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        Run.objects.filter(pk=run.pk).update(subject_id=subject.id)


def test_guard_lets_others_and_rows_without_a_subject_pass(agent, tenant, fence):
    talk.conversation(agent, make.subject(tenant, "bert"))
    talk.conversation(agent, None)

    assert Session.objects.count() == 2


def test_guard_lets_a_restricted_subjects_key_be_used_and_revoked(tenant, admin, officer, subject):
    from governance.domain import keys

    key, secret = keys.create_key(tenant_id=tenant.id, name="k", scopes=["runs:write"], subject="anna", by=admin)
    fences.restrict(subject=subject, by=officer)

    assert keys.authenticate(secret=secret).subject_id == subject.id
    keys.revoke_key(key=key, by=admin)


@pytest.mark.parametrize("state", ["fencing", "executing", "verifying"])
def test_executor_passes_the_fence_of_its_request(conversation, subject, state):
    request = executing(subject, state)
    fences.open_fence(subject=subject, mode="erase", by=system(subject.tenant_id), request=request)

    with transaction.atomic(), fences.executor(request_id=request.id, lease_no=3):
        Item.objects.filter(session=conversation).delete()

    assert not Item.objects.filter(session=conversation).exists()
    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        talk.item(conversation)


@pytest.mark.parametrize(
    ("state", "lease_no", "own"),
    [("executing", 2, True), ("executing", 3, False), ("previewed", 3, True), ("completed", 3, True)],
    ids=["lease lost", "another request", "not claimed", "ended"],
)
def test_executor_of_anything_else_is_refused(conversation, subject, state, lease_no, own):
    request = executing(subject, state)
    fences.open_fence(subject=subject, mode="erase", by=system(subject.tenant_id), request=request)
    other = executing(subject)

    with (
        pytest.raises(SubjectFenced),
        transaction.atomic(),
        fences.executor(request_id=request.id if own else other.id, lease_no=lease_no),
        fences.told(),
    ):
        Item.objects.filter(session=conversation).delete()
    assert Item.objects.filter(session=conversation).count() == 4


def test_translate_knows_only_its_own_refusal(conversation, fence):
    with pytest.raises(DatabaseError) as refusal, transaction.atomic():
        talk.item(conversation)
    with pytest.raises(DatabaseError) as other, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")

    assert isinstance(fences.translate(refusal.value), SubjectFenced)
    assert fences.translate(other.value) is None
    with pytest.raises(DatabaseError, match="division"), transaction.atomic(), fences.told(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@pytest.mark.django_db(transaction=True)
def test_guard_demands_read_committed():
    tenant = make.tenant("acme")
    agent = talk.agent(tenant)
    subject = make.subject(tenant)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        talk.run(agent)
        with pytest.raises(DatabaseError) as caught:
            talk.run(agent, subject=subject)
        transaction.set_rollback(True)
    assert caught.value.__cause__.sqlstate == "LE003"


@pytest.mark.django_db(transaction=True)
def test_flush_between_tests_is_not_refused():
    """pytest empties the tables by TRUNCATE after each transactional test, fences or not."""
    tenant = make.tenant("acme")
    subject = make.subject(tenant)
    talk.conversation(talk.agent(tenant), subject)
    fences.open_fence(subject=subject, mode="restrict", by=system(tenant.id))

    as_owner("TRUNCATE agent_sessions_session, governance_subject CASCADE")

    assert not Session.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_open_fence_waits_for_a_writer_and_sees_its_row():
    tenant = make.tenant("acme")
    agent, subject = talk.agent(tenant), make.subject(tenant)
    wrote, order = threading.Event(), []

    def write():
        with transaction.atomic():
            talk.session(agent, subject)
            wrote.set()
            time.sleep(0.4)
            order.append("committed")
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        wrote.wait()
        fences.open_fence(subject=subject, mode="restrict", by=system(tenant.id))
        order.append("fenced")
        writing.result()

    assert order == ["committed", "fenced"]
    assert Session.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_open_fence_gives_up_when_a_writer_stays(monkeypatch):
    monkeypatch.setattr(fences, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(fences, "ATTEMPTS", 2)
    tenant = make.tenant("acme")
    agent, subject = talk.agent(tenant), make.subject(tenant)
    wrote, done = threading.Event(), threading.Event()

    def write():
        with transaction.atomic():
            talk.session(agent, subject)
            wrote.set()
            done.wait()
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        wrote.wait()
        try:
            with pytest.raises(FenceBusy):
                fences.open_fence(subject=subject, mode="restrict", by=system(tenant.id))
        finally:
            done.set()
        writing.result()

    assert not Fence.objects.exists()
    assert Subject.objects.get(pk=subject.pk).epoch == 1


@pytest.mark.parametrize("trials", [50, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
@pytest.mark.django_db(transaction=True)
def test_no_writer_ever_adds_a_row_behind_the_eraser(trials):
    """Four writers against one eraser, with random pauses. Every row is erased or refused."""
    tenant = make.tenant("acme")
    agent = talk.agent(tenant)
    by = system(tenant.id)
    left, refused = [], 0

    def write(subject, stop, seed):
        """Rows by ORM and by SQL until the fence says no. Returns how long the refusal took."""
        pause = random.Random(seed)
        try:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    with transaction.atomic(), fences.told():
                        time.sleep(pause.random() * 0.002)
                        if pause.random() < 0.5:
                            talk.session(agent, subject)
                        else:
                            with connection.cursor() as cursor:
                                cursor.execute(_RAW, [uuid7(), tenant.id, agent.id, subject.id, uuid7().hex])
                        time.sleep(pause.random() * 0.002)
                except SubjectFenced:
                    return time.monotonic() - began
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for trial in range(trials):
            subject, stop = make.subject(tenant), threading.Event()
            writers = [pool.submit(write, subject, stop, trial * 10 + number) for number in range(4)]
            time.sleep(random.Random(trial).random() * 0.02)
            request = executing(subject, "executing")
            fences.open_fence(subject=subject, mode="erase", by=by, request=request)
            with transaction.atomic(), fences.executor(request_id=request.id, lease_no=3):
                Session.objects.filter(subject=subject).delete()
            waits = [writer.result(timeout=30) for writer in writers]
            stop.set()
            refused += len(waits)
            assert max(waits) < 1
            left.append(Session.objects.filter(subject=subject).count())

    assert left == [0] * trials
    assert refused == 4 * trials


_RAW = """
INSERT INTO agent_sessions_session
    (id, tenant_id, agent_id, subject_id, key, title, labels, status, version, head_seq, turns, shared, state, task, task_version)
VALUES (%s, %s, %s, %s, %s, '', '{}', 'open', 0, 0, 0, '[]', '{}', '{}', 0)
"""


@pytest.mark.django_db(transaction=True)
def test_transaction_that_entered_before_a_savepoint_was_rolled_back_enters_again():
    """The lock goes with the savepoint, and so does the memory of having it."""
    tenant = make.tenant("acme")
    agent, subject = talk.agent(tenant), make.subject(tenant)
    by = system(tenant.id)

    def fence():
        try:
            fences.open_fence(subject=subject, mode="restrict", by=by)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        with transaction.atomic():
            talk.session(agent, subject)
            transaction.set_rollback(True)
        pool.submit(fence).result(timeout=30)
        with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
            talk.session(agent, subject)

    assert not Session.objects.exists()


def test_transaction_that_fences_what_it_wrote_for_is_refused_afterwards(conversation, subject, officer):
    talk.item(conversation)

    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        talk.item(conversation)


def test_restricted_person_may_be_mentioned_and_nothing_else(subject, officer):
    fences.restrict(subject=subject, by=officer)

    made = links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="items", row_id="x:1", role="mentioned")

    assert made.role == "mentioned"
    for role in ("author", "recipient", "operator"):
        with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
            links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="items", row_id="x:1", role=role)


def test_person_who_is_being_erased_is_not_mentioned_any_more(subject, officer):
    fences.open_fence(subject=subject, mode="erase", by=officer, request=executing(subject))

    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="items", row_id="x:1", role="mentioned")
