"""A TableCategory does everything for one table from its declaration."""

import json
from dataclasses import replace

import pytest
from django.db import connection, transaction

from governance.domain import registry
from governance.domain.registry import Drift, Scope
from governance.domain.snapshots import snapshot
from sessions.models import Item, ModelCall, Session
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture
def scope(tenant, subject):
    return Scope(tenant.id, subject.id)


def plan_of(key, scope):
    return list(registry.get(key).plan(scope=scope))


def test_plan_counts_rows_and_bytes_and_gives_bounds(conversation, scope):
    chunks = plan_of("items", scope)

    assert [(chunk.number, chunk.rows) for chunk in chunks] == [(0, 4)]
    assert json.loads(chunks[0].low) == [str(conversation.id), "1"]
    assert json.loads(chunks[0].high) == [str(conversation.id), "4"]
    assert len(chunks[0].fingerprints) == 4 * 16
    assert chunks[0].size > 100


def test_plan_cuts_at_250_rows_in_order(agent, subject, scope):
    talk.turns(talk.session(agent, subject), 260)

    chunks = plan_of("items", scope)

    assert [chunk.rows for chunk in chunks] == [250, 250, 20]
    assert [json.loads(chunk.low)[1] for chunk in chunks] == ["1", "251", "501"]


def test_plan_leaves_out_other_subjects_and_tenants(conversation, agent, scope, stranger_tenant):
    before = plan_of("items", scope)
    talk.conversation(agent, make.subject(agent.tenant, "bert"))
    talk.conversation(talk.agent(stranger_tenant), make.subject(stranger_tenant, "anna"))
    talk.conversation(agent, None)

    assert plan_of("items", scope) == before


def test_plan_hash_follows_the_version_and_not_other_columns(conversation, scope):
    before = plan_of("sessions", scope)

    Session.objects.filter(pk=conversation.pk).update(title="Another title")
    assert [chunk.sha256 for chunk in plan_of("sessions", scope)] == [chunk.sha256 for chunk in before]

    Session.objects.filter(pk=conversation.pk).update(version=99)
    assert [chunk.sha256 for chunk in plan_of("sessions", scope)] != [chunk.sha256 for chunk in before]


def test_plan_size_uses_the_declared_expression(conversation, scope):
    talk.blob(conversation, b"x" * 5000)

    [chunk] = plan_of("blobs", scope)

    assert chunk.size == 5000 + len(b"text")


def test_count_puts_every_row_in_the_bucket_of_its_method(conversation, scope):
    category = registry.get("items")

    counts = category.count(plan=plan_of("items", scope))

    assert (counts.rows, counts.buckets["erase"], sum(counts.buckets.values())) == (4, 4, 4)


def test_erase_deletes_exactly_the_chunk_and_counts_what_the_delete_returned(conversation, scope):
    [chunk] = plan_of("items", scope)

    erased = registry.get("items").erase(scope=scope, chunk=chunk)

    assert (erased.rows, erased.size, erased.already_absent) == (4, chunk.size, 0)
    assert not Item.objects.filter(session=conversation).exists()


def test_erase_twice_reports_already_absent(conversation, scope):
    [chunk] = plan_of("items", scope)
    category = registry.get("items")
    category.erase(scope=scope, chunk=chunk)

    again = category.erase(scope=scope, chunk=chunk)

    assert (again.rows, again.size, again.already_absent) == (0, 0, 4)


def test_erase_counts_a_row_that_went_before(conversation, scope):
    [chunk] = plan_of("items", scope)
    Item.objects.filter(session=conversation, seq=2).delete()

    erased = registry.get("items").erase(scope=scope, chunk=chunk)

    assert (erased.rows, erased.already_absent) == (3, 1)


def test_erase_refuses_a_row_that_the_plan_did_not_know(conversation, scope):
    [chunk] = plan_of("items", scope)
    kept = chunk.fingerprints[:16] + chunk.fingerprints[32:]

    with pytest.raises(Drift) as caught, transaction.atomic():
        registry.get("items").erase(scope=scope, chunk=replace(chunk, fingerprints=kept))

    assert (caught.value.category, caught.value.rows) == ("items", 1)
    assert Item.objects.filter(session=conversation).count() == 4


