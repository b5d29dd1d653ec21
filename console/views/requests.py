"""Requests about subjects: the preview, the confirmation, the progress, the receipt."""

import json
from datetime import timedelta

from django.contrib import messages
from django.db.models import Count, F, Sum
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.access import may, request_for
from console.forms.base import tell
from console.forms.subjects import CancelForm, EraseForm, RequestFilters
from console.listing import listing, render_list
from console.views.subjects import keep_token
from governance import queries
from governance.domain import audit, previews, registry, requests
from governance.errors import LetheError, NotFound
from governance.models import ErasureStep, PlanChunk, SubjectRequest

State = SubjectRequest.State
# Buckets in the order of the bar, and what each comes to.
BUCKETS = {
    "erase": gettext_lazy("erased"),
    "anonymise": gettext_lazy("person removed"),
    "regenerate": gettext_lazy("rebuilt without this person"),
    "held": gettext_lazy("held"),
    "retained": gettext_lazy("kept by law"),
    "shared": gettext_lazy("shared with others"),
    "external": gettext_lazy("outside our reach"),
    "skipped": gettext_lazy("skipped"),
}


@require_GET
@may("request.read")
def request_list(request):
    form = RequestFilters(request)
    given = form.cleaned_data if form.is_valid() else {}
    rows = queries.requests_of(request.tenant.pk, state=given.get("state"), kind=given.get("kind")) if form.is_valid() else None
    now = timezone.now()
    unfinished = SubjectRequest.objects.filter(tenant_id=request.tenant.pk).exclude(state__in=SubjectRequest.FINAL)
    context = {
        "listing": listing(request, form, rows, order=("-id",)),
        "now": now,
        "open": unfinished.count(),
        "overdue": unfinished.filter(due_at__lt=now).count(),
        "soon": unfinished.filter(due_at__gte=now, due_at__lt=now + timedelta(days=7)).count(),
    }
    return render_list(request, "governance/requests.html", form, context)


@require_GET
@never_cache
def request_detail(request, ref):
    """One address for a request's whole life: preview, progress, receipt."""
    return _page(request, request_for(request, ref))


def _page(request, found, form=None, status=200):
    context = {"item": found, "subject": found.subject, "now": timezone.now(), "cancel_form": CancelForm(), "cancellable": found.state in requests.CANCELLABLE}
    if found.kind == SubjectRequest.Kind.ERASE and found.state in previews.OPEN:
        context |= _preview(request, found, form)
        return render(request, "governance/request_preview.html", context, status=status)
    return render(request, "governance/request.html", context | _progress(found), status=status)


def _preview(request, found, form):
    document = found.preview or {"categories": [], "unattributed_in_tenant": 0}
    entries = [_entry(entry) for entry in document["categories"] if entry["rows"]]
    kept = request.session.get("preview", {})
    token = kept.get("token", "") if kept.get("request") == found.pk.hex else ""
    is_usable = bool(token and not found.drift and found.token_digest == previews.token_digest(token) and found.token_expires_at > timezone.now())
    totals = {bucket: sum(entry["buckets"].get(bucket, 0) for entry in entries) for bucket in BUCKETS}
    recipients = sorted({name for entry in entries for name in entry["recipients"]})
    return {
        "entries": entries,
        "totals": totals,
        "kept": totals["held"] + totals["retained"] + totals["shared"],
        "rows": sum(entry["rows"] for entry in entries),
        "bytes": sum(entry["bytes"] for entry in entries),
        "unattributed": document["unattributed_in_tenant"],
        "recipients": recipients,
        "is_usable": is_usable,
        "erase_form": form or EraseForm(initial={"token": token, "reason": "subject_request"}, subject=found.subject),
        "drift": _drift(found),
    }


def _entry(entry):
    """A category of the preview, as its row draws it."""
    parts = [{"label": words, "value": entry["buckets"].get(bucket, 0), "css": f"b-{bucket}"} for bucket, words in BUCKETS.items()]
    stays = [f"{part['value']:,} {part['label']}" for part in parts[2:] if part["value"]]
    if entry["buckets"].get("anonymise"):
        stays.insert(0, _("totals kept, person removed"))
    try:
        recipients = registry.get(entry["key"]).about.recipients
    except NotFound:
        recipients = ()
    return {**entry, "parts": parts, "stays": stays, "recipients": recipients, "samples": min(entry["rows"], previews.SAMPLES)}


