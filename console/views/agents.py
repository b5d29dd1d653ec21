"""The catalogue: the list of agents, one agent with its versions and its use, comparing, going back, moving agents."""

import json

from django.contrib import messages
from django.db.models import Case, CharField, F, OuterRef, Q, Subquery, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents import code_defined, dependents, queries
from agents.compile import compile_definition
from agents.definition import normalise
from agents.domain import definitions, diffs, transfer
from agents.errors import AgentInUse, DefinitionInvalid, ImportIncomplete
from agents.models import Agent
from console import changes
from console.access import agent_for, may, version_for
from console.forms.base import tell
from console.forms.definition.choices import Catalogue
from console.forms.definition.reading import settings_of
from console.forms.publish import ImportForm, NewAgentForm, RollbackForm
from console.listing import FilterForm, choice_field, listing, render_list, search_field
from console.templatetags.ui import dollars, number
from governance.errors import LetheError
from sessions import queries as session_queries
from sessions.domain import usage
from sessions.models import Run

RECENT = 8
VERSIONS = 20
DAYS = 30


class AgentFilters(FilterForm):
    q = search_field(gettext_lazy("Name or description"))
    state = choice_field(
        gettext_lazy("State"),
        [
            ("published", gettext_lazy("Published")),
            ("changed", gettext_lazy("Published, with changes in the draft")),
            ("draft", gettext_lazy("Never published")),
            ("disabled", gettext_lazy("Disabled")),
            ("archived", gettext_lazy("Archived")),
        ],
        gettext_lazy("All but archived"),
    )

    def rows(self):
        """The agents that match, each with its state, model and last run; None when a filter is not valid."""
        if not self.is_valid():
            return None
        words, state = self.cleaned_data["q"], self.cleaned_data["state"]
        found = queries.agents_of(self.request.tenant.pk, archived=state == "archived")
        if words:
            found = found.filter(Q(name__icontains=words) | Q(display_name__icontains=words) | Q(description__icontains=words))
        found = _with_state(found)
        return found.filter(state=state) if state else found


def _with_state(agents):
    """`state`, `model` and `last_run` from the database: the documents themselves stay there."""
    last = Run.objects.filter(agent=OuterRef("pk"), tenant_id=OuterRef("tenant_id")).order_by("-id").values("created_at")[:1]
    return agents.annotate(
        state=Case(
            When(archived_at__isnull=False, then=Value("archived")),
            When(is_disabled=True, then=Value("disabled")),
            When(published=None, then=Value("draft")),
            When(draft=F("published__document"), then=Value("published")),
            default=Value("changed"),
            output_field=CharField(),
        ),
        model=KeyTextTransform("model", KeyTextTransform("model", "draft")),
        last_run=Subquery(last),
    ).defer("draft", "published__document")


@require_GET
@may("agents.read")
def agents(request):
    form = AgentFilters(request)
    found = listing(request, form, form.rows(), order=("name",))
    return render_list(request, "agents/list.html", form, {"listing": found})


@require_http_methods(["GET", "POST"])
@may("agents.write")
def agent_new(request):
    catalogue = Catalogue(tenant_id=request.tenant.pk)
    form = NewAgentForm(request.POST if request.method == "POST" else None, catalogue=catalogue)
    if request.method == "POST" and form.is_valid():
        try:
            agent = definitions.create_agent(tenant_id=request.tenant.pk, document=form.document(), by=request.actor)
        except LetheError as error:
            tell(form, error)
        else:
            messages.success(request, _("%s is created as a draft. Say what it does, then publish it.") % agent.name)
            return redirect("agent-edit", agent.name)
    return render(request, "agents/new.html", {"form": form}, status=422 if form.is_bound else 200)


@require_GET
def agent(request, name):
    found = agent_for(request, name)
    return render(request, "agents/detail.html", _about(request, found))


