"""The editor of a draft: one form for every setting, checked as one types; publishing; and two people at one draft."""

import json
import secrets
from dataclasses import dataclass, field
from functools import cached_property

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from agents import code_defined
from agents.definition import normalise
from agents.domain import definitions, diffs
from agents.errors import AgentReadOnly, DefinitionInvalid, DefinitionUnreadable
from agents.models import Agent
from console import changes
from console.access import agent_for, session_for
from console.forms.definition import DefinitionForm
from console.forms.definition.choices import Catalogue
from console.forms.definition.codecs import ABSENT, EXTRA
from console.forms.definition.drawing import Drawing, counted
from console.forms.definition.merge import Difference, differences, merged
from console.forms.publish import PublishForm
from console.views import playground
from governance.errors import Invalid, LetheError, NotFound, VersionConflict
from governance.ids import shown
from sessions import queries
from sessions.domain import what_if
from sessions.models import Session

PANELS = (
    ("problems", gettext_lazy("Problems")),
    ("preview", gettext_lazy("Preview")),
    ("whatif", gettext_lazy("What it sees")),
    ("try", gettext_lazy("Try")),
)
# Settings on the page of a conflict; a definition has fewer.
MOST_CHOICES = 1000


def editable(request, name) -> Agent:
    """The agent to edit. Raises AgentReadOnly for one that is defined in code."""
    agent = agent_for(request, name, "agents.write")
    if code_defined.is_read_only(agent):
        raise AgentReadOnly
    return agent


