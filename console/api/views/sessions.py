"""Sessions and their history."""

from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.renderers import BaseRenderer, JSONRenderer

from console.api import etag, pagination
from console.api.endpoint import NOBODY, Endpoint
from console.api.operations import operation
from console.api.schema import IF_MATCH, SUBJECT
from console.api.serializers import sessions as shapes
from console.api.views.responses import json_answer, not_modified
from governance import queries as governance
from governance.errors import NotFound
from sessions import queries
from sessions.domain import compacting, history, transcripts
from sessions.domain import sessions as verbs


class SessionEndpoint(Endpoint):
    """A session by our id, or by the caller's key with `?agent=`. A key that several subjects use is a 409."""

    tag = "Sessions"
    path_help = {"ref": "The session's id, or the caller's own key of it together with `?agent=`."}

    def session(self, ref):
        return queries.session_by(
            tenant_id=self.tenant_id, ref=ref, agent=self.query.get("agent"), subject_id=self.scope
        )


class Sessions(Endpoint):
    tag = "Sessions"
    permission = {"GET": "sessions.read"}

    @operation(
        "List sessions", query=shapes.SessionFilters, answer=shapes.Session, order=("-last_active_at", "-id"), parameters=(SUBJECT,)
    )
    def get(self, request):
        """Newest activity first. A key that speaks for a subject sees that subject's sessions only."""
        filters = {name: value for name, value in self.query.items() if name not in ("limit", "cursor", "subject", "key")}
        found = queries.sessions_of(self.tenant_id, subject_id=subject_filter(self), **filters).defer("agent__draft")
        return found.filter(key=self.query["key"]) if "key" in self.query else found


class Session(SessionEndpoint):
    permission = {"GET": "sessions.read", "PATCH": "sessions.write", "DELETE": "sessions.delete"}

    @operation("Read a session", query=shapes.SessionQuery, answer=shapes.Session, errors=(409,), parameters=(SUBJECT,))
    def get(self, request, ref):
        return self.session(ref)

    @operation("Change a session", query=shapes.SessionQuery, body=shapes.SessionChanges, answer=shapes.Session, errors=(409,), parameters=(SUBJECT,))
    @transaction.atomic
    def patch(self, request, ref):
        """Give it a title or labels, or archive it. Its history is not touched."""
        session = self.session(ref)
        if "title" in self.data:
            session = verbs.rename(session=session, title=self.data["title"], by=self.actor)
        if "labels" in self.data:
            session = verbs.label(session=session, labels=self.data["labels"], by=self.actor)
        if "archived" in self.data:
            session = verbs.archive(session=session, archived=self.data["archived"], by=self.actor)
        return session

    @operation("Delete a session", query=shapes.SessionQuery, errors=(409,), parameters=(SUBJECT,))
    def delete(self, request, ref):
        """Delete it with its history, runs and files. Items that a fork shares stay with the fork."""
        verbs.delete(session=self.session(ref), by=self.actor)


class Items(SessionEndpoint):
    permission = {"GET": "sessions.read"}

    @operation("List items of a session", query=shapes.ItemFilters, answer=shapes.Item, is_page=True, errors=(409,), parameters=(SUBJECT,))
    def get(self, request, ref):
        """The history, oldest first. Without a cursor: the last page; `previous_cursor` goes back."""
        session = self.session(ref)
        place = {}
        if cursor := self.query.get("cursor"):
            direction, seq = pagination.unseal(f"items {session.id.hex}", cursor)
            place = {direction: seq}
        page = history.page(session=session, limit=self.query["limit"], **place)
        return pagination.Page(
            results=page.items,
            next_cursor=_sealed(session, "after", page.next_cursor),
            previous_cursor=_sealed(session, "before", page.previous_cursor),
        )


