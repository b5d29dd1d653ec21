"""What a retention policy has ended is not read, before its run gets there: one predicate for reads, previews and runs."""

from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance import ids
from governance.domain import expiry, fences, groups, holds, registry, retention, retention_runs
from governance.domain.recent import OVER
from governance.errors import NotFound
from governance.models import RetentionPolicy
from sessions import queries
from sessions.domain import aggregations, blobs
from sessions.domain import sessions as verbs
from sessions.errors import FileUnknown
from sessions.files import stores
from sessions.files.rows import Shelf, Writer
from sessions.models import AgentFile, Approval, ApprovalRule, Blob, ModelCall, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk

DAYS = 30
NEAR = timedelta(hours=1)


@pytest.fixture
def keeper(tenant):
    return make.actor(tenant, "records_manager", "tenant_admin")


@pytest.fixture
def policy(tenant):
    """`policy("sessions", "ended")`: past its trial, and approved."""

    def create(category, age_basis, days=DAYS, **values):
        made = RetentionPolicy.objects.create(
            tenant=tenant, category=category, age_basis=age_basis, days=days, **{"approved_version": 1, **values}
        )
        OVER.forget(tenant.id)
        return made

    return create


def aged(row, column, *, is_over):
    """The row with a time an hour past the cut-off, or an hour before it comes."""
    at = timezone.now() - timedelta(days=DAYS) + (-NEAR if is_over else NEAR)
    type(row)._default_manager.filter(pk=row.pk).update(**{column: at})
    return row


def found_by(find, **where):
    try:
        return find(**where)
    except (NotFound, FileUnknown):
        return None


def session_reads(session):
    tenant_id = session.tenant_id
    return {
        "list": session in queries.sessions_of(tenant_id),
        "search": session in queries.sessions_of(tenant_id, q=session.key),
        "by id": found_by(queries.session_by, tenant_id=tenant_id, ref=ids.shown("ses", session.id)) is not None,
        "by key": found_by(queries.session_by, tenant_id=tenant_id, ref=session.key, agent=session.agent.name) is not None,
    }


def run_reads(run):
    return {
        "list": run in queries.runs_of(run.tenant_id),
        "by id": found_by(queries.run_by, tenant_id=run.tenant_id, ref=ids.shown("run", run.id)) is not None,
    }


def approval_reads(approval):
    return {
        "list": approval in queries.approvals_of(approval.tenant_id),
        "by id": found_by(queries.approval_by, tenant_id=approval.tenant_id, ref=ids.shown("apr", approval.id)) is not None,
    }


def rule_reads(rule):
    return {"by id": found_by(queries.rule_by, tenant_id=rule.tenant_id, ref=ids.shown("rul", rule.id)) is not None}


def file_reads(file):
    files = stores.open_files(Shelf(file.tenant_id, file.agent_id, file.subject_id), Writer("tests"))
    return {
        "list": file in queries.agent_files_of(file.tenant_id),
        "search": file in queries.agent_files_of(file.tenant_id, words="text"),
        "by id": found_by(queries.agent_file_by, tenant_id=file.tenant_id, ref=ids.shown("fil", file.id)) is not None,
        "agent reads": files.read(file.path) is not None,
        "agent lists": file.path[1:] in files.list("/"),
        "agent looks": files.exists(file.path),
        "agent searches": file.path in dict(files.matching("text", folder="/", limit=10, most=10**6)),
        "agent reads all": file.path in dict(files.texts("/", 10**6)),
    }


def call_reads(call):
    return {"of its run": call in queries.calls_of(call.run)}


def blob_reads(blob):
    return {"loaded": blob.sha256 in blobs.load(session=blob.session, hashes=[blob.sha256])}



