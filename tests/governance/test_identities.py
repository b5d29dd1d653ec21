"""Two subjects become one and one becomes two: everything moves, nothing is lost, nobody else is touched."""

import pytest
from django.db import transaction

from governance import identifiers
from governance.domain import erasure, fences, identities, lineage, previews, requests, subjects
from governance.domain import registry as register_
from governance.domain.category import Ref
from governance.domain.lineage import Source
from governance.errors import AmbiguousIdentifier, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, Lineage, Subject, SubjectIdentifier
from governance.queries import subject_of
from sessions.domain import history
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Quota, QuotaCounter, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.snapshots import rows_of

pytestmark = pytest.mark.usefixtures("archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


@pytest.fixture
def other(tenant):
    return make.subject(tenant, "anna@work")


def held(subject):
    scope = register_.Scope(subject.tenant_id, subject.id)
    return {key: rows for key, category in register_.categories().items() if (rows := category.verify(scope=scope))}


def test_merge_moves_everything_of_the_other(agent, subject, other, officer, tenant):
    bert = make.subject(tenant, "bert")
    for person in (subject, other, bert):
        talk.conversation(agent, person)
    before, kept = (held(subject), held(other)), rows_of("subject_id", bert.id)

    merged = identities.merge(subject=subject, other=other, by=officer)

    assert merged == subject
    assert held(subject) == {key: before[0][key] + before[1][key] for key in before[0]}
    assert held(other) == {}
    assert rows_of("subject_id", bert.id) == kept
    assert subjects.find(tenant_id=tenant.id, value="anna@work") == subject
    assert sorted(value for _, value in subjects.identifiers_of(subject=subject)) == ["anna", "anna@work"]
    told = AuditEvent.objects.get(action="subject.merged")
    assert (told.payload["other"], told.payload["rows"]["items"]) == (other.id.hex, before[1]["items"])


def test_merge_raises_both_epochs_and_closes_the_other_id(agent, subject, other, officer):
    identities.merge(subject=subject, other=other, by=officer)

    mine, theirs = Subject.objects.get(pk=subject.pk), Subject.objects.get(pk=other.pk)
    assert (mine.epoch, mine.state, theirs.epoch, theirs.state) == (2, "active", 2, "merged")
    assert theirs.merged_into == subject.pk
    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        talk.session(agent, other)
    talk.session(agent, subject)


def test_merged_person_is_erased_whole(agent, subject, other, officer):
    talk.conversation(agent, subject)
    talk.conversation(agent, other)
    identities.merge(subject=subject, other=other, by=officer)
    _, token = previews.preview(subject=Subject.objects.get(pk=subject.pk), by=officer)
    request = requests.erase(subject=Subject.objects.get(pk=subject.pk), token=token, confirm=subject.display_ref, reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert (done.state, held(subject), held(other)) == ("completed", {}, {})
    assert not SubjectIdentifier.objects.exists()


def test_merge_settles_what_one_person_may_have_only_once(agent, subject, other, officer, tenant):
    for person, limit, used in ((subject, 5, 1), (other, 3, 2)):
        talk.session(agent, person, key="same")
        for general in (False, True):
            ref = "" if general else person.id.hex
            quota, _ = Quota.objects.get_or_create(
                tenant=tenant, scope="subject", scope_ref=ref, measure="runs" if general else "tokens", period="day",
                defaults={"limit": limit, "subject_id": None if general else person.id},
            )  # fmt: skip
            QuotaCounter.objects.create(
                tenant_id=tenant.id, subject_id=person.id, quota=quota, ref=person.id.hex, period_start="2026-01-01", used=used
            )

    identities.merge(subject=subject, other=other, by=officer)

    keys = sorted(Session.objects.values_list("key", flat=True))
    assert keys[0] == "same"
    assert keys[1].startswith("same-")
    own = Quota.objects.get(scope_ref=subject.id.hex)
    assert (own.limit, own.subject_id, Quota.objects.count()) == (3, subject.id, 2)
    assert sorted(QuotaCounter.objects.values_list("quota__measure", "used", "ref")) == [
        ("runs", 3, subject.id.hex),
        ("tokens", 1, subject.id.hex),
    ]


def test_merge_takes_lineage_along(agent, subject, other, officer, tenant):
    item = talk.item(talk.session(agent, other))
    lineage.record(
        tenant_id=tenant.id, child=Ref("notes", "x"), subject_id=None, method="extraction",
        sources=[Source(Ref("items", f"{item.session_id}:1"), other.id)],
    )  # fmt: skip

    identities.merge(subject=subject, other=other, by=officer)

    assert Lineage.objects.get().parent_subject_id == subject.id


def test_merge_is_refused_where_it_could_not_be_right(agent, subject, other, officer, tenant, stranger_tenant):
    stranger = make.subject(stranger_tenant, "anna")
    with pytest.raises(identities.NotMergeable):
        identities.merge(subject=subject, other=subject, by=officer)
    with pytest.raises(NotFound):
        identities.merge(subject=subject, other=stranger, by=officer)
    with pytest.raises(MissingPermission):
        identities.merge(subject=subject, other=other, by=make.actor(tenant, "privacy_approver"))
    previews.preview(subject=other, by=officer)
    with pytest.raises(identities.SubjectBusy) as refused:
        identities.merge(subject=subject, other=other, by=officer)
    assert refused.value.extra == {"requests": ["SR-2026-000001"]}
    fences.restrict(subject=subject, by=officer)
    with pytest.raises(identities.NotMergeable):
        identities.merge(subject=Subject.objects.get(pk=subject.pk), other=other, by=officer)


def test_split_gives_identifiers_and_sessions_to_a_new_subject(agent, subject, officer, tenant):
    subjects.add_identifier(subject=subject, kind="email", value="carl@example.com", by=officer)
    stays, goes = talk.conversation(agent, subject), talk.conversation(agent, subject)
    by = make.lethe(tenant)
    fork = session_verbs.fork(session=goes, at_seq=2, key="fork", by=by)

    fresh = identities.split(subject=subject, identifiers=["carl@example.com"], rows={"sessions": [goes.id]}, by=officer)

    assert subjects.find(tenant_id=tenant.id, value="carl@example.com", kind="email") == fresh
    assert subjects.find(tenant_id=tenant.id, value="anna") == subject
    assert set(Session.objects.filter(subject=fresh)) == {goes, fork}
    assert set(Session.objects.filter(subject=subject)) == {stays}
    assert set(Item.objects.filter(subject_id=fresh.id).values_list("session_id", flat=True)) == {goes.id}
    assert [item.seq for item in history.every(session=Session.objects.get(pk=fork.pk))] == [1, 2]
    assert held(fresh)["run_events"] == held(subject)["run_events"]
    assert Subject.objects.get(pk=subject.pk).epoch == 2
    assert AuditEvent.objects.get(action="subject.split").payload["identifiers"] == 1


def test_split_takes_only_what_is_the_subjects_own(agent, subject, other, officer):
    theirs = talk.session(agent, other)

    with pytest.raises(NotFound):
        identities.split(subject=subject, rows={"sessions": [theirs.id]}, by=officer)
    with pytest.raises(Invalid):
        identities.split(subject=subject, identifiers=["anna@work"], by=officer)
    with pytest.raises(Invalid):
        identities.split(subject=subject, by=officer)
    with pytest.raises(Invalid):
        identities.split(subject=subject, rows={"items": [theirs.id]}, by=officer)
    assert Subject.objects.count() == 2


def test_identifier_that_names_two_subjects_lists_both(tenant, subject, officer):
    phone = subjects.resolve(tenant_id=tenant.id, value="+41446681800", kind="phone")
    external = subjects.resolve(tenant_id=tenant.id, value="+41446681800")

    with pytest.raises(AmbiguousIdentifier) as found:
        subject_of(tenant.id, "+41446681800")

    assert sorted(found.value.extra["subjects"]) == sorted([phone.display_ref, external.display_ref])


def test_changed_normalisation_is_applied_to_what_is_stored(tenant, subject, monkeypatch):
    old = subjects.resolve(tenant_id=tenant.id, value="first.last@example.com", kind="email")
    one = subjects.resolve(tenant_id=tenant.id, value="two.dots@example.com", kind="email")
    normalise = identifiers.normalise

    def without_dots(kind, value):
        text = normalise(kind, value)
        head, at, host = text.partition("@")
        return head.replace(".", "") + at + host if kind == "email" else text

    for module in (subjects, identities):
        monkeypatch.setattr(module, "normalise", without_dots)
    monkeypatch.setitem(identifiers.VERSIONS, "email", 2)
    clash = subjects.resolve(tenant_id=tenant.id, value="twodots@example.com", kind="email")

    assert identities.rehash() == 1

    assert subjects.find(tenant_id=tenant.id, value="First.Last@example.com", kind="email") == old
    assert ("email", "firstlast@example.com") in subjects.identifiers_of(subject=old)
    assert identities.rehash() == 0
    assert SubjectIdentifier.objects.get(subject=one).norm_version == 1
    assert clash != one
