"""The playground: talk to an agent as one of its users would, and see what it does."""

import base64
import mimetypes
import secrets
from dataclasses import dataclass

from django.http import JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from agents import queries as catalogue
from agents.models import Agent
from console import access, reading
from console.middleware import STATUSES
from governance.domain import audit, subjects
from governance.errors import Invalid, LetheError, NotFound
from governance.ids import shown
from sessions import queries
from sessions.domain import blobs, runs
from sessions.errors import AttachmentInvalid, EmptyMessage
from sessions.models import Run, Session

RECENT = 8
PUBLISHED, DRAFT = "published", "draft"


@dataclass(slots=True)
class Choice:
    """Whom to talk to: an agent, one of its two definitions, and a stored session or none yet."""

    agent: Agent
    version: str
    session: Session | None = None

    @property
    def document(self) -> dict:
        published = self.agent.published
        return self.agent.draft if self.version == DRAFT or published is None else published.document

    @property
    def parameters(self) -> list[dict]:
        """The parameters that the definition declares. A draft may hold anything, so only readable ones count."""
        declared = self.document.get("parameters")
        if not isinstance(declared, list):
            return []
        return [entry for entry in declared if isinstance(entry, dict) and isinstance(entry.get("name"), str)]

    @property
    def needs_parameters(self) -> bool:
        return any(entry.get("required") and entry.get("default") is None for entry in self.parameters)

    @property
    def model(self) -> str:
        binding = self.document.get("model")
        return str(binding.get("model", "")) if isinstance(binding, dict) else ""

    @property
    def is_draft(self) -> bool:
        return self.version == DRAFT


@require_GET
@access.may("runs.write")
def playground(request):
    agents = list(catalogue.agents_of(request.tenant.pk))
    choice = _choice(request, request.GET, agents)
    if choice is None:
        return render(request, "sessions/playground.html", {"agents": agents})
    if choice.session is not None:
        audit.record("content.read", by=request.actor, object_type="session", object_ref=shown("ses", choice.session.id))
    return render(request, "sessions/playground.html", _page(request, choice, agents))


def _choice(request, given, agents: list[Agent]) -> Choice | None:
    session = access.session_for(request, given["session"]) if given.get("session") else None
    if session is not None:
        return Choice(session.agent, _version(request, given, session.agent), session)
    if given.get("agent"):
        agent = next((entry for entry in agents if entry.name == given["agent"]), None)
        if agent is None:
            raise NotFound
    else:
        # What can answer comes first.
        ready = [entry for entry in agents if entry.published_id and not entry.is_disabled]
        agent = next(iter(ready or agents), None)
    return Choice(agent, _version(request, given, agent)) if agent else None


def _version(request, given, agent: Agent) -> str:
    if not request.actor.may("agents.write"):
        return PUBLISHED
    if given.get("version") in (PUBLISHED, DRAFT):
        return given["version"]
    return PUBLISHED if agent.published_id else DRAFT


def _page(request, choice: Choice, agents: list[Agent], **more) -> dict:
    transcript = reading.transcript(choice.session) if choice.session else None
    return {
        "agents": agents,
        "choice": choice,
        "agent_session": choice.session,
        "transcript": transcript,
        "report": reading.report(transcript.newest_run) if transcript else None,
        "recent": list(queries.sessions_of(request.tenant.pk, agent=choice.agent.name)[:RECENT]),
        "new_key": f"play-{secrets.token_hex(3)}",
        "may_decide": request.actor.may("approvals.decide"),
        "may_draft": request.actor.may("agents.write"),
        "accepted_types": ",".join(blobs.ALLOWED),
        "in_playground": True,
        "given": {},
        **more,
    }


