"""The files of a session: its workspace as a tree, one file with its story, and both as downloads."""

from itertools import groupby

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console import access
from console.downloads import workspace_zip
from governance.domain import audit
from governance.errors import LetheError
from governance.ids import shown
from sessions import queries
from sessions.domain import workspace


@require_GET
def files(request, ref):
    agent_session = access.session_for(request, ref)
    found = workspace.files(session=agent_session)
    used, limit = workspace.used(session=agent_session)
    context = {"agent_session": agent_session, "folders": folders(found), "count": len(found), "used": used, "limit": limit}
    return render(request, "sessions/workspace.html", context)


def folders(files) -> list[tuple[str, list]]:
    """Files by folder, the root first: [("", [...]), ("notes/", [...])]."""
    by_folder = sorted(files, key=lambda file: (file.path.rpartition("/")[0], file.path))
    return [(f"{folder}/" if folder else "", list(inside)) for folder, inside in groupby(by_folder, key=lambda file: file.path.rpartition("/")[0])]


@require_GET
def file(request, ref, path):
    """The text and who wrote what of it when; with `?download`, the file."""
    agent_session = access.session_for(request, ref)
    found = workspace.read(session=agent_session, path=path)
    _record(request, agent_session, file=found.id)
    if "download" in request.GET:
        return download(found.content, found.path)
    context = {"agent_session": agent_session, "file": found, "calls": queries.file_calls_of(agent_session, found.path)}
    return render(request, "sessions/workspace_file.html", context)


def download(text: str, path: str) -> HttpResponse:
    """What an agent wrote leaves as a file of plain bytes: no browser draws it."""
    response = HttpResponse(text.encode(), content_type="application/octet-stream")
    response.headers["Content-Disposition"] = content_disposition_header(True, path.rpartition("/")[2])
    return response


@require_GET
def archive(request, ref):
    agent_session = access.session_for(request, ref)
    _record(request, agent_session, files=True)
    name = f'attachment; filename="workspace-{agent_session.id.hex}.zip"'
    return HttpResponse(workspace_zip(agent_session), content_type="application/zip", headers={"Content-Disposition": name})


@require_POST
def remove(request, ref, path):
    agent_session = access.session_for(request, ref, "sessions.write")
    try:
        workspace.remove(session=agent_session, path=path, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, _("%(path)s is deleted.") % {"path": path})
    return redirect("session-workspace", ref)


def _record(request, agent_session, **payload) -> None:
    audit.record("content.read", by=request.actor, object_type="session", object_ref=shown("ses", agent_session.id), **payload)
