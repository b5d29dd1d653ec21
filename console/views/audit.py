"""The audit trail: who did what to what."""

from django.views.decorators.http import require_GET

from console.access import may
from console.forms.governance import AuditFilters
from console.listing import listing, render_list
from governance import queries
from governance.domain import audit


@require_GET
@may("audit.read")
def audit_list(request):
    form = AuditFilters(request, actions=audit.ACTIONS)
    events = queries.audit_events(request.tenant.pk, **form.filters()) if form.is_valid() else None
    return render_list(request, "governance/audit.html", form, {"listing": listing(request, form, events, order=("-id",))})
