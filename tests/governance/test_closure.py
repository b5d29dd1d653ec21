"""Derived data follows its source: alone it goes along, with other sources it is hidden and rebuilt without the person."""

from datetime import date

import pytest
from django.db import models
from django.test.utils import isolate_apps

from governance import triggers
from governance.domain import clock, closure, erasure, groups, holds, lineage, links, previews, requests, sweeping
from governance.domain import registry as register_
from governance.domain.category import Ref
from governance.domain.holds import Target
from governance.domain.lineage import Source
from governance.domain.registry import NoLimit, TableCategory
from governance.errors import NotFound
from governance.ids import uuid7
from governance.models import Lineage, Regeneration, SubjectLink, SubjectRequest
from sessions.domain import history
from sessions.domain import sessions as session_verbs
from sessions.models import Item, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.declared import ABOUT, sessions_categories
from tests.governance.snapshots import rows_of
from tests.owner import as_owner

TABLE = """
CREATE TABLE derived_note (
    id uuid PRIMARY KEY, tenant_id uuid NOT NULL, subject_id uuid, text text NOT NULL, hidden_at timestamptz, created_at timestamptz
)
"""


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


class Notes:
    """Notes that an agent derives from items or from other notes, and rebuilds from what is left."""

    def __init__(self, tenant, model):
        self.tenant, self.model, self.failures, self.seen = tenant, model, 0, []

    def derive(self, *sources, subject=None, text="note"):
        note = self.model.objects.create(id=uuid7(), tenant_id=self.tenant.id, subject_id=subject.id if subject else None, text=text)
        self.note_sources(note.id, sources)
        return note

    def note_sources(self, note_id, sources):
        found = [self.source(row) for row in sources]
        note = self.model.objects.get(pk=note_id)
        lineage.record(
            tenant_id=self.tenant.id, child=Ref("notes", str(note_id)), subject_id=note.subject_id, sources=found, method="extraction"
        )

    def source(self, row):
        if isinstance(row, Item):
            return Source(Ref("items", f"{row.session_id}:{row.seq}"), row.subject_id)
        return Source(Ref("notes", str(row.id)), row.subject_id)

    def regenerate(self, *, tenant_id, row_id, sources):
        note = self.model.objects.get(pk=row_id)
        self.seen.append((note.text, note.hidden_at is not None, sorted(source.ref.category for source in sources)))
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no model answers")
        lineage.record(
            tenant_id=tenant_id, child=Ref("notes", row_id), subject_id=note.subject_id, sources=sources, method="extraction"
        )
        self.model.objects.filter(pk=row_id).update(text="rebuilt", hidden_at=None)

    def texts(self):
        return sorted(self.model.objects.values_list("text", flat=True))


@pytest.fixture
@isolate_apps("governance")
def notes(tenant, register):
    class Note(models.Model):
        id = models.UUIDField(primary_key=True)
        tenant_id = models.UUIDField()
        subject_id = models.UUIDField(null=True)
        text = models.TextField()
        hidden_at = models.DateTimeField(null=True)
        created_at = models.DateTimeField(null=True)

        class Meta:
            app_label = "governance"
            db_table = "derived_note"

        def __str__(self):
            return self.text

    as_owner(TABLE)
    made = Notes(tenant, Note)
    category = TableCategory(
        key="notes", title="Notes", model=Note, order=("id",), about=ABOUT, hidden="hidden_at", regenerate=made.regenerate,
        limit=NoLimit("Test.", date(2026, 11, 30)),
    )  # fmt: skip
    register([category, *sessions_categories()])
    return made


@pytest.fixture
def bert(tenant):
    return make.subject(tenant, "bert")


@pytest.fixture
def mine(agent, subject):
    return talk.item(talk.session(agent, subject), content={"text": "mine"})


@pytest.fixture
def his(agent, bert):
    return talk.item(talk.session(agent, bert), content={"text": "his"})


def confirmed(subject, by):
    shown, token = previews.preview(subject=subject, by=by)
    requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="other", by=by)
    return shown


def erased(subject, by):
    return erasure.work(request_id=confirmed(subject, by).id)


def entry_of(document, key="notes"):
    return next(entry for entry in document["categories"] if entry["key"] == key)


def again():
    SubjectRequest.objects.update(lease_until=clock.now())
    return erasure.work(request_id=SubjectRequest.objects.get().id)


