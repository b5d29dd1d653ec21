"""The account of a request: counts, codes and dates; none of what was erased or corrected.

A receipt is signed (see governance/signing.py) and comes in versions: the first when the request ends, another whenever
something more is known, such as that the bytes are gone or that a recipient has answered. Nothing is ever changed.
"""

import hashlib
import hmac
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from governance import signing
from governance.actors import Actor, system
from governance.domain import audit, closure, previews, protection, registry
from governance.errors import Conflict, NotFound, Unavailable
from governance.models import ErasureStep, Receipt, SubjectRequest

SCHEMA = "lethe.receipt/1"
# The bytes follow within a day (see domain/purge.py).
PURGE_DUE = timedelta(hours=24)
OUTCOMES = ("erased", "anonymised", "regenerated", "already_absent", "held", "retained", "skipped")
# What an addendum may say anew; the rest stands as it was first stated.
LATER = frozenset({"subject_key", "purge", "horizons", "exceptions", "verification", "effects_outside", "providers", "recipients"})
_KINDS = {SubjectRequest.Kind.ERASE: "erasure", SubjectRequest.Kind.RECTIFY: "rectification"}


class Unbalanced(Unavailable):
    code, title = "receipt_unbalanced", "The counts do not add up"


@transaction.atomic
def issue(*, request: SubjectRequest, **more: Any) -> dict[str, Any]:
    """Sign and keep the first version, in the transaction that ends the request. Returns the document. `more` is said as well.

    Raises Unbalanced when a category's outcomes are not what was previewed: such an account is not signed.
    """
    document = build(request=request) | more
    for entry in document["categories"]:
        if not _adds_up(entry):
            raise Unbalanced(f"The outcomes of {entry['key']} are not the {entry['previewed']} rows that were previewed.")
    return _keep(request, signing.signed(document), by=system(request.tenant_id))