def _drift(found):
    """What was added or changed since the preview, with titles instead of keys."""
    titles = {category.key: category.title for category in registry.categories().values()}
    return [{**entry, "title": titles.get(entry["key"], entry["key"])} for entry in (found.drift or {}).get("categories", [])]


def _progress(found):
    """Rows done and planned, by category; an export has no plan and shows its state only."""
    planned = {
        entry["category"]: entry
        for entry in PlanChunk.objects.filter(request=found).values("category").annotate(rows=Sum("rows"), steps=Count("id"))
    }
    done = {
        entry["category"]: entry
        for entry in ErasureStep.objects.filter(request=found).values("category").annotate(rows=Sum(F("rows") + F("already_absent")), steps=Count("id"))
    }
    rows = [
        {"title": category.title, "done": done.get(category.key, {}).get("rows", 0), "total": planned[category.key]["rows"]}
        for category in registry.erase_order()
        if category.key in planned
    ]
    return {
        "rows": rows,
        "steps_done": sum(entry["steps"] for entry in done.values()),
        "steps_total": sum(entry["steps"] for entry in planned.values()),
        "is_working": not found.is_final and found.state not in previews.OPEN,
        "titles": {category.key: category.title for category in registry.categories().values()},
        "export": getattr(found, "export", None),
    }


@require_GET
@never_cache
def progress(request, ref):
    """The moving part, asked for every 2 s. When nothing moves any more, the page is loaded once again and asks no more."""
    found = request_for(request, ref)
    context = {"item": found, "now": timezone.now(), **_progress(found)}
    if not context["is_working"]:
        return HttpResponse(headers={"HX-Refresh": "true"})
    return render(request, "governance/request.html#progress", context)


@require_GET
@never_cache
def samples(request, ref, category):
    """Some of the rows by their titles. That is personal content: it has its own permission and is told."""
    found = request_for(request, ref, "content.read")
    entry = next((entry for entry in previews.describe(request=found)["categories"] if entry["key"] == category), None)
    if entry is None:
        raise NotFound
    audit.record(
        "content.read", by=request.actor, object_type="subject_request", object_ref=found.pk, object_label=found.ref,
        subject=found.subject_id, category=category, rows=len(entry["samples"]),
    )  # fmt: skip
    context = {"item": found, "entry": entry}
    return render(request, "governance/request_samples.html#rows" if request.htmx else "governance/request_samples.html", context)


@require_POST
def preview_again(request, ref):
    found = request_for(request, ref, "subject.preview")
    try:
        made, token = previews.preview(subject=found.subject, kind=found.kind, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("request", ref)
    keep_token(request, made, token)
    return redirect("request", made.ref)


@require_POST
def erase(request, ref):
    found = request_for(request, ref, "subject.erase")
    form = EraseForm(request.POST, subject=found.subject)
    if form.is_valid():
        try:
            started = requests.erase(subject=found.subject, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error, {"preview_token": "token"})
        else:
            request.session.pop("preview", None)
            return redirect("request", started.ref)
    return _page(request, request_for(request, ref), form, status=422)


@require_POST
def cancel(request, ref):
    found = request_for(request, ref, "request.cancel")
    form = CancelForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Choose why it is cancelled."))
        return redirect("request", ref)
    try:
        requests.cancel(request=found, reason=form.cleaned_data["reason"], by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, _("%s was cancelled. Nothing was erased.") % found.ref)
    return redirect("request", ref)


@require_GET
@never_cache
def receipt(request, ref):
    """The receipt as the document that it is."""
    found = request_for(request, ref, "receipt.read")
    if found.receipt is None:
        raise NotFound(_("There is no receipt before the erasure has ended."))
    response = HttpResponse(json.dumps(found.receipt, indent=2, ensure_ascii=False), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="receipt-{found.ref}.json"'
    return response
