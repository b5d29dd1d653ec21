"""Receipts: signed, balanced, in versions, checked without a database; recipients, and corrections that end in one."""

import io
import json

import pytest
from django.core.management import call_command

from governance import signing
from governance.domain import corrections, erasure, fences, previews, receipts, recipients, requests, rules, subjects
from governance.errors import AmbiguousIdentifier, Conflict, Invalid, MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, Receipt, RequestRecipient, SubjectIdentifier, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk

pytestmark = pytest.mark.usefixtures("declared")
OTHER_KEY = "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="


@pytest.fixture(autouse=True)
def impatient(settings):
    settings.LETHE = {**settings.LETHE, "quiesce_seconds": 0}


def confirm(subject, by):
    _, token = previews.preview(subject=subject, by=by)
    return requests.erase(subject=subject, token=token, confirm=subject.display_ref, reason="subject_request", by=by)


@pytest.fixture
def erased(conversation, subject, officer):
    return erasure.work(request_id=confirm(subject, officer).id)


# Signed and balanced


def test_receipt_is_signed_and_adds_up(erased):
    stored = json.loads(json.dumps(SubjectRequest.objects.get().receipt))

    assert receipts.problems(stored) == []
    done = sum(entry["erased"] + entry["anonymised"] for entry in stored["categories"])
    assert done == sum(entry["rows"] for entry in erased.preview["categories"]) > 10
    assert [found.version for found in Receipt.objects.all()] == [1]
    assert AuditEvent.objects.get(action="request.receipt_issued").payload["key"] == signing.key_id()


def change(document, path, value):
    copy = json.loads(json.dumps(document))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copy


@pytest.mark.parametrize("path, value", [
    (("request_ref",), "SR-2026-000002"), (("categories", 0, "erased"), 99), (("approval", "four_eyes"), True),
    (("recipients",), []), (("version",), 2), (("logically_erased_at",), None),
])  # fmt: skip
def test_receipt_that_was_changed_does_not_hold(erased, path, value):
    assert any("signature" in problem for problem in receipts.problems(change(erased.receipt, path, value)))


def test_receipt_that_does_not_add_up_is_told_even_when_signed(erased):
    forged = signing.signed(change(erased.receipt, ("categories", 0, "previewed"), 99))

    assert receipts.problems(forged) == [f"The counts of {forged['categories'][0]['key']} do not add up to what was previewed."]


@pytest.mark.parametrize("document", [None, [], "x", {}, {"schema": "lethe.receipt/2"}, {"schema": "lethe.receipt/1", "categories": [{}]}])
def test_receipt_of_another_shape_does_not_hold(document):
    assert receipts.problems(document) != []


def test_receipt_that_would_not_add_up_is_not_signed(conversation, subject, officer, monkeypatch):
    request = confirm(subject, officer)
    counted = receipts._categories
    monkeypatch.setattr(receipts, "_categories", lambda *args: [{**entry, "held": entry["held"] + 1} for entry in counted(*args)])

    stopped = erasure.work(request_id=request.id)

    assert (stopped.state, stopped.failure["code"]) == ("failed_retryable", "receipt_unbalanced")
    assert not Receipt.objects.exists()


def entry_of(receipt, key):
    return next(entry for entry in receipt["categories"] if entry["key"] == key)


def test_receipt_counts_rows_that_the_rules_took_along(conversation, subject, officer, admin, tenant):
    rules.change(tenant=tenant, accept_added_rows=2, by=admin)
    request = confirm(subject, officer)
    talk.event(conversation.runs.get(), 3, "run.noted")

    receipt = erasure.work(request_id=request.id).receipt

    events = entry_of(receipt, "run_events")
    assert (events["previewed"], events["erased"], events["already_absent"]) == (3, 3, 0)
    assert receipts.problems(receipt) == []
    assert AuditEvent.objects.get(action="request.accepted_additions").payload["rows"] == 1


def test_receipt_counts_rows_that_went_while_others_came(conversation, subject, officer, admin, tenant):
    rules.change(tenant=tenant, accept_added_rows=2, by=admin)
    request = confirm(subject, officer)
    conversation.items.order_by("seq").last().delete()
    talk.event(conversation.runs.get(), 3, "run.noted")

    receipt = erasure.work(request_id=request.id).receipt

    items = entry_of(receipt, "items")
    assert (items["previewed"], items["erased"], items["already_absent"]) == (4, 3, 1)
    assert receipts.problems(receipt) == []