@transaction.atomic
def addendum(
    *, request: SubjectRequest, by: Actor | None = None, methods: dict[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    """Issue the next version with these changes (see LATER). Mappings are merged, everything else is replaced. `methods` says
    by category what an erasure has come to be; its counts stand.

    Raises Conflict before there is a receipt, ValueError for what an addendum cannot change.
    """
    if unknown := set(changes) - LATER:
        raise ValueError(f"An addendum cannot change {', '.join(sorted(unknown))}.")
    current = SubjectRequest.objects.select_for_update(of=("self",)).get(pk=request.pk)
    if current.receipt is None:
        raise Conflict(f"{current.ref} has no receipt yet.")
    document = deepcopy(current.receipt)
    for name, value in changes.items():
        document[name] = {**document.get(name, {}), **value} if isinstance(value, dict) else value
    for entry in document["categories"]:
        entry["method"] = (methods or {}).get(entry["key"], entry["method"])
    document["version"] += 1
    request.receipt = _keep(current, signing.signed(document), by=by or system(request.tenant_id))
    return request.receipt


def version_of(request: SubjectRequest, number: int | None = None) -> dict[str, Any]:
    """One version as it was issued, or the latest. Raises NotFound."""
    if number is None:
        if request.receipt is None:
            raise NotFound("This request has no receipt yet.")
        return request.receipt
    found = Receipt.objects.filter(request=request, version=number).first()
    if found is None:
        raise NotFound("This request's receipt has no such version.")
    return found.document


def problems(document: Any, *, key: str | None = None) -> list[str]:
    """What is wrong with a receipt that somebody holds, as sentences; empty when it holds. Needs no database.

    `key` is the public key of whoever issued it; the installation's own when left out.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return [f"This is not a receipt of the schema {SCHEMA}."]
    found = []
    if not signing.is_signed(document, key=key):
        found.append("The signature does not hold: another key signed it, or the document was changed.")
    try:
        odd = [entry["key"] for entry in document["categories"] if not _adds_up(entry)]
    except (KeyError, TypeError):
        return [*found, "The counts cannot be read."]
    return [*found, *(f"The counts of {name} do not add up to what was previewed." for name in odd)]


def build(*, request: SubjectRequest) -> dict[str, Any]:
    """The first version, unsigned; an erasure needs its steps and `logically_erased_at`.

    For each category, `previewed` equals the sum of its other counts. Rows that verification found and erased are
    counted as previewed too, and listed as `found_by_verification`; so are rows that the tenant's rules accepted.
    """
    is_erasure = request.kind == SubjectRequest.Kind.ERASE
    preview = request.preview or {}
    return {
        "schema": SCHEMA,
        "version": 1,
        "request_ref": request.ref,
        "kind": _KINDS[request.kind],
        "profile": request.profile,
        "subject_pseudonym": _pseudonym(request),
        "received_at": _text(request.received_at),
        "due_at": _text(request.due_at),
        "extended_until": _text(request.extended_until),
        "logically_erased_at": _text(request.logically_erased_at),
        "purge": {"state": "pending" if is_erasure else "none", "due_by": _due_by(request), "purged_at": None},
        "horizons": {"wal_until": None, "backups_until": None, "source": "operator_declared"},
        "categories": _categories(request, preview) if is_erasure else [],
        "corrections": request.corrections,
        "exceptions": preview.get("exceptions", []),
        "verification": {
            "level": 1,
            "read_paths": len(registry.categories()) if is_erasure else 0,
            "hits": 0,
            "orphans": 0,
            "found_by_verification": preview.get("late", {}),
        },
        "effects_outside": preview.get("effects", []),
        "providers": [
            {"name": name, "declared_days": settings.LETHE.get("provider_days")}
            for name in sorted({name for category in registry.categories().values() for name in category.about.recipients})
        ],
        "approval": {
            "four_eyes": bool(request.approver),
            "approved_at": _text(request.approved_at),
            "break_glass": request.break_glass,
        },
        "recipients": recipients_of(request),
        "software": {
            "version": getattr(settings, "VERSION", ""),
            "registry_hash": request.registry_hash,
            "policy_version": previews.policy_version(request.tenant),
        },
        "audit_head": audit.head(tenant_id=request.tenant_id),
        "attests": "The operator states this. A signature does not prove that no copy exists.",
    }


def _due_by(request: SubjectRequest) -> str | None:
    erased = request.logically_erased_at
    return _text(erased + PURGE_DUE) if erased else None


def recipients_of(request: SubjectRequest) -> list[dict[str, Any]]:
    return [
        {"ref": found.ref, "told_at": _text(found.told_at), "acknowledged_at": _text(found.acknowledged_at)}
        for found in request.recipients.all()
    ]


def _keep(request: SubjectRequest, document: dict[str, Any], *, by: Actor) -> dict[str, Any]:
    Receipt.objects.create(
        request_id=request.pk, tenant_id=request.tenant_id, version=document["version"], document=document
    )
    SubjectRequest.objects.filter(pk=request.pk).update(receipt=document)
    audit.record(
        "request.receipt_issued", by=by, object_type="subject_request", object_ref=request.pk, object_label=request.ref,
        subject=request.subject_id, version=document["version"], key=document["signature"]["key_id"],
    )  # fmt: skip
    return document


def _adds_up(entry: dict[str, Any]) -> bool:
    return entry["previewed"] == sum(entry[name] for name in OUTCOMES)


def _categories(request: SubjectRequest, preview: dict[str, Any]) -> list[dict[str, Any]]:
    kept = preview.get("held", {})
    late, accepted = preview.get("late", {}), preview.get("accepted", {})
    shown = {entry["key"]: entry["rows"] for entry in preview.get("categories", [])}
    sums = {
        entry["category"]: entry
        for entry in ErasureStep.objects.filter(request=request)
        .values("category")
        .annotate(done=Sum("rows"), absent=Sum("already_absent"))
    }
    rebuilt = closure.outcomes(request)
    entries = []
    for category in registry.erase_order():
        done = sums.get(category.key, {"done": 0, "absent": 0})
        taken = accepted.get(category.key, {"added": 0, "gone": 0})
        mixed = rebuilt.get(category.key, {"regenerated": 0, "deleted": 0, "gone": 0})
        is_anonymised = category.method == "anonymise"
        entries.append(
            {
                "key": category.key,
                "method": category.method,
                "previewed": shown.get(category.key, 0) + taken["added"] + late.get(category.key, 0),
                "erased": (0 if is_anonymised else done["done"]) + mixed["deleted"],
                "anonymised": done["done"] if is_anonymised else 0,
                "regenerated": mixed["regenerated"],
                "already_absent": done["absent"] + taken["gone"] + mixed["gone"],
                "held": kept.get(category.key, 0),
                "retained": 0,
                "skipped": 0,
            }
        )
    return entries


def _pseudonym(request: SubjectRequest) -> str:
    key = protection.derive(request.tenant_id, "receipts")
    return "hmac-sha256:" + hmac.new(key, request.subject_id.bytes, hashlib.sha256).hexdigest()


def _text(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
