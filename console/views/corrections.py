"""Putting data right, on the page of the request that asked for it."""

from django.contrib import messages
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from console.access import request_for
from console.forms.base import tell
from console.forms.requests import CorrectionForm, IdentifierForm
from console.views.requests import page
from governance.domain import corrections
from governance.errors import LetheError


@require_POST
def record(request, ref):
    found = request_for(request, ref, "subject.rectify")
    form = CorrectionForm(request.POST)
    return _correct(request, found, form, corrections.record, "correction_form")


@sensitive_post_parameters("value")
@require_POST
def identifier(request, ref):
    found = request_for(request, ref, "subject.rectify")
    form = IdentifierForm(request.POST, identifiers=found.subject.identifiers.all())
    return _correct(request, found, form, corrections.correct_identifier, "identifier_form")


def _correct(request, found, form, verb, name):
    if form.is_valid():
        try:
            verb(request=found, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The correction is on record."))
            return redirect("request", found.ref)
    return page(request, found, status=422, **{name: form})


@require_POST
def complete(request, ref):
    found = request_for(request, ref, "subject.rectify")
    try:
        corrections.complete(request=found, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    return redirect("request", ref)
