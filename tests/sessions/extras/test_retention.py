"""Retention of sessions and what hangs from them: what goes, what stays and why."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from governance.domain import clock, groups, retention_runs
from governance.domain import retention as retention_verbs
from governance.models import RetentionPolicy, RetentionRun
from sessions.categories import CATEGORIES
from sessions.domain import blobs, history
from sessions.domain import sessions as session_verbs
from sessions.models import Approval, Blob, Item, ModelCall, Run, RunEvent, Session
from tests.factories import sessions as made
from tests.sessions.extras.conftest import kept_of

pytestmark = pytest.mark.django_db
KEYS = [category.key for category in CATEGORIES]


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
            tenant=tenant, category=category, age_basis=age_basis, days=days, action=action, agent=agent,
            approved_version=1,
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
        "agent_files": ["created", "last_activity"],
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
