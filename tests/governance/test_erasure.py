"""Erase what was shown, all of it, nothing else; whatever happens to the worker."""

import pytest
from django.db import DatabaseError, transaction

from governance.actors import system
from governance.domain import clock, erasure, fences, jobs, previews, registry, requests, subjects
from governance.domain.registry import TableCategory
from governance.errors import SubjectFenced
from governance.models import (
    AuditEvent,
    ErasureStep,
    Fence,
    PlanChunk,
    Subject,
    SubjectIdentifier,
    SubjectRequest,
)
from sessions.models import Item, ModelCall, Run, Session
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.declared import sessions_categories
from tests.governance.snapshots import rows_of, tables_with
from tests.owner import as_owner

pytestmark = pytest.mark.usefixtures("declared")

# Written by every erasure, whoever it is about.
OWN = (
    "governance_auditevent", "governance_audithead", "governance_ledgerentry", "governance_suppressedidentifier",
    "governance_tenant",
)  # fmt: skip


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def confirm(subject, by) -> SubjectRequest:
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)


def erase(subject, by) -> SubjectRequest:
    return erasure.work(request_id=confirm(subject, by).id)


def lease_runs_out():
    """As if the worker had died and 30 seconds had passed."""
    SubjectRequest.objects.update(lease_until=clock.now())


def test_erase_leaves_nothing_of_the_subject(agent, subject, officer):
    talk.conversation(agent, subject)
    talk.turns(talk.session(agent, subject), 1100)

    request = erase(subject, officer)

    assert request.state == "completed"
    left = {table: len(rows) for table, rows in rows_of("subject_id", subject.id).items() if rows}
    assert left == {
        "governance_fence": 1,
        "governance_ledgerentry": 2,
        "governance_subjectrequest": 1,
    }
    assert Subject.objects.get(pk=subject.pk).state == "erased"


def test_erased_equals_previewed_in_every_category(agent, subject, officer):
    talk.conversation(agent, subject)
    talk.turns(talk.session(agent, subject), 1100)
    request = confirm(subject, officer)
    shown = {entry["key"]: entry["rows"] for entry in request.preview["categories"] if entry["rows"]}
    sizes = {entry["key"]: entry["bytes"] for entry in request.preview["categories"] if entry["rows"]}

    request = erasure.work(request_id=request.id)

    steps = ErasureStep.objects.filter(request=request)
    assert {key: sum(step.rows for step in steps if step.category == key) for key in shown} == shown
    assert {key: sum(step.bytes for step in steps if step.category == key) for key in shown} == sizes
    assert shown["items"] == 2204
    assert [step.chunk_no for step in steps.filter(category="items").order_by("chunk_no")] == list(range(9))
    for entry in request.receipt["categories"]:
        counted = ("erased", "anonymised", "regenerated", "already_absent", "held", "retained", "skipped")
        assert entry["previewed"] == sum(entry[name] for name in counted)


def test_neighbours_stay_identical(agent, subject, officer, tenant, stranger_tenant):
    """Same tenant, same agent, same key; and another tenant whose person has the same name."""
    talk.conversation(agent, subject, key="same")
    neighbour = make.subject(tenant, "bert")
    talk.conversation(agent, neighbour, key="same")
    stranger = make.subject(stranger_tenant, "anna")
    talk.conversation(talk.agent(stranger_tenant), stranger, key="same")
    talk.conversation(agent, None)
    before = (
        rows_of("subject_id", neighbour.id),
        rows_of("tenant_id", stranger_tenant.id, exclude=OWN),
        sorted(Session.objects.filter(subject=None).values_list("id", flat=True)),
    )

    erase(subject, officer)

    assert before == (
        rows_of("subject_id", neighbour.id),
        rows_of("tenant_id", stranger_tenant.id, exclude=OWN),
        sorted(Session.objects.filter(subject=None).values_list("id", flat=True)),
    )
    assert Item.objects.filter(subject_id=neighbour.id).count() == 4