def test_erase_refuses_a_row_that_changed(conversation, scope):
    [chunk] = plan_of("runs", scope)
    conversation.runs.update(status="failed")

    with pytest.raises(Drift), transaction.atomic():
        registry.get("runs").erase(scope=scope, chunk=chunk)


def test_anonymise_keeps_the_row_and_clears_the_person(conversation, scope, register):
    from tests.governance.declared import sessions_categories

    register(sessions_categories(model_calls={"method": "anonymise"}))
    category = registry.get("model_calls")
    [chunk] = list(category.plan(scope=scope))
    tokens = ModelCall.objects.get().input_tokens

    erased = category.erase(scope=scope, chunk=chunk)

    call = ModelCall.objects.get()
    assert (erased.rows, erased.size) == (1, chunk.size)
    assert (call.subject_id, call.context, call.input_tokens) == (None, [], tokens)
    assert category.verify(scope=scope) == 0
    assert category.count(plan=[chunk]).buckets["anonymise"] == 1


def test_verify_finds_what_is_left(conversation, scope):
    category = registry.get("items")
    [chunk] = plan_of("items", scope)
    category.erase(scope=scope, chunk=chunk)
    assert category.verify(scope=scope) == 0

    talk.item(conversation)

    assert category.verify(scope=scope) == 1


def test_sample_shows_the_newest_rows_with_their_title(conversation, scope):
    samples = registry.get("items").sample(scope=scope, limit=2)

    assert [sample.id for sample in samples] == [f"{conversation.id}:4", f"{conversation.id}:3"]
    assert samples[0].title == "It is on its way."
    assert samples[0].created_at is not None


def test_export_gives_rows_as_json_in_the_order_of_the_plan(conversation, scope):
    rows = list(registry.get("items").export(scope=scope))

    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["content"] == {"text": "Where is my order?"}
    assert not {"tenant_id", "subject_id"} & set(rows[0])


def test_export_keeps_to_the_declared_fields_and_carries_bytes_as_files(conversation, scope):
    category = registry.get("blobs")

    [row] = list(category.export(scope=scope))
    [file] = list(category.files(scope=scope))

    assert set(row) == {"id", "sha256", "media_type", "name", "size"}
    assert (file.sha256, file.name, file.data) == (row["sha256"], "note.txt", b"text")


def test_unattributed_counts_rows_that_hang_from_nobody(agent, tenant, conversation):
    talk.conversation(agent, None)
    talk.conversation(agent, None)

    assert registry.get("sessions").unattributed(tenant_id=tenant.id) == 2
    assert registry.get("items").unattributed(tenant_id=tenant.id) == 0


def test_an_anonymising_category_must_say_what_it_sets():
    from governance.domain.registry import TableCategory
    from tests.governance.declared import ABOUT

    with pytest.raises(ValueError, match="say which columns"):
        TableCategory(key="x", title="X", model=Item, order=("seq",), about=ABOUT, method="anonymise")


@pytest.mark.django_db(transaction=True)
def test_plan_sees_one_moment_inside_a_snapshot(conversation, scope):
    from concurrent.futures import ThreadPoolExecutor

    from django.db import connections

    def write():
        talk.item(conversation)
        connections.close_all()

    with snapshot(), ThreadPoolExecutor(1) as pool:
        before = plan_of("items", scope)
        pool.submit(write).result()
        assert plan_of("items", scope) == before
    assert plan_of("items", scope)[0].rows == 5


@pytest.mark.django_db(transaction=True)
def test_snapshot_cannot_write(conversation):
    from django.db import InternalError

    with pytest.raises(InternalError, match="read-only"), snapshot():
        Session.objects.update(title="x")


@pytest.mark.django_db(transaction=True)
def test_snapshot_refuses_an_enclosing_transaction(tenant):
    with transaction.atomic(), pytest.raises(RuntimeError), snapshot():
        pass
    assert not connection.in_atomic_block


def test_rows_inside_one_large_session_are_erased_by_their_own_index(agent, subject, scope):
    """The subject's index would be read from end to end for every chunk."""
    talk.turns(talk.session(agent, subject), 1100)
    category = registry.get("items")
    chunk = next(iter(category.plan(scope=scope)))
    within, bounds = category._within(chunk)

    assert within == 't."session_id" = %s::uuid AND (t."seq") >= (%s::bigint) AND (t."seq") <= (%s::bigint)'
    assert bounds[1:] == ["1", "250"]
