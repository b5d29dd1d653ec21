from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from governance.domain import clock, previews, registry
from governance.domain.previews import SubjectErased
from governance.errors import Invalid, MissingPermission, NotFound, SubjectFenced
from governance.models import AuditEvent, PlanChunk, Subject, SubjectRequest
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.snapshots import tables_with

pytestmark = pytest.mark.usefixtures("declared")


def test_preview_counts_every_category_exactly(conversation, subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    rows = {entry["key"]: entry["rows"] for entry in request.preview["categories"]}
    assert rows == {
        "idempotency_records": 1, "run_events": 2, "model_calls": 1, "approvals": 1, "approval_rules": 1, "items": 4, "blobs": 1, "session_workspace": 1,
        "summaries": 1, "runs": 1, "sessions": 1, "exports": 0, "archived_rows": 0, "held_copies": 0, "api_keys": 0, "audit_notes": 0, "lineage": 0,
        "subject_links": 0, "subject_identifiers": 1,
    }  # fmt: skip
    assert list(rows)[-1] == "subject_identifiers"


def test_preview_opens_a_request_with_its_clock(subject, officer):
    received = datetime.fromisoformat("2026-11-02T09:14:00+00:00")

    request, token = previews.preview(subject=subject, by=officer, received_at=received)

    stored = SubjectRequest.objects.get()
    assert (stored.ref, stored.kind, stored.state, stored.profile) == ("SR-2026-000001", "erase", "previewed", "gdpr")
    assert stored.due_at.isoformat() == "2026-12-03T00:00:00+00:00"
    assert (stored.requester, stored.requester_label) == (officer.ref, "officer")
    assert timedelta(minutes=29) < stored.token_expires_at - clock.now() <= timedelta(minutes=30)
    assert token not in str(stored.__dict__)
    assert request == stored


def test_preview_has_the_documented_shape(conversation, subject, officer):
    request, token = previews.preview(subject=subject, by=officer)

    answer = previews.describe(request=request, token=token)

    assert {"request_id", "request_ref", "state", "due_at", "digest", "preview_token", "token_expires_at"} <= set(answer)
    assert answer["request_id"] == f"req_{request.id.hex}"
    assert answer["digest"].startswith("sha256:")
    assert answer["due_at"].endswith("Z")
    items = next(entry for entry in answer["categories"] if entry["key"] == "items")
    assert items["bytes"] > 0
    assert items["grounds"] == []
    assert items["buckets"] == {
        "erase": 4, "anonymise": 0, "regenerate": 0, "held": 0, "retained": 0, "shared": 0, "external": 0, "skipped": 0,
    }  # fmt: skip
    assert [sample["title"] for sample in items["samples"]][0] == "It is on its way."


def test_preview_shows_at_most_20_samples_of_a_category(agent, subject, officer):
    talk.turns(talk.session(agent, subject), 30)

    answer = previews.describe(request=previews.preview(subject=subject, by=officer)[0])

    assert [len(entry["samples"]) for entry in answer["categories"] if entry["key"] == "items"] == [20]


def test_preview_keeps_samples_encrypted(agent, subject, officer):
    session = talk.session(agent, subject)
    talk.item(session, content={"text": "canary-7f3a"})

    previews.preview(subject=subject, by=officer)

    assert tables_with("canary-7f3a") == ["agent_sessions_item"]


def test_preview_counts_what_names_nobody(agent, conversation, subject, officer):
    talk.conversation(agent, None)

    request, _ = previews.preview(subject=subject, by=officer)

    # The session and its key of idempotency; what hangs from the session is not counted again.
    assert request.preview["unattributed_in_tenant"] == 2


def test_preview_digest_is_the_same_for_the_same_rows_and_differs_after_a_write(conversation, subject, officer):
    first, _ = previews.preview(subject=subject, by=officer)
    digest = first.digest

    assert previews.preview(subject=subject, by=officer)[0].digest == digest
    talk.item(conversation)
    assert previews.preview(subject=subject, by=officer)[0].digest != digest


def test_preview_again_uses_the_open_request_and_ends_the_earlier_token(conversation, subject, officer):
    first, token = previews.preview(subject=subject, by=officer)
    second, newer = previews.preview(subject=subject, by=officer, profile="lgpd")

    assert (second.id, second.profile, second.due_at) == (first.id, "gdpr", first.due_at)
    assert token != newer
    assert second.token_digest == previews.token_digest(newer)
    assert PlanChunk.objects.filter(request=second, category="items").count() == 1


def test_preview_of_an_export_is_a_request_of_its_own(subject, officer):
    erase, _ = previews.preview(subject=subject, by=officer)
    export, _ = previews.preview(subject=subject, kind="export", by=officer)

    assert {erase.ref[-1], export.ref[-1]} == {"1", "2"}
    assert export.kind == "export"


def test_references_are_counted_per_tenant_and_year(tenant, officer, subject, stranger_tenant):
    previews.preview(subject=subject, by=officer)
    request, _ = previews.preview(
        subject=make.subject(tenant), by=officer, received_at=datetime.fromisoformat("2025-12-31T12:00:00+00:00")
    )
    other, _ = previews.preview(
        subject=make.subject(stranger_tenant), by=make.actor(stranger_tenant, "privacy_officer")
    )

    assert (request.ref, other.ref[-6:]) == ("SR-2025-000001", "000001")


def test_preview_is_audited_with_counts_only(conversation, subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    event = AuditEvent.objects.get(action="request.previewed")
    assert event.payload == {"subject": subject.id.hex, "kind": "erase", "rows": 16, "digest": request.digest}
    assert event.object_label == request.ref


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kind": "burn"}, "kind"),
        ({"profile": "none"}, "profile"),
        ({"received_at": datetime(2026, 1, 1)}, "received_at"),
        ({"received_at": timezone.now() + timedelta(days=2)}, "received_at"),
    ],
)
def test_preview_refuses(subject, officer, values, field):
    with pytest.raises(Invalid) as caught:
        previews.preview(subject=subject, by=officer, **values)
    assert list(caught.value.errors) == [field]
    assert not SubjectRequest.objects.exists()