MADE = {
    "sessions": (lambda agent: talk.conversation(agent, None), session_reads),
    "runs": (lambda agent: talk.run(agent), run_reads),
    "approvals": (lambda agent: talk.approval(talk.run(agent), status=Approval.Status.APPROVED), approval_reads),
    "approval_rules": (lambda agent: talk.rule(agent, revoked_at=timezone.now()), rule_reads),
    "agent_files": (lambda agent: talk.agent_file(agent, None), file_reads),
    "model_calls": (lambda agent: talk.model_call(talk.run(agent)), call_reads),
    "blobs": (lambda agent: talk.blob(talk.session(agent)), blob_reads),
}
CLOCKS = [
    (category.key, basis, column)
    for category in retention.targets()
    for basis, column in category.ages.items()
    # Read by a command only: see tests/governance/test_archiving.py.
    if category.key != "archived_rows"
]


@pytest.mark.parametrize(("category", "basis", "column"), CLOCKS)
def test_row_past_the_cut_off_is_in_no_read_and_one_before_it_in_each(agent, policy, category, basis, column):
    create, reads = MADE[category]
    old, young = aged(create(agent), column, is_over=True), aged(create(agent), column, is_over=False)
    assert set(reads(old).values()) == set(reads(young).values()) == {True}

    policy(category, basis)

    assert set(reads(old).values()) == {False}
    assert set(reads(young).values()) == {True}


@pytest.mark.parametrize(("category", "basis", "column"), CLOCKS)
def test_what_is_not_read_is_what_the_run_takes(agent, policy, keeper, category, basis, column):
    create, _ = MADE[category]
    model = registry.get(category).model
    rows = [aged(create(agent), column, is_over=is_over) for is_over in (True, False, True)]
    made = policy(category, basis)
    gone = {row.pk for row in expiry.over(model._default_manager.all(), tenant_id=agent.tenant_id)}
    assert gone == {rows[0].pk, rows[2].pk}

    retention_runs.work(run_id=retention.run_policy(policy=made, expected_version=1, by=keeper).id)

    assert {row.pk for row in rows} - set(model._default_manager.values_list("pk", flat=True)) == gone


def shown_of(session):
    """What the reads of all that belongs to the session say: shown, or not."""
    run = Run.objects.get(session=session)
    parts = [
        run_reads(run),
        approval_reads(Approval.objects.get(session=session)),
        rule_reads(ApprovalRule.objects.get(session=session)),
        call_reads(ModelCall.objects.get(run=run)),
        blob_reads(Blob.objects.get(session=session)),
    ]
    return {shown for part in parts for shown in part.values()}


def test_session_takes_along_what_belongs_to_it(agent, policy):
    session = talk.conversation(agent, None)
    assert shown_of(session) == {True}
    ApprovalRule.objects.filter(session=session).update(revoked_at=timezone.now())
    aged(session, "last_active_at", is_over=True)

    policy("sessions", "last_activity")

    assert shown_of(session) == {False}


# -- what stays


def over(session):
    return expiry.is_over(session)


@pytest.fixture
def old(agent, subject):
    return aged(talk.conversation(agent, subject), "last_active_at", is_over=True)


@pytest.fixture
def stale(old):
    old.refresh_from_db()
    return old


@pytest.mark.django_db(transaction=True)
def test_held_session_is_read_on(tenant, stale, subject, policy, keeper):
    policy("sessions", "last_activity")
    assert over(stale)

    hold = holds.place(target=holds.Target(scope="subject", subject=subject), matter="M-1", reason="audit", by=keeper)

    assert not over(stale)
    assert set(session_reads(stale).values()) == {True}
    holds.release(hold=hold, by=make.actor(tenant, "records_manager", username="second"))
    assert over(stale)