@pytest.mark.parametrize("limit, added, changed", [(0, 1, False), (2, 3, False), (9, 1, True)])
def test_additions_beyond_the_rules_stop_the_erasure(conversation, agent, subject, officer, admin, tenant, limit, added, changed):
    rules.change(tenant=tenant, accept_added_rows=limit, by=admin)
    request = confirm(subject, officer)
    for number in range(added):
        talk.event(conversation.runs.get(), 3 + number, "run.noted")
    if changed:
        conversation.runs.update(status="failed")

    assert erasure.work(request_id=request.id).state == "previewed"


def test_additions_in_a_category_that_was_not_shown_stop_the_erasure(agent, subject, officer, admin, tenant):
    rules.change(tenant=tenant, accept_added_rows=100, by=admin)
    session = talk.session(agent, subject, "empty")
    request = confirm(subject, officer)
    talk.rule(agent, session)

    assert erasure.work(request_id=request.id).state == "previewed"


def test_additions_after_an_approval_are_shown_to_a_person(conversation, subject, officer, admin, tenant):
    rules.change(tenant=tenant, accept_added_rows=100, four_eyes="always", by=admin)
    request = confirm(subject, officer)
    requests.approve(request=request, digest=request.digest, by=make.actor(tenant, "privacy_approver"))
    talk.event(conversation.runs.get(), 3, "run.noted")

    assert erasure.work(request_id=request.id).state == "previewed"


# Versions


def test_addendum_is_another_signed_version(erased):
    first = erased.receipt

    second = receipts.addendum(request=erased, purge={"state": "done", "purged_at": "2026-12-01T00:00:00Z"})

    assert (first["version"], second["version"]) == (1, 2)
    assert second["purge"] == {**first["purge"], "state": "done", "purged_at": "2026-12-01T00:00:00Z"}
    assert {**second, "version": 1, "purge": first["purge"], "signature": None} == {**first, "signature": None}
    assert [receipts.problems(found.document) for found in Receipt.objects.all()] == [[], []]
    assert SubjectRequest.objects.get().receipt == second
    assert receipts.version_of(erased, 1) == first
    assert receipts.version_of(SubjectRequest.objects.get()) == second
    with pytest.raises(NotFound):
        receipts.version_of(erased, 3)


@pytest.mark.parametrize("name", ["categories", "version", "signature", "request_ref", "nothing"])
def test_addendum_cannot_change_what_was_done(erased, name):
    with pytest.raises(ValueError, match=name):
        receipts.addendum(request=erased, **{name: []})


