"""Approvals: what waits for a person, what was decided, and the standing answers."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from console import access, turns
from console.forms.decision import DecisionForm
from console.listing import FilterForm, agent_field, choice_field, date_field, listing, render_list, text_field
from sessions import queries
from sessions.domain import approvals as approval_verbs
from sessions.models import Approval

DECIDED = tuple(choice for choice in Approval.Status.choices if choice[0] != Approval.Status.PENDING)


class ApprovalFilters(FilterForm):
    agent = agent_field()
    tool = text_field(gettext_lazy("Tool"))

    def narrowed(self, queryset):
        """The approvals that match, or None when a filter is not valid."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        exact = {"run__agent__name": given["agent"], "tool": given["tool"].strip(), "status": given.get("status")}
        return queryset.filter(**{name: value for name, value in exact.items() if value})


class HistoryFilters(ApprovalFilters):
    status = choice_field(gettext_lazy("Decision"), DECIDED, gettext_lazy("Any decision"))
    since = date_field(gettext_lazy("Asked from"))

    def narrowed(self, queryset):
        found = super().narrowed(queryset)
        if found is not None and self.cleaned_data["since"]:
            found = found.filter(created_at__gte=self.day_start("since"))
        return found


@require_GET
@access.may("approvals.read")
def approvals(request):
    """The inbox: what waits, the longest wait first."""
    form = ApprovalFilters(request)
    rows = form.narrowed(queries.approvals_of(request.tenant.pk, status=Approval.Status.PENDING).select_related("session__subject"))
    found = listing(request, form, rows, order=("id",))
    may_decide = request.actor.may("approvals.decide")
    cards = [(approval, _card(approval), DecisionForm(approval)) for approval in found.results]
    context = {"listing": found, "cards": cards, "may_decide": may_decide, "tab": "waiting", "waiting": queries.waiting_approvals(request.tenant.pk)}
    return render_list(request, "sessions/approvals.html", form, context)


@require_GET
@access.may("approvals.read")
def history(request):
    form = HistoryFilters(request)
    rows = form.narrowed(queries.approvals_of(request.tenant.pk).exclude(status=Approval.Status.PENDING))
    found = listing(request, form, rows, order=("-id",))
    context = {"listing": found, "tab": "history", "waiting": queries.waiting_approvals(request.tenant.pk)}
    return render_list(request, "sessions/approvals_history.html", form, context)


@require_GET
@access.may("approvals.read")
def rules(request):
    rows = list(queries.rules_of(request.tenant.pk)[:500])
    context = {"rules": rows, "tab": "rules", "waiting": queries.waiting_approvals(request.tenant.pk), "may_decide": request.actor.may("approvals.decide")}
    return render(request, "sessions/approval_rules.html", context)


@require_POST
def revoke(request, ref):
    rule = access.rule_for(request, ref, "approvals.decide")
    approval_verbs.revoke_rule(rule=rule, by=request.actor)
    messages.success(request, _("Revoked. %(tool)s asks again from now on.") % {"tool": rule.tool})
    return redirect("approval-rules")


@require_GET
def approval(request, ref):
    chosen = access.approval_for(request, ref)
    return render(request, "sessions/approval.html", _one(request, chosen, DecisionForm(chosen)))


@require_POST
def decide(request, ref):
    """Answer a call. In a transcript the card is replaced where it stands; elsewhere the page that asked comes back."""
    chosen = access.approval_for(request, ref, "approvals.decide")
    form = DecisionForm(chosen, request.POST)
    decided = form.decide(by=request.actor) if form.is_valid() else None
    if decided is None:
        # It may have expired meanwhile, or somebody else may have answered.
        chosen.refresh_from_db(fields=["status", "decided_by", "decided_at", "reason"])
    if request.htmx:
        context = {**_one(request, decided or chosen, form), "live": True}
        return render(request, "sessions/parts.html#card", context, status=200 if decided else 422)
    if decided is None:
        return render(request, "sessions/approval.html", _one(request, chosen, form), status=422)
    words = {"approved": _("Approved: %(tool)s runs now."), "rejected": _("Rejected: the model is told about %(tool)s.")}
    messages.success(request, words[decided.status] % {"tool": decided.tool})
    return redirect(_next(request))


def _one(request, approval: Approval, form: DecisionForm) -> dict:
    return {"approval": approval, "card": _card(approval), "form": form, "may_decide": request.actor.may("approvals.decide")}


def _card(approval: Approval) -> turns.Card:
    return turns.Card(approval.run_id, approval.call_id, approval.tool, arguments=approval.arguments, approval=approval)


def _next(request) -> str:
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return target if safe else reverse("approvals")
