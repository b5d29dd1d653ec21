"""Those who received such data, and whether they were told what became of it (Regulation (EU) 2016/679, Art. 19)."""

from typing import Any

from django.db import transaction

from governance.actors import Actor
from governance.domain import audit, clock, receipts, registry
from governance.errors import Conflict, NotFound
from governance.models import RequestRecipient, SubjectRequest


def declare(*, request: SubjectRequest, categories: list[str]) -> None:
    """List the recipients that these categories declare. Inside the transaction that ends the request."""
    names = {name for key in categories if (found := registry.categories().get(key)) for name in found.about.everybody}
    RequestRecipient.objects.bulk_create(
        (RequestRecipient(request=request, tenant_id=request.tenant_id, ref=name) for name in sorted(names)),
        ignore_conflicts=True,
    )


def tell(*, request: SubjectRequest, ref: str, by: Actor) -> RequestRecipient:
    """Record that the recipient was told. Again changes nothing."""
    return _mark(request, ref, "told_at", by)


def acknowledge(*, request: SubjectRequest, ref: str, by: Actor) -> RequestRecipient:
    """Record that the recipient has answered. Raises Conflict for one who was not told."""
    return _mark(request, ref, "acknowledged_at", by)


@transaction.atomic
def _mark(request: SubjectRequest, ref: str, column: str, by: Actor) -> RequestRecipient:
    by.require("subject.erase")
    if request.tenant_id != by.tenant_id:
        raise NotFound
    found = RequestRecipient.objects.select_for_update().filter(request=request, ref=ref).first()
    if found is None:
        raise NotFound("This request has no such recipient.")
    if column == "acknowledged_at" and found.told_at is None:
        raise Conflict("Record first that this recipient was told.")
    if getattr(found, column) is None:
        setattr(found, column, clock.now())
        found.save(update_fields=[column])
        audit.record(
            "request.recipient_told" if column == "told_at" else "request.recipient_acknowledged", by=by,
            object_type="subject_request", object_ref=request.id, object_label=request.ref,
            subject=request.subject_id, recipient=found.id,
        )  # fmt: skip
        receipts.addendum(request=request, recipients=receipts.recipients_of(request), by=by)
    return found


def standing(request: SubjectRequest) -> list[dict[str, Any]]:
    """For pages: each recipient with its two times."""
    return [
        {"ref": found.ref, "told_at": found.told_at, "acknowledged_at": found.acknowledged_at}
        for found in request.recipients.all()
    ]
