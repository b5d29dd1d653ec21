"""Requests about subjects: the preview, the confirmation, the progress, the receipt."""

from datetime import timedelta

from django.contrib import messages
from django.db.models import Count, F, Sum
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console import stepup
from console.access import may, request_for
from console.forms.base import tell
from console.forms.requests import CorrectionForm, IdentifierForm
from console.forms.subjects import EraseForm, RequestFilters
from console.listing import listing, render_list
from console.views.receipts import receipt_context
from console.views.subjects import keep_token
from governance import queries
from governance.domain import audit, clocks, deadlines, previews, registry, requests, rules
from governance.domain import notes as note_verbs
from governance.errors import LetheError, NotFound
from governance.models import AuditNote, ErasureStep, PlanChunk, RequestAlarm, SubjectRequest

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
    """The board: what is open by when it is due, overdue first; then what has ended."""
    form = RequestFilters(request)
    given = form.cleaned_data if form.is_valid() else {}
    rows = queries.board(request.tenant.pk, state=given.get("state"), kind=given.get("kind")) if form.is_valid() else None
    now = timezone.now()
    unfinished = SubjectRequest.objects.filter(tenant_id=request.tenant.pk).exclude(state__in=SubjectRequest.FINAL)
    board = listing(request, form, rows, order=queries.BOARD_ORDER)
    for item in board.results:
        item.clock = clock_of(item, now)
        item.is_own = request.actor.person in (item.requester, item.requester_person)
    context = {
        "listing": board,
        "broken": queries.unseen_alarms(request.tenant.pk, RequestAlarm.Kind.BREAK_GLASS, request.actor.ref) if request.actor.may("request.approve") else (),
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
    return page(request, request_for(request, ref))


def page(request, found, form=None, status=200, **more):
    """The page of a request as it stands: what would go, or what happened. `more` brings back forms with errors."""
    now = timezone.now()
    context = {
        "item": found,
        "subject": found.subject,
        "now": now,
        "cancellable": requests.is_cancellable(found),
        "clock": clock_of(found, now),
        "is_waiting": found.state == State.AWAITING_APPROVAL,
        "is_own": request.actor.person in (found.requester, found.requester_person),
        **more,
    }
    if found.kind == SubjectRequest.Kind.ERASE and found.state in (*previews.OPEN, State.AWAITING_APPROVAL):
        context |= _preview(request, found, form)
        return render(request, "governance/request_preview.html", context, status=status)
    if found.kind == SubjectRequest.Kind.RECTIFY:
        identifiers = found.subject.identifiers.all()
        context = {"correction_form": CorrectionForm(), "identifier_form": IdentifierForm(identifiers=identifiers)} | context
    return render(request, "governance/request.html", context | _progress(found) | receipt_context(found), status=status)


def clock_of(found, now):
    """What a request's clock shows: its share, the alarms it raised, and whether it can be extended."""
    used = clocks.used(found, now)
    rule = deadlines.profile_of(found.profile)
    is_over = found.is_final or found.due_at is None
    reason = ""
    if not rule.may_extend:
        reason = _("This law knows no extension.")
    elif found.extended_until:
        reason = _("It was extended before.")
    elif not is_over and found.due_at <= now:
        reason = _("It is due already.")
    return {
        "percent": None if used is None or is_over else round(min(used, 9.99) * 100),
        "kind": "" if is_over or used is None else "bad" if used >= 1 else "warn" if used >= 0.75 else "",
        "is_overdue": not is_over and found.due_at <= now,
        "alarms": sorted(alarm.kind for alarm in found.alarms.all()),
        "may_extend": not is_over and not reason,
        "why_not": reason,
        "first_is_open": bool(found.first_due_at and not found.first_answered_at and not found.is_final),
    }


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
        "needs_second": rules.of(request.tenant).needs_second_person(by=request.actor, rows=previews.rows_of(found)),
        "is_fresh": stepup.is_fresh(request),
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
        recipients = registry.get(entry["key"]).about.everybody
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
        for entry in PlanChunk.objects.filter(request=found, is_kept=False).values("category").annotate(rows=Sum("rows"), steps=Count("id"))
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
        "is_working": not found.is_final and found.state not in (*previews.OPEN, State.AWAITING_APPROVAL),
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
    stepup.require(request, onward=reverse("request", args=[found.ref]) + "#erase")
    form = EraseForm(request.POST, subject=found.subject)
    if form.is_valid():
        try:
            started = requests.erase(subject=found.subject, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error, {"preview_token": "token"})
        else:
            request.session.pop("preview", None)
            return redirect("request", started.ref)
    return page(request, request_for(request, ref), form, status=422)


@require_POST
@never_cache
def notes(request, ref):
    """What the person was told, or why it was declined. That is personal content: it has its own permission and is told."""
    found = request_for(request, ref, "content.read")
    kept = list(AuditNote.objects.filter(tenant_id=request.tenant.pk, request_id=found.pk).order_by("created_at"))
    audit.record(
        "content.read", by=request.actor, object_type="subject_request", object_ref=found.pk, object_label=found.ref,
        subject=found.subject_id, what="notes", rows=len(kept),
    )  # fmt: skip
    return page(request, found, notes=[(note, note_verbs.read(note)) for note in kept])
