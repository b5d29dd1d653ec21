"""What is done with a request, each act with a form that opens on its own page or in place, and one domain call."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console import stepup
from console.access import request_for
from console.forms.base import tell
from console.forms.requests import ApproveForm, CancelForm, DeclineForm, ExtendForm
from governance.domain import clocks, previews, recipients, requests
from governance.errors import LetheError


@never_cache
@require_http_methods(["GET", "POST"])
def extend(request, ref):
    found = request_for(request, ref, "request.extend")
    return _act(
        request, found, ExtendForm, clocks.extend, _("%s has more time now."),
        title=_("Extend %s") % found.ref, button=_("Extend"), name="request-extend",
    )  # fmt: skip


@never_cache
@require_http_methods(["GET", "POST"])
def cancel(request, ref):
    found = request_for(request, ref, "request.cancel")
    return _act(
        request, found, CancelForm, requests.cancel, _("%s was cancelled. Nothing was erased."),
        title=_("Cancel %s?") % found.ref, button=_("Cancel the request"), name="request-cancel", is_danger=True,
    )  # fmt: skip


@never_cache
@require_http_methods(["GET", "POST"])
def approve(request, ref):
    found = request_for(request, ref, "request.approve")
    if request.method == "POST":
        stepup.require(request, onward=reverse("request", args=[found.ref]))
    return _act(
        request, found, ApproveForm, requests.approve, _("%s was approved and is carried out now."),
        title=_("Approve %s?") % found.ref, button=_("Approve"), name="request-approve", is_danger=True,
        initial={"digest": found.digest}, rows=previews.rows_of(found),
    )  # fmt: skip


@never_cache
@require_http_methods(["GET", "POST"])
def decline(request, ref):
    found = request_for(request, ref, "request.approve")
    return _act(
        request, found, DeclineForm, requests.decline, _("%s was sent back. Nothing was erased."),
        title=_("Decline %s?") % found.ref, button=_("Decline"), name="request-decline",
    )  # fmt: skip


def _act(request, found, form_class, verb, done, *, initial=None, **context):
    onward = "requests" if request.htmx else "request"
    # In place, several of these may be open on one page.
    form = form_class(request.POST or None, initial={"onward": onward, **(initial or {})}, auto_id=f"{found.ref}-%s")
    if request.method == "POST" and form.is_valid():
        values = dict(form.cleaned_data)
        onward = values.pop("onward") or "request"
        try:
            verb(request=found, by=request.actor, **values)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, done % found.ref)
            return redirect("requests") if onward == "requests" else redirect("request", found.ref)
    context |= {"item": found, "form": form}
    template = "governance/request_act.html#row" if request.htmx else "governance/request_act.html"
    return render(request, template, context, status=422 if form.is_bound else 200)


@require_POST
def identity(request, ref):
    found = request_for(request, ref, "request.extend")
    return _told(request, ref, lambda: clocks.ask_identity(request=found, by=request.actor), _("%s waits for proof of identity."))


@require_POST
def first_answer(request, ref):
    found = request_for(request, ref, "request.extend")
    return _told(request, ref, lambda: clocks.answer_first(request=found, by=request.actor), _("The first answer of %s is on record."))


@require_POST
def recipient(request, ref):
    found = request_for(request, ref, "subject.erase")
    mark = recipients.acknowledge if request.POST.get("acknowledged") else recipients.tell
    name = request.POST.get("recipient", "")
    return _told(request, ref, lambda: mark(request=found, ref=name, by=request.actor), _("The receipt of %s has a new version."))


@require_POST
def seen(request, ref):
    """An alarm was seen by this member; it stays for the others."""
    found = request_for(request, ref)
    try:
        clocks.see_alarm(request=found, kind=request.POST.get("kind", ""), by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    return redirect("requests")


def _told(request, ref, act, done):
    try:
        act()
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, done % ref)
    return redirect("request", ref)
