"""Signing in and out, the member's own password and theme, and the tenant they look into."""

from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.http import JsonResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console import search, stepup
from console.forms.account import PasswordForm, ProveForm, SignInForm, ThemeForm
from console.forms.base import tell
from governance import queries
from governance.domain import audit, members
from governance.errors import LetheError
from governance.models import Member
from governance.models.members import canonical_username


@login_not_required
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request):
    onward = _onward(request)
    if request.user.is_authenticated:
        return redirect(onward)
    form = SignInForm(request.POST or None, request=request)
    if request.method == "POST" and form.is_valid():
        login(request, form.member)
        stepup.prove(request)
        _record("member.signed_in", form.member)
        return redirect(onward)
    if form.is_refused:
        _record("member.sign_in_failed", Member.objects.filter(username=canonical_username(form.cleaned_data["username"])).first())
    status = (429 if form.is_limited else 422) if form.is_bound else 200
    return render(request, "registration/sign_in.html", {"form": form, "next": onward}, status=status)


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def prove(request):
    """The password once more, before what cannot be undone."""
    onward = _onward(request)
    form = ProveForm(request.POST or None, request=request)
    if request.method == "POST" and form.is_valid():
        stepup.prove(request)
        return redirect(onward)
    if form.is_refused:
        _record("member.sign_in_failed", request.user)
    status = (429 if form.is_limited else 422) if form.is_bound else 200
    return render(request, "registration/prove.html", {"form": form, "next": onward}, status=status)


def _onward(request):
    """Where to go after signing in: an address of ours, or the overview."""
    wanted = request.POST.get("next") or request.GET.get("next") or "/"
    ours = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return wanted if ours else "/"


def _record(action, member):
    """Tell every tenant of the member: signing in opens all of them."""
    for membership in queries.memberships_for(member.pk) if member else ():
        actor = members.actor_of(membership=membership)
        audit.record(action, by=actor, object_type="membership", object_ref=membership.pk, object_label=actor.label)


@login_not_required
@require_POST
def sign_out(request):
    if request.user.is_authenticated:
        _record("member.signed_out", request.user)
    logout(request)
    return redirect("sign-in")


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def change_password(request):
    form = PasswordForm(request.POST or None, member=request.user)
    if request.method == "POST" and form.is_valid():
        try:
            members.change_password(member=request.user, password=form.cleaned_data["new"])
        except LetheError as error:
            tell(form, error, {"password": "new"})
        else:
            # Ends the member's other sessions, keeps this one.
            update_session_auth_hash(request, request.user)
            stepup.prove(request)
            messages.success(request, _("Your password was changed. Other browsers were signed out."))
            return redirect("overview")
    return render(request, "registration/change_password.html", {"form": form}, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
def account(request):
    form = ThemeForm(request.POST or None, initial={"theme": request.user.theme})
    if request.method == "POST" and form.is_valid():
        members.set_theme(member=request.user, theme=form.cleaned_data["theme"])
        messages.success(request, _("The theme was saved."))
        return redirect("account")
    return render(request, "console/account.html", {"form": form}, status=422 if form.is_bound else 200)


@require_POST
def switch_tenant(request):
    wanted = request.POST.get("tenant", "")
    if any(membership.tenant_id.hex == wanted for membership in request.memberships):
        request.session["tenant"] = wanted
    # Back to the overview: what was open belongs to the tenant that was left.
    return redirect("overview")


@require_POST
def palette(request):
    """What the palette finds beside the pages. By POST, so that what is typed stays out of addresses and logs."""
    return JsonResponse({"results": search.find(request=request, words=request.POST.get("q", ""))})
