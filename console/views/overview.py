"""The first page: what runs, what fails, what it costs, and what waits for a person."""

from datetime import date
from decimal import Decimal

from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from agents.models import Agent
from console.access import may
from console.templatetags.ui import dollars, duration, number
from governance.models import SubjectRequest
from sessions import queries
from sessions.domain.usage import summary
from sessions.models import Approval

SPANS = (7, 30, 90)


@require_GET
@may("usage.read")
def overview(request):
    days = next((span for span in SPANS if request.GET.get("days") == str(span)), 30)
    usage = summary(tenant_id=request.tenant.pk, days=days)
    context = {
        "days": days,
        "spans": SPANS,
        "stats": _stats(usage["totals"]),
        "unpriced": usage["totals"]["unpriced_runs"],
        "charts": _charts(usage["days"]),
        "has_runs": bool(usage["totals"]["runs"]),
        **_waiting(request),
    }
    return render(request, "console/overview.html", context)


def _stats(totals):
    share = totals["errors"] / totals["runs"] * 100 if totals["runs"] else 0
    used = totals["input_tokens"] + totals["output_tokens"]
    cached = totals["cached_tokens"] / totals["input_tokens"] * 100 if totals["input_tokens"] else 0
    return [
        (_("Runs"), number(totals["runs"]), "", ""),
        (_("Failed"), number(totals["errors"]), _("%.1f %% of runs") % share if totals["runs"] else "", "bad" if share >= 5 else ""),
        (_("Tokens"), number(used), _("%.0f %% of input cached") % cached if used else "", ""),
        (_("Cost"), dollars(totals["cost"]), _("%s runs without a known price") % number(totals["unpriced_runs"]) if totals["unpriced_runs"] else "", ""),
        (_("Latency"), duration(totals["latency_p50_ms"]), _("median; 95th percentile %s") % duration(totals["latency_p95_ms"]) if totals["latency_p95_ms"] is not None else "", ""),
    ]


def _charts(days):
    """Four series over the same days, as `{% chart %}` takes them."""
    labelled = [(_day(day["day"]), day) for day in days]
    tokens = [{"label": label, "value": day["input_tokens"] + day["output_tokens"]} for label, day in labelled]
    cost = [{"label": label, "value": Decimal(day["cost"]), "shown": dollars(day["cost"])} for label, day in labelled]
    latency = [{"label": label, "value": day["latency_p95_ms"], "shown": duration(day["latency_p95_ms"])} for label, day in labelled]
    runs = [{"label": label, "value": day["runs"], "bad": day["errors"]} for label, day in labelled]
    return [
        {"title": _("Runs a day"), "note": _("failed in red, at the foot"), "points": runs, "kind": "columns"},
        {"title": _("Tokens a day"), "note": "", "points": tokens, "kind": "columns"},
        {"title": _("Cost a day"), "note": _("US dollars"), "points": cost, "kind": "columns"},
        {"title": _("Latency"), "note": _("95th percentile"), "points": latency, "kind": "line"},
    ]


def _day(text):
    day = date.fromisoformat(text)
    return f"{day.day} {day:%b}"


def _waiting(request):
    """What waits for a person, and the newest runs, as far as this member may see them."""
    tenant_id, actor = request.tenant.pk, request.actor
    found = {"has_agents": Agent.objects.of(tenant_id).listed().exists()}
    if actor.may("approvals.read"):
        found["approvals"] = list(queries.approvals_of(tenant_id, status=Approval.Status.PENDING).order_by("expires_at")[:5])
    if actor.may("runs.read"):
        found["runs"] = list(queries.runs_of(tenant_id)[:8])
    if actor.may("request.read"):
        open_states = [state for state in SubjectRequest.State.values if state not in SubjectRequest.FINAL]
        requests = SubjectRequest.objects.filter(tenant_id=tenant_id, state__in=open_states, due_at__lt=timezone.now())
        found["overdue"] = list(requests.select_related("subject").order_by("due_at")[:5])
    return found
