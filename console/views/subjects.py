"""Find a person, see what is held, and ask for what should happen to it. No address carries what names a person."""

from datetime import datetime, time
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import may, subject_for
from console.forms.base import tell
from console.forms.requests import ReceiveForm
from console.forms.subjects import FindForm, PreviewForm, RestrictForm
from governance import queries
from governance.domain import audit, fences, identities, previews, registry, requests, subjects
from governance.errors import LetheError
from governance.models import Subject


@sensitive_post_parameters("q")
@never_cache
@may("subject.search")
@require_http_methods(["GET", "POST"])
def find(request):
    form = FindForm(request.POST or None)
    found = None
    if request.method == "POST" and form.is_valid():
        try:
            found = subjects.search(tenant_id=request.tenant.pk, q=form.cleaned_data["q"], by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            if len(found) == 1:
                return redirect("subject", found[0].display_ref)
    return render(request, "governance/subjects.html", {"form": form, "found": found}, status=422 if form.errors else 200)


@require_GET
def subject(request, ref):
    return _page(request, subject_for(request, ref), PreviewForm())


def _page(request, subject, form, status=200, **more):
    """One person: what is held, by category, and the requests so far. Counted, not planned: looking starts no clock."""
    scope = registry.Scope(request.tenant.pk, subject.pk)
    counts = [(category, category.verify(scope=scope)) for category in registry.categories().values()]
    fence = queries.open_fence_of(subject.pk)
    context = {
        "subject": subject,
        "form": form,
        "held": sorted((entry for entry in counts if entry[1]), key=lambda entry: -entry[1]),
        "empty": [category for category, rows in counts if not rows],
        "total": sum(rows for _category, rows in counts),
        "fence": fence,
        "is_erased": subject.state == subject.State.ERASED,
        "requests": queries.requests_of(request.tenant.pk, subject=subject.pk)[:20],
        "kinds": list(subject.identifiers.values_list("kind", flat=True)),
        "receive_form": ReceiveForm(auto_id="receive-%s"),
        "restrict_form": RestrictForm(auto_id="restrict-%s"),
        **more,
    }
    return render(request, "governance/subject.html", context, status=status)


@require_POST
@never_cache
def identifiers(request, ref):
    """Show what names the person. Reading that is reading personal data, so it is told."""
    subject = subject_for(request, ref, "content.read")
    named = subjects.identifiers_of(subject=subject)
    audit.record(
        "content.read", by=request.actor, object_type="subject", object_ref=subject.pk, object_label=subject.display_ref,
        what="identifiers", rows=len(named),
    )  # fmt: skip
    if request.htmx:
        return render(request, "governance/subject.html#identifiers", {"identifiers": named})
    return _page(request, subject, PreviewForm(), identifiers=named)


@require_POST
def preview(request, ref):
    subject = subject_for(request, ref, "subject.preview")
    form = PreviewForm(request.POST)
    if not form.is_valid():
        return _page(request, subject, form, status=422)
    try:
        made, token = previews.preview(
            subject=subject, by=request.actor, profile=form.cleaned_data["profile"], received_at=_received(request, form.cleaned_data["received_on"])
        )
    except LetheError as error:
        tell(form, error, {"received_at": "received_on"})
        return _page(request, subject, form, status=422)
    keep_token(request, made, token)
    return redirect("request", made.ref)


@require_POST
def receive(request, ref):
    """Record that a request came in; its clock starts, and nothing is looked at."""
    subject = subject_for(request, ref, "subject.preview")
    form = ReceiveForm(request.POST, auto_id="receive-%s")
    if form.is_valid():
        values = form.cleaned_data
        try:
            made = requests.receive(
                subject=subject, kind=values["kind"], profile=values["profile"], received_at=_received(request, values["received_on"]), by=request.actor
            )
        except LetheError as error:
            tell(form, error, {"received_at": "received_on"})
        else:
            return redirect("request", made.ref)
    return _page(request, subject, PreviewForm(), status=422, receive_form=form)


def keep_token(request, made, token):
    """For the page that confirms it, in this member's web session: the token serves nobody else."""
    request.session["preview"] = {"request": made.pk.hex, "token": token}


def _received(request, day):
    """Noon of that day in the tenant's zone; none for today, which means now."""
    zone = ZoneInfo(request.tenant.timezone)
    if day is None or day == timezone.now().astimezone(zone).date():
        return None
    return datetime.combine(day, time(12), zone)


@require_POST
def export(request, ref):
    subject = subject_for(request, ref, "subject.export")
    try:
        made = requests.export(subject=subject, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("subject", ref)
    return redirect("request", made.ref)


@require_POST
def restrict(request, ref):
    subject = subject_for(request, ref, "subject.restrict")
    reason = request.POST.get("reason", "other")
    return _told(request, subject, _("%s is restricted: nothing new is written, nothing is deleted."), lambda: fences.restrict(subject=subject, reason=reason, by=request.actor))


@require_POST
def lift(request, ref):
    subject = subject_for(request, ref, "subject.restrict")
    return _told(request, subject, _("%s may be written to again."), lambda: fences.lift_restriction(subject=subject, by=request.actor))


@require_POST
@sensitive_post_parameters("other")
def merge(request, ref):
    """The other subject is named by its reference, so that nothing that names a person is typed into this page."""
    subject = subject_for(request, ref, "subject.merge")
    other = Subject.objects.filter(tenant_id=request.tenant.pk, display_ref=request.POST.get("other", "").strip().upper()).first()
    if other is None:
        messages.error(request, _("There is no subject with this reference."))
        return redirect("subject", ref)
    return _told(request, subject, _("%s now has everything of both."), lambda: identities.merge(subject=subject, other=other, by=request.actor))


def _told(request, subject, words, act):
    try:
        act()
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, words % subject.display_ref)
    return redirect("subject", subject.display_ref)
