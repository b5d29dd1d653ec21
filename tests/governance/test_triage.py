"""Rows that name nobody: counted, suggested, given to somebody or waived."""

import pytest

from governance.domain import fences, holds, keys, links, previews, triage
from governance.domain.holds import Target
from governance.errors import Invalid, MissingPermission, NotFound, SubjectFenced
from governance.ids import uuid7
from governance.models import AuditEvent, Subject, UnattributedWaiver
from sessions.models import IdempotencyRecord, Item, Quota, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk


@pytest.fixture
def orphan(agent):
    """A conversation that names nobody. Its key of idempotency is a row of its own."""
    session = talk.conversation(agent, None, key="case-1")
    IdempotencyRecord.objects.all().delete()
    return session


def open_by_category(tenant) -> dict[str, int]:
    return {one.key: one.open for one in triage.standing(tenant_id=tenant.id) if one.open}


def described(tenant, key="sessions"):
    category = triage.category_of(key)
    return triage.described(tenant_id=tenant.id, category=category, rows=triage.rows_of(tenant_id=tenant.id, category=category))


def test_rows_without_a_subject_are_counted_where_they_hang_from_nothing(agent, tenant, orphan, subject, stranger_tenant):
    talk.conversation(agent, subject)
    talk.conversation(talk.agent(stranger_tenant), None)
    alone = talk.run(agent, request={"message": "Hello"})

    assert open_by_category(tenant) == {"sessions": 1, "runs": 1}
    assert triage.open_rows(tenant_id=tenant.id) == 2
    assert alone.session_id is None


def test_anonymised_runs_and_what_is_for_all_are_nobodys_on_purpose(agent, tenant, admin):
    talk.run(agent, request={}, started_by="", actor_ref="", labels=[])
    Run.objects.update(epoch=0, metadata={}, output=None, error=None, effects=[])
    keys.create_key(tenant_id=tenant.id, name="application", scopes=["runs:write"], by=admin)
    Quota.objects.create(tenant=tenant, scope="tenant", measure="runs", period="day", limit=5)

    assert open_by_category(tenant) == {}


def test_preview_counts_what_is_open(orphan, subject, officer):
    before, _ = previews.preview(subject=subject, by=officer)
    triage.waive(category="sessions", ids=[orphan.id], reason="not_personal", by=officer)

    after, _ = previews.preview(subject=subject, by=officer)

    assert (before.preview["unattributed_in_tenant"], after.preview["unattributed_in_tenant"]) == (1, 0)


def test_key_that_names_a_person_suggests_them(agent, tenant):
    person = make.subject(tenant, "customer-7")
    talk.session(agent, None, key="customer-7")
    talk.session(agent, None, key="something else")

    assert {(row.suggestion, row.why) for row in described(tenant)} == {(person, "identifier"), (None, "")}


def test_author_of_a_row_is_suggested_and_an_erased_person_is_not(agent, tenant, orphan):
    person, gone = make.subject(tenant, "anna"), make.subject(tenant, "case-1")
    Subject.objects.filter(pk=gone.pk).update(state="erased")
    links.link(tenant_id=tenant.id, subject_id=person.id, category="sessions", row_id=str(orphan.id), role="author")

    assert [(row.suggestion, row.why, row.agent) for row in described(tenant)] == [(person, "link", orphan.agent.name)]


def test_suggestions_stay_inside_the_tenant(agent, tenant, stranger_tenant):
    make.subject(stranger_tenant, "customer-7")
    talk.session(agent, None, key="customer-7")

    assert [row.suggestion for row in described(tenant)] == [None]


def test_assigned_rows_take_along_what_belongs_to_them(orphan, tenant, subject, officer):
    moved = triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=officer)

    orphan.refresh_from_db()
    assert orphan.subject_id == subject.id
    assert set(Item.objects.values_list("subject_id", flat=True)) == {subject.id}
    assert set(Run.objects.values_list("subject_id", flat=True)) == {subject.id}
    assert moved["items"] == 4
    assert open_by_category(tenant) == {}
    event = AuditEvent.objects.get(action="subject.assigned")
    assert (event.object_ref, event.payload["rows"]["sessions"]) == (subject.id.hex, 1)


