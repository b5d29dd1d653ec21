"""How long each category is kept, what a policy would take, and what its runs took."""

from collections import Counter
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents.models import Agent
from console import stepup
from console.access import may, policy_for
from console.forms.base import tell
from console.forms.subjects import PolicyForm
from console.templatetags.ui import size
from governance import queries
from governance.domain import keeping, registry, retention
from governance.errors import LetheError
from governance.ids import shown
from governance.models import RetentionRun


@require_GET
@may("retention.read")
def policy_list(request):
    """A row for each category: its policies, or why it has none."""
    tenant_id = request.tenant.pk
    policies, latest = list(queries.policies_of(tenant_id)), _latest(tenant_id)
    targets = {category.key for category in retention.targets()}
    rows = [
        {
            "category": category,
            "policies": [(policy, latest.get(policy.pk)) for policy in policies if policy.category == category.key],
            "can_have_one": category.key in targets,
        }
        for category in registry.categories().values()
    ]
    context = {
        "rows": sorted(rows, key=_prominence),
        "runs": queries.retention_runs_of(tenant_id)[:10],
        "now": timezone.now(),
        "counting_days": keeping.of(request.tenant).retention_dry_run_days,
    }
    return render(request, "governance/retention.html", context)


def _prominence(row):
    """What has a policy first, then what could have one, then what goes along with something else."""
    return not row["policies"], not row["can_have_one"], row["category"].group_of is not None


def _latest(tenant_id):
    runs = RetentionRun.objects.filter(tenant_id=tenant_id).order_by("policy_id", "-id").distinct("policy_id")
    return {run.policy_id: run for run in runs}


@may("retention.edit")
@require_http_methods(["GET", "POST"])
def policy_new(request):
    form = PolicyForm(request.POST or None, initial={"category": request.GET.get("category"), "days": 90, "age_basis": "ended"})
    if request.method == "POST" and form.is_valid():
        data = {name: value for name, value in form.cleaned_data.items() if name != "expected_version"}
        try:
            policy = retention.create_policy(tenant_id=request.tenant.pk, by=request.actor, **data)
        except LetheError as error:
            tell(form, error, {"months": "days"})
        else:
            messages.success(request, _("The policy was made. Until its trial ends it only counts."))
            return redirect("policy", shown("pol", policy.pk))
    context = {
        "form": form,
        "agents": Agent.objects.of(request.tenant.pk).listed(),
        "counting_days": keeping.of(request.tenant).retention_dry_run_days,
    }
    return render(request, "governance/policy_new.html", context, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
def policy_detail(request, ref):
    policy = policy_for(request, ref, "retention.edit" if request.method == "POST" else "retention.read")
    form = PolicyForm(request.POST or None, policy=policy)
    if request.method == "POST" and form.is_valid():
        changes = dict(form.cleaned_data)
        try:
            retention.update_policy(policy=policy, expected_version=changes.pop("expected_version") or 0, by=request.actor, **changes)
        except LetheError as error:
            tell(form, error, {"months": "days"})
        else:
            messages.success(request, _("The policy was saved."))
            return redirect("policy", ref)
    return _page(request, policy, form, status=422 if form.is_bound else 200)


def _page(request, policy, form, status=200, **more):
    context = {
        "policy": policy,
        "category": registry.get(policy.category),
        "form": form,
        "runs": queries.retention_runs_of(request.tenant.pk, policy_id=policy.pk)[:30],
        "is_dry": retention.is_dry(policy, timezone.now()),
        "is_own": request.actor.person in (policy.author, policy.author_person),
        "success": queries.last_success_of(policy),
        **more,
    }
    return render(request, "governance/policy.html", context, status=status)


@require_POST
def policy_preview(request, ref):
    """A dry run now: what would go, day by day, and what stays."""
    policy = policy_for(request, ref)
    preview = retention.preview_policy(policy=policy, by=request.actor)
    points = chart_points([*preview["by_day"], *preview["coming_by_day"]])
    cutoff = datetime.fromisoformat(preview["cutoff"]).astimezone(ZoneInfo(policy.tenant.timezone))
    context = {
        "preview": preview,
        "share": preview["share_of_table"] * 100,
        "overdue_days": preview["oldest_overdue_seconds"] // 86_400,
        "points": points,
        "cut": sum(point["start"] < cutoff.toordinal() for point in points),
        "excluded": [(reason, rows) for reason, rows in preview["excluded"].items() if rows],
        "bytes": size(preview["eligible"]["bytes"]),
    }
    if request.htmx:
        return render(request, "governance/policy.html#preview", {"policy": policy, **context})
    return _page(request, policy, PolicyForm(policy=policy), **context)


# A chart of more columns than this would be a smear; then neighbouring days share one.
COLUMNS = 60


def chart_points(by_day):
    """Rows by day as columns, gaps filled, at most COLUMNS of them."""
    if not by_day:
        return []
    days = Counter()
    for entry in by_day:
        days[date.fromisoformat(entry["day"]).toordinal()] += entry["rows"]
    first, last = min(days), max(days)
    width = -(-(last - first + 1) // COLUMNS)
    starts = range(first, last + 1, width)
    return [
        {"start": start, "label": _span(start, min(start + width - 1, last)), "value": sum(days[day] for day in range(start, start + width))}
        for start in starts
    ]


def _span(first, last):
    first, last = date.fromordinal(first), date.fromordinal(last)
    words = f"{first.day} {first:%b %Y}"
    return words if first == last else f"{words} – {last.day} {last:%b %Y}"


@require_POST
def policy_run(request, ref):
    policy = policy_for(request, ref, "retention.run")
    try:
        run = retention.run_policy(policy=policy, expected_version=_version(request), by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, _("The dry run has started.") if run.dry_run else _("The run has started. What it takes cannot come back."))
    return redirect("policy", ref)


@require_POST
def policy_approve(request, ref):
    policy = policy_for(request, ref, "retention.approve")
    stepup.require(request, onward=reverse("policy", args=[ref]))
    try:
        retention.approve_policy(policy=policy, expected_version=_version(request), by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, _("The policy was approved as it is. Its first run may take what the dry run shows."))
    return redirect("policy", ref)


@require_POST
def policy_delete(request, ref):
    policy = policy_for(request, ref, "retention.edit")
    try:
        retention.delete_policy(policy=policy, expected_version=_version(request), by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("policy", ref)
    messages.success(request, _("The policy has ended. The history of its runs stays."))
    return redirect("retention")


def _version(request):
    given = request.POST.get("expected_version", "")
    return int(given) if given.isdecimal() and len(given) < 10 else 0


@require_GET
def policy_runs(request, ref):
    """The history, asked for every 2 s while a run is under way."""
    policy = policy_for(request, ref)
    return render(request, "governance/policy.html#runs", {"policy": policy, "runs": queries.retention_runs_of(request.tenant.pk, policy_id=policy.pk)[:30]})