@pytest.mark.parametrize("scope", ["session", "agent", "category"])
@pytest.mark.django_db(transaction=True)
def test_run_of_a_held_session_is_read_on(tenant, stale, agent, policy, keeper, scope):
    run = Run.objects.get(session=stale)
    policy("sessions", "last_activity")
    assert set(run_reads(run).values()) == {False}
    target = {"session": {"session_id": stale.id}, "agent": {"agent_id": agent.id, "agent_name": agent.name}, "category": {"category": "runs"}}

    holds.place(target=holds.Target(scope=scope, **target[scope]), matter="M-1", reason="audit", by=keeper)

    assert set(run_reads(run).values()) == {True}


def test_session_of_a_restricted_subject_is_read_on(tenant, stale, subject, policy):
    policy("sessions", "last_activity")
    fences.restrict(subject=subject, by=make.actor(tenant, "privacy_officer"))

    assert not over(stale)


def test_session_with_a_waiting_approval_is_read_on(stale, policy):
    policy("sessions", "last_activity")
    talk.approval(Run.objects.get(session=stale))

    assert not over(stale)


def test_newest_sessions_that_a_policy_leaves_are_read_on(agent, subject, policy):
    newest, older = (aged(talk.session(agent, subject), "last_active_at", is_over=True) for _ in range(2))
    Session.objects.filter(id=newest.id).update(last_active_at=timezone.now() - timedelta(days=DAYS, hours=1))
    Session.objects.filter(id=older.id).update(last_active_at=timezone.now() - timedelta(days=DAYS, hours=2))
    policy("sessions", "last_activity", min_keep=1)

    assert list(queries.sessions_of(agent.tenant_id)) == [newest]


@pytest.mark.parametrize("values", [{"enabled": False}, {"dry_run_until": timezone.now() + timedelta(days=1)}, {"approved_version": None}])
def test_policy_that_may_not_delete_hides_nothing(stale, policy, values):
    policy("sessions", "last_activity", **values)

    assert not over(stale)


def test_small_policy_needs_no_second_person_to_hide(agent, stale, policy):
    for _ in range(9):
        talk.session(agent)

    policy("sessions", "last_activity", approved_version=None)

    assert over(stale)


def test_policy_of_one_agent_comes_before_the_general_one(tenant, agent, stale, policy):
    policy("sessions", "last_activity")
    policy("sessions", "last_activity", days=DAYS * 2, agent=agent.name)

    assert not over(stale)


def test_policy_of_another_tenant_hides_nothing(stale):
    RetentionPolicy.objects.create(tenant=make.tenant("other"), category="sessions", age_basis="last_activity", days=1, approved_version=1)

    assert not over(stale)


def test_anonymised_run_is_read_again(agent, policy, keeper):
    run = aged(talk.run(agent, metadata={"who": "ada"}), "ended_at", is_over=True)
    made = policy("runs", "ended", action="anonymise")
    assert set(run_reads(run).values()) == {False}

    retention_runs.work(run_id=retention.run_policy(policy=made, expected_version=1, by=keeper).id)

    OVER.forget(agent.tenant_id)
    assert set(run_reads(run).values()) == {True}


def test_fork_keeps_what_it_shares_with_an_ended_session(agent, stale, policy, actor):
    fork = verbs.fork(session=stale, key="fork", by=actor)
    policy("sessions", "last_activity")

    assert list(queries.sessions_of(agent.tenant_id)) == [fork]
    assert expiry.is_over(stale)


def test_file_made_of_an_ended_session_is_not_read(agent, stale, policy):
    made = talk.aggregation(stale)
    hidden = partial(aggregations.hidden_files, agent.tenant_id)
    assert list(hidden()) == []

    policy("sessions", "last_activity")

    assert [row["file_id"] for row in hidden()] == [made.file_id]


# -- who writes there


