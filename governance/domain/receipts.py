"""The account of an erasure: counts, codes and dates; none of what was erased.

Unsigned: whoever needs evidence beyond the operator's word has to wait for signatures.
"""

import hashlib
import hmac
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Sum

from governance.domain import previews, protection, registry
from governance.models import ErasureStep, SubjectRequest


def build(*, request: SubjectRequest) -> dict[str, Any]:
    """The receipt of a request whose steps are all done; needs `logically_erased_at`.

    For each category, `previewed` equals the sum of its other counts. Rows that verification found and erased are
    counted as previewed too, and listed as `found_by_verification`.
    """
    late = (request.preview or {}).get("late", {})
    return {
        "schema": "lethe.receipt/1",
        "version": 1,
        "request_ref": request.ref,
        "kind": "erasure",
        "profile": request.profile,
        "subject_pseudonym": _pseudonym(request),
        "received_at": _text(request.received_at),
        "due_at": _text(request.due_at),
        "logically_erased_at": _text(request.logically_erased_at),
        "purge": {"state": "pending", "due_by": None, "purged_at": None},
        "horizons": {"wal_until": None, "backups_until": None, "source": "operator_declared"},
        "categories": _categories(request, late),
        "exceptions": [],
        "verification": {
            "level": 1,
            "read_paths": len(registry.categories()),
            "hits": 0,
            "orphans": 0,
            "found_by_verification": late,
        },
        "effects_outside": [],
        "providers": [
            {"name": name, "declared_days": None}
            for name in sorted({name for category in registry.categories().values() for name in category.about.recipients})
        ],
        "approval": {"four_eyes": False, "break_glass": False},
        "recipients": [],
        "software": {
            "version": getattr(settings, "VERSION", ""),
            "registry_hash": request.registry_hash,
            "policy_version": previews.policy_version(request.tenant),
        },
        "audit_head": {"seq": None, "hash": None},
        "attests": "The operator states this. It does not prove that no copy exists.",
        "signature": None,
    }


def _categories(request: SubjectRequest, late: dict[str, int]) -> list[dict[str, Any]]:
    shown = {entry["key"]: entry["rows"] for entry in (request.preview or {}).get("categories", [])}
    sums = {
        entry["category"]: entry
        for entry in ErasureStep.objects.filter(request=request)
        .values("category")
        .annotate(done=Sum("rows"), absent=Sum("already_absent"))
    }
    entries = []
    for category in registry.erase_order():
        done = sums.get(category.key, {"done": 0, "absent": 0})
        is_anonymised = category.method == "anonymise"
        entries.append(
            {
                "key": category.key,
                "method": category.method,
                "previewed": shown.get(category.key, 0) + late.get(category.key, 0),
                "erased": 0 if is_anonymised else done["done"],
                "anonymised": done["done"] if is_anonymised else 0,
                "regenerated": 0,
                "already_absent": done["absent"],
                "held": 0,
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
