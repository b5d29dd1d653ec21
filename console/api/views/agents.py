"""The catalogue: agents, their drafts and versions."""

from django.db.models import Q
from drf_spectacular.types import OpenApiTypes

from agents import queries
from agents.compile import compile_definition
from agents.domain import definitions, diffs, transfer
from agents.errors import DefinitionInvalid
from console.api import etag
from console.api.documents import DEFINITION, MERGE_PATCH
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.schema import IF_MATCH, IF_MATCH_OPTIONAL
from console.api.serializers import agents as shapes
from console.api.views.responses import json_answer, not_modified
from governance import ids
from governance.errors import NotFound
from sessions import queries as sessions
from sessions.domain import what_if
from sessions.domain.sessions import merge_patch

_HELP = {
    "name": "The agent's name.",
    "number": "Number of a version.",
    "old": "Number of a version, or `draft`.",
    "new": "Number of a version, or `draft`.",
}


class AgentEndpoint(Endpoint):
    tag = "Agents"
    path_help = _HELP

    def agent(self, name):
        return queries.agent_named(tenant_id=self.tenant_id, name=name)


class Agents(AgentEndpoint):
    permission = {"GET": "agents.read", "POST": "agents.write"}

    @operation("List agents", query=shapes.AgentFilters, answer=shapes.AgentSummary, order=("name",))
    def get(self, request):
        found = queries.agents_of(self.tenant_id, archived=self.query["archived"]).defer("draft", "published__document")
        if q := self.query.get("q"):
            found = found.filter(Q(name__icontains=q) | Q(display_name__icontains=q) | Q(description__icontains=q))
        if self.query["disabled"] is not None:
            found = found.filter(is_disabled=self.query["disabled"])
        if self.query["published"] is not None:
            found = found.filter(published__isnull=not self.query["published"])
        return found

    @operation("Create an agent", body=shapes.Document, body_schema=DEFINITION, answer=shapes.Agent, status=201, errors=(409, 422))
    def post(self, request):
        """The document becomes the draft. It may have problems; publishing waits until they are gone."""
        agent = definitions.create_agent(tenant_id=self.tenant_id, document=self.data["document"], by=self.actor)
        self.headers["Location"] = f"/api/agents/{agent.name}"
        self.headers["ETag"] = etag.tag(agent.draft_counter)
        return agent


class Agent(AgentEndpoint):
    permission = {"GET": "agents.read", "PUT": "agents.write", "PATCH": "agents.write", "DELETE": "agents.write"}

    @operation("Read an agent", answer=shapes.Agent)
    def get(self, request, name):
        """The agent with its draft. The ETag is what saving the draft expects as `If-Match`."""
        agent = self.agent(name)
        self.headers["ETag"] = etag.tag(agent.draft_counter)
        return not_modified() if etag.is_fresh(request, agent.draft_counter) else agent

    @operation(
        "Save the draft of an agent", body=shapes.Document, body_schema=DEFINITION, answer=shapes.Agent, parameters=(IF_MATCH,), errors=(409, 422, 428)
    )
    def put(self, request, name):
        """Replace the draft. When somebody else saved first: 409 `version_conflict` with both texts."""
        return self._save(self.agent(name), self.data["document"])

    @operation(
        "Change the draft of an agent", body=shapes.Document, body_schema=MERGE_PATCH, answer=shapes.Agent, parameters=(IF_MATCH,), errors=(409, 422, 428)
    )
    def patch(self, request, name):
        """A JSON merge patch (RFC 7396) of the draft: null removes a setting, objects are merged."""
        agent = self.agent(name)
        return self._save(agent, merge_patch(agent.draft, self.data["document"]))

    @operation("Delete an agent", query=shapes.DeleteAgentQuery, errors=(409,))
    def delete(self, request, name):
        definitions.delete_agent(agent=self.agent(name), with_sessions=self.query["with_sessions"], by=self.actor)

    def _save(self, agent, document):
        expected = etag.expected(self.request, current=agent.draft_counter)
        saved = definitions.save_draft(agent=agent, document=document, expected=expected, by=self.actor)
        self.headers["ETag"] = etag.tag(saved.draft_counter)
        return saved


class ContextPreview(AgentEndpoint):
    permission = {"POST": "agents.write"}

    @operation("Preview what an agent would see", body=shapes.ContextPreviewBody, answer=shapes.ContextPreview, errors=(422,))
    def post(self, request, name):
        """What the model would see of a conversation under the draft's settings, or others: kept, shortened, summarised,
        dropped. Nothing is saved and no model is called. A session needs the permission to read sessions."""
        agent = self.agent(name)
        document = merge_patch(agent.draft, self.data["definition"])
        report = compile_definition(document, tenant_id=self.tenant_id, agent_name=agent.name)
        if not report.valid or report.definition is None:
            raise DefinitionInvalid(report)
        if "messages" in self.data:
            return what_if.of_messages(messages=self.data["messages"], tenant_id=self.tenant_id, definition=report.definition)
        self.actor.require("sessions.read")
        session = sessions.session_by(
            tenant_id=self.tenant_id, ref=ids.shown("ses", self.data["session_id"]), subject_id=self.scope
        )
        return what_if.of_session(session=session, definition=report.definition)


