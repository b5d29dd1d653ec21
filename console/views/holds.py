"""What must be kept by law: placing a hold, what it covers, and what its release sets going."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents.queries import agent_named
from console.access import hold_for, may
from console.forms.base import tell
from console.forms.holds import SCOPES, HoldForm
from governance import ids, queries
from governance.domain import holds, keeping, registry
from governance.errors import LetheError
from governance.ids import shown
from governance.models import Hold
from sessions.queries import session_by

NEWEST = 200
# Where a domain error's path stands in the form.
FIELDS = {"scope.category": "category", "scope.after": "after", "scope.before": "before", "scope": "scope"}


@require_GET
@may("hold.read")
def hold_list(request):
    found = list(queries.holds_of(request.tenant.pk)[:NEWEST])
    in_force = [hold for hold in found if hold.released_at is None]
    context = {"in_force": in_force, "released": [hold for hold in found if hold.released_at], "scopes": SCOPES}
    return render(request, "governance/holds.html", context)


@may("hold.place")
@require_http_methods(["GET", "POST"])
def hold_new(request):
    form = HoldForm(request.POST or None, zone=request.tenant.timezone, initial={"named": request.GET.get("subject", "")})
    if request.method == "POST" and form.is_valid():
        try:
            hold = holds.place(
                target=_target(request, form),
                matter=form.cleaned_data["matter"],
                reason=form.cleaned_data["reason"],
                until=form.moment("until"),
                by=request.actor,
            )
        except LetheError as error:
            tell(form, error, FIELDS)
        else:
            messages.success(request, _("The hold is in force. Nothing of it can be deleted until it is released."))
            return redirect("hold", shown("hld", hold.pk))
    return render(request, "governance/hold_new.html", {"form": form}, status=422 if form.is_bound else 200)


def _target(request, form) -> holds.Target:
    """What the form names. Raises NotFound for what is not there."""
    scope, named, tenant_id = form.cleaned_data["scope"], form.cleaned_data["named"].strip(), request.tenant.pk
    match scope:
        case Hold.Scope.SUBJECT:
            return holds.Target(scope, subject=queries.subject_of(tenant_id, named))
        case Hold.Scope.SESSION:
            return holds.Target(scope, session_id=session_by(tenant_id=tenant_id, ref=named).id)
        case Hold.Scope.AGENT:
            agent = agent_named(tenant_id=tenant_id, name=named)
            return holds.Target(scope, agent_id=agent.id, agent_name=agent.name)
        case Hold.Scope.CATEGORY:
            return holds.Target(scope, category=form.cleaned_data["category"])
        case _:
            times = {name: form.moment(name) for name in ("after", "before")}
            return holds.Target(scope, query={"category": form.cleaned_data["category"], **{name: at for name, at in times.items() if at}})


@require_GET
def hold_detail(request, ref):
    hold = hold_for(request, ref)
    is_in_force = hold.released_at is None
    covered = holds.rows_by_category(hold=hold) if is_in_force else {}
    context = {
        "hold": hold,
        "scope": SCOPES[hold.scope],
        "reason": holds.REASONS.get(hold.reason, hold.reason),
        "covered": [(registry.get(key).title, rows) for key, rows in covered.items()],
        "total": sum(covered.values()),
        "waiting": holds.waiting_for(hold=hold) if is_in_force else [],
        "is_own": holds.is_own(hold, request.actor) and not keeping.of(request.tenant).hold_release_alone,
        "session": ids.shown("ses", hold.session_id) if hold.session_id else "",
    }
    return render(request, "governance/hold.html", context)


@require_POST
def hold_release(request, ref):
    hold = hold_for(request, ref, "hold.release")
    try:
        _hold, started = holds.release(hold=hold, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        text = ngettext("The hold was released. %(n)s erasure goes on now.", "The hold was released. %(n)s erasures go on now.", len(started))
        messages.success(request, text % {"n": len(started)} if started else _("The hold was released."))
    return redirect("hold", ref)