def _counter(request) -> int:
    """The state of the draft that the page was opened with; 0, which no draft has, when it says none."""
    text = request.POST.get("counter", "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


@dataclass
class Editor:
    """One request to the editor: the agent, its form, and what the page shows beside it."""

    request: object
    agent: Agent
    form: DefinitionForm
    counter: int
    panel: str = "problems"
    what_if: dict = field(default_factory=dict)

    @classmethod
    def opened(cls, request, agent: Agent) -> "Editor":
        return cls(request, agent, DefinitionForm.of_document(agent.draft), agent.draft_counter)

    @classmethod
    def posted(cls, request, agent: Agent) -> "Editor":
        panel = request.POST.get("panel", "")
        return cls(
            request,
            agent,
            DefinitionForm.of_post(request.POST),
            _counter(request),
            panel if panel in dict(PANELS) else "problems",
        )

    @cached_property
    def drawing(self) -> Drawing:
        agent = self.agent
        report = self.form.report(tenant_id=agent.tenant_id, agent_name=agent.name)
        catalogue = Catalogue(tenant_id=agent.tenant_id, agent_name=agent.name)
        return Drawing(self.form, report, catalogue, fixed=frozenset({"name"}))

    def context(self) -> dict:
        agent, may_run = self.agent, self.request.actor.may("runs.write")
        return {
            "agent": agent,
            "drawing": self.drawing,
            "counter": self.counter,
            "panel": self.panel,
            "panels": PANELS,
            "edit_url": reverse("agent-edit", args=[agent.name]),
            "is_changed": self.form.document != agent.draft or bool(self.form.problems),
            "next_number": agent.published.number + 1 if agent.published else 1,
            "publish_reason": self.publish_reason(),
            "curl": self.curl() if self.panel == "preview" else "",
            "choice": playground.Choice(agent, playground.DRAFT) if may_run else None,
            "new_key": f"play-{secrets.token_hex(3)}",
            "given": {},
            "what_if": self.what_if,
            "what_if_sessions": self.recent_sessions if self.panel == "whatif" else [],
            "try_reason": "" if may_run else _("Trying the draft needs the role operator or builder."),
        }

    @cached_property
    def recent_sessions(self) -> list[Session]:
        """Sessions of the agent to look at; none for who may not read them."""
        if not self.request.actor.may("sessions.read"):
            return []
        return list(queries.sessions_of(self.agent.tenant_id, agent=self.agent.name)[:20])

    def look(self) -> None:
        """Ask what the model would see of the chosen session under the form's settings."""
        recent = self.recent_sessions
        ref = self.request.POST.get("what_if_session") or (shown("ses", recent[0].id) if recent else "")
        self.panel, self.what_if = "whatif", {"ref": ref}
        if not recent:
            return
        report = self.form.report(tenant_id=self.agent.tenant_id, agent_name=self.agent.name)
        if self.form.problems or not report.valid or report.definition is None:
            self.what_if["reason"] = _("First solve the problems of the definition.")
            return
        try:
            agent_session = session_for(self.request, ref)
        except NotFound:
            self.what_if["reason"] = _("Choose a session.")
            return
        self.what_if["session"] = agent_session
        self.what_if["preview"] = what_if.of_session(session=agent_session, definition=report.definition)

    def publish_reason(self) -> str:
        """Why the draft cannot be published now; empty when it can."""
        if errors := self.drawing.error_count:
            return _("First solve %s.") % counted(errors, 0)
        published = self.agent.published
        if published and self.form.document == published.document:
            return _("Nothing has changed since version %d.") % published.number
        return ""

    def curl(self) -> str:
        """The request that saves what the form says, ready to paste into a shell."""
        url = self.request.build_absolute_uri(f"/api/agents/{self.agent.name}")
        # Inside single quotes a shell reads everything as it is, but for the quote itself.
        body = json.dumps(self.form.document, ensure_ascii=False, indent=2).replace("'", "'\\''")
        return (
            f"curl -X PUT {url} \\\n"
            f'  -H "Authorization: Bearer $LETHE_KEY" \\\n'
            f'  -H "Content-Type: application/json" \\\n'
            f"  -H 'If-Match: \"{self.counter}\"' \\\n"
            f"  -d '{body}'"
        )

    def page(self, status: int = 200):
        return render(self.request, "agents/edit.html", self.context(), status=status)

    def state(self, *, touched: set[str] = frozenset(), is_saved: bool = False, tell: bool = False, status: int = 200):
        """What htmx puts in place: every message at its field, the sections that were touched, counts and panels."""
        drawing, shown = self.drawing, set(self.request.POST.get("shown", "").split())
        redrawn = {section.key: section for name in touched if (section := drawing.section_of(name))}
        gone = [control for entry in shown if (control := drawing.control_of_id(entry))]
        inside = {control.name for section in redrawn.values() for control in section.controls()}
        said = {control.name: control for control in (*gone, *drawing.with_problems) if control.name not in inside}
        context = self.context() | {
            "said": list(said.values()),
            "redrawn": list(redrawn.values()),
            "counted": [section for section in drawing.sections if section.key not in redrawn],
            "redraw_unknown": EXTRA in touched,
            "is_saved": is_saved,
            "tell": tell,
        }
        return render(self.request, "agents/edit.html#state", context, status=status)

    def save(self) -> None:
        """Store the form as the draft. Raises Invalid while something cannot be read, and what the domain raises."""
        if self.form.problems:
            raise Invalid(_("Nothing was saved: what is marked cannot be read."))
        agent = self.agent
        definitions.save_draft(agent=agent, document=self.form.document, expected=self.counter, by=self.request.actor)
        agent.refresh_from_db(fields=["draft", "draft_counter", "draft_saved_at", "draft_saved_by"])
        self.counter = agent.draft_counter

    def sections_off(self) -> set[str]:
        """The switches that are off: saving forgets what is behind them."""
        return {control.name for control in self.drawing.controls() if control.kind in ("switch", "object") and not control.is_on}


# A page of some two hundred controls: compressed, it is a tenth. Django's middleware hides the true length (BREACH).
@gzip_page
@require_http_methods(["GET", "POST"])
def edit(request, name):
    agent = editable(request, name)
    if request.method == "GET":
        return Editor.opened(request, agent).page()
    act, _colon, what = request.POST.get("act", "save").partition(":")
    editor = Editor.posted(request, agent)
    if act in _CHANGES:
        return _changed(editor, act, what)
    if act == "whatif":
        editor.look()
        return render(request, "agents/edit.html#whatif", editor.context()) if request.htmx else editor.page()
    if act == "panel":
        editor.panel = what if what in dict(PANELS) else editor.panel
        if editor.panel == "whatif":
            editor.look()
        return editor.page()
    return _saved(editor, onward=act == "publish")


@require_POST
def check(request, name):
    """The report on what is typed, while it is typed. Writes nothing."""
    editor = Editor.posted(request, editable(request, name))
    if editor.panel == "whatif":
        editor.look()
    return editor.state()


def _saved(editor: Editor, *, onward: bool):
    request, agent = editor.request, editor.agent
    try:
        editor.save()
    except VersionConflict as error:
        return _conflict(request, agent, mine=error.extra["yours"], current=error.extra["current"])
    except (Invalid, DefinitionUnreadable) as error:
        messages.error(request, error.detail)
        return editor.state(tell=True, status=422) if request.htmx else editor.page(422)
    if onward:
        return redirect("agent-publish", agent.name)
    errors = editor.drawing.error_count
    if errors:
        messages.warning(request, _("The draft is saved. It cannot be published yet: %s.") % counted(errors, 0))
    else:
        messages.success(request, _("The draft is saved."))
    if not request.htmx:
        return redirect("agent-edit", agent.name)
    off = editor.sections_off()
    editor = Editor(request, agent, DefinitionForm.of_document(agent.draft), agent.draft_counter, editor.panel)
    response = editor.state(touched=off, is_saved=True, tell=True)
    return trigger_client_event(response, "lethe:saved", {})


def _fix(form: DefinitionForm, what: str) -> tuple[set[str], str]:
    try:
        values = json.loads(what)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not values:
        raise Invalid(_("That is no fix."))
    return form.fix(values), next(iter(values))


def _add(form: DefinitionForm, what: str) -> tuple[set[str], str]:
    form.add_row(what)
    return {what}, what


def _remove(form: DefinitionForm, what: str) -> tuple[set[str], str]:
    form.remove_row(what)
    return {what}, what.rpartition(".")[0]


def _up(form: DefinitionForm, what: str) -> tuple[set[str], str]:
    form.move_row_up(what)
    return {what}, what.rpartition(".")[0]


# Acts that change the form and save nothing: each answers what to draw anew, and where the focus goes.
_CHANGES = {"fix": _fix, "add": _add, "remove": _remove, "up": _up}


def _changed(editor: Editor, act: str, what: str):
    try:
        touched, focus = _CHANGES[act](editor.form, what)
    except Invalid as error:
        messages.error(editor.request, error.detail)
        return editor.state(tell=True, status=422) if editor.request.htmx else editor.page(422)
    if not editor.request.htmx:
        return editor.page()
    response = editor.state(touched=touched)
    control = editor.drawing.control(focus)
    if control is not None and act == "add":
        control = next((row.controls[0] for row in reversed(control.rows) if row.is_new), control)
    return trigger_client_event(response, "lethe:changed", {"id": control.focus_id if control else ""}, after="settle")


# --- Two people at one draft ----------------------------------------------------------------------------------------


def _conflict(request, agent: Agent, *, mine: dict, current: dict):
    """The page that shows both drafts and lets the person choose, setting by setting."""
    rows = [_choice(number, entry) for number, entry in enumerate(differences(current["document"], mine))]
    context = {"agent": agent, "rows": rows, "mine": json.dumps(mine, ensure_ascii=False), "current": current}
    return render(request, "agents/conflict.html", context, status=409)


def _choice(number: int, difference: Difference) -> dict:
    theirs, mine = (None if value is ABSENT else value for value in (difference.theirs, difference.mine))
    change = changes.show(difference.path, "changed", theirs, mine)
    return {
        "number": number,
        "path": difference.path,
        "where": change.where,
        "theirs": changes.text_of(difference.path, theirs),
        "mine": changes.text_of(difference.path, mine),
        "pieces": change.pieces,
        "is_code": change.is_code,
    }


@require_POST
def resolve(request, name):
    """Save what was chosen out of both drafts, unless somebody was faster again."""
    agent = editable(request, name)
    try:
        mine = normalise(json.loads(request.POST.get("mine", "")))
    except (ValueError, RecursionError):
        raise Invalid(_("Your text did not arrive whole. Go back and save it again.")) from None
    theirs = set()
    if request.POST.get("all") != "mine":
        theirs = {number for number in range(MOST_CHOICES) if request.POST.get(f"choice-{number}") == "theirs"}
    document = merged(agent.draft, mine, theirs)
    try:
        definitions.save_draft(agent=agent, document=document, expected=_counter(request), by=request.actor)
    except VersionConflict as error:
        return _conflict(request, agent, mine=mine, current=error.extra["current"])
    messages.success(request, _("The draft is saved with what you chose."))
    return redirect("agent-edit", agent.name)


# --- Publishing -----------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
def publish(request, name):
    agent = editable(request, name)
    if request.method == "GET":
        return _publish_page(request, agent, PublishForm(initial={"counter": agent.draft_counter}))
    form = PublishForm(request.POST)
    if not form.is_valid():
        return _publish_page(request, agent, form, status=422)
    try:
        version = definitions.publish(
            agent=agent, note=form.cleaned_data["note"], expected=form.cleaned_data["counter"], by=request.actor
        )
    except VersionConflict:
        agent.refresh_from_db()
        form = PublishForm(initial={"note": form.cleaned_data["note"], "counter": agent.draft_counter})
        messages.warning(request, _("Somebody saved the draft meanwhile. Look at the changes again, then publish."))
        return _publish_page(request, agent, form, status=409)
    except DefinitionInvalid as error:
        form.add_error(None, error.detail)
        return _publish_page(request, agent, form, status=422)
    messages.success(request, _("Version %d is published. New runs use it.") % version.number)
    return redirect("agent", agent.name)


def _publish_page(request, agent: Agent, form: PublishForm, status: int = 200):
    report = definitions.check(agent=agent)
    published = agent.published
    found = diffs.diff(published.document if published else {}, agent.draft)
    context = {
        "agent": agent,
        "form": form,
        "report": report,
        "changes": changes.shown(found),
        "next_number": published.number + 1 if published else 1,
        "is_same": published is not None and not found,
    }
    return render(request, "agents/publish.html", context, status=status)


# --- Trying the draft -----------------------------------------------------------------------------------------------


@require_POST
def try_draft(request, name):
    """Save what the form says, then send a message to the draft, as the playground does."""
    agent = editable(request, name)
    editor = Editor.posted(request, agent)
    try:
        editor.save()
    except LetheError as error:
        return _try_refused(request, agent, error)
    # The playground speaks with the draft as it is stored now.
    post = request.POST.copy()
    post["agent"], post["version"] = agent.name, playground.DRAFT
    request.POST = post
    response = playground.start(request)
    if request.htmx:
        # Whatever became of the message, the draft is saved.
        response.headers.pop("HX-Push-Url", None)
        response.write(editor.state(is_saved=True).content.decode())
        trigger_client_event(response, "lethe:saved", {})
    return response


def _try_refused(request, agent: Agent, error: LetheError) -> HttpResponse:
    context = {"problem": error, "choice": playground.Choice(agent, playground.DRAFT)}
    if not request.htmx:
        messages.error(request, error.detail)
        return Editor.posted(request, agent).page(422)
    response = render(request, "sessions/playground.html#problem", context, status=409 if isinstance(error, VersionConflict) else 422)
    response["HX-Retarget"], response["HX-Reswap"] = "#composer-problem", "innerHTML"
    return response
