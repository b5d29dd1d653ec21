"""Who may enter the tenant, and with which roles."""

from django.contrib import messages
from django.db.models import Q
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.access import may, membership_for
from console.forms.base import tell
from console.forms.governance import NewMemberForm, RolesForm, SearchForm
from console.paging import numbered
from governance import queries
from governance.domain import members
from governance.errors import LetheError
from governance.ids import shown
from governance.permissions import ROLES


@may("members.read")
def member_list(request):
    form = SearchForm(request.GET)
    found = queries.members_of(request.tenant.pk)
    if form.is_valid() and (words := form.cleaned_data["q"]):
        found = found.filter(Q(member__username__icontains=words) | Q(display_name__icontains=words))
    context = {"form": form, "page": numbered(request, found), "roles": ROLES}
    return render(request, "governance/members.html#table" if request.htmx else "governance/members.html", context)


@may("members.write")
@never_cache
@require_http_methods(["GET", "POST"])
def member_new(request):
    form = NewMemberForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            membership, password = members.add_member(tenant=request.tenant, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            if password is None:
                messages.success(request, _("%s was added and signs in with the password they already have.") % membership.member.username)
                return redirect("members")
            return _once(request, membership, password, is_new=True)
    return render(request, "governance/member_new.html", {"form": form}, status=422 if form.is_bound else 200)


def _once(request, membership, password, *, is_new=False):
    """The page that shows a one-time password. Not a redirect: nothing may keep the password for a second request."""
    context = {"membership": membership, "password": password, "is_new": is_new}
    return render(request, "governance/member_password.html", context)


@require_http_methods(["GET", "POST"])
def member_detail(request, ref):
    membership = membership_for(request, ref, "members.write" if request.method == "POST" else "members.read")
    form = RolesForm(request.POST or None, initial={"roles": membership.roles})
    if request.method == "POST" and form.is_valid():
        try:
            members.set_roles(membership=membership, roles=form.cleaned_data["roles"], by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The roles were saved."))
            return redirect("member", shown("mem", membership.pk))
    context = {"membership": membership, "form": form, "roles": ROLES}
    return render(request, "governance/member.html", context, status=422 if form.is_bound else 200)


@require_POST
@never_cache
def member_reset(request, ref):
    membership = membership_for(request, ref, "members.write")
    try:
        password = members.reset_password(membership=membership, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("member", ref)
    return _once(request, membership, password)


@require_POST
def member_remove(request, ref):
    membership = membership_for(request, ref, "members.write")
    try:
        members.remove_member(membership=membership, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("member", ref)
    messages.success(request, _("%s no longer belongs to this tenant.") % membership.member.username)
    return redirect("members" if membership.member_id != request.user.pk else "overview")
