"""Rows that name no subject: by category, whose they may be, given to somebody or waived. And one subject that is two."""

from uuid import UUID

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import may, subject_for
from console.api.pagination import paginate
from console.forms.triage import AssignForm, SplitForm, WaiveForm
from console.listing import ROWS
from governance import queries
from governance.domain import identities, triage
from governance.errors import LetheError
from governance.ids import shown
from governance.models import SubjectIdentifier
from sessions.models import Session

NEWEST = 200


@require_GET
@may("subject.search")
def unattributed(request):
    standing = triage.standing(tenant_id=request.tenant.pk)
    context = {"standing": standing, "open": sum(one.open for one in standing), "waived": sum(one.waived for one in standing)}
    return render(request, "governance/unattributed.html", context)


@require_GET
@may("subject.search")
def rows(request, category):
    return _rows(request, triage.category_of(category))


def _rows(request, category, assign_form=None, waive_form=None, status=200):
    found = triage.rows_of(tenant_id=request.tenant.pk, category=category)
    page = paginate(found, order=("-pk",), cursor=request.GET.get("before") or request.GET.get("after"), limit=ROWS)
    standing = next((one for one in triage.standing(tenant_id=request.tenant.pk) if one.key == category.key), None)
    context = {
        "category": category,
        "standing": standing,
        "page": page,
        "rows": triage.described(tenant_id=request.tenant.pk, category=category, rows=page.results),
        "assign_form": assign_form or AssignForm(auto_id="assign-%s"),
        "waive_form": waive_form or WaiveForm(auto_id="waive-%s"),
        "chosen": request.POST.getlist("ids"),
    }
    return render(request, "governance/unattributed_rows.html", context, status=status)


@require_POST
@may("subject.merge")
def assign(request, category):
    kind = triage.category_of(category)
    form = AssignForm(request.POST, auto_id="assign-%s")
    if not form.is_valid():
        return _rows(request, kind, assign_form=form, status=422)
    try:
        subject = queries.subject_of(request.tenant.pk, form.cleaned_data["subject"])
        moved = triage.assign(category=category, ids=_ids(request), subject=subject, by=request.actor)
    except LetheError as error:
        form.add_error(None, _sentence(error))
        return _rows(request, kind, assign_form=form, status=422)
    told = ngettext("%(rows)s row belongs to %(subject)s now.", "%(rows)s rows belong to %(subject)s now.", sum(moved.values()))
    messages.success(request, told % {"rows": sum(moved.values()), "subject": subject.display_ref})
    return redirect("unattributed-rows", category)


@require_POST
@may("subject.merge")
def waive(request, category):
    """The chosen rows, or with `whole` the category."""
    kind = triage.category_of(category)
    form = WaiveForm(request.POST, auto_id="waive-%s")
    try:
        if form.is_valid():
            ids = None if form.cleaned_data["whole"] else _ids(request)
            triage.waive(category=category, ids=ids, reason=form.cleaned_data["reason"], by=request.actor)
            messages.success(request, _("Waived. Previews do not count these rows any more."))
            return redirect("unattributed-rows", category)
    except LetheError as error:
        form.add_error(None, _sentence(error))
    return _rows(request, kind, waive_form=form, status=422)


@require_POST
@may("subject.merge")
def reopen(request, category):
    kind = triage.category_of(category)
    triage.reopen(category=kind.key, ids=_ids(request) if request.POST.getlist("ids") else None, by=request.actor)
    return redirect("unattributed-rows", category)


@never_cache
@require_http_methods(["GET", "POST"])
def split(request, ref):
    """Which identifiers and sessions are another person's. What names the subject is told by its kind, never shown here."""
    subject = subject_for(request, ref, "subject.merge")
    identifiers = list(SubjectIdentifier.objects.filter(tenant_id=request.tenant.pk, subject=subject).order_by("id"))
    # Archived ones too.
    found = Session.objects.filter(tenant_id=request.tenant.pk, subject=subject).select_related("agent")
    sessions = list(found.defer("state", "task", "shared").order_by("-last_active_at", "-id")[:NEWEST])
    form = SplitForm(request.POST if request.method == "POST" else None, identifiers=identifiers, sessions=sessions)
    if request.method == "POST" and form.is_valid():
        try:
            made = identities.split(subject=subject, by=request.actor, **form.named())
        except LetheError as error:
            form.add_error(None, _sentence(error))
        else:
            messages.success(request, _("%s is a subject of its own now.") % made.display_ref)
            return redirect("subject", made.display_ref)
    context = {
        "subject": subject,
        "form": form,
        "identifiers": identifiers,
        "sessions": [(session, shown("ses", session.pk)) for session in sessions],
        "chosen": set(form.data.getlist("identifiers") + form.data.getlist("sessions")) if form.is_bound else set(),
        "may_open": request.actor.may("sessions.read"),
    }
    return render(request, "governance/subject_split.html", context, status=422 if form.is_bound else 200)


def _ids(request) -> list[UUID]:
    found = []
    for text in request.POST.getlist("ids"):
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found


def _sentence(error: LetheError) -> str:
    return " ".join(sentence for sentences in error.errors.values() for sentence in sentences) or error.detail
