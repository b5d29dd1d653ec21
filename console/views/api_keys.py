"""Credentials of applications."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.access import key_for, may
from console.forms.base import tell
from console.forms.governance import NewKeyForm, SearchForm
from console.paging import numbered
from governance import queries
from governance.domain import keys
from governance.errors import LetheError


@may("keys.read")
def key_list(request):
    form = SearchForm(request.GET)
    found = queries.keys_of(request.tenant.pk)
    if form.is_valid() and (words := form.cleaned_data["q"]):
        found = found.filter(name__icontains=words)
    context = {"form": form, "page": numbered(request, found)}
    return render(request, "governance/keys.html#table" if request.htmx else "governance/keys.html", context)


@may("keys.write")
@never_cache
@require_http_methods(["GET", "POST"])
def key_new(request):
    form = NewKeyForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            key, secret = keys.create_key(
                tenant_id=request.tenant.pk,
                name=data["name"],
                scopes=data["scopes"],
                subject=data["subject"] or None,
                expires_at=form.expires_at(),
                by=request.actor,
            )
        except LetheError as error:
            tell(form, error, {"expires_at": "lifetime"})
        else:
            # Not a redirect: nothing may keep the secret for a second request.
            return render(request, "governance/key_created.html", {"key": key, "secret": secret, "base": request.build_absolute_uri("/")})
    return render(request, "governance/key_new.html", {"form": form}, status=422 if form.is_bound else 200)


@require_POST
def key_revoke(request, ref):
    key = key_for(request, ref, "keys.write")
    keys.revoke_key(key=key, by=request.actor)
    messages.success(request, _("The key %s no longer works.") % key.name)
    return redirect("keys")
