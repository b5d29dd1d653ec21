"""Runs: the list, one run with its timeline and its costs, and the stream of a live one."""

from decimal import Decimal

from django import forms
from django.contrib import messages
from django.db.models import F
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from console import access, live, reading, timeline, turns
from console.context_report import Report, layer_label
from console.listing import FilterForm, agent_field, choice_field, date_field, listing, render_list
from console.run_errors import advice
from console.templatetags.ui import state_text
from governance.domain import audit
from governance.domain.expiry import left
from governance.errors import LetheError, NotFound
from governance.ids import parse, shown
from sessions import queries
from sessions.domain import events as run_events
from sessions.domain import runs as run_verbs
from sessions.domain import seen, todos
from sessions.models import Approval, Item, Run, RunEvent, Session

# A run has a few dozen events; one with thousands shows its first ones and says so.
MAX_EVENTS = 1000


class RunFilters(FilterForm):
    agent = agent_field()
    status = choice_field(gettext_lazy("Status"), [(value, state_text(value)) for value in Run.Status.values])
    session = forms.CharField(label=gettext_lazy("Session"), required=False, max_length=40, widget=forms.HiddenInput)
    started_from = date_field(gettext_lazy("From"))
    started_to = date_field(gettext_lazy("To"))

    def clean_session(self):
        ref = self.cleaned_data["session"]
        if not ref:
            return None
        named = Session.objects.filter(tenant_id=self.request.tenant.pk, pk=parse("ses", ref))
        found = left(named, tenant_id=self.request.tenant.pk).only("id", "key", "title").first()
        if found is None:
            raise NotFound
        return found

    def rows(self):
        """The runs that match, or None when a filter is not valid."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        return queries.runs_of(
            self.request.tenant.pk,
            agent=given["agent"] or None,
            status=given["status"] or None,
            session_id=given["session"].id if given["session"] else None,
            created_after=self.day_start("started_from"),
            created_before=self.day_end("started_to"),
        )


@require_GET
@access.may("runs.read")
def runs(request):
    form = RunFilters(request)
    found = listing(request, form, form.rows(), order=("-id",))
    return render_list(request, "sessions/runs.html", form, {"listing": found})


@require_GET
def run(request, ref):
    chosen = access.run_for(request, ref)
    template = "sessions/run.html#live" if request.htmx else "sessions/run.html"
    return render(request, template, _run(request, chosen))


def _run(request, run: Run) -> dict:
    found = list(
        RunEvent.objects.filter(run_id=run.id).exclude(type__in=run_events.DELTAS).order_by("seq").values_list("seq", "type", "data", "at")[: MAX_EVENTS + 1]
    )
    calls = list(queries.calls_of(run))
    approvals = list(left(Approval.objects.filter(tenant_id=run.tenant_id, run_id=run.id), tenant_id=run.tenant_id))
    steps = timeline.steps(run, found[:MAX_EVENTS], calls=calls, approvals=approvals, facts=_facts(run, found), now=timezone.now())
    windows = {data.get("call"): data.get("window") for _seq, kind, data, _at in found if kind == "context.assembled"}
    ref = shown("run", run.id)
    reports = [(call, Report.of_call(call, run_ref=ref, window=windows.get(call.number))) for call in calls]
    return {
        "run": run,
        "steps": steps,
        "is_cut": len(found) > MAX_EVENTS,
        "calls": calls,
        "reports": reports[::-1],
        "totals": _totals(run, calls),
        "waited_ms": sum(step.ms or 0 for step in steps if step.tone == "wait"),
        "advice": advice(run.error),
        "is_ongoing": run.status in turns.ONGOING,
        "family": _family(run),
        "may_decide": request.actor.may("approvals.decide"),
    }


def _facts(run: Run, found: list) -> dict[int, dict]:
    """What items say about calls, without their contents."""
    seqs = [data["item_seq"] for _seq, _kind, data, _at in found if "item_seq" in data]
    if run.session_id is None or not seqs:
        return {}
    rows = Item.objects.filter(session_id=run.session_id, run_id=run.id, seq__in=seqs)
    named = rows.values("seq", name=F("content__name"), outcome=F("content__outcome"), duration_ms=F("content__duration_ms"))
    return {row.pop("seq"): {key: value for key, value in row.items() if value is not None} for row in named}


def _totals(run: Run, calls: list) -> dict:
    """Sums of the ledger: the run's own totals are written at its end."""
    costs = [call.cost for call in calls]
    ended = run.ended_at or timezone.now()
    return {
        "input": sum(call.input_tokens for call in calls),
        "cached": sum(call.cached_tokens for call in calls),
        "output": sum(call.output_tokens for call in calls),
        "reasoning": sum(call.reasoning_tokens for call in calls),
        "cost": None if None in costs or not costs else sum(costs, Decimal(0)),
        "ms": (ended - run.started_at).total_seconds() * 1000 if run.started_at else None,
        "first_token_ms": (run.first_token_at - run.started_at).total_seconds() * 1000 if run.first_token_at and run.started_at else None,
        "tools": run.tool_calls,
    }


