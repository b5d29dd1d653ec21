"""Putting right what is held on a person (Regulation (EU) 2016/679, Art. 16): a request that keeps what was corrected.

The corrections themselves are ordinary verbs; here it is recorded that they were made for the request, by category and
count, without old or new values. At the end recipients are listed and a receipt is issued, as after an erasure.
"""

import re

from django.db import transaction

from governance.actors import Actor
from governance.domain import audit, clock, receipts, recipients, registry, subjects
from governance.errors import Conflict, Invalid, NotFound
from governance.models import SubjectIdentifier, SubjectRequest

State = SubjectRequest.State
_WHAT = re.compile(r"[a-z][a-z0-9_]{0,39}")


@transaction.atomic
def correct_identifier(*, request: SubjectRequest, identifier_id, value: str, by: Actor) -> SubjectRequest:
    """Give one of the subject's identifiers its right value, and record that on the request."""
    request = _locked(request, by)
    identifier = SubjectIdentifier.objects.filter(
        pk=identifier_id, tenant_id=request.tenant_id, subject_id=request.subject_id
    ).first()
    if identifier is None:
        raise NotFound
    subjects.correct_identifier(identifier=identifier, value=value, by=by)
    return _add(request, "subject_identifiers", identifier.kind, 1, by)


@transaction.atomic
def record(*, request: SubjectRequest, category: str, what: str, rows: int, by: Actor) -> SubjectRequest:
    """Record that so many rows of a category were corrected. `what` is a code such as `title`, never a value.

    Raises Invalid by field, Conflict for a request that has ended.
    """
    request = _locked(request, by)
    errors = {}
    if category not in registry.categories():
        errors["category"] = ["There is no such category."]
    if not isinstance(what, str) or not _WHAT.fullmatch(what):
        errors["what"] = ["Name the field in small letters, such as title. Values do not belong here."]
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= 1_000_000:
        errors["rows"] = ["Give a number from 1 to 1,000,000."]
    if errors:
        raise Invalid("This cannot be recorded like this.", errors=errors)
    return _add(request, category, what, rows, by)


@transaction.atomic
def complete(*, request: SubjectRequest, by: Actor) -> SubjectRequest:
    """End the request: what had to be corrected is. Raises Conflict when nothing was recorded or it has ended."""
    request = _locked(request, by)
    if not request.corrections:
        raise Conflict("Nothing was corrected yet. Record what was, or cancel the request with its reason.")
    request.state, request.ended_at, request.paused_at = State.COMPLETED, clock.now(), None
    request.registry_hash = registry.fingerprint()
    request.save(update_fields=["state", "ended_at", "paused_at", "registry_hash"])
    recipients.declare(request=request, categories=[entry["category"] for entry in request.corrections])
    request.receipt = receipts.issue(request=request)
    rows = sum(entry["rows"] for entry in request.corrections)
    _record("request.completed", request, by, rows=rows)
    return request


def _locked(request: SubjectRequest, by: Actor) -> SubjectRequest:
    by.require("subject.rectify")
    if request.tenant_id != by.tenant_id or request.kind != SubjectRequest.Kind.RECTIFY:
        raise NotFound
    request = (
        SubjectRequest.objects.select_for_update(of=("self",)).select_related("tenant", "subject").get(pk=request.pk)
    )
    if request.is_final:
        raise Conflict(f"{request.ref} has ended.")
    return request


def _add(request: SubjectRequest, category: str, what: str, rows: int, by: Actor) -> SubjectRequest:
    request.corrections = [*request.corrections, {"category": category, "what": what, "rows": rows}]
    request.save(update_fields=["corrections"])
    _record("request.corrected", request, by, category=category, what=what, rows=rows)
    return request


def _record(action: str, request: SubjectRequest, by: Actor, **payload) -> None:
    audit.record(
        action, by=by, object_type="subject_request", object_ref=request.id, object_label=request.ref,
        subject=request.subject_id, **payload,
    )  # fmt: skip