def test_canary_is_nowhere_after_an_erasure(agent, tenant, officer):
    canary = "canary-51b7e0"
    subject = make.subject(tenant, canary)
    session = talk.conversation(agent, subject, title=canary, state={"todos": [canary]}, labels=[canary])
    run = session.runs.get()
    talk.item(session, content={"text": f"say {canary}"})
    talk.event(run, 3, "message.delta", {"text": canary})
    talk.model_call(run, 2, context=[{"layer": "facts", "sources": [canary]}])
    talk.blob(session, canary.encode(), name=f"{canary}.txt")
    talk.approval(run, arguments={"to": canary}, status="rejected", reason=canary)
    Run.objects.filter(pk=run.pk).update(request={"message": canary}, output={"text": canary})
    assert len(tables_with(canary)) == 7
    # An earlier preview that nobody confirmed holds samples as well, encrypted.
    previews.preview(subject=subject, kind="export", by=officer)

    request = erase(subject, officer)

    assert request.state == "completed"
    assert tables_with(canary) == []
    assert not PlanChunk.objects.exists()
    assert all(not (request.preview or {}).get("samples") for request in SubjectRequest.objects.all())


def test_erase_closes_the_subject_for_ever(agent, conversation, subject, officer):
    erase(subject, officer)

    fence = Fence.objects.get()
    assert (fence.mode, fence.lifted_at, Subject.objects.get(pk=subject.pk).state) == ("suppress", None, "erased")
    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        talk.session(agent, subject)
    with pytest.raises(previews.SubjectErased):
        previews.preview(subject=subject, by=officer)


def test_person_who_returns_gets_a_new_subject(agent, conversation, subject, officer):
    erase(subject, officer)

    again = make.subject(subject.tenant, "anna")

    assert again.id != subject.id
    assert again.display_ref != subject.display_ref
    talk.conversation(agent, again)
    assert SubjectIdentifier.objects.get().subject_id == again.id


def test_key_of_the_subject_goes_with_it(tenant, admin, subject, officer):
    from governance.domain import keys
    from governance.errors import Unauthenticated

    _, secret = keys.create_key(tenant_id=tenant.id, name="annas", scopes=["runs:write"], subject="anna", by=admin)
    _, other = keys.create_key(tenant_id=tenant.id, name="others", scopes=["runs:write"], by=admin)

    erase(subject, officer)

    with pytest.raises(Unauthenticated):
        keys.authenticate(secret=secret)
    assert keys.authenticate(secret=other).label == "others"


def test_receipt_has_the_documented_shape_and_no_values(conversation, subject, officer):
    request = erase(subject, officer)

    receipt = request.receipt
    assert receipt["schema"] == "lethe.receipt/1"
    assert (receipt["request_ref"], receipt["profile"], receipt["version"]) == (request.ref, "gdpr", 1)
    assert receipt["subject_pseudonym"].startswith("hmac-sha256:")
    assert receipt["logically_erased_at"].endswith("Z")
    assert receipt["verification"] == {
        "level": 1, "read_paths": len(registry.categories()), "hits": 0, "orphans": 0, "found_by_verification": {},
    }  # fmt: skip
    assert {
        "received_at", "due_at", "purge", "horizons", "categories", "exceptions", "effects_outside", "providers", "approval",
        "recipients", "software", "audit_head", "attests",
    } <= set(receipt)  # fmt: skip
    assert receipt["providers"] == [{"name": "model_provider", "declared_days": None}]
    assert receipt["software"]["registry_hash"] == registry.fingerprint()
    for value in ("anna", str(subject.id), subject.id.hex, subject.display_ref):
        assert value not in str(receipt)


def test_every_step_of_the_way_is_audited(conversation, subject, officer):
    erase(subject, officer)

    actions = AuditEvent.objects.filter(tenant_id=subject.tenant_id).order_by("id").values_list("action", flat=True)
    assert [action for action in actions if action.split(".")[0] in ("request", "subject")] == [
        "request.previewed", "request.confirmed", "request.fenced", "request.executing", "request.verifying",
        "request.receipt_issued", "request.completed", "subject.erased",
    ]  # fmt: skip