def test_preview_of_an_erased_subject_is_a_conflict(subject, officer):
    Subject.objects.update(state="erased")

    with pytest.raises(SubjectErased):
        previews.preview(subject=subject, by=officer)


def test_preview_during_an_erasure_names_the_request(subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)
    SubjectRequest.objects.update(state="executing")

    with pytest.raises(SubjectFenced) as caught:
        previews.preview(subject=subject, by=officer)
    assert caught.value.extra == {"request_ref": request.ref}


def test_preview_needs_the_role_and_stays_in_the_tenant(tenant, subject, stranger_tenant):
    with pytest.raises(MissingPermission):
        previews.preview(subject=subject, by=make.actor(tenant, "records_manager"))
    with pytest.raises(NotFound):
        previews.preview(subject=subject, by=make.actor(stranger_tenant, "privacy_officer"))
    assert not SubjectRequest.objects.exists()


def test_token_of_somebody_else_is_not_read():
    with pytest.raises(Invalid):
        previews.read_token("eyJhIjoxfQ:forged:forged")
    with pytest.raises(Invalid):
        previews.read_token("")


def test_wipe_leaves_counts_and_nothing_else(conversation, subject, officer):
    request, _ = previews.preview(subject=subject, by=officer)

    previews.wipe([request])

    request.refresh_from_db()
    assert not PlanChunk.objects.exists()
    assert (request.token_digest, request.token_expires_at) == ("", None)
    assert set(request.preview) == {"unattributed_in_tenant", "categories"}
    assert all(entry["samples"] == [] for entry in previews.describe(request=request)["categories"])


def test_preview_of_several_thousand_rows_keeps_chunks_within_bounds(agent, subject, officer):
    talk.turns(talk.session(agent, subject), 2600)

    request, _ = previews.preview(subject=subject, by=officer)

    chunks = PlanChunk.objects.filter(request=request, category="items").order_by("number")
    assert [chunk.rows for chunk in chunks] == [250] * 20 + [200]
    assert sum(chunk.bytes for chunk in chunks) == next(
        entry["bytes"] for entry in request.preview["categories"] if entry["key"] == "items"
    )


def test_every_registered_category_can_be_planned_and_described(subject, officer):
    assert [planned.category.key for planned in previews.take_plan(registry.Scope(subject.tenant_id, subject.id), sparing=False).categories] == [
        category.key for category in registry.erase_order()
    ]
