"""Receipts: the page over the document, and the document itself in every version."""

import json

from django.http import HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from console.access import request_for
from governance import signing
from governance.domain import receipts
from governance.errors import NotFound


def receipt_context(found):
    """What the page of a request shows of its receipt: whether it holds, its versions, and the key to check it with."""
    if found.receipt is None:
        return {}
    return {
        "problems": receipts.problems(found.receipt),
        "versions": found.receipts.all(),
        "public_key": signing.public_key(),
        "recipients": found.recipients.all(),
        "verify_words": f"manage.py verify_receipt receipt-{found.ref}.json --key {signing.public_key()}",
    }


@require_GET
@never_cache
def receipt(request, ref):
    """The receipt as the document that it is; `?version=` gives an earlier one."""
    found = request_for(request, ref, "receipt.read")
    number = request.GET.get("version", "")
    # More digits than a version can have name nothing.
    if number and not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NotFound
    document = receipts.version_of(found, int(number) if number else None)
    response = HttpResponse(json.dumps(document, indent=2, ensure_ascii=False), content_type="application/json")
    name = f"receipt-{found.ref}-v{document['version']}.json" if number else f"receipt-{found.ref}.json"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