def test_anonymised_rows_stay_as_totals(agent, subject, officer, register):
    register(
        sessions_categories(
            model_calls={"method": "anonymise", "group_of": ("runs", "run_id")},
            runs={
                "method": "anonymise",
                "anonymise": {"session_id": None, "request": {}, "output": None, "metadata": {}, "started_by": "", "actor_ref": ""},
            },
        )
    )
    talk.conversation(agent, subject)

    request = erase(subject, officer)

    assert request.state == "completed"
    counts = {entry["key"]: (entry["erased"], entry["anonymised"]) for entry in request.receipt["categories"]}
    assert (counts["runs"], counts["model_calls"], counts["sessions"]) == ((0, 1), (0, 1), (1, 0))
    run, call = Run.objects.get(), ModelCall.objects.get()
    assert (run.subject_id, run.session_id, run.input_tokens, call.subject_id) == (None, None, 120, None)


# -- drift


def test_rows_added_after_the_preview_stop_the_erasure(conversation, subject, officer):
    request = confirm(subject, officer)
    talk.item(conversation, content={"text": "one more"})

    request = erasure.work(request_id=request.id)

    assert request.state == "previewed"
    assert request.drift == {
        "categories": [{"key": "items", "added": 1, "changed": 0}, {"key": "sessions", "added": 0, "changed": 1}]
    }
    assert Item.objects.filter(session=conversation).count() == 5
    assert Fence.objects.get().mode == "erase"
    assert AuditEvent.objects.get(action="request.drifted").payload["categories"] == ["items", "sessions"]


def test_a_changed_row_stops_the_erasure(conversation, subject, officer):
    request = confirm(subject, officer)
    Run.objects.update(status="failed")

    request = erasure.work(request_id=request.id)

    assert request.drift == {"categories": [{"key": "runs", "added": 0, "changed": 1}]}


def test_after_drift_the_fence_holds_and_a_second_preview_goes_through(conversation, subject, officer):
    _, token = previews.preview(subject=subject, by=officer)
    args = {"subject": subject, "confirm": subject.display_ref, "reason": "subject_request", "by": officer}
    request = requests.erase(token=token, **args)
    talk.item(conversation)
    erasure.work(request_id=request.id)

    with pytest.raises(requests.PreviewDrift) as caught:
        requests.erase(token=token, **args)
    assert caught.value.extra["delta"][0] == {"key": "items", "added": 1, "changed": 0}
    with pytest.raises(SubjectFenced), transaction.atomic(), fences.told():
        talk.item(conversation)

    second, token = previews.preview(subject=subject, by=officer)
    assert (second.id, second.drift) == (request.id, None)
    done = erasure.work(request_id=requests.erase(token=token, **args).id)

    assert done.state == "completed"
    assert next(entry for entry in done.receipt["categories"] if entry["key"] == "items")["erased"] == 5
    assert Fence.objects.count() == 1


def test_rows_that_went_meanwhile_are_no_drift(conversation, subject, officer):
    request = confirm(subject, officer)
    Item.objects.filter(session=conversation, seq__in=[2, 3]).delete()

    request = erasure.work(request_id=request.id)

    assert request.state == "completed"
    items = next(entry for entry in request.receipt["categories"] if entry["key"] == "items")
    assert (items["previewed"], items["erased"], items["already_absent"]) == (4, 2, 2)


def test_a_writer_past_the_guard_stops_its_category(conversation, subject, officer, monkeypatch, register):
    register(sessions_categories(items={"row_version": "t.is_hidden::text"}))
    request = confirm(subject, officer)
    plan = previews.take_plan

    def then_write(scope, **options):
        taken = plan(scope, **options)
        # Seq 2 again: within the bounds of the chunk that is about to go.
        _past_the_guard(lambda: Item.objects.bulk_create([late]))
        return taken

    late = Item.objects.get(session=conversation, seq=2)
    Item.objects.filter(session=conversation, seq=2).delete()
    late.is_hidden = True
    monkeypatch.setattr(previews, "take_plan", then_write)

    request = erasure.work(request_id=request.id)

    assert (request.state, request.resume_state, request.failure["code"]) == ("failed_retryable", "executing", "drift")
    assert "items" in request.failure["message"]
    assert Item.objects.filter(session=conversation).count() == 4
    assert AuditEvent.objects.get(action="request.failed").payload["code"] == "drift"