def test_addendum_needs_a_receipt(subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    with pytest.raises(Conflict):
        receipts.addendum(request=request, purge={"state": "done"})
    with pytest.raises(NotFound):
        receipts.version_of(request)


# The command


def verify(*arguments):
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("verify_receipt", *map(str, arguments), stdout=out, stderr=err)
    except SystemExit as stop:
        return stop.code, err.getvalue()
    return 0, out.getvalue()


@pytest.fixture
def file(erased, tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(erased.receipt, indent=2))
    return path


def test_command_verifies_with_either_key(file, tmp_path):
    key = tmp_path / "key"
    key.write_text(signing.public_key() + "\n")

    for arguments in ([], ["--key", signing.public_key()], ["--key", key]):
        code, told = verify(file, *arguments)
        assert (code, "the signature of" in told) == (0, True)


def test_command_refuses_a_changed_receipt_another_key_and_what_is_no_receipt(file, tmp_path):
    assert verify(file, "--key", OTHER_KEY)[0] == 1
    assert verify(file, "--key", "nonsense")[0] == 1
    file.write_text(file.read_text().replace('"erased": 4', '"erased": 5'))
    assert verify(file)[0] == 1
    file.write_text("not json")
    assert verify(file)[0] == 1
    assert verify(tmp_path / "missing.json")[0] == 1


@pytest.mark.django_db(databases=[])
def test_command_needs_no_database(tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(signing.signed({"schema": "lethe.receipt/1", "version": 1, "request_ref": "SR-1", "categories": []})))

    assert verify(path)[0] == 0


# Recipients


def test_recipients_are_listed_told_and_acknowledged(erased, officer):
    assert erased.receipt["recipients"] == [{"ref": "model_provider", "told_at": None, "acknowledged_at": None}]

    recipients.tell(request=erased, ref="model_provider", by=officer)
    recipients.tell(request=erased, ref="model_provider", by=officer)
    recipients.acknowledge(request=erased, ref="model_provider", by=officer)

    receipt = SubjectRequest.objects.get().receipt
    assert receipt["version"] == 3
    assert all(receipt["recipients"][0].values())
    assert receipts.problems(receipt) == []
    assert AuditEvent.objects.filter(action="request.recipient_told").count() == 1


def test_recipients_refuse_the_wrong_order_name_role_and_tenant(erased, officer, tenant, stranger_tenant):
    with pytest.raises(Conflict, match="told"):
        recipients.acknowledge(request=erased, ref="model_provider", by=officer)
    with pytest.raises(NotFound):
        recipients.tell(request=erased, ref="nobody", by=officer)
    with pytest.raises(MissingPermission):
        recipients.tell(request=erased, ref="model_provider", by=make.actor(tenant, "auditor"))
    with pytest.raises(NotFound):
        recipients.tell(request=erased, ref="model_provider", by=make.actor(stranger_tenant, "privacy_officer"))
    assert RequestRecipient.objects.get().told_at is None


# Corrections


@pytest.fixture
def correcting(subject, officer):
    return requests.receive(subject=subject, kind="rectify", by=officer)


def test_correction_changes_an_identifier_and_keeps_no_value(correcting, subject, officer, tenant):
    identifier = SubjectIdentifier.objects.get()

    request = corrections.correct_identifier(request=correcting, identifier_id=identifier.id, value="anna-2", by=officer)

    assert subjects.find(tenant_id=tenant.id, value="anna") is None
    assert subjects.find(tenant_id=tenant.id, value="anna-2") == subject
    assert subjects.identifiers_of(subject=subject) == [("external", "anna-2")]
    assert request.corrections == [{"category": "subject_identifiers", "what": "external", "rows": 1}]
    assert "anna" not in str(list(AuditEvent.objects.exclude(action="tenant.created").values_list("payload", flat=True)))


def test_correction_ends_with_a_receipt(correcting, officer):
    corrections.record(request=correcting, category="items", what="title", rows=2, by=officer)

    done = corrections.complete(request=correcting, by=officer)

    assert (done.state, done.ended_at is not None) == ("completed", True)
    receipt = SubjectRequest.objects.get().receipt
    assert (receipt["kind"], receipt["categories"], receipt["corrections"]) == (
        "rectification", [], [{"category": "items", "what": "title", "rows": 2}],
    )  # fmt: skip
    assert [entry["ref"] for entry in receipt["recipients"]] == ["model_provider"]
    assert receipts.problems(receipt) == []
    with pytest.raises(Conflict, match="has ended"):
        corrections.record(request=correcting, category="items", what="title", rows=2, by=officer)


def test_correction_without_anything_corrected_does_not_end(correcting, officer):
    with pytest.raises(Conflict, match="Nothing was corrected"):
        corrections.complete(request=correcting, by=officer)


@pytest.mark.parametrize("values, field", [
    ({"category": "nothing"}, "category"), ({"what": "Anna, not Ana"}, "what"), ({"what": ""}, "what"), ({"what": None}, "what"),
    ({"rows": 0}, "rows"), ({"rows": "2"}, "rows"), ({"rows": True}, "rows"),
])  # fmt: skip
def test_correction_refuses_values_and_nonsense(correcting, officer, values, field):
    with pytest.raises(Invalid) as caught:
        corrections.record(**{"request": correcting, "category": "items", "what": "title", "rows": 1, "by": officer, **values})
    assert list(caught.value.errors) == [field]


def test_correction_of_an_identifier_that_names_somebody_else_is_refused(correcting, tenant, subject, officer):
    make.subject(tenant, "bert")
    identifier = SubjectIdentifier.objects.get(subject=subject)

    with pytest.raises(AmbiguousIdentifier):
        corrections.correct_identifier(request=correcting, identifier_id=identifier.id, value="bert", by=officer)
    with pytest.raises(Conflict, match="already"):
        corrections.correct_identifier(request=correcting, identifier_id=identifier.id, value="anna", by=officer)
    assert SubjectRequest.objects.get().corrections == []


def test_correction_of_somebody_elses_identifier_is_not_found(correcting, tenant, officer):
    other = SubjectIdentifier.objects.get(subject=make.subject(tenant, "bert"))

    with pytest.raises(NotFound):
        corrections.correct_identifier(request=correcting, identifier_id=other.id, value="x", by=officer)


def test_correction_of_a_restricted_subject_is_refused(correcting, subject, officer):
    identifier = SubjectIdentifier.objects.get()
    fences.restrict(subject=subject, by=officer)

    with pytest.raises(SubjectFenced):
        corrections.correct_identifier(request=correcting, identifier_id=identifier.id, value="anna-2", by=officer)


def test_correction_needs_the_officer_the_tenant_and_its_kind(correcting, subject, officer, tenant, stranger_tenant):
    with pytest.raises(MissingPermission):
        corrections.complete(request=correcting, by=make.actor(tenant, "privacy_approver"))
    with pytest.raises(NotFound):
        corrections.complete(request=correcting, by=make.actor(stranger_tenant, "privacy_officer"))
    erase, _ = previews.preview(subject=subject, by=officer)
    with pytest.raises(NotFound):
        corrections.complete(request=erase, by=officer)
