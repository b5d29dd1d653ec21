"""The audit trail: who did what to what, whether it is what was written, and a copy of it."""

from urllib.parse import urlencode

from django.http import StreamingHttpResponse
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_GET, require_POST

from console.access import may
from console.forms.governance import AuditFilters
from console.listing import listing, render_list
from governance import queries
from governance.domain import audit, trail
from governance.errors import Invalid


@require_GET
@may("audit.read")
def audit_list(request):
    form = AuditFilters(request, actions=audit.ACTIONS)
    return render_list(request, "governance/audit.html", form, _context(request, form))


@require_POST
@may("audit.verify")
def verify(request):
    """Recompute the chain and say what it is, above the list."""
    verdict = trail.verify(tenant_id=request.tenant.pk)
    if request.htmx:
        return render(request, "governance/audit.html#verdict", {"verdict": verdict})
    form = AuditFilters(request, actions=audit.ACTIONS)
    return render(request, "governance/audit.html", {"filters": form, "verdict": verdict, **_context(request, form)})


@require_GET
@may("audit.read")
def export(request):
    """The events of a range of days as JSON lines, each with its hash. Taking a copy is an event of its own."""
    form = AuditFilters(request, actions=audit.ACTIONS)
    if not form.is_valid():
        raise Invalid("Give the days as dates.")
    days = {name: form.filters()[name] for name in ("after", "before")}
    trail.record_export(by=request.actor, **days)
    lines = trail.export_lines(tenant_id=request.tenant.pk, **days)
    response = StreamingHttpResponse(lines, content_type="application/jsonl; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="audit-{request.tenant.slug}.jsonl"'
    add_never_cache_headers(response)
    return response


def _context(request, form) -> dict:
    events = queries.audit_events(request.tenant.pk, **form.filters()) if form.is_valid() else None
    days = {name: form.data[name] for name in ("since", "until") if form.data.get(name)} if form.is_valid() else {}
    return {"listing": listing(request, form, events, order=("-id",)), "days": urlencode(days)}