def test_erasure_whose_plan_has_lost_a_chunk_is_never_done(agent, subject, officer, monkeypatch):
    talk.turns(talk.session(agent, subject), 300)
    request = confirm(subject, officer)
    inner = erasure._erase_batch

    def lose_the_first(lease, request, scope, category, chunks):
        if category.key == "items":
            PlanChunk.objects.filter(pk=chunks[0]).delete()
        return inner(lease, request, scope, category, chunks)

    with monkeypatch.context() as patch:
        patch.setattr(erasure, "_erase_batch", lose_the_first)
        stopped = erasure.work(request_id=request.id)
    assert (stopped.state, stopped.failure["code"], Item.objects.count()) == ("failed_retryable", "error", 600)
    lease_runs_out()

    done = erasure.work(request_id=request.id)

    # The sessions have rows that no plan names any more.
    assert (done.state, Item.objects.count()) == ("failed_retryable", 250)


# -- the worker dies


class Killed(BaseException):
    """Not an Exception: nothing in the worker may catch it, as nothing catches SIGKILL."""


def dies_after(monkeypatch, batches: int):
    """The worker is gone before batch number `batches` + 1 commits, of one chunk each."""
    monkeypatch.setattr(erasure, "BATCH_SECONDS", 0)
    done = {"batches": 0}
    create = ErasureStep.objects.bulk_create

    def count(steps):
        if done["batches"] == batches:
            raise Killed
        done["batches"] += len(steps)
        return create(steps)

    monkeypatch.setattr(ErasureStep.objects, "bulk_create", count)


@pytest.mark.parametrize("batches", [0, 1, 4, 7, 10])
def test_killed_worker_is_resumed_exactly(agent, subject, officer, batches):
    talk.conversation(agent, subject)
    talk.turns(talk.session(agent, subject), 1100)
    request = confirm(subject, officer)
    shown = {entry["key"]: entry["rows"] for entry in request.preview["categories"]}

    with pytest.MonkeyPatch.context() as patch:
        dies_after(patch, batches)
        with pytest.raises(Killed):
            erasure.work(request_id=request.id)
    assert ErasureStep.objects.count() == batches
    assert erasure.work(request_id=request.id) is None
    lease_runs_out()

    done = erasure.work(request_id=request.id)

    assert done.state == "completed"
    assert {entry["key"]: entry["erased"] for entry in done.receipt["categories"]} == shown
    steps = ErasureStep.objects.all()
    assert {step.lease_no for step in steps} == ({1, 2} if batches else {2})
    assert len({(step.category, step.chunk_no) for step in steps}) == len(steps)


def test_worker_that_lost_its_lease_writes_nothing(agent, subject, officer):
    talk.turns(talk.session(agent, subject), 3)
    request = confirm(subject, officer)
    category = registry.get("items")
    erase_chunk = TableCategory.erase

    def stolen(self, *, scope, chunk):
        if self is category:
            # Another worker claims the row while this one is between two statements.
            SubjectRequest.objects.filter(pk=request.pk).update(lease_no=99)
        return erase_chunk(self, scope=scope, chunk=chunk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableCategory, "erase", stolen)
        erasure.work(request_id=request.id)

    assert Item.objects.count() == 6
    assert not ErasureStep.objects.filter(category="items").exists()


def test_lease_is_compared_by_every_batch(subject, officer, conversation):
    request = confirm(subject, officer)
    lease = jobs.claim(SubjectRequest, request.id, states=erasure.WORKING, resume="resume_state")
    assert jobs.claim(SubjectRequest, request.id, states=erasure.WORKING, resume="resume_state") is None
    lease_runs_out()
    newer = jobs.claim(SubjectRequest, request.id, states=erasure.WORKING, resume="resume_state")

    newer.renew()
    with pytest.raises(jobs.LeaseLost):
        lease.renew()
    with pytest.raises(jobs.LeaseLost):
        lease.release(state="completed")
    assert SubjectRequest.objects.get().state == "fencing"


@pytest.mark.parametrize(
    ("error", "code"), [(OSError("disk"), "error"), (SubjectFenced(), "subject_fenced"), (DatabaseError("gone"), "error")]
)
def test_error_is_kept_and_tried_again(conversation, subject, officer, monkeypatch, error, code):
    request = confirm(subject, officer)

    def fail(*args, **kwargs):
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableCategory, "erase", fail)
        failed = erasure.work(request_id=request.id)
    assert (failed.state, failed.resume_state, failed.failure["code"]) == ("failed_retryable", "executing", code)
    assert failed.lease_until > clock.now()
    assert erasure.work(request_id=request.id) is None
    lease_runs_out()

    done = erasure.work(request_id=request.id)

    assert (done.state, done.failure, done.resume_state) == ("completed", None, "")