@pytest.mark.parametrize("owner", [None, "bert"])
def test_row_derived_from_the_person_alone_goes_along_whoever_has_it(notes, mine, his, subject, bert, officer, owner):
    notes.derive(mine, subject=bert if owner else None)
    notes.derive(his, subject=bert, text="stays")
    request = confirmed(subject, officer)
    shown = entry_of(request.preview)

    done = erasure.work(request_id=request.id)

    assert (shown["rows"], shown["buckets"]["erase"], shown["buckets"]["regenerate"]) == (1, 1, 0)
    assert done.state == "completed"
    assert (entry_of(done.receipt)["previewed"], entry_of(done.receipt)["erased"]) == (1, 1)
    assert notes.texts() == ["stays"]
    assert [edge.parent_subject_id for edge in Lineage.objects.all()] == [bert.id]


def test_row_with_other_sources_is_hidden_and_rebuilt_from_those_alone(notes, mine, his, subject, bert, officer):
    note = notes.derive(mine, his, text="anna and bert")
    kept = rows_of("subject_id", bert.id)
    request = confirmed(subject, officer)
    shown = entry_of(request.preview)

    done = erasure.work(request_id=request.id)

    assert (shown["rows"], shown["buckets"]["erase"], shown["buckets"]["regenerate"]) == (1, 0, 1)
    assert notes.seen == [("anna and bert", True, ["items"])]
    assert (done.state, entry_of(done.receipt)["regenerated"]) == ("completed", 1)
    note.refresh_from_db()
    assert (note.text, note.hidden_at) == ("rebuilt", None)
    assert [(edge.parent_id, edge.parent_subject_id) for edge in Lineage.objects.all()] == [(f"{his.session_id}:1", bert.id)]
    assert rows_of("subject_id", bert.id) == kept


def test_row_that_cannot_be_rebuilt_stays_hidden_and_is_deleted_after_two_tries(notes, mine, his, subject, officer):
    note = notes.derive(mine, his)
    notes.failures = 9
    failed = erased(subject, officer)

    assert (failed.state, failed.resume_state, failed.failure["code"]) == ("failed_retryable", "verifying", "regeneration_failed")
    note.refresh_from_db()
    assert note.hidden_at is not None
    assert again().state == "failed_retryable"
    done = again()

    assert (done.state, len(notes.seen), notes.texts()) == ("completed", 2, [])
    entry = entry_of(done.receipt)
    assert (entry["previewed"], entry["regenerated"], entry["erased"]) == (1, 0, 1)
    assert [row.outcome for row in Regeneration.objects.all()] == ["deleted"]


def test_row_that_fails_once_is_rebuilt_at_the_next_attempt(notes, mine, his, subject, officer):
    notes.derive(mine, his)
    notes.failures = 1
    erased(subject, officer)

    done = again()

    assert (done.state, notes.texts(), entry_of(done.receipt)["regenerated"]) == ("completed", ["rebuilt"], 1)


def test_row_is_deleted_rather_than_rebuilt_once_the_request_is_due(notes, mine, his, subject, officer):
    notes.derive(mine, his)
    request = confirmed(subject, officer)
    SubjectRequest.objects.update(due_at=clock.now())

    done = erasure.work(request_id=request.id)

    assert (done.state, notes.seen, notes.texts()) == ("completed", [], [])


def test_rows_derived_in_a_circle_go_together(notes, mine, subject, officer):
    first = notes.derive(mine)
    second = notes.derive(first)
    notes.note_sources(first.id, [mine, second])

    done = erased(subject, officer)

    assert (done.state, notes.texts(), Lineage.objects.count()) == ("completed", [], 0)


def test_row_derived_from_one_that_is_rebuilt_is_rebuilt_after_it(notes, mine, his, subject, officer):
    first = notes.derive(mine, his, text="first")
    notes.derive(first, text="second")

    done = erased(subject, officer)

    assert [(text, hidden) for text, hidden, _ in notes.seen] == [("first", True), ("second", True)]
    assert (done.state, notes.texts()) == ("completed", ["rebuilt", "rebuilt"])


def test_source_that_is_gone_already_does_not_keep_a_row(notes, mine, his, subject, officer):
    notes.derive(mine, his)
    his.delete()

    assert entry_of(confirmed(subject, officer).preview)["buckets"]["erase"] == 1


@pytest.mark.parametrize("with_other_source", [False, True])
def test_row_derived_after_the_preview_is_drift(notes, mine, his, subject, officer, with_other_source):
    request = confirmed(subject, officer)
    notes.derive(mine, *([his] if with_other_source else []))

    done = erasure.work(request_id=request.id)

    assert (done.state, done.drift["categories"]) == ("previewed", [{"key": "notes", "added": 1, "changed": 0}])
    assert notes.texts() == ["note"]