def _about(request, agent: Agent) -> dict:
    published, may_read = agent.published, request.actor.may
    document = published.document if published else agent.draft
    versions = list(queries.versions_of(agent).defer("document")[: VERSIONS + 1])
    used = usage.summary(tenant_id=agent.tenant_id, days=DAYS, agent_id=agent.pk) if may_read("usage.read") else None
    return {
        "agent": agent,
        "state": _state(agent),
        "is_changed": published is not None and agent.draft != published.document,
        "is_code": code_defined.is_read_only(agent),
        "document": document,
        "model": document.get("model") if isinstance(document.get("model"), dict) else {},
        "report": definitions.check(agent=agent),
        "versions": versions[:VERSIONS],
        "has_more_versions": len(versions) > VERSIONS,
        "runs": list(session_queries.runs_of(agent.tenant_id, agent=agent.name)[:RECENT]) if may_read("runs.read") else None,
        "sessions": list(session_queries.sessions_of(agent.tenant_id, agent=agent.name)[:RECENT]) if may_read("sessions.read") else None,
        "stats": _stats(used["totals"]) if used else (),
        "points": _by_day(used["days"]) if used and used["totals"]["runs"] else (),
        "curl": _curl(request, agent),
        **_what_goes(request, agent),
    }


def _stats(totals: dict) -> list[tuple]:
    """Label, value, note and kind of what the agent used lately."""
    span = _("last %d days") % DAYS
    split = _("%(input)s in, %(output)s out") % {"input": number(totals["input_tokens"]), "output": number(totals["output_tokens"])}
    unpriced = _("%s runs without a known price") % number(totals["unpriced_runs"])
    return [
        (_("Runs"), number(totals["runs"]), span, ""),
        (_("Failed"), number(totals["errors"]), span, "bad" if totals["errors"] else ""),
        (_("Tokens"), number(totals["input_tokens"] + totals["output_tokens"]), split, ""),
        (_("Cost"), dollars(totals["cost"]), unpriced if totals["unpriced_runs"] else span, ""),
    ]


def _by_day(days: list[dict]) -> list[dict]:
    return [{"label": day["day"], "value": day["runs"], "bad": day["errors"]} for day in days]


def _curl(request, agent: Agent) -> str:
    url = request.build_absolute_uri(f"/api/agents/{agent.name}/run")
    return f"""curl {url} \\
  -H "Authorization: Bearer $LETHE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"session_id": "case-1", "message": "Hello"}}'"""


def _what_goes(request, agent: Agent) -> dict:
    """What deleting the agent would take along, counted only for those who may."""
    if not request.actor.may("agents.write"):
        return {}
    return {"dependents": dependents.counts(agent), "version_count": queries.versions_of(agent).count()}


def _state(agent: Agent) -> str:
    if agent.archived_at:
        return "archived"
    if agent.is_disabled:
        return "disabled"
    return "published" if agent.published_id else "draft"


# --- Versions -------------------------------------------------------------------------------------------------------


@require_GET
def versions(request, name):
    """All versions of an agent with many."""
    found = agent_for(request, name)
    form = FilterForm(request)
    page = listing(request, form, queries.versions_of(found).defer("document"), order=("-number",))
    return render(request, "agents/versions.html", {"agent": found, "listing": page})


@require_GET
def version(request, name, number):
    found = version_for(request, name, number)
    agent = agent_for(request, name)
    report = compile_definition(found.document, tenant_id=agent.tenant_id, agent_name=agent.name)
    context = {
        "agent": agent,
        "version": found,
        "is_published": agent.published_id == found.pk,
        "before": queries.versions_of(agent).filter(number__lt=number).values_list("number", flat=True).first(),
        "after": queries.versions_of(agent).filter(number__gt=number).order_by("number").values_list("number", flat=True).first(),
        "sections": settings_of(found.document),
        # In the order of the editor; the database keeps none.
        "document": normalise(found.document),
        "report": report,
        "form": RollbackForm(initial={"note": _("Back to version %d") % number}),
        "is_code": code_defined.is_read_only(agent),
    }
    return render(request, "agents/version.html", context)


@require_GET
def compare(request, name):
    """Two versions, or the draft and what is published. `from` and `to` are numbers, or `draft`."""
    agent = agent_for(request, name)
    numbers = list(queries.versions_of(agent).values_list("number", flat=True))
    published = agent.published.number if agent.published else None
    old = request.GET.get("from") or str(published or "draft")
    new = request.GET.get("to") or "draft"
    documents = [_document(agent, side) for side in (old, new)]
    context = {
        "agent": agent,
        "old": old,
        "new": new,
        "choices": [("draft", _("Draft")), *((str(number), _("Version %d") % number) for number in numbers)],
        "published": published,
        "changes": changes.shown(diffs.diff(*documents)),
    }
    return render(request, "agents/compare.html", context)