def test_row_that_is_still_referred_to_fails_inside_its_batch(conversation, subject, officer, register):
    """Sessions before their items: the database says so in the batch, not at some later commit."""
    register(sessions_categories(sessions={"erase_after": ()}, items={"erase_after": ("sessions",)}))

    request = erase(subject, officer)

    assert (request.state, request.failure["code"]) == ("failed_retryable", "error")
    assert Session.objects.filter(subject=subject).count() == 1


# -- quiesce, verify


def test_running_work_is_asked_to_stop_before_the_fence(conversation, subject, officer, register):
    asked = []

    def stop(*, scope, deadline):
        asked.append((scope.subject_id, Fence.objects.exists()))
        return 0

    register(sessions_categories(runs={"quiesce": stop}))

    request = erase(subject, officer)

    assert request.state == "completed"
    assert asked == [(subject.id, False)]


def _past_the_guard(write):
    """Write as no code of ours can: with the trigger switched off."""
    as_owner("SET LOCAL session_replication_role = 'replica'")
    write()
    as_owner("SET LOCAL session_replication_role = 'origin'")


def test_rows_found_by_verification_are_erased_and_told(agent, conversation, subject, officer, monkeypatch):
    request = confirm(subject, officer)
    verify, appeared = TableCategory.verify, []

    def appear(self, *, scope):
        if self.key == "sessions" and not appeared:
            appeared.append(True)
            _past_the_guard(lambda: talk.session(agent, subject))
        return verify(self, scope=scope)

    monkeypatch.setattr(TableCategory, "verify", appear)

    request = erasure.work(request_id=request.id)

    assert request.state == "completed"
    assert not Session.objects.filter(subject=subject).exists()
    assert request.receipt["verification"]["found_by_verification"] == {"sessions": 1}
    sessions = next(entry for entry in request.receipt["categories"] if entry["key"] == "sessions")
    assert (sessions["previewed"], sessions["erased"]) == (2, 2)


def test_rows_that_keep_appearing_fail_the_request(agent, conversation, subject, officer, monkeypatch):
    request = confirm(subject, officer)
    verify = TableCategory.verify

    def appear(self, *, scope):
        if self.key == "sessions":
            _past_the_guard(lambda: talk.session(agent, subject))
        return verify(self, scope=scope)

    monkeypatch.setattr(TableCategory, "verify", appear)

    request = erasure.work(request_id=request.id)

    assert (request.state, request.failure["code"]) == ("failed_retryable", "residue")
    assert request.receipt is None


def test_open_requests_of_the_subject_end_with_it(conversation, subject, officer):
    export = requests.export(subject=subject, by=officer)

    erase(subject, officer)

    export.refresh_from_db()
    assert (export.state, export.reason) == ("cancelled", "subject_erased")


def test_erased_subject_is_found_by_reference_and_no_longer_by_name(tenant, conversation, subject, officer):
    erase(subject, officer)

    assert subjects.search(tenant_id=tenant.id, q=subject.display_ref, by=officer) == [subject]
    assert subjects.search(tenant_id=tenant.id, q="anna", by=officer) == []


def test_work_on_what_needs_none_does_nothing(subject, officer, conversation):
    request, _ = previews.preview(subject=subject, by=officer)

    assert erasure.work(request_id=request.id) is None
    assert SubjectRequest.objects.get().state == "previewed"
    assert system(subject.tenant_id).kind == "system"


@pytest.mark.django_db(transaction=True)
def test_erasure_in_real_transactions(settings):
    """The same, with the isolation levels, locks and commits of production."""
    tenant = make.tenant("acme")
    agent, subject, by = talk.agent(tenant), make.subject(tenant, "anna"), make.lethe(tenant)
    talk.conversation(agent, subject)
    talk.turns(talk.session(agent, subject), 1100)

    request = erase(subject, by)

    assert request.state == "completed"
    assert not Item.objects.exists()
    assert request.receipt["verification"]["hits"] == 0