class AgentChange(AgentEndpoint):
    """A verb on an agent without a body. Each is idempotent."""

    permission = {"POST": "agents.write"}


class Disable(AgentChange):
    @operation("Disable an agent", answer=shapes.AgentSummary, errors=(409,))
    def post(self, request, name):
        """New runs are refused with `agent_disabled`; running ones end by themselves."""
        return definitions.disable(agent=self.agent(name), by=self.actor)


class Enable(AgentChange):
    @operation("Enable an agent", answer=shapes.AgentSummary, errors=(409,))
    def post(self, request, name):
        return definitions.enable(agent=self.agent(name), by=self.actor)


class Archive(AgentChange):
    @operation("Archive an agent", answer=shapes.AgentSummary, errors=(409,))
    def post(self, request, name):
        return definitions.archive(agent=self.agent(name), by=self.actor)


class Restore(AgentChange):
    @operation("Restore an archived agent", answer=shapes.AgentSummary, errors=(409,))
    def post(self, request, name):
        return definitions.restore(agent=self.agent(name), by=self.actor)


class Publish(AgentChange):
    @operation(
        "Publish the draft of an agent",
        body=shapes.PublishBody,
        answer=shapes.AgentVersion,
        answers={(201, "application/json"): shapes.AgentVersion, (200, "application/json"): shapes.AgentVersion},
        parameters=(IF_MATCH_OPTIONAL,),
        errors=(409, 422),
    )
    def post(self, request, name):
        """Make the draft an immutable version and let new runs use it (201).

        A draft that says what is published already publishes nothing: 200 and the published version. With `If-Match`
        only that state of the draft is published.
        """
        agent = self.agent(name)
        before = agent.published
        expected = etag.expected(request, current=agent.draft_counter) if "If-Match" in request.headers else None
        version = definitions.publish(agent=agent, note=self.data["note"], expected=expected, by=self.actor)
        return json_answer(shapes.AgentVersion(version).data, status=200 if version == before else 201)


class Rollback(AgentChange):
    @operation("Publish an earlier version of an agent", body=shapes.RollbackBody, answer=shapes.AgentVersion, status=201, errors=(409, 422))
    def post(self, request, name):
        """The old definition is checked as of today and published as a new version."""
        return definitions.rollback(agent=self.agent(name), number=self.data["number"], note=self.data["note"], by=self.actor)


class Versions(AgentEndpoint):
    permission = {"GET": "agents.read"}

    @operation("List versions of an agent", answer=shapes.AgentVersionSummary, order=("-number",))
    def get(self, request, name):
        return queries.versions_of(self.agent(name))


class Version(AgentEndpoint):
    permission = {"GET": "agents.read"}

    @operation("Read a version of an agent", answer=shapes.AgentVersion)
    def get(self, request, name, number):
        return queries.version_numbered(self.agent(name), version_number(number))


class VersionDiff(AgentEndpoint):
    permission = {"GET": "agents.read"}

    @operation("Compare two versions of an agent", answer=shapes.Diff)
    def get(self, request, name, old, new):
        agent = self.agent(name)
        changes = diffs.diff(_text_of(agent, old), _text_of(agent, new))
        return {"old": old, "new": new, "changes": changes}


class Export(AgentEndpoint):
    permission = {"GET": "agents.read"}

    @operation("Export an agent", answers={(200, "application/json"): OpenApiTypes.OBJECT})
    def get(self, request, name):
        """One JSON file with the definition and the versions; `POST /api/agents/import` reads it."""
        document = transfer.export_agent(agent=self.agent(name), by=self.actor)
        return json_answer(document, headers={"Content-Disposition": f'attachment; filename="{name}.json"'})


class Validate(Agent):
    """Also answers for an agent that happens to be called `validate`."""

    permission = {**Agent.permission, "POST": "agents.read"}

    @operation("Check a definition", body=shapes.Document, body_schema=DEFINITION, answer=shapes.CompileReport)
    def post(self, request, name):
        """Every problem of a definition at once. Calls no model and writes nothing; `valid: false` is a good answer."""
        return compile_definition(self.data["document"], tenant_id=self.tenant_id).as_dict()


class Import(Agent):
    """Also answers for an agent that happens to be called `import`."""

    permission = {**Agent.permission, "POST": "agents.write"}

    @operation(
        "Import an agent",
        body=shapes.ImportBody,
        query=shapes.ImportQuery,
        answers={(201, "application/json"): shapes.Agent, (200, "application/json"): shapes.ImportCheck},
        errors=(409, 422),
    )
    def post(self, request, name):
        """With `dry_run`, only what this tenant is missing (200); otherwise the agent (201)."""
        options = dict(self.data)
        if options.pop("dry_run") or self.query.get("dry_run"):
            check = transfer.check_import(tenant_id=self.tenant_id, document=options["document"], name=options["name"])
            return json_answer(check)
        agent = transfer.import_agent(tenant_id=self.tenant_id, by=self.actor, **options)
        return json_answer(shapes.Agent(agent).data, status=201, headers={"Location": f"/api/agents/{agent.name}"})


def _text_of(agent, which):
    return agent.draft if which == "draft" else queries.version_numbered(agent, version_number(which)).document


def version_number(text: str) -> int:
    """A version's number. Anything else names nothing."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise NotFound
    return int(text)
