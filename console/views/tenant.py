"""The tenant itself, and the limits of what it may use."""

from dataclasses import asdict

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents.models import Agent
from console.access import may, quota_for
from console.forms.base import tell
from console.forms.governance import KeepingForm, LimitForm, NewQuotaForm, RulesForm, TenantForm
from governance.domain import keeping, rules, tenants
from governance.errors import LetheError
from governance.ids import shown
from governance.models import ApiKey, Subject
from sessions.domain import quotas
from sessions.models import Quota


@may("tenant.write")
@require_http_methods(["GET", "POST"])
def settings(request):
    form = TenantForm(request.POST or None, initial={"name": request.tenant.name, "timezone": request.tenant.timezone})
    if request.method == "POST" and form.is_valid():
        try:
            tenants.rename_tenant(tenant=request.tenant, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The tenant was saved."))
            return redirect("tenant")
    return _page(request, status=422 if form.is_bound else 200, form=form)


def _rules_form(request, data=None):
    current = asdict(rules.of(request.tenant))
    return RulesForm(data, initial={**current, "holidays": "\n".join(current["holidays"])})


def _keeping_form(request, data=None):
    current = asdict(keeping.of(request.tenant))
    minimums = "\n".join(f"{key} {days}" for key, days in sorted(current["retention_minimum_days"].items()))
    return KeepingForm(data, initial={**current, "retention_minimum_days": minimums})


def _page(request, status=200, **forms):
    """The forms of the page; the one that was sent in is given, with what is wrong in it."""
    tenant = request.tenant
    unsent = {
        "form": TenantForm(initial={"name": tenant.name, "timezone": tenant.timezone}),
        "rules_form": _rules_form(request),
        "keeping_form": _keeping_form(request),
    }
    return render(request, "console/tenant.html", {**unsent, **forms}, status=status)


@require_POST
@may("governance.settings")
def rules_of_requests(request):
    form = _rules_form(request, request.POST)
    if form.is_valid():
        try:
            rules.change(tenant=request.tenant, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The rules hold from now on. Previews made before may have to be made again."))
            return redirect("tenant")
    return _page(request, status=422, rules_form=form)


@require_POST
@may("governance.settings")
def rules_of_keeping(request):
    form = _keeping_form(request, request.POST)
    if form.is_valid():
        try:
            keeping.change(tenant=request.tenant, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The rules hold from now on, for policies and holds that are there as well."))
            return redirect("tenant")
    return _page(request, status=422, keeping_form=form)


@require_GET
@may("usage.read")
def quota_list(request):
    standings = quotas.standings(tenant_id=request.tenant.pk)
    labels = _labels(request.tenant.pk, standings)
    rows = [(standing, labels.get(standing.quota.scope_ref, ""), labels.get(standing.ref, "")) for standing in standings]
    return render(request, "console/quotas.html", {"rows": rows})


def _labels(tenant_id, standings) -> dict[str, str]:
    """Names of what quotas and their fullest counters refer to, by hex id; subjects by their reference."""
    wanted = {ref for standing in standings for ref in (standing.quota.scope_ref, standing.ref) if ref}
    sources = ((Agent, "name"), (ApiKey, "name"), (Subject, "display_ref"))
    return {
        pk.hex: label
        for model, field in sources
        for pk, label in model.objects.filter(tenant_id=tenant_id, pk__in=wanted).values_list("pk", field)
    }


@may("quotas.write")
@require_http_methods(["GET", "POST"])
def quota_new(request):
    form = NewQuotaForm(request.POST or None, refs=_refs(request.tenant.pk))
    if request.method == "POST" and form.is_valid():
        try:
            quotas.create_quota(tenant_id=request.tenant.pk, by=request.actor, **form.cleaned_data)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The limit holds from now on."))
            return redirect("quotas")
    return render(request, "console/quota_edit.html", {"form": form}, status=422 if form.is_bound else 200)


def _refs(tenant_id):
    agents = Agent.objects.of(tenant_id).listed()
    keys = ApiKey.objects.filter(tenant_id=tenant_id, revoked_at=None)
    return [
        (_("Agents"), [(shown("agt", agent.pk), str(agent)) for agent in agents]),
        (_("API keys"), [(shown("key", key.pk), key.name) for key in keys]),
    ]


@require_http_methods(["GET", "POST"])
def quota_edit(request, ref):
    quota = quota_for(request, ref, "quotas.write")
    form = LimitForm(request.POST or None, initial={"limit": f"{quota.limit.normalize():f}"})
    if request.method == "POST" and form.is_valid():
        try:
            quotas.update_quota(quota=quota, limit=form.cleaned_data["limit"], by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("The limit was changed."))
            return redirect("quotas")
    context = {"form": form, "quota": quota, "measures": dict(Quota.Measure.choices)}
    return render(request, "console/quota_edit.html", context, status=422 if form.is_bound else 200)


@require_POST
def quota_delete(request, ref):
    quotas.delete_quota(quota=quota_for(request, ref, "quotas.write"), by=request.actor)
    messages.success(request, _("The limit is gone."))
    return redirect("quotas")