def test_neighbours_of_other_tenants_are_not_reached(notes, mine, subject, officer, stranger_tenant):
    """An edge of another tenant with the same ids leads nowhere."""
    Lineage.objects.create(
        tenant_id=stranger_tenant.id, child_category="notes", child_id=str(notes.derive(mine).id),
        parent_category="items", parent_id="x", parent_subject_id=subject.id, method="extraction",
    )  # fmt: skip
    Lineage.objects.filter(tenant_id=notes.tenant.id).delete()

    assert entry_of(confirmed(subject, officer).preview)["rows"] == 0


def test_plan_of_derived_rows_is_forgotten_with_the_request(notes, mine, his, subject, officer):
    notes.derive(mine, his)

    done = erased(subject, officer)

    assert "derived" not in done.preview
    assert str(notes.model.objects.get().id) not in str(done.preview)


def test_sweep_follows_what_ordinary_deletes_took(notes, mine, his):
    """RE-12: deleting a conversation leaves what was derived from it."""
    notes.derive(mine, text="alone")
    notes.derive(mine, his, text="both")
    assert lineage.sweep() == 0
    mine.delete()

    assert sweeping.sweep()["derived"] == 1

    assert notes.texts() == ["both"]
    assert Lineage.objects.count() == 2


def test_lineage_needs_a_source(notes, subject):
    with pytest.raises(ValueError, match="at least one source"):
        lineage.record(tenant_id=notes.tenant.id, child=Ref("notes", "x"), subject_id=None, sources=[], method="extraction")


# Roles of people in other people's rows


def link(subject, note, role):
    return links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="notes", row_id=str(note.id), role=role)


def test_what_the_person_wrote_goes_even_from_other_peoples_rows(notes, his, subject, bert, officer):
    link(subject, notes.derive(his, subject=bert), "author")

    done = erased(subject, officer)

    assert (done.state, entry_of(done.receipt)["erased"], notes.texts()) == ("completed", 1, [])


def test_what_mentions_the_person_is_rebuilt(notes, his, subject, bert, officer):
    link(subject, notes.derive(his, subject=bert), "mentioned")

    done = erased(subject, officer)

    assert (done.state, entry_of(done.receipt)["regenerated"], notes.texts()) == ("completed", 1, ["rebuilt"])


@pytest.mark.parametrize("role", ["operator", "recipient"])
def test_row_stays_where_only_the_link_is_about_the_person(notes, his, subject, bert, officer, role):
    link(subject, notes.derive(his, subject=bert), role)

    done = erased(subject, officer)

    assert (done.state, notes.texts(), notes.seen) == ("completed", ["note"], [])
    assert not SubjectLink.objects.exists()


def test_link_to_ones_own_row_changes_nothing(notes, mine, subject, officer):
    note = notes.derive(mine, subject=subject)
    link(subject, note, "mentioned")
    link(subject, note, "mentioned")

    assert entry_of(confirmed(subject, officer).preview)["buckets"]["erase"] == 1


def test_link_names_a_category_and_a_role_that_exist(notes, subject):
    with pytest.raises(NotFound):
        links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="letters", row_id="x", role="author")
    with pytest.raises(ValueError, match="friend"):
        links.link(tenant_id=subject.tenant_id, subject_id=subject.id, category="notes", row_id="x", role="friend")


# Forks


def test_items_that_forks_share_move_to_the_oldest_living_fork_when_only_the_parent_goes(agent, subject, tenant):
    by, parent = make.lethe(tenant), talk.session(agent, subject, key="parent")
    talk.turns(parent, 3)
    older = session_verbs.fork(session=parent, at_seq=2, key="older", by=by)
    younger = session_verbs.fork(session=parent, at_seq=4, key="younger", by=by)

    groups.delete(category="sessions", tenant_id=tenant.id, ids=[parent.id])

    assert not Session.objects.filter(pk=parent.pk).exists()
    for fork, number in ((older, 2), (younger, 4)):
        fork.refresh_from_db()
        assert [item.seq for item in history.every(session=fork)] == list(range(1, number + 1))
    assert (Item.objects.filter(session=older).count(), Item.objects.filter(session=younger).count()) == (2, 2)