def test_fork_goes_along_with_its_parent(agent, orphan, subject, officer):
    fork = talk.session(agent, None, key="fork", shared=[[str(orphan.id), 1, 2]], forked_from=orphan.id)

    triage.assign(category="sessions", ids=[fork.id], subject=subject, by=officer)

    assert set(Session.objects.values_list("subject_id", flat=True)) == {subject.id}


def test_rows_of_somebody_and_of_other_tenants_are_not_given_away(agent, tenant, subject, officer, stranger_tenant):
    bert, far = make.subject(tenant, "bert"), make.subject(stranger_tenant, "far")
    owned = talk.conversation(agent, bert)
    foreign = talk.conversation(talk.agent(stranger_tenant), None)

    for ids in ([owned.id], [foreign.id], [uuid7()]):
        with pytest.raises(NotFound):
            triage.assign(category="sessions", ids=ids, subject=subject, by=officer)
        with pytest.raises(NotFound):
            triage.waive(category="sessions", ids=ids, reason="other", by=officer)
    with pytest.raises(NotFound):
        triage.assign(category="sessions", ids=[owned.id], subject=far, by=officer)
    owned.refresh_from_db()
    assert owned.subject_id == bert.id


def test_nothing_is_given_while_a_run_is_at_work(agent, orphan, subject, officer):
    talk.run(session=orphan, status="running")

    with pytest.raises(triage.NotAssignable, match="at work"):
        triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=officer)
    assert Session.objects.get().subject_id is None


def test_nothing_is_given_to_a_restricted_subject(orphan, subject, officer):
    fences.restrict(subject=subject, by=officer)
    subject.refresh_from_db()

    with pytest.raises(SubjectFenced):
        triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=officer)


def test_session_of_the_same_name_is_told(agent, orphan, subject, officer):
    talk.session(agent, subject, key=orphan.key)

    with pytest.raises(triage.NotAssignable, match="already"):
        triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=officer)


def test_held_rows_of_nobody_may_be_given_to_somebody(agent, orphan, subject, officer, records_manager):
    """Filling what was empty loses nothing."""
    holds.place(target=Target("category", category="sessions"), matter="M-1", reason="audit", by=records_manager)

    assert triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=officer)["items"] == 4


def test_category_waived_as_a_whole_covers_rows_to_come(agent, tenant, orphan, officer):
    assert triage.waive(category="sessions", reason="not_personal", by=officer) == 1
    talk.session(agent, None, key="later")

    [standing] = triage.standing(tenant_id=tenant.id)
    assert (standing.open, standing.waived, standing.is_waived) == (0, 2, True)
    assert triage.reopen(category="sessions", by=officer) == 1
    assert open_by_category(tenant) == {"sessions": 2}
    assert AuditEvent.objects.filter(action__startswith="unattributed.").count() == 2


def test_waiver_says_who_and_why_and_may_be_repeated(orphan, officer):
    for _ in range(2):
        triage.waive(category="sessions", ids=[orphan.id], reason="cannot_tell", by=officer)

    waiver = UnattributedWaiver.objects.get()
    assert (waiver.row_id, waiver.reason, waiver.waived_by) == (str(orphan.id), "cannot_tell", officer.ref)
    assert AuditEvent.objects.filter(action="unattributed.waived").last().payload == {"reason": "cannot_tell", "rows": 1, "whole": False}


def test_verbs_check_what_they_are_given(orphan, subject, officer, records_manager):
    with pytest.raises(MissingPermission):
        triage.assign(category="sessions", ids=[orphan.id], subject=subject, by=records_manager)
    with pytest.raises(MissingPermission):
        triage.waive(category="sessions", reason="other", by=records_manager)
    with pytest.raises(Invalid):
        triage.waive(category="sessions", ids=[orphan.id], reason="because", by=officer)
    with pytest.raises(Invalid):
        triage.assign(category="sessions", ids=[], subject=subject, by=officer)
    with pytest.raises(NotFound):
        triage.waive(category="items", reason="other", by=officer)
    with pytest.raises(NotFound):
        triage.category_of("nothing")
