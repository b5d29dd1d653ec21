"""What a hold covers is kept by the database, whoever deletes or changes it and however."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connection, connections, transaction

from governance.domain import coverage, fences, holds, keys, registry
from governance.domain.holds import Target
from governance.errors import Held, SubjectFenced
from governance.models import AuditNote, HeldCopy, Hold, SubjectLink
from sessions.models import Item, Quota, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.owner import as_owner

HELD_TABLES = {
    category.model._meta.db_table: category
    for category in registry.categories().values()
    if category.on_hold != "exempt" and category.key != "held_copies"
}
CONTENT = {
    "agent_sessions_item": "content = '{}'",
    "agent_sessions_blob": "data = ''",
    "agent_sessions_run": "labels = '{}', output = NULL",
    "agent_sessions_runevent": "data = '{}'",
    "agent_sessions_modelcall": "model = 'other'",
    "agent_sessions_approval": "arguments = '{}'",
    "agent_sessions_approvalrule": "tool = 'other'",
    "agent_sessions_idempotencyrecord": "key = 'other'",
    "governance_archivedpart": "path = 'other'",
    "governance_auditnote": "text_enc = ''",
    "governance_subjectlink": "row_id = 'other'",
    "governance_apikey": "name = 'other'",
    "governance_subjectidentifier": "value_enc = ''",
}


@pytest.fixture
def full(agent, subject, admin):
    """A row of the subject in every table that a hold may cover."""
    session = talk.conversation(agent, subject, title="Order 7", labels=["a"])
    talk.agent_file(agent, subject)
    Run.objects.update(output={"text": "yes"}, labels=["a"])
    keys.create_key(tenant_id=agent.tenant_id, name="k", scopes=["runs:write"], subject="anna", by=admin)
    SubjectLink.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, category="items", row_id=f"{session.id}:1", role="mentioned"
    )
    AuditNote.objects.create(tenant=agent.tenant, subject=subject, kind="refusal", text_enc=b"sealed", written_by="officer")
    Quota.objects.create(
        tenant=agent.tenant, scope="subject", scope_ref=subject.id.hex, subject_id=subject.id, measure="runs", period="day", limit=5
    )
    make.archived(agent.tenant, session.id)
    return session


@pytest.fixture
def hold(full, subject, records_manager):
    return place(Target("subject", subject=subject), records_manager)


def place(target, by, matter="M-17", **values) -> Hold:
    return holds.place(target=target, matter=matter, reason="litigation", by=by, **values)


def refused(statement, values=()) -> bool:
    """Whether the database refuses the statement because of a hold. Nothing stays changed."""
    try:
        with transaction.atomic():
            with fences.told(), connection.cursor() as cursor:
                cursor.execute(statement, values)
            transaction.set_rollback(True)
    except Held:
        return True
    return False


@pytest.mark.parametrize("table", HELD_TABLES)
def test_raw_delete_of_a_held_row_is_refused_on_every_table(hold, subject, table):
    assert refused(f"DELETE FROM {table} WHERE subject_id = %s", [subject.id])


@pytest.mark.parametrize("table", CONTENT)
def test_raw_change_of_a_held_rows_content_is_refused(hold, subject, table):
    assert refused(f"UPDATE {table} SET {CONTENT[table]} WHERE subject_id = %s", [subject.id])


@pytest.mark.parametrize("table", HELD_TABLES)
def test_held_row_cannot_be_moved_or_anonymised(hold, subject, table):
    assert refused(f"UPDATE {table} SET subject_id = NULL WHERE subject_id = %s", [subject.id])


@pytest.mark.parametrize("table", [category.model._meta.db_table for category in registry.categories().values()])
def test_personal_tables_refuse_truncate(db, table):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lethe.truncate = ''")
        with pytest.raises(DatabaseError) as caught:
            as_owner(f"TRUNCATE {table} CASCADE")
        transaction.set_rollback(True)
    assert caught.value.__cause__.sqlstate == "LE004"


def test_every_scope_refuses_exactly_what_the_planner_counts(full, agent, subject, tenant, records_manager):
    """The guard, row by row, and the conditions that planning uses are two readings of one rule."""
    other_agent, neighbour = talk.agent(tenant), make.subject(tenant, "bert")
    talk.conversation(other_agent, subject)
    talk.conversation(agent, neighbour)
    talk.event(talk.run(agent, subject=subject))
    session = Session.objects.filter(subject=subject, agent=agent).get()
    run = Run.objects.get(session=None)
    targets = {
        "subject": Target("subject", subject=subject),
        "session": Target("session", session_id=session.id),
        "agent": Target("agent", agent_id=agent.id, agent_name=agent.name),
        "category": Target("category", category="items"),
        "category alone": Target("category", category="api_keys"),
        "query": Target("query", query={"category": "runs", "ids": [run.id]}),
        "query in a group": Target("query", query={"category": "approvals", "agent": other_agent.name}),
    }
    for name, target in targets.items():
        hold = place(target, records_manager)

        found = {}
        for category in registry.categories().values():
            part = coverage.covered(category, hold)
            for key in _keys(category):
                is_planned = part is not None and _meets(category, key, part)
                found.setdefault(category.key, set()).add(is_planned)
                assert refused(f"DELETE FROM {category.table} t WHERE {key}") == is_planned, (name, category.key, key)

        # Each hold covers something and leaves something.
        assert set().union(*found.values()) == {True, False}, name
        Hold.objects.update(released_at=hold.placed_at, released_by="test")


def _keys(category) -> list[str]:
    """A condition for each row, children of a foreign key left in place by checking at the end."""
    columns = ", ".join(f"t.{column}" for column in category.order)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {category.table} t")
        return [
            " AND ".join(f"t.{column} = '{value}'" for column, value in zip(category.order, row, strict=True))
            for row in cursor.fetchall()
        ]


def _meets(category, key, part) -> bool:
    where, values = part
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {category.table} t WHERE {key} AND ({where}) IS TRUE", values)
        return cursor.fetchone()[0] == 1


def test_agent_rules_are_held_with_their_agent(agent, subject, records_manager):
    rule = talk.rule(agent)
    place(Target("agent", agent_id=agent.id, agent_name=agent.name), records_manager)

    assert refused("DELETE FROM agent_sessions_approvalrule WHERE id = %s", [rule.id])


def test_fork_is_held_with_the_past_that_its_parent_keeps(agent, subject, records_manager):
    parent = talk.conversation(agent, subject)
    fork = talk.session(agent, subject, shared=[[str(parent.id), 1, 2]], forked_from=parent.id)
    stranger = talk.conversation(agent, subject)

    place(Target("session", session_id=fork.id), records_manager)

    assert refused("DELETE FROM agent_sessions_item WHERE session_id = %s", [parent.id])
    assert not refused("DELETE FROM agent_sessions_item WHERE session_id = %s", [stranger.id])


def test_items_added_after_the_hold_are_held_as_well(agent, subject, records_manager):
    session = talk.conversation(agent, subject)
    place(Target("session", session_id=session.id), records_manager)

    late = talk.item(session, content={"text": "later"})

    assert refused("DELETE FROM agent_sessions_item WHERE session_id = %s AND seq = %s", [session.id, late.seq])


def test_work_goes_on_under_a_hold(hold, full, agent, subject):
    run = talk.run(session=full, status="running")
    talk.item(full, content={"text": "And now?"})

    Run.objects.filter(pk=run.pk).update(status="completed", output={"text": "Now."}, effects=["c1"], request={})
    Session.objects.filter(pk=full.pk).update(last_active_at=full.created_at, head_seq=99)
    Item.objects.filter(session=full).update(is_hidden=True)

    # What is hidden takes its summary along, so that one is copied.
    assert set(HeldCopy.objects.values_list("category", flat=True)) <= {"summaries"}


def test_mutable_row_is_copied_before_it_changes(hold, full, subject):
    Session.objects.filter(pk=full.pk).update(title="Changed", state={"todos": ["new"]})
    Session.objects.filter(pk=full.pk).update(title="Changed again")

    first, second = HeldCopy.objects.order_by("id")
    assert (first.category, first.subject_id, first.row_id) == ("sessions", subject.id, str(full.id))
    assert (first.content["title"], second.content["title"]) == (full.title, "Changed")
    assert refused("DELETE FROM governance_heldcopy")


def test_unchanged_values_are_no_change(hold, full):
    Session.objects.filter(pk=full.pk).update(title=full.title, labels=full.labels)

    assert HeldCopy.objects.count() == 0


def test_fence_is_told_before_the_hold(hold, full, subject, officer):
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        Item.objects.filter(session=full).delete()


def test_holds_of_another_tenant_cover_nothing_here(full, stranger_tenant):
    stranger = make.actor(stranger_tenant, "records_manager")
    place(Target("category", category="sessions"), stranger)

    assert not refused("DELETE FROM agent_sessions_item WHERE tenant_id = %s", [full.tenant_id])


def test_released_hold_covers_nothing(hold, full, tenant):
    holds.release(hold=hold, by=make.actor(tenant, "records_manager"))

    assert not refused("DELETE FROM agent_sessions_item")


def test_transaction_that_looked_before_looks_again_after_placing(full, subject, records_manager):
    Item.objects.filter(session=full, seq=4).delete()

    place(Target("subject", subject=subject), records_manager)

    assert refused("DELETE FROM agent_sessions_item WHERE session_id = %s", [full.id])


@pytest.mark.django_db(transaction=True)
def test_guard_of_holds_demands_read_committed():
    session = talk.conversation(talk.agent(make.tenant("acme")), None)

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(DatabaseError) as caught:
            cursor.execute("DELETE FROM agent_sessions_item WHERE session_id = %s", [session.id])
        transaction.set_rollback(True)
    assert caught.value.__cause__.sqlstate == "LE003"


def test_inserts_meet_no_guard_of_holds(db):
    with connection.cursor() as cursor:
        # tgtype has 1 << 2 for INSERT.
        cursor.execute("SELECT count(*) FROM pg_trigger WHERE tgname = 'subject_hold' AND tgtype & 4 <> 0")
        assert cursor.fetchone()[0] == 0


def test_placing_waits_for_no_time_when_nobody_deletes(full, subject, records_manager):
    began = time.monotonic()
    place(Target("subject", subject=subject), records_manager)

    assert time.monotonic() - began < 2


def test_one_statement_that_deletes_a_held_group_as_a_whole_is_refused(full, agent, records_manager):
    """Children find their agent through rows that the same statement deletes."""
    place(Target("agent", agent_id=agent.id, agent_name=agent.name), records_manager)

    assert refused(
        "WITH events AS (DELETE FROM agent_sessions_runevent), calls AS (DELETE FROM agent_sessions_modelcall)"
        " DELETE FROM agent_sessions_run"
    )


def test_cascade_does_not_take_a_held_row_along(full, agent, records_manager):
    run = Run.objects.get()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        as_owner(
            "CREATE TABLE parent (id uuid PRIMARY KEY); ALTER TABLE agent_sessions_runevent ADD cascading uuid"
            " REFERENCES parent ON DELETE CASCADE"
        )
        cursor.execute("INSERT INTO parent VALUES (%s)", [run.id])
        cursor.execute("UPDATE agent_sessions_runevent SET cascading = run_id; SET CONSTRAINTS ALL IMMEDIATE")
    assert not refused("DELETE FROM parent")

    place(Target("session", session_id=full.id), records_manager)

    assert refused("DELETE FROM parent")


def test_rows_of_several_tenants_and_subjects_are_all_looked_at(full, agent, stranger_tenant, subject, records_manager):
    """One statement over many rows, one of which is held."""
    stranger_agent, bert = talk.agent(stranger_tenant), make.subject(full.tenant, "bert")
    talk.conversation(stranger_agent, make.subject(stranger_tenant, "carl"))
    talk.conversation(agent, bert)
    talk.conversation(agent, None)
    place(Target("subject", subject=bert), records_manager)

    assert refused("DELETE FROM agent_sessions_item")
    assert not refused("DELETE FROM agent_sessions_item WHERE subject_id IS DISTINCT FROM %s", [bert.id])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("delete_first", [True, False])
def test_hold_falls_before_a_deletion_or_after_it(delete_first):
    """Nobody's row is both gone and covered: whoever comes second waits for the other's end."""
    tenant = make.tenant("acme")
    subject, by = make.subject(tenant, "anna"), make.actor(tenant, "records_manager")
    session = talk.conversation(talk.agent(tenant), subject)
    statement = "DELETE FROM agent_sessions_item WHERE session_id = %s"

    with ThreadPoolExecutor(1) as pool:
        if delete_first:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(statement, [session.id])
                placing = pool.submit(in_thread, lambda: place(Target("session", session_id=session.id), by))
                wait_for_lock()
            assert placing.result(30).covered_rows == coverage_without_items(session)
            assert not Item.objects.exists()
        else:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(hold_key(%s))", [tenant.id])
                deleting = pool.submit(in_thread, lambda: refused(statement, [session.id]))
                wait_for_lock()
                Hold.objects.create(
                    tenant=tenant, matter="M-1", reason="litigation", scope="subject", subject=subject, placed_by="x", placed_by_label="x"
                )
            assert deleting.result(30)
            assert Item.objects.count() == 4


def coverage_without_items(session) -> int:
    hold = Hold.objects.get()
    return sum(rows for key, rows in holds.rows_by_category(hold=hold).items() if key != "items")


def in_thread(act):
    try:
        return act()
    finally:
        connections.close_all()


def wait_for_lock():
    """Until another connection waits for an advisory lock of ours."""
    deadline = time.monotonic() + 30
    with connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone()[0]:
                return
            time.sleep(0.01)
    raise AssertionError("nobody waits")