def _document(agent: Agent, side: str) -> dict:
    if side == "draft":
        return agent.draft
    return queries.version_numbered(agent, int(side) if side.isdecimal() and len(side) < 10 else 0).document


@require_POST
def rollback(request, name, number):
    agent = agent_for(request, name, "agents.write")
    form = RollbackForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Say in a note why the agent goes back."))
        return redirect("agent-version", name, number)
    before = agent.published_id
    try:
        made = definitions.rollback(agent=agent, number=number, note=form.cleaned_data["note"], by=request.actor)
    except DefinitionInvalid as error:
        messages.error(request, _("Version %(number)d cannot run any more: %(why)s") % {"number": number, "why": error.detail})
        return redirect("agent-version", name, number)
    if made.pk == before:
        messages.info(request, _("Version %(number)d already says what version %(old)d said.") % {"number": made.number, "old": number})
    else:
        messages.success(
            request, _("Version %(new)d is published; it says what version %(old)d said.") % {"new": made.number, "old": number}
        )
    return redirect("agent", name)


# --- Danger zone ----------------------------------------------------------------------------------------------------

_SWITCHES = {
    "disable": (definitions.disable, gettext_lazy("%s is switched off. New runs are refused.")),
    "enable": (definitions.enable, gettext_lazy("%s is switched on again.")),
    "archive": (definitions.archive, gettext_lazy("%s is archived.")),
    "restore": (definitions.restore, gettext_lazy("%s is back in the catalogue.")),
}


@require_POST
def switch(request, name, verb):
    agent = agent_for(request, name, "agents.write")
    change, words = _SWITCHES[verb]
    change(agent=agent, by=request.actor)
    messages.success(request, words % agent.name)
    return redirect("agent", name)


@require_POST
def delete(request, name):
    agent = agent_for(request, name, "agents.write")
    if request.POST.get("confirm", "").strip() != agent.name:
        messages.error(request, _("Nothing was deleted: the name you typed is not %s.") % agent.name)
        return redirect("agent", name)
    try:
        definitions.delete_agent(agent=agent, with_sessions="with_sessions" in request.POST, by=request.actor)
    except AgentInUse as error:
        messages.error(request, error.detail)
        return redirect("agent", name)
    messages.success(request, _("%s is deleted.") % name)
    return redirect("agents")


# --- Moving agents --------------------------------------------------------------------------------------------------


@require_GET
def export(request, name):
    agent = agent_for(request, name)
    file = transfer.export_agent(agent=agent, by=request.actor)
    response = HttpResponse(json.dumps(file, ensure_ascii=False, indent=2), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{agent.name}.agent.json"'
    return response


@require_http_methods(["GET", "POST"])
@may("agents.write")
def agent_import(request):
    """First what the file would need is looked up and shown; only then it is written."""
    form = ImportForm(request.POST, request.FILES) if request.method == "POST" else ImportForm()
    found = None
    if request.method == "POST" and form.is_valid():
        try:
            found = _checked_import(request, form)
            if "write" in request.POST and not form.errors:
                return _imported(request, form)
        except ImportIncomplete:
            form.add_error("allow_missing", _("Something is missing. Add it first, or tick this."))
        except LetheError as error:
            tell(form, error)
    context = {"form": form, "found": found, "text": form.cleaned_data.get("text", "") if form.is_bound and hasattr(form, "cleaned_data") else ""}
    return render(request, "agents/import.html", context, status=422 if form.errors else 200)


def _checked_import(request, form: ImportForm) -> dict:
    found = transfer.check_import(tenant_id=request.tenant.pk, document=form.document, name=form.cleaned_data["name"] or None)
    if found["exists"]:
        form.add_error("name", _("There is already an agent named %s. Give this one another name.") % found["name"])
    return found


def _imported(request, form: ImportForm):
    data = form.cleaned_data
    made = transfer.import_agent(
        tenant_id=request.tenant.pk, document=form.document, name=data["name"] or None, allow_missing=data["allow_missing"], by=request.actor
    )
    if made.published_id:
        messages.success(request, _("%s is imported and published.") % made.name)
    else:
        messages.success(request, _("%s is imported. Nothing is published yet.") % made.name)
    return redirect("agent", made.name)
