"""Running agents, and what became of it."""

import hashlib
import json

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response

from console.api import pagination, streams
from console.api.documents import EVENT_HEADERS, RUN_ANSWERS, RUN_EXAMPLES, RUN_HEADERS
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.schema import SUBJECT
from console.api.serializers import sessions as shapes
from console.api.views.sessions import subject_filter
from governance.domain import audit
from governance.errors import Invalid, NotFound
from governance.ids import parse, shown
from sessions import queries
from sessions.domain import events, runs, seen

MAX_IDEMPOTENCY_KEY = 255


class EventStreamRenderer(BaseRenderer):
    media_type = streams.EVENT_STREAM
    format = "events"


class RunAgent(Endpoint):
    """One request model, three answers: a stream, JSON at the end, or 202 at once.

    The run belongs to the server as soon as it is stored: what happens to this connection does not touch it. Whatever
    is wrong before that is a plain problem document, also when a stream was asked for.
    """

    tag = "Runs"
    permission = {"POST": "runs.write"}
    path_help = {"name": "The agent's name."}
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @operation(
        "Run an agent",
        body=shapes.RunBody,
        answers=RUN_ANSWERS,
        errors=(409, 422, 429, 503),
        parameters=(SUBJECT, *RUN_HEADERS),
        examples=RUN_EXAMPLES,
    )
    def post(self, request, name):
        """Send a message to an agent, or decisions on the calls that one of its runs waits for.

        The default answer is a stream of server-sent events. `Accept: application/json` waits for the end and answers
        with the run; `Prefer: respond-async` answers 202 at once and a worker carries on. Closing the connection never
        stops the run: read on with `GET /api/runs/{id}/events`.
        """
        later = "respond-async" in prefers(request)
        key = idempotency_key(request)
        asked = self._request()
        subject, actor = self.speaker(before_new=lambda: runs.check(agent_name=name, request=asked, by=self.actor))
        run = runs.start(
            agent_name=name,
            request=asked,
            by=actor,
            subject=subject,
            idempotency_key=key,
            body_digest=self._digest(name) if key else None,
            where="worker" if later else "here",
        )
        if later:
            response = Response(accepted(run), status=202, headers={"Preference-Applied": "respond-async"})
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        elif request.accepted_media_type == JSONRenderer.media_type:
            response = streams.answer_when_done(run_id=run.id, tenant_id=run.tenant_id, render=document)
        else:
            response = streams.stream(run_id=run.id, tenant_id=run.tenant_id)
        for header, value in streams.names(run).items():
            response[header] = value
        return response

    def _request(self) -> runs.RunRequest:
        data = self.data
        return runs.RunRequest(
            message=data["message"],
            session_key=data.get("session_id"),
            parameters=data["parameters"],
            attachments=data["attachments"],
            approvals=data["approvals"],
            culture=data.get("culture"),
            metadata=data["metadata"],
        )

    def _digest(self, name: str) -> str:
        """What makes two requests the same: the agent, for whom, and what is asked, however it is spelled."""
        text = json.dumps([name, self.asserted, self.data], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Runs(Endpoint):
    tag = "Runs"
    permission = {"GET": "runs.read"}

    @operation("List runs", query=shapes.RunFilters, answer=shapes.RunSummary, order=("-id",), parameters=(SUBJECT,))
    def get(self, request):
        """Newest first. A key that speaks for a subject sees that subject's runs only."""
        filters = {name: self.query[name] for name in ("agent", "status", "created_after", "created_before") if name in self.query}
        if "session" in self.query:
            filters["session_id"] = parse("ses", self.query["session"])
        return queries.runs_of(self.tenant_id, subject_id=subject_filter(self), **filters).defer("agent__draft", "version__document")


class RunEndpoint(Endpoint):
    tag = "Runs"
    path_help = {"id": "The run's id."}

    def run_named(self, id):
        return queries.run_by(tenant_id=self.tenant_id, ref=id, subject_id=self.scope)


class Run(RunEndpoint):
    permission = {"GET": "runs.read"}

    @operation("Read a run", answer=shapes.RunDetail, parameters=(SUBJECT,))
    def get(self, request, id):
        return self.run_named(id)


class Events(RunEndpoint):
    permission = {"GET": "runs.read"}
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @operation(
        "Read the events of a run",
        query=shapes.EventsQuery,
        answers={(200, streams.EVENT_STREAM): str, (200, "application/json"): shapes.EventPage},
        parameters=(SUBJECT, *EVENT_HEADERS),
    )
    def get(self, request, id):
        """A stream that goes on until the run is over and resumes exactly after the event that was seen last.

        With `Accept: application/json`: the events so far, at most 500 after the one named.
        """
        run = self.run_named(id)
        after = self._after(request)
        if request.accepted_media_type == JSONRenderer.media_type:
            return Response(shapes.EventPage(pagination.Page(events.read(run=run, after=after))).data)
        if request.method == "HEAD":
            return HttpResponse(content_type=f"{streams.EVENT_STREAM}; charset=utf-8")
        return streams.stream(run_id=run.id, tenant_id=run.tenant_id, after=after)

    def _after(self, request) -> int:
        header = request.headers.get("Last-Event-ID", "").strip()
        if not header:
            return self.query.get("after", 0)
        if not header.isascii() or not header.isdigit() or len(header) > 15:
            raise Invalid("Last-Event-ID is the id of an event: a number.", errors={"Last-Event-ID": ["Not the id of an event."]})
        return int(header)


class Context(RunEndpoint):
    permission = {"GET": "runs.read"}

    @operation("Read what the model saw in a run", answer=shapes.ModelCall, order=("number",), parameters=(SUBJECT,))
    def get(self, request, id):
        """One row for each call of a model: its layers with their tokens and sources, what it used and what it cost."""
        return queries.calls_of(self.run_named(id))


class Behind(RunEndpoint):
    permission = {"GET": "sessions.read"}
    path_help = {"id": "The run's id.", "number": "The number of the model call.", "layer": "A layer of its report, such as history."}

    @operation("Read the text behind a layer", answer=shapes.Behind, parameters=(SUBJECT,))
    def get(self, request, id, number, layer):
        """The exact text behind one part of what a model call saw, as far as it is still there. Reading it is recorded."""
        run = self.run_named(id)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise NotFound
        found = seen.behind(run=run, number=int(number), layer=layer)
        audit.record("content.read", by=self.actor, object_type="run", object_ref=shown("run", run.id), what="context")
        return found


class Cancel(RunEndpoint):
    permission = {"POST": "runs.write"}

    @operation("Cancel a run", answer=shapes.RunSummary, errors=(409,), parameters=(SUBJECT,))
    def post(self, request, id):
        """Ask the run to stop, wherever it is executed. Cancelling it again changes nothing."""
        runs.cancel(run=self.run_named(id), by=self.actor)
        return self.run_named(id)


def document(run) -> dict:
    return shapes.RunDetail(run).data


def accepted(run) -> dict:
    return shapes.RunAccepted(
        {
            "run_id": shown("run", run.id),
            "status": run.status,
            "session_id": shown("ses", run.session_id) if run.session_id else None,
            "events_url": f"/api/runs/{shown('run', run.id)}/events",
        }
    ).data


def prefers(request) -> set[str]:
    """The preferences of the `Prefer` header (RFC 7240), without their values."""
    return {part.partition(";")[0].strip().lower() for part in request.headers.get("Prefer", "").split(",")}


def idempotency_key(request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (1 <= len(key) <= MAX_IDEMPOTENCY_KEY and key.isprintable()):
        sentence = f"An Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY} printable characters."
        raise Invalid(sentence, errors={"Idempotency-Key": [sentence]})
    return key