@require_POST
@access.may("runs.write")
def start(request):
    """Start a run. Answers what was asked for: the new turn (htmx), JSON, or a redirect to the session."""
    wants_json = "application/json" in request.headers.get("Accept", "")
    agents = list(catalogue.agents_of(request.tenant.pk))
    choice = _choice(request, request.POST, agents)
    if choice is None:
        raise NotFound
    try:
        run = _started(request, choice)
    except LetheError as error:
        return _refused(request, choice, agents, error, wants_json)
    refs = {"run_id": shown("run", run.id), "session_id": shown("ses", run.session_id)}
    if wants_json:
        return JsonResponse(
            {**refs, "events_url": reverse("run-events", args=[refs["run_id"]]), "session_url": reverse("session", args=[refs["session_id"]])}, status=201
        )
    if not request.htmx:
        return redirect(f"{reverse('session', args=[refs['session_id']])}?watch")
    response = render(request, "sessions/playground.html#started", _new_turn(request, choice, run))
    response["HX-Push-Url"] = f"{reverse('playground')}?session={refs['session_id']}&version={choice.version}"
    return response


def _new_turn(request, choice: Choice, run: Run) -> dict:
    stored = queries.run_by(tenant_id=request.tenant.pk, ref=run.id)
    choice.session = stored.session
    return {
        "choice": choice,
        "agent_session": stored.session,
        "blocks": reading.turn(stored, with_message=True),
        "recent": list(queries.sessions_of(request.tenant.pk, agent=choice.agent.name)[:RECENT]),
        "may_decide": request.actor.may("approvals.decide"),
        "in_playground": True,
    }


def _started(request, choice: Choice) -> Run:
    message = request.POST.get("message", "").replace("\r\n", "\n")
    files = request.FILES.getlist("attachments")
    if not message.strip() and not files:
        raise EmptyMessage(_("Write a message first."))
    if choice.session is not None:
        key, subject = choice.session.key, choice.session.subject
    else:
        key, subject = request.POST.get("key", "").strip() or f"play-{secrets.token_hex(3)}", _subject(request)
    asked = runs.RunRequest(
        message=message,
        session_key=key,
        parameters=_parameters(request, choice),
        attachments=[_attachment(file, number) for number, file in enumerate(files)],
    )
    return runs.start(agent_name=choice.agent.name, request=asked, by=request.actor, subject=subject, draft=choice.is_draft)


def _subject(request):
    """Whom the new session belongs to: the member, or the person whom the application calls by this identifier."""
    value = request.POST.get("subject", "").strip()
    if value:
        return subjects.resolve(tenant_id=request.tenant.pk, value=value, source="console")
    return subjects.resolve(tenant_id=request.tenant.pk, value=request.actor.ref, kind="member", source="console")


def _parameters(request, choice: Choice) -> dict:
    """Values of the declared parameters; an empty field leaves the default."""
    values = {}
    for declared in choice.parameters:
        name, kind = declared["name"], str(declared.get("kind", "text"))
        text = request.POST.get(f"parameter.{name}", "")
        if kind == "boolean":
            if f"parameter.{name}" in request.POST:
                values[name] = text == "true"
        elif text:
            values[name] = _number(name, text) if kind == "number" else text
    return values


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.strip().lstrip("-").isdigit() else float(text)
    except ValueError:
        raise Invalid(_("%(name)s is a number.") % {"name": name}, errors={f"parameters.{name}": [_("A number is expected.")]}) from None


def _attachment(file, number: int) -> dict:
    if file.size > blobs.MAX_BYTES:
        # Refused before it is read into memory.
        raise AttachmentInvalid(f"attachments.{number}", _("%(name)s is larger than %(mib)d MiB.") % {"name": file.name, "mib": blobs.MAX_BYTES // 2**20})
    kind = file.content_type if file.content_type in blobs.ALLOWED else mimetypes.guess_type(file.name)[0]
    return {"name": file.name, "media_type": kind or file.content_type, "data": base64.b64encode(file.read()).decode()}


def _refused(request, choice: Choice, agents: list[Agent], error: LetheError, wants_json: bool):
    status = STATUSES.get(error.kind, 400)
    if wants_json:
        return JsonResponse({"code": error.code, "title": error.title, "detail": error.detail, "errors": error.errors}, status=status)
    context = {"problem": error, "choice": choice}
    if request.htmx:
        response = render(request, "sessions/playground.html#problem", context, status=status)
        response["HX-Retarget"], response["HX-Reswap"] = "#composer-problem", "innerHTML"
        return response
    return render(request, "sessions/playground.html", _page(request, choice, agents, problem=error, given=request.POST), status=status)
