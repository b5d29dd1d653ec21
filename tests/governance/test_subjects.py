import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections

from governance import queries
from governance.domain import fences, subjects
from governance.errors import AmbiguousIdentifier, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.ids import shown, uuid7
from governance.models import AuditEvent, Subject, SubjectIdentifier
from tests.factories import governance as make


def test_resolve_makes_a_subject_once(tenant):
    first = subjects.resolve(tenant_id=tenant.id, value="anna")

    assert subjects.resolve(tenant_id=tenant.id, value="anna") == first
    assert Subject.objects.count() == 1
    assert re.fullmatch("S-[0-9A-Z]{4}-[0-9A-Z]{4}", first.display_ref)


def test_resolve_is_one_query_when_the_subject_exists(tenant, subject, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert subjects.resolve(tenant_id=tenant.id, value="anna") == subject


def test_resolve_keeps_tenants_and_kinds_apart(tenant, stranger_tenant):
    found = {
        subjects.resolve(tenant_id=tenant.id, value="a@b.ch").id,
        subjects.resolve(tenant_id=stranger_tenant.id, value="a@b.ch").id,
        subjects.resolve(tenant_id=tenant.id, value="a@b.ch", kind="email").id,
    }

    assert len(found) == 3


def test_resolve_normalises_by_kind(tenant):
    anna = subjects.resolve(tenant_id=tenant.id, value=" Anna@B.ch", kind="email")

    assert subjects.resolve(tenant_id=tenant.id, value="anna@b.ch", kind="email") == anna
    assert subjects.find(tenant_id=tenant.id, value="ANNA@b.ch", kind="email") == anna
    assert subjects.find(tenant_id=tenant.id, value="anna@b.ch") is None


def test_resolve_refuses_what_names_nobody(tenant):
    with pytest.raises(Invalid):
        subjects.resolve(tenant_id=tenant.id, value="")
    assert not Subject.objects.exists()


def test_value_is_stored_encrypted_and_can_be_read_back(tenant, subject):
    row = SubjectIdentifier.objects.get()

    assert b"anna" not in bytes(row.value_enc)
    assert b"anna" not in bytes(row.value_hmac)
    assert subjects.identifiers_of(subject=subject) == [("external", "anna")]


def test_search_finds_by_identifier_id_and_reference_exactly(tenant, officer, subject):
    def found(q):
        return subjects.search(tenant_id=tenant.id, q=q, by=officer)

    assert found("anna") == [subject]
    assert found(str(subject.id)) == [subject]
    assert found(shown("sub", subject.id)) == [subject]
    assert found(f" {subject.display_ref.lower()} ") == [subject]
    assert found("ann") == []
    assert found("Anna") == []
    assert found("") == []
    assert found("%") == []


def test_search_is_audited_without_the_question(tenant, officer, subject):
    subjects.search(tenant_id=tenant.id, q="anna", by=officer)

    event = AuditEvent.objects.get(action="subject.searched")
    assert event.payload == {"matches": 1}
    assert "anna" not in str(event.__dict__)


def test_search_needs_the_role_and_stays_in_the_tenant(tenant, subject, stranger_tenant):
    with pytest.raises(MissingPermission):
        subjects.search(tenant_id=tenant.id, q="anna", by=make.actor(tenant, "tenant_admin"))
    stranger = make.actor(stranger_tenant, "privacy_officer")
    assert subjects.search(tenant_id=stranger_tenant.id, q="anna", by=stranger) == []
    assert subjects.search(tenant_id=stranger_tenant.id, q=str(subject.id), by=stranger) == []


def test_search_returns_both_when_one_text_names_two(tenant, officer):
    one = subjects.resolve(tenant_id=tenant.id, value="a@b.ch")
    two = subjects.resolve(tenant_id=tenant.id, value="a@b.ch", kind="email")

    assert subjects.search(tenant_id=tenant.id, q="a@b.ch", by=officer) == [one, two]
    with pytest.raises(AmbiguousIdentifier) as caught:
        queries.subject_of(tenant.id, "a@b.ch")
    assert caught.value.extra["subjects"] == [one.display_ref, two.display_ref]


def test_subject_of_finds_by_anything_that_names_it(tenant, stranger_tenant, subject):
    for ref in (subject.id, str(subject.id), shown("sub", subject.id), subject.display_ref, "anna"):
        assert queries.subject_of(tenant.id, ref) == subject
        with pytest.raises(NotFound):
            queries.subject_of(stranger_tenant.id, ref)
    with pytest.raises(NotFound):
        queries.subject_of(tenant.id, str(uuid7()))


def test_add_identifier_lets_another_name_find_the_subject(tenant, officer, subject):
    subjects.add_identifier(subject=subject, kind="phone", value="+41 44 668 18 00", by=officer)
    subjects.add_identifier(subject=subject, kind="phone", value="0041446681800", by=officer)

    assert subjects.find(tenant_id=tenant.id, value="+41446681800", kind="phone") == subject
    assert SubjectIdentifier.objects.filter(subject=subject).count() == 2


def test_add_identifier_of_somebody_else_is_ambiguous(tenant, officer, subject):
    bert = make.subject(tenant, "bert")

    with pytest.raises(AmbiguousIdentifier) as caught:
        subjects.add_identifier(subject=subject, kind="external", value="bert", by=officer)
    assert caught.value.extra["subjects"] == sorted([bert.display_ref, subject.display_ref])


def test_add_identifier_is_refused_for_a_fenced_subject(officer, subject):
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced):
        subjects.add_identifier(subject=subject, kind="email", value="a@b.ch", by=officer)


def test_add_identifier_stays_in_the_tenant(subject, stranger_tenant):
    with pytest.raises(NotFound):
        subjects.add_identifier(
            subject=subject, kind="email", value="a@b.ch", by=make.actor(stranger_tenant, "privacy_officer")
        )


@pytest.mark.django_db(transaction=True)
def test_resolve_at_once_from_many_gives_one_subject():
    tenant = make.tenant("acme")
    barrier = Barrier(8)

    def resolve(number):
        barrier.wait()
        try:
            return [subjects.resolve(tenant_id=tenant.id, value=f"person-{turn}").id for turn in range(20)]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(resolve, range(8)))

    assert all(result == results[0] for result in results)
    assert Subject.objects.count() == SubjectIdentifier.objects.count() == 20
