"""What every registered category keeps, whoever declared it. Runs over the real register."""

from decimal import Decimal

import pytest
from django.db import OperationalError, connection

from governance.domain import clock, erasure, exports, keys, lineage, notes, previews, registry, requests
from governance.domain.category import Ref
from governance.domain.registry import Scope
from governance.ids import uuid7
from governance.models import ErasureStep, Export, HeldCopy, SubjectLink, SubjectRequest
from sessions.models import Quota, QuotaCounter, QuotaReservation
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.snapshots import rows_of, tables_with

pytestmark = pytest.mark.usefixtures("archives")


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def fill(agent, subject, name):
    """At least one row of the subject in every category."""
    by, session = make.lethe(agent.tenant), talk.conversation(agent, subject)
    talk.agent_file(agent, subject)
    make.archived(agent.tenant, session.id)
    talk.aggregation(session)
    quota = Quota.objects.create(
        tenant=agent.tenant, scope="subject", scope_ref=subject.id.hex, subject_id=subject.id, measure="runs", period="day",
        limit=5,
    )  # fmt: skip
    counter = QuotaCounter.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, quota=quota, ref=subject.id.hex, period_start="2026-01-01", reserved=1
    )
    QuotaReservation.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, counter=counter, run_id=session.runs.get().id, amount=Decimal(1)
    )
    lineage.record(
        tenant_id=agent.tenant_id, child=Ref("approvals", str(uuid7())), subject_id=subject.id,
        sources=[lineage.Source(Ref("items", f"{session.id}:1"), subject.id)], method="extraction",
    )  # fmt: skip
    SubjectLink.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, category="items", row_id=f"{uuid7()}:1", role="mentioned"
    )
    keys.create_key(tenant_id=agent.tenant_id, name=name, scopes=["runs:read"], subject=name, by=by)
    request = requests.export(subject=subject, by=by)
    exports.work(request_id=request.id)
    notes.write(request=request, kind="refusal", text=f"Told {name} why", by=by)
    HeldCopy.objects.create(
        tenant_id=agent.tenant_id, subject_id=subject.id, category="sessions", root="sessions", row_id=str(session.id),
        roots=[session.id], content={"title": "Before"},
    )  # fmt: skip


@pytest.fixture
def scope(agent, subject):
    fill(agent, subject, "anna")
    return Scope(subject.tenant_id, subject.id)


@pytest.fixture
def neighbours(agent, tenant, stranger_tenant):
    near, far = make.subject(tenant, "bert"), make.subject(stranger_tenant, "anna")
    fill(agent, near, "bert")
    fill(talk.agent(stranger_tenant), far, "anna")
    return near, far


def test_counts_agree_across_plan_count_export_and_erase(scope):
    found = {}
    for category in registry.erase_order():
        chunks = list(category.plan(scope=scope))
        counts = category.count(plan=chunks)
        exported = len(list(category.export(scope=scope)))
        erased = [category.erase(scope=scope, chunk=chunk) for chunk in chunks]
        found[category.key] = (
            (sum(chunk.rows for chunk in chunks), counts.rows, exported, sum(one.rows for one in erased)),
            (counts.size, sum(one.size for one in erased)),
        )

    assert {key: len(set(rows)) for key, (rows, _) in found.items()} == dict.fromkeys(found, 1)
    assert {key: len(set(sizes)) for key, (_, sizes) in found.items()} == dict.fromkeys(found, 1)
    assert min(rows[0] for rows, _ in found.values()) > 0
    connection.check_constraints()


def test_second_erase_finds_everything_absent(scope):
    for category in registry.erase_order():
        chunks = list(category.plan(scope=scope))
        for chunk in chunks:
            category.erase(scope=scope, chunk=chunk)

        again = [category.erase(scope=scope, chunk=chunk) for chunk in chunks]

        expected = [(0, chunk.rows) for chunk in chunks]
        assert [(one.rows, one.already_absent) for one in again] == expected, category.key


def test_verify_finds_what_is_there_and_nothing_afterwards(scope):
    for category in registry.erase_order():
        before = category.verify(scope=scope)
        for chunk in list(category.plan(scope=scope)):
            category.erase(scope=scope, chunk=chunk)

        assert before > 0, category.key
        assert category.verify(scope=scope) == 0, category.key


def test_samples_have_a_title_and_an_id(scope):
    for category in registry.erase_order():
        samples = category.sample(scope=scope, limit=3)

        assert samples, category.key
        assert all(sample.title and sample.id for sample in samples), category.key