def test_forks_and_what_they_share_go_together_with_the_person(agent, subject, tenant, officer):
    by, parent = make.lethe(tenant), talk.session(agent, subject, key="parent")
    talk.turns(parent, 3)
    fork = session_verbs.fork(session=parent, at_seq=2, key="fork", by=by)
    talk.item(fork)

    done = erased(subject, officer)

    assert done.state == "completed"
    assert not Item.objects.filter(subject_id=subject.id).exists()
    assert not Session.objects.filter(subject_id=subject.id).exists()
    assert register_.get("items").verify(scope=register_.Scope(tenant.id, subject.id)) == 0


# Holds over other people's derived rows


@pytest.fixture
def second(tenant):
    return make.actor(tenant, "records_manager", username="second")


@pytest.fixture
def kept(notes, bert, records_manager):
    """Bert's rows are held, derived ones included, and the database keeps them."""
    as_owner(triggers.hold_guard("derived_note", category="notes", content=("text",)).sql)
    return holds.place(target=Target("subject", subject=bert), matter="M-1", reason="litigation", by=records_manager)


def release(hold, by):
    return holds.release(hold=hold, by=by)[1]


def test_held_row_that_would_be_rebuilt_is_hidden_and_waits_for_its_hold(notes, mine, his, subject, bert, officer, kept, second):
    note = notes.derive(mine, his, subject=bert, text="anna and bert")
    request = confirmed(subject, officer)
    shown = entry_of(request.preview)

    done = erasure.work(request_id=request.id)

    assert (shown["buckets"]["held"], shown["buckets"]["regenerate"], shown["grounds"][0]["matter"]) == (1, 0, "M-1")
    assert (done.state, done.failure, notes.seen) == ("completed_with_exceptions", None, [])
    assert (entry_of(done.receipt)["previewed"], entry_of(done.receipt)["held"]) == (1, 1)
    assert [entry["category"] for entry in done.receipt["exceptions"]][0] == "notes"
    note.refresh_from_db()
    assert (note.text, note.hidden_at is not None) == ("anna and bert", True)
    [follow_up] = release(kept, second)
    last = erasure.work(request_id=follow_up.id)
    assert (last.state, last.failure, notes.texts()) == ("completed", None, ["rebuilt"])
    assert entry_of(last.receipt)["regenerated"] == 1


def test_held_row_that_would_go_along_waits_for_its_hold(notes, mine, subject, bert, officer, kept, second):
    notes.derive(mine, subject=bert)

    done = erased(subject, officer)

    assert (done.state, done.failure, notes.texts()) == ("completed_with_exceptions", None, ["note"])
    assert entry_of(done.receipt)["held"] == 1
    [follow_up] = release(kept, second)
    assert (erasure.work(request_id=follow_up.id).state, notes.texts()) == ("completed", [])


def test_hold_that_arrives_before_a_row_is_rebuilt_keeps_it(notes, mine, his, subject, bert, officer, records_manager):
    as_owner(triggers.hold_guard("derived_note", category="notes", content=("text",)).sql)
    notes.derive(mine, his, subject=bert)
    request = confirmed(subject, officer)
    holds.place(target=Target("subject", subject=bert), matter="M-1", reason="litigation", by=records_manager)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure, notes.texts()) == ("completed_with_exceptions", None, ["note"])
    assert (entry_of(done.receipt)["previewed"], entry_of(done.receipt)["held"]) == (1, 1)


def test_hold_that_is_released_before_a_row_is_rebuilt_lets_it_be(notes, mine, his, subject, bert, officer, kept, second, monkeypatch):
    notes.derive(mine, his, subject=bert)
    request = confirmed(subject, officer)
    settle, released = closure.settle, []

    def release_first(**values):
        released or released.append(release(kept, second))
        settle(**values)

    monkeypatch.setattr(closure, "settle", release_first)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure, notes.texts()) == ("completed", None, ["rebuilt"])
    assert (entry_of(done.receipt)["previewed"], entry_of(done.receipt)["regenerated"]) == (1, 1)


def test_request_that_waits_for_another_persons_hold_is_not_started_by_any_release(notes, mine, his, subject, bert, officer, kept, records_manager, second):
    other = holds.place(target=Target("subject", subject=subject), matter="M-2", reason="audit", by=records_manager)
    notes.derive(mine, his, subject=bert)
    done = erased(subject, officer)

    assert done.state == "completed_with_exceptions"
    assert release(other, second) == []
    assert [request.follows_id for request in release(kept, second)] == [done.id]