@pytest.mark.django_db(transaction=True)
def test_turn_on_the_key_of_an_ended_session_starts_anew(say, policy, keeper):
    say("Remember the blue door.")
    first = aged(Session.objects.get(key="case-1"), "last_active_at", is_over=True)
    made = policy("sessions", "last_activity")

    run = say("What did I say?")

    fresh = Session.objects.get(key="case-1")
    assert (run.session_id, run.status, fresh.turns) == (fresh.id, Run.Status.COMPLETED, 1)
    assert fresh.id != first.id
    # It waits for the run of its policy under another key, with all that is in it.
    first.refresh_from_db()
    assert (first.key, first.turns) == (f"case-1~{first.id.hex}", 1)
    retention_runs.work(run_id=retention.run_policy(policy=made, expected_version=1, by=keeper).id)
    assert [session.id for session in Session.objects.all()] == [fresh.id]


def test_long_key_of_an_ended_session_has_room_for_its_mark(agent, actor, policy):
    session = aged(talk.session(agent, None, "k" * 200), "last_active_at", is_over=True)
    policy("sessions", "last_activity")

    fresh, is_new = verbs.get_or_create(agent=agent, key="k" * 200, subject=None, by=actor)

    session.refresh_from_db()
    assert (is_new, fresh.id != session.id, len(session.key)) == (True, True, 200)


@pytest.mark.django_db(transaction=True)
def test_turn_on_a_young_session_asks_nothing_more(say, policy):
    policy("sessions", "last_activity")
    for _ in range(2):
        say("Tell me something.")
    session = Session.objects.get(key="case-1")

    with CaptureQueriesContext(connection) as asked:
        assert not expiry.is_over(session)

    assert len(asked) == 0


def test_file_written_over_an_ended_one_is_a_new_file(agent, policy):
    old = aged(talk.agent_file(agent, None, "/plan.md"), "created_at", is_over=True)
    policy("agent_files", "created")
    files = stores.open_files(Shelf(agent.tenant_id, agent.id), Writer("tests"))

    files.write("/plan.md", "anew", "")

    assert files.read("/plan.md") == "anew"
    assert files.list("/") == ["plan.md"]
    old.refresh_from_db()
    assert old.path == f"/plan.md~{old.id}"
    assert AgentFile.objects.count() == 2


def test_ended_file_is_not_deleted_by_its_name(agent, policy):
    file = aged(talk.agent_file(agent, None, "/plan.md"), "created_at", is_over=True)
    policy("agent_files", "created")

    assert stores.open_files(Shelf(agent.tenant_id, agent.id), Writer("tests")).delete("/plan.md") is False
    with suppress(FileUnknown):
        stores.open_files(Shelf(agent.tenant_id, agent.id), Writer("tests")).read_version("/plan.md")
    assert AgentFile.objects.filter(id=file.id).exists()


# -- what it costs


def test_tenant_without_policies_asks_as_before(agent, django_assert_num_queries):
    plain = Session.objects.filter(tenant_id=agent.tenant_id)
    expiry.left(plain, tenant_id=agent.tenant_id)

    with django_assert_num_queries(0):
        assert str(expiry.left(plain, tenant_id=agent.tenant_id).query) == str(plain.query)


def test_policies_are_read_once_in_a_while(agent, policy, django_assert_num_queries):
    policy("sessions", "last_activity")
    policy("runs", "ended")
    list(queries.sessions_of(agent.tenant_id))

    with django_assert_num_queries(2):
        list(queries.sessions_of(agent.tenant_id))
        list(queries.runs_of(agent.tenant_id))


def test_change_of_a_policy_is_known_at_once(agent, stale, keeper):
    assert not over(stale)
    made = retention.create_policy(tenant_id=agent.tenant_id, category="sessions", age_basis="last_activity", days=DAYS, by=keeper)
    RetentionPolicy.objects.update(dry_run_until=None)
    retention.approve_policy(policy=made, expected_version=1, by=make.actor(agent.tenant, "tenant_admin", username="second"))
    assert over(stale)

    retention.update_policy(policy=made, expected_version=1, days=DAYS * 2, by=keeper)

    assert not over(stale)
    groups.delete(category="sessions", tenant_id=agent.tenant_id, ids=[stale.id])