def _family(run: Run) -> list[tuple[str, Run]]:
    """The run that called this one, the one it all began with, and those it called."""
    wanted = {value for value in (run.parent_id, run.root_id) if value and value != run.id}
    kept = left(Run.objects.filter(tenant_id=run.tenant_id), tenant_id=run.tenant_id)
    above = kept.filter(id__in=wanted) if wanted else []
    below = kept.filter(root_id=run.root_id or run.id, parent_id=run.id)
    labels = {run.parent_id: _("Called by"), run.root_id: _("Began with")}
    return [*((labels[entry.id], entry) for entry in above), *((_("Calls"), entry) for entry in below)]


@require_GET
def event(request, ref, seq):
    """What one event carries: arguments, a result, a text. Opening it is recorded, because it is content."""
    chosen = access.run_for(request, ref, "sessions.read")
    found = run_events.read(run=chosen, after=seq - 1)[:1] if seq > 0 else []
    if not found or found[0].seq != seq:
        raise NotFound
    audit.record("content.read", by=request.actor, object_type="run", object_ref=shown("run", chosen.id))
    context = {"run": chosen, "event": found[0], "payload": _payload(found[0].data)}
    return render(request, "sessions/event.html#payload" if request.htmx else "sessions/event.html", context)


def _payload(data: dict):
    for name in ("arguments", "text", "output"):
        if name in data:
            return data[name]
    return data


@require_GET
def behind(request, ref, number, layer):
    """The exact text behind one part of what a model call saw. Opening it is recorded, because it is content."""
    chosen = access.run_for(request, ref, "sessions.read")
    found = seen.behind(run=chosen, number=number, layer=layer)
    audit.record("content.read", by=request.actor, object_type="run", object_ref=shown("run", chosen.id), what="context")
    context = {"run": chosen, "number": number, "label": layer_label(layer), "behind": found, "most": seen.MOST_ITEMS}
    return render(request, "sessions/behind.html#pieces" if request.htmx else "sessions/behind.html", context)


@require_GET
def events(request, ref):
    """The run's events as frames of HTML, live until its end. Comes back with Last-Event-ID."""
    chosen = access.run_for(request, ref, "sessions.read")
    audit.record("content.read", by=request.actor, object_type="run", object_ref=shown("run", chosen.id), what="events")
    last = request.headers.get("Last-Event-ID", "")
    frames = live.frames(
        run=chosen,
        after=int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0,
        csrf_token=get_token(request),
        may_decide=request.actor.may("approvals.decide"),
    )
    response = StreamingHttpResponse(frames, content_type="text/event-stream; charset=utf-8")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


@require_GET
def turn(request, ref):
    """The stored turn of a run, which takes the place of the live one when it is over."""
    chosen = access.run_for(request, ref, "sessions.read")
    if chosen.session is None:
        return redirect("run", ref)
    if not request.htmx:
        return redirect("session", shown("ses", chosen.session_id))
    audit.record("content.read", by=request.actor, object_type="run", object_ref=shown("run", chosen.id), what="turn")
    context = {
        "blocks": reading.turn(chosen),
        "agent_session": chosen.session,
        "run": chosen,
        "report": reading.report(chosen),
        "keeps_todos": todos.are_shown(chosen.session),
        "may_decide": request.actor.may("approvals.decide"),
        "in_playground": "/playground" in (request.htmx.current_url or ""),
    }
    return render(request, "sessions/parts.html#turn", context)


@require_GET
def saw(request, ref):
    """What the model saw in the run's last call."""
    chosen = access.run_for(request, ref, "runs.read")
    if not request.htmx:
        return redirect(f"{reverse('run', args=[ref])}#context")
    return render(request, "sessions/parts.html#saw", {"report": reading.report(chosen)})


@require_POST
def cancel(request, ref):
    chosen = access.run_for(request, ref, "runs.write")
    try:
        run_verbs.cancel(run=chosen, by=request.actor)
    except LetheError as error:
        if not request.htmx:
            messages.warning(request, error.detail)
    if request.htmx:
        # The stream tells the rest.
        return HttpResponse(status=204)
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return redirect(target if safe else reverse("run", args=[ref]))