class State(SessionEndpoint):
    permission = {"GET": "sessions.read", "PATCH": "sessions.write"}

    @operation("Read the state of a session", query=shapes.SessionQuery, answer=shapes.TaskState, errors=(409,), parameters=(SUBJECT,))
    def get(self, request, ref):
        """The application's own data of the current task. Its ETag is what a change expects as `If-Match`."""
        session = self.session(ref)
        self.headers["ETag"] = etag.tag(session.task_version)
        return not_modified() if etag.is_fresh(request, session.task_version) else session

    @operation(
        "Change the state of a session",
        query=shapes.SessionQuery,
        body=shapes.TaskPatch,
        answer=shapes.TaskState,
        errors=(409, 428),
        parameters=(SUBJECT, IF_MATCH),
    )
    def patch(self, request, ref):
        """A JSON merge patch (RFC 7396) of the task: null removes a member, objects are merged."""
        session = self.session(ref)
        expected = etag.expected(request, current=session.task_version)
        session = verbs.patch_task(session=session, patch=self.data["task"], expected=expected, by=self.actor)
        self.headers["ETag"] = etag.tag(session.task_version)
        return session


class Fork(SessionEndpoint):
    permission = {"POST": "sessions.write"}

    @operation(
        "Fork a session", query=shapes.SessionQuery, body=shapes.ForkBody, answer=shapes.Session, status=201, errors=(409,), parameters=(SUBJECT,)
    )
    def post(self, request, ref):
        """A new session of the same subject that shares the history up to an item; nothing is copied."""
        child = verbs.fork(session=self.session(ref), at_seq=self.data["at_seq"], key=self.data["key"], by=self.actor)
        self.headers["Location"] = f"/api/sessions/ses_{child.id.hex}"
        return child


class Compact(SessionEndpoint):
    permission = {"POST": "sessions.write"}

    @operation(
        "Compact a session", query=shapes.SessionQuery, answer=shapes.Compacted, errors=(409, 422, 429), parameters=(SUBJECT,)
    )
    def post(self, request, ref):
        """Have a summary stand for all but the newest turns, for what the model sees from now on. Nothing is deleted.

        The agent's settings decide what is preserved and who writes. A summary that takes long is `running`: it goes on.
        """
        summary = compacting.compact(session=self.session(ref), by=self.actor)
        return {"state": "done" if summary else "running", "summary": summary}


class Close(SessionEndpoint):
    permission = {"POST": "sessions.write"}

    @operation("Close a session", query=shapes.SessionQuery, answer=shapes.Session, errors=(409,), parameters=(SUBJECT,))
    def post(self, request, ref):
        """It can be read and reopened; messages are refused."""
        return verbs.close(session=self.session(ref), by=self.actor)


class Reopen(SessionEndpoint):
    permission = {"POST": "sessions.write"}

    @operation("Reopen a session", query=shapes.SessionQuery, answer=shapes.Session, errors=(409,), parameters=(SUBJECT,))
    def post(self, request, ref):
        return verbs.reopen(session=self.session(ref), by=self.actor)


class MarkdownRenderer(BaseRenderer):
    media_type = "text/markdown"
    format = "markdown"


class Transcript(SessionEndpoint):
    permission = {"GET": "sessions.read"}
    renderer_classes = [MarkdownRenderer, JSONRenderer]

    @operation(
        "Export the transcript of a session",
        query=shapes.TranscriptQuery,
        answers={(200, "text/markdown"): str, (200, "application/json"): OpenApiTypes.OBJECT},
        errors=(409,),
        parameters=(SUBJECT,),
    )
    def get(self, request, ref):
        session = self.session(ref)
        wants_json = request.accepted_media_type == JSONRenderer.media_type
        if self.query.get("format", "json" if wants_json else "markdown") == "json":
            return json_answer(transcripts.as_json(session=session))
        return HttpResponse(transcripts.as_markdown(session=session), content_type="text/markdown; charset=utf-8")


def subject_filter(view):
    """The subject that a list is narrowed to: the caller's own, or the one that `?subject=` names."""
    if "subject" not in view.query:
        return view.scope
    try:
        named = governance.subject_of(view.tenant_id, view.query["subject"]).id
    except NotFound:
        return NOBODY
    return named if view.scope in (None, named) else NOBODY


def _sealed(session, direction, seq):
    return pagination.seal(f"items {session.id.hex}", [direction, seq]) if seq is not None else None