def test_plan_is_the_same_twice_and_blind_to_neighbours(scope, agent, tenant):
    before = {category.key: list(category.plan(scope=scope)) for category in registry.erase_order()}

    fill(agent, make.subject(tenant, "cora"), "cora")

    assert {category.key: list(category.plan(scope=scope)) for category in registry.erase_order()} == before


def test_neighbours_are_identical_after_every_category_was_erased(scope, neighbours):
    before = [rows_of("subject_id", subject.id) for subject in neighbours]

    for category in registry.erase_order():
        for chunk in list(category.plan(scope=scope)):
            category.erase(scope=scope, chunk=chunk)

    connection.check_constraints()
    assert [rows_of("subject_id", subject.id) for subject in neighbours] == before


def test_erasure_through_the_real_register(scope, subject, officer, neighbours):
    kept = [rows_of("subject_id", neighbour.id) for neighbour in neighbours]
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm="anna", reason="subject_request", by=officer)

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure) == ("completed", None)
    assert {table for table, rows in rows_of("subject_id", subject.id).items() if rows} == {
        "governance_fence", "governance_ledgerentry", "governance_subjectrequest",
    }  # fmt: skip
    assert [rows_of("subject_id", neighbour.id) for neighbour in neighbours] == kept
    for entry in done.receipt["categories"]:
        assert entry["previewed"] == entry["erased"] + entry["anonymised"] + entry["already_absent"]
    assert Export.objects.count() == 2


@pytest.mark.parametrize("key", sorted(registry.categories()))
def test_category_whose_store_is_down_is_tried_again_and_leaves_neighbours_alone(
    key, scope, subject, officer, neighbours, monkeypatch
):
    kept = [rows_of("subject_id", neighbour.id) for neighbour in neighbours]
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm="anna", reason="subject_request", by=officer)

    def down(*, scope, chunk):
        raise OperationalError("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(registry.get(key), "erase", down)
        failed = erasure.work(request_id=request.id)

    assert (failed.state, failed.resume_state) == ("failed_retryable", "executing")
    assert not ErasureStep.objects.filter(category=key).exists()
    assert [rows_of("subject_id", neighbour.id) for neighbour in neighbours] == kept
    SubjectRequest.objects.update(lease_until=clock.now())
    done = erasure.work(request_id=request.id)
    assert (done.state, done.failure) == ("completed", None)
    assert registry.get(key).verify(scope=scope) == 0


def test_canary_in_every_text_is_gone_through_the_real_register(agent, tenant, officer):
    canary = "canary-d41d8c"
    subject = make.subject(tenant, canary)
    session = talk.conversation(
        agent, subject, key=canary, title=canary, labels=[canary], state={"todos": [canary]}, task={"cart": canary}
    )
    run = talk.run(
        session=session, request={"message": canary}, output={"text": canary}, metadata={"a": canary}, labels=[canary],
        started_by=canary, error={"message": canary},
    )  # fmt: skip
    talk.item(session, content={"text": canary})
    talk.event(run, 1, "message.delta", {"text": canary})
    talk.model_call(run, context=[{"layer": "facts", "sources": [canary]}])
    talk.blob(session, canary.encode(), name=canary)
    talk.approval(run, arguments={"to": canary}, status="rejected", reason=canary, edited_arguments={"to": canary})
    talk.rule(agent, session, condition={"to": {"equals": canary}})
    talk.idempotency_record(run, canary)
    talk.agent_file(agent, subject, f"/{canary}.md", canary, written_by=canary)
    talk.workspace_file(session, f"{canary}.md", canary, written_by=canary)
    assert len(tables_with(canary)) >= 8
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm=canary, reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert done.state == "completed"
    assert tables_with(canary) == []


def test_receipt_tells_what_tools_did_outside(agent, subject, tenant, officer, settings):
    settings.LETHE = {**settings.LETHE, "provider_days": 30}
    session = talk.conversation(agent, subject)
    run = talk.run(session=session, effects=["c1", "c2", "c3"])
    for seq, (call, name) in enumerate([("c1", "send_email"), ("c2", "send_email"), ("c9", "not_started")], 1):
        talk.event(run, seq, "tool.called", {"call_id": call, "name": name})
    talk.run(agent, subject=make.subject(tenant, "bert"), effects=["c4"])
    _, token = previews.preview(subject=subject, by=officer)
    request = requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="other", by=officer)

    done = erasure.work(request_id=request.id)

    assert done.receipt["effects_outside"] == [{"tool": "send_email", "count": 2}, {"tool": "unknown", "count": 1}]
    assert {provider["declared_days"] for provider in done.receipt["providers"]} == {30}
