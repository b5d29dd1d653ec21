"""Where models are reached: providers, their keys, models and prices."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents import queries
from agents.domain import providers, utility
from agents.models import Provider
from console.access import may, provider_for
from console.forms.base import tell
from console.forms.providers import EgressForm, ModelFormSet, ProviderForm, UtilityForm, entries
from governance.errors import LetheError
from sessions.domain.providers import test_provider


@require_GET
@may("agents.read")
def provider_list(request):
    return _page(request)


def _page(request, status=200, **forms):
    """The list with both forms beside it; the one that was sent in is given, with what is wrong in it."""
    rows, hosts = list(queries.providers_of(request.tenant.pk)), queries.egress_hosts(request.tenant.pk)
    chosen = queries.utility_model_of(request.tenant)
    unsent = {
        "form": EgressForm(initial={"hosts": "\n".join(hosts)}),
        "utility_form": UtilityForm(providers=rows, initial=chosen.model_dump() if chosen else None),
    }
    context = {
        "providers": rows,
        "hosts": hosts,
        "utility": chosen,
        "utility_provider": next((row for row in rows if chosen and row.name == chosen.provider), None),
        "models": sorted((entry["name"], row.name) for row in rows for entry in row.model_list),
    }
    return render(request, "console/providers.html", {**context, **unsent, **forms}, status=status)


@require_POST
@may("providers.write")
def egress(request):
    """The hosts that providers of this tenant may reach."""
    form = EgressForm(request.POST)
    try:
        if form.is_valid():
            providers.set_egress(tenant_id=request.tenant.pk, hosts=form.cleaned_data["hosts"].split(), by=request.actor)
            messages.success(request, _("The hosts were saved."))
            return redirect("providers")
    except LetheError as error:
        tell(form, error)
    return _page(request, status=422, form=form)


@require_POST
@may("providers.write")
def utility_model(request):
    """The model for work beside the answers of agents; sent with `clear`, none."""
    form = UtilityForm(request.POST, providers=queries.providers_of(request.tenant.pk))
    try:
        if "clear" in request.POST:
            utility.clear_utility_model(tenant_id=request.tenant.pk, by=request.actor)
            messages.success(request, _("There is no utility model any more. Each agent's own model does its work."))
            return redirect("providers")
        if form.is_valid():
            utility.set_utility_model(tenant_id=request.tenant.pk, by=request.actor, **form.cleaned_data)
            messages.success(request, _("The utility model was saved. It is used from the next summary on."))
            return redirect("providers")
    except LetheError as error:
        tell(form, error)
    return _page(request, status=422, utility_form=form)


@require_GET
def provider_detail(request, name):
    provider = provider_for(request, name)
    context = {"provider": provider, "test": provider.last_test, "used_by": providers.agents_using(provider)}
    chosen = queries.utility_model_of(request.tenant)
    context["utility"] = chosen if chosen and chosen.provider == provider.name else None
    return render(request, "console/provider.html", context)


@may("providers.write")
@require_http_methods(["GET", "POST"])
def provider_new(request):
    return _edit(request, None)


@require_http_methods(["GET", "POST"])
def provider_edit(request, name):
    return _edit(request, provider_for(request, name, "providers.write"))


def _edit(request, provider):
    """One form for both: a new provider, or a change of one. The key goes in and never comes out."""
    posted = request.POST or None
    form = ProviderForm(posted, provider=provider, initial=_initial(provider))
    # What was posted is the whole list: a row that equals what is stored must not count as left empty.
    models = ModelFormSet(posted, prefix="models", initial=provider.model_list if provider and not posted else None)
    if request.method == "POST" and form.is_valid() and models.is_valid():
        try:
            saved = _save(form.cleaned_data, entries(models), provider, by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("%s was saved.") % saved.name)
            return redirect("provider", saved.name)
    context = {"form": form, "models": models, "provider": provider}
    return render(request, "console/provider_edit.html", context, status=422 if form.is_bound else 200)


def _initial(provider):
    if provider is None:
        return {"kind": Provider.Kind.OPENAI, "api": "responses"}
    stored = {name: getattr(provider, name) for name in ("base_url", "api", "key_env", "max_concurrency", "is_disabled")}
    return {**stored, "search_price": provider.pricing.get("web_search")}


def _save(data, models, provider, *, by):
    changes = {"base_url": data["base_url"], "api": data["api"] or "responses", "max_concurrency": data["max_concurrency"], "models": models}
    changes["pricing"] = {} if data["search_price"] is None else {"web_search": str(data["search_price"])}
    if data["key"] or data.get("forget_key"):
        changes["key"] = data["key"]
    if data["key_env"] != (provider.key_env if provider else ""):
        changes["key_env"] = data["key_env"]
    if provider is None:
        return providers.create_provider(tenant_id=by.tenant_id, name=data["name"], kind=data["kind"], by=by, **changes)
    return providers.update_provider(provider=provider, by=by, is_disabled=data["is_disabled"], **changes)


@require_POST
def provider_test(request, name):
    """Ask the provider for an answer of one word; the result stays on its page."""
    provider = provider_for(request, name, "providers.write")
    result = test_provider(provider=provider, model=request.POST.get("model") or None, by=request.actor)
    if request.htmx:
        return render(request, "console/provider.html#test", {"provider": provider, "test": result})
    (messages.success if result["ok"] else messages.error)(request, result.get("message") or _("The provider answered."))
    return redirect("provider", name)


@require_POST
def provider_delete(request, name):
    provider = provider_for(request, name, "providers.write")
    try:
        providers.delete_provider(provider=provider, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("provider", name)
    messages.success(request, _("%s was deleted.") % name)
    return redirect("providers")
