"""Files: of a session's workspace, and those that agents keep between sessions."""

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.renderers import JSONRenderer

from agents.queries import agent_named
from console.api import etag
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.schema import IF_MATCH_OPTIONAL, IF_NONE_MATCH, SUBJECT
from console.api.serializers import files as shapes
from console.api.serializers.sessions import SessionQuery
from console.api.views.responses import ZipRenderer
from console.api.views.sessions import SessionEndpoint, subject_filter
from console.downloads import workspace_zip
from governance.errors import Forbidden, SubjectRequired
from sessions import queries
from sessions.domain import agent_files, workspace


class WorkspaceFiles(SessionEndpoint):
    permission = {"GET": "sessions.read"}

    @operation("List files of a session", query=shapes.WorkspaceFilters, answer=shapes.WorkspaceFile, order=("path",), errors=(409,), parameters=(SUBJECT,))
    def get(self, request, ref):
        """The workspace that the agent and the application share, by path."""
        return queries.workspace_of(self.session(ref))


class WorkspaceZip(SessionEndpoint):
    permission = {"GET": "sessions.read"}
    renderer_classes = [ZipRenderer, JSONRenderer]

    @operation(
        "Download the files of a session", query=SessionQuery, answers={(200, "application/zip"): OpenApiTypes.BINARY}, errors=(409,), parameters=(SUBJECT,)
    )
    def get(self, request, ref):
        """All of them as one ZIP."""
        session = self.session(ref)
        name = f'attachment; filename="workspace-{session.id.hex}.zip"'
        return HttpResponse(workspace_zip(session), content_type="application/zip", headers={"Content-Disposition": name})


class WorkspaceFile(SessionEndpoint):
    permission = {"GET": "sessions.read", "PUT": "sessions.write", "DELETE": "sessions.write"}
    path_help = {**SessionEndpoint.path_help, "path": "The file's path, with its slashes."}

    @operation("Read a file of a session", query=SessionQuery, answer=shapes.WorkspaceContent, errors=(409,), parameters=(SUBJECT,))
    def get(self, request, ref, path):
        file = workspace.read(session=self.session(ref), path=path)
        self.headers["ETag"] = etag.version_tag(file.sha256)
        return file

    @operation(
        "Write a file of a session", query=SessionQuery, body=shapes.FileText, answer=shapes.WorkspaceContent, errors=(409, 422, 428),
        parameters=(SUBJECT, IF_MATCH_OPTIONAL, IF_NONE_MATCH),
    )  # fmt: skip
    def put(self, request, ref, path):
        """Say what is replaced: `If-Match` with the ETag, or `*` for whatever is there; `If-None-Match: *` for a new file."""
        expected = etag.expected_version(request)
        file = workspace.put(session=self.session(ref), path=path, text=self.data["content"], expected=expected, by=self.actor)
        self.headers["ETag"] = etag.version_tag(file.sha256)
        return file

    @operation("Delete a file of a session", query=SessionQuery, errors=(409,), parameters=(SUBJECT, IF_MATCH_OPTIONAL))
    def delete(self, request, ref, path):
        expected = etag.expected_version(request) if "If-Match" in request.headers else None
        workspace.remove(session=self.session(ref), path=path, expected=expected, by=self.actor)


class FileEndpoint(Endpoint):
    tag = "Files"

    def file(self, id):
        return queries.agent_file_by(tenant_id=self.tenant_id, ref=id, subject_id=self.scope)

    def shelf(self, given):
        """The agent and the person of a shelf that the call may use."""
        agent = agent_named(tenant_id=self.tenant_id, name=given["agent"])
        if given["scope"] != "subject":
            if self.scope is not None:
                raise Forbidden("This call speaks for one person, whose files are in the scope subject.")
            return agent, None
        subject, self.speaking = self.speaker(before_new=lambda: None)
        if subject is None:
            raise SubjectRequired("These are files of one person: use a key with its own subject, or the X-Lethe-Subject header.")
        return agent, subject

    def shown(self, file):
        self.headers["ETag"] = etag.version_tag(file.sha256)
        file.text = agent_files.text_of(file)
        return file


class Files(FileEndpoint):
    permission = {"GET": "memory.read", "POST": "memory.write"}

    @operation("List files that agents keep", query=shapes.FileFilters, answer=shapes.AgentFile, order=("-updated_at", "-id"), parameters=(SUBJECT,))
    def get(self, request):
        """Newest change first. A call that speaks for a person sees that person's files only."""
        given = self.query
        return queries.agent_files_of(
            self.tenant_id, agent=given.get("agent"), subject_id=subject_filter(self), scope=given.get("scope"), below=given.get("below"),
            words=given.get("q"),
        )  # fmt: skip

    @operation("Write a new file for an agent", body=shapes.AgentFileBody, answer=shapes.AgentFileContent, status=201, errors=(409, 422), parameters=(SUBJECT,))
    def post(self, request):
        """A path that is taken is a 409 `file_changed`."""
        agent, subject = self.shelf(self.data)
        file = agent_files.put(
            agent=agent, scope=self.data["scope"], subject=subject, path=self.data["path"], text=self.data["content"], expected="", by=self.actor
        )
        self.headers["Location"] = f"/api/files/fil_{file.id.hex}"
        return self.shown(file)


class SearchFiles(FileEndpoint):
    permission = {"GET": "memory.read"}

    @operation("Search files that agents keep", query=shapes.SearchFilters, answer=shapes.Lines, errors=(422,), parameters=(SUBJECT,))
    def get(self, request):
        """Lines that fit the words best, best first."""
        agent, subject = self.shelf(self.query)
        found = agent_files.search(
            agent=agent, scope=self.query["scope"], subject=subject, query=self.query["q"], folder=self.query["below"], limit=self.query["limit"]
        )
        return {"results": found}


class File(FileEndpoint):
    permission = {"GET": "memory.read", "PUT": "memory.write", "DELETE": "memory.write"}

    @operation("Read a file that an agent keeps", answer=shapes.AgentFileContent, parameters=(SUBJECT,))
    def get(self, request, id):
        return self.shown(self.file(id))

    @operation("Change a file that an agent keeps", body=shapes.FileText, answer=shapes.AgentFileContent, errors=(409, 422, 428), parameters=(SUBJECT, IF_MATCH_OPTIONAL))
    def put(self, request, id):
        """`If-Match` says what is replaced: the ETag, or `*` for whatever is there."""
        expected = etag.expected_version(request)
        return self.shown(agent_files.change(file=self.file(id), text=self.data["content"], expected=expected, by=self.actor))

    @operation("Delete a file that an agent keeps", errors=(409,), parameters=(SUBJECT, IF_MATCH_OPTIONAL))
    def delete(self, request, id):
        expected = etag.expected_version(request) if "If-Match" in request.headers else None
        agent_files.remove(file=self.file(id), expected=expected, by=self.actor)
