"""The routes of the API, each once: with and without a trailing slash."""

from django.urls import URLPattern, path, register_converter
from django.urls.converters import PathConverter
from django.urls.resolvers import RoutePattern

from console.api.views import (
    agents,
    approvals,
    files,
    governance,
    holds,
    mcp_servers,
    operation,
    providers,
    requests,
    runs,
    sessions,
    skills,
    system,
    triage,
)


class _FilePath(PathConverter):
    """Slashes and everything else, line breaks too: what is no path is refused by its own rule."""

    regex = r"[\s\S]+"


register_converter(_FilePath, "file")


class _Route(RoutePattern):
    """A path that a slash at its end does not change."""

    def match(self, path):
        return super().match(path.removesuffix("/"))


def _route(pattern: str, view, name: str, given: dict[str, str] | None = None) -> URLPattern:
    return URLPattern(_Route(pattern, name=name, is_endpoint=True), view.as_view(), given, name)


urlpatterns = [
    # The busiest first.
    _route("agents/<name>/run", runs.RunAgent, "agent-run"),
    _route("runs/<id>/events", runs.Events, "run-events"),
    _route("agents", agents.Agents, "agents"),
    _route("agents/validate", agents.Validate, "agent-validate", {"name": "validate"}),
    _route("agents/import", agents.Import, "agent-import", {"name": "import"}),
    _route("agents/<name>", agents.Agent, "agent"),
    _route("agents/<name>/context-preview", agents.ContextPreview, "agent-context-preview"),
    _route("agents/<name>/publish", agents.Publish, "agent-publish"),
    _route("agents/<name>/rollback", agents.Rollback, "agent-rollback"),
    _route("agents/<name>/disable", agents.Disable, "agent-disable"),
    _route("agents/<name>/enable", agents.Enable, "agent-enable"),
    _route("agents/<name>/archive", agents.Archive, "agent-archive"),
    _route("agents/<name>/restore", agents.Restore, "agent-restore"),
    _route("agents/<name>/export", agents.Export, "agent-export"),
    _route("agents/<name>/versions", agents.Versions, "agent-versions"),
    _route("agents/<name>/versions/<number>", agents.Version, "agent-version"),
    _route("agents/<name>/versions/<old>/diff/<new>", agents.VersionDiff, "agent-diff"),
    _route("providers", providers.Providers, "providers"),
    _route("providers/<name>", providers.Provider, "provider"),
    _route("providers/<name>/test", providers.TestProvider, "provider-test"),
    _route("utility-model", providers.UtilityModel, "utility-model"),
    _route("mcp-servers", mcp_servers.McpServers, "mcp-servers"),
    _route("mcp-servers/<name>", mcp_servers.McpServer, "mcp-server"),
    _route("mcp-servers/<name>/test", mcp_servers.TestMcpServer, "mcp-server-test"),
    _route("skills", skills.Skills, "skills"),
    _route("skills/<name>", skills.Skill, "skill"),
    _route("skills/<name>/publish", skills.Publish, "skill-publish"),
    _route("skills/<name>/rollback", skills.Rollback, "skill-rollback"),
    _route("skills/<name>/disable", skills.Disable, "skill-disable"),
    _route("skills/<name>/enable", skills.Enable, "skill-enable"),
    _route("skills/<name>/versions", skills.Versions, "skill-versions"),
    _route("skills/<name>/versions/<number>", skills.Version, "skill-version"),
    _route("tools", providers.Tools, "tools"),
    _route("tools/<name>", providers.Tool, "tool"),
    _route("sessions", sessions.Sessions, "sessions"),
    _route("sessions/<ref>", sessions.Session, "session"),
    _route("sessions/<ref>/items", sessions.Items, "session-items"),
    _route("sessions/<ref>/state", sessions.State, "session-state"),
    _route("sessions/<ref>/fork", sessions.Fork, "session-fork"),
    _route("sessions/<ref>/compact", sessions.Compact, "session-compact"),
    _route("sessions/<ref>/close", sessions.Close, "session-close"),
    _route("sessions/<ref>/reopen", sessions.Reopen, "session-reopen"),
    _route("sessions/<ref>/transcript", sessions.Transcript, "session-transcript"),
    _route("sessions/<ref>/files", files.WorkspaceFiles, "session-files"),
    _route("sessions/<ref>/files.zip", files.WorkspaceZip, "session-files-zip"),
    _route("sessions/<ref>/files/<file:path>", files.WorkspaceFile, "session-file"),
    _route("files", files.Files, "files"),
    _route("files/search", files.SearchFiles, "file-search"),
    _route("files/<id>", files.File, "file"),
    _route("runs", runs.Runs, "runs"),
    _route("runs/<id>", runs.Run, "run"),
    _route("runs/<id>/context", runs.Context, "run-context"),
    _route("runs/<id>/context/<number>/<layer>", runs.Behind, "run-behind"),
    _route("runs/<id>/cancel", runs.Cancel, "run-cancel"),
    _route("approvals", approvals.Approvals, "approvals"),
    _route("approvals/<id>", approvals.Approval, "approval"),
    _route("approvals/<id>/decide", approvals.Decide, "approval-decide"),
    _route("approval-rules", approvals.Rules, "approval-rules"),
    _route("approval-rules/<id>", approvals.Rule, "approval-rule"),
    _route("subjects", governance.Subjects, "subjects"),
    _route("subjects/<ref>", governance.Subject, "subject"),
    _route("subjects/<ref>/preview", governance.PreviewSubject, "subject-preview"),
    _route("subjects/<ref>/merge", governance.MergeSubject, "subject-merge"),
    _route("subjects/<ref>/split", governance.SplitSubject, "subject-split"),
    _route("subjects/<ref>/export", governance.ExportSubject, "subject-export"),
    _route("subjects/<ref>/erase", governance.EraseSubject, "subject-erase"),
    _route("unattributed", triage.Unattributed, "unattributed"),
    _route("unattributed/<category>", triage.UnattributedRows, "unattributed-rows"),
    _route("unattributed/<category>/assign", triage.AssignUnattributed, "unattributed-assign"),
    _route("unattributed/<category>/waive", triage.WaiveUnattributed, "unattributed-waive"),
    _route("unattributed/<category>/reopen", triage.ReopenUnattributed, "unattributed-reopen"),
    _route("subject-requests", governance.SubjectRequests, "subject-requests"),
    _route("subject-requests/<id>", governance.SubjectRequest, "subject-request"),
    _route("subject-requests/<id>/approve", requests.Approve, "subject-request-approve"),
    _route("subject-requests/<id>/decline", requests.Decline, "subject-request-decline"),
    _route("subject-requests/<id>/extend", requests.Extend, "subject-request-extend"),
    _route("subject-requests/<id>/identity", requests.AskIdentity, "subject-request-identity"),
    _route("subject-requests/<id>/first-answer", requests.AnswerFirst, "subject-request-first-answer"),
    _route("subject-requests/<id>/corrections", requests.Corrections, "subject-request-corrections"),
    _route("subject-requests/<id>/complete", requests.Complete, "subject-request-complete"),
    _route("subject-requests/<id>/recipients", requests.Recipients, "subject-request-recipients"),
    _route("subject-requests/<id>/cancel", governance.CancelRequest, "subject-request-cancel"),
    _route("subject-requests/<id>/receipt", governance.Receipt, "subject-request-receipt"),
    _route("subject-requests/<id>/archive", governance.Archive, "subject-request-archive"),
    _route("subject-requests/<id>/archive-links", governance.ArchiveLinks, "subject-request-archive-links"),
    _route("holds", holds.Holds, "holds"),
    _route("holds/<id>", holds.Hold, "hold"),
    _route("holds/<id>/release", holds.ReleaseHold, "hold-release"),
    _route("retention-policies", governance.Policies, "retention-policies"),
    _route("retention-policies/<id>", governance.Policy, "retention-policy"),
    _route("retention-policies/<id>/preview", governance.PreviewPolicy, "retention-policy-preview"),
    _route("retention-policies/<id>/run", governance.RunPolicy, "retention-policy-run"),
    _route("retention-policies/<id>/approve", governance.ApprovePolicy, "retention-policy-approve"),
    _route("retention-runs", governance.RetentionRuns, "retention-runs"),
    _route("signing-key", requests.SigningKey, "signing-key"),
    _route("audit", governance.Audit, "audit"),
    _route("audit/verify", governance.VerifyAudit, "audit-verify"),
    _route("usage", operation.Usage, "usage"),
    _route("quotas", operation.Quotas, "quotas"),
    _route("quotas/<id>", operation.Quota, "quota"),
    _route("api-keys", operation.Keys, "api-keys"),
    _route("api-keys/<id>", operation.Key, "api-key"),
    _route("members", operation.Members, "members"),
    _route("members/<id>", operation.Member, "member"),
    _route("tenant", operation.Tenant, "tenant"),
    _route("me", operation.Me, "me"),
    _route("schema", system.SchemaView, "schema"),
    path("docs", system.docs, name="docs"),
    path("docs/", system.docs),
    path("", system.Unknown.as_view()),
    path("<path:rest>", system.Unknown.as_view()),
]
app_name = "api"
