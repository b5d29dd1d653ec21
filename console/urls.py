"""Every address of Lethe. Pages are closed by default (LoginRequiredMiddleware); each view asks for its permission."""

from django.urls import include, path

from console.api.views import system
from console.views import (
    account,
    agents,
    api_keys,
    approvals,
    archives,
    audit,
    editor,
    errors,
    gallery,
    members,
    overview,
    playground,
    providers,
    requests,
    retention,
    runs,
    sessions,
    subjects,
    tenant,
    tools,
)
from console.views import help as help_pages

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error

# The frame: signing in, the own account, finding things.
shell = [
    path("sign-in", account.sign_in, name="sign-in"),
    path("sign-out", account.sign_out, name="sign-out"),
    path("account", account.account, name="account"),
    path("account/prove", account.prove, name="prove"),
    path("account/password", account.change_password, name="change-password"),
    path("tenant/switch", account.switch_tenant, name="switch-tenant"),
    path("find", account.palette, name="palette"),
    path("help", help_pages.help_page, name="help"),
    path("help/definition", help_pages.definition, name="help-definition"),
    path("help/permissions", help_pages.permissions, name="help-permissions"),
    path("help/categories", help_pages.categories, name="help-categories"),
    path("help/components", gallery.gallery, name="gallery"),
]

operate = [
    path("", overview.overview, name="overview"),
    path("playground", playground.playground, name="playground"),
    path("playground/run", playground.start, name="playground-run"),
    path("sessions", sessions.sessions, name="sessions"),
    path("sessions/<str:ref>", sessions.session, name="session"),
    path("sessions/<str:ref>/items/<int:seq>", sessions.item, name="session-item"),
    path("sessions/<str:ref>/files/<str:sha256>", sessions.file, name="session-file"),
    path("sessions/<str:ref>/details", sessions.details, name="session-details"),
    path("sessions/<str:ref>/fork", sessions.fork, name="session-fork"),
    path("sessions/<str:ref>/close", sessions.close, name="session-close"),
    path("sessions/<str:ref>/reopen", sessions.reopen, name="session-reopen"),
    path("sessions/<str:ref>/archive", sessions.archive, name="session-archive"),
    path("sessions/<str:ref>/unarchive", sessions.unarchive, name="session-unarchive"),
    path("sessions/<str:ref>/delete", sessions.delete, name="session-delete"),
    path("sessions/<str:ref>/transcript.md", sessions.transcript, {"format": "md"}, name="session-markdown"),
    path("sessions/<str:ref>/transcript.json", sessions.transcript, {"format": "json"}, name="session-json"),
    path("runs", runs.runs, name="runs"),
    path("runs/<str:ref>", runs.run, name="run"),
    path("runs/<str:ref>/events", runs.events, name="run-events"),
    path("runs/<str:ref>/events/<int:seq>", runs.event, name="run-event"),
    path("runs/<str:ref>/turn", runs.turn, name="run-turn"),
    path("runs/<str:ref>/saw", runs.saw, name="run-saw"),
    path("runs/<str:ref>/cancel", runs.cancel, name="run-cancel"),
    path("approvals", approvals.approvals, name="approvals"),
    path("approvals/history", approvals.history, name="approval-history"),
    path("approvals/rules", approvals.rules, name="approval-rules"),
    path("approvals/rules/<str:ref>/revoke", approvals.revoke, name="approval-rule-revoke"),
    path("approvals/<str:ref>", approvals.approval, name="approval"),
    path("approvals/<str:ref>/decide", approvals.decide, name="approval-decide"),
]

build = [
    path("agents", agents.agents, name="agents"),
    # No agent's name begins with a tilde.
    path("agents/~new", agents.agent_new, name="agent-new"),
    path("agents/~import", agents.agent_import, name="agent-import"),
    path("agents/<str:name>", agents.agent, name="agent"),
    path("agents/<str:name>/edit", editor.edit, name="agent-edit"),
    path("agents/<str:name>/edit/check", editor.check, name="agent-check"),
    path("agents/<str:name>/edit/try", editor.try_draft, name="agent-try"),
    path("agents/<str:name>/edit/resolve", editor.resolve, name="agent-resolve"),
    path("agents/<str:name>/publish", editor.publish, name="agent-publish"),
    path("agents/<str:name>/compare", agents.compare, name="agent-compare"),
    path("agents/<str:name>/export", agents.export, name="agent-export"),
    path("agents/<str:name>/disable", agents.switch, {"verb": "disable"}, name="agent-disable"),
    path("agents/<str:name>/enable", agents.switch, {"verb": "enable"}, name="agent-enable"),
    path("agents/<str:name>/archive", agents.switch, {"verb": "archive"}, name="agent-archive"),
    path("agents/<str:name>/restore", agents.switch, {"verb": "restore"}, name="agent-restore"),
    path("agents/<str:name>/delete", agents.delete, name="agent-delete"),
    path("agents/<str:name>/versions", agents.versions, name="agent-versions"),
    path("agents/<str:name>/versions/<int:number>", agents.version, name="agent-version"),
    path("agents/<str:name>/versions/<int:number>/rollback", agents.rollback, name="agent-rollback"),
    path("tools", tools.tool_list, name="tools"),
    path("providers", providers.provider_list, name="providers"),
    path("providers/~hosts", providers.egress, name="egress"),
    path("providers/~new", providers.provider_new, name="provider-new"),
    path("providers/<str:name>", providers.provider_detail, name="provider"),
    path("providers/<str:name>/edit", providers.provider_edit, name="provider-edit"),
    path("providers/<str:name>/test", providers.provider_test, name="provider-test"),
    path("providers/<str:name>/delete", providers.provider_delete, name="provider-delete"),
]

govern = [
    path("subjects", subjects.find, name="subjects"),
    path("subjects/<str:ref>", subjects.subject, name="subject"),
    path("subjects/<str:ref>/identifiers", subjects.identifiers, name="subject-identifiers"),
    path("subjects/<str:ref>/preview", subjects.preview, name="subject-preview"),
    path("subjects/<str:ref>/export", subjects.export, name="subject-export"),
    path("subjects/<str:ref>/restrict", subjects.restrict, name="subject-restrict"),
    path("subjects/<str:ref>/lift", subjects.lift, name="subject-lift"),
    path("requests", requests.request_list, name="requests"),
    path("requests/<str:ref>", requests.request_detail, name="request"),
    path("requests/<str:ref>/progress", requests.progress, name="request-progress"),
    path("requests/<str:ref>/samples/<slug:category>", requests.samples, name="request-samples"),
    path("requests/<str:ref>/preview", requests.preview_again, name="request-preview"),
    path("requests/<str:ref>/erase", requests.erase, name="request-erase"),
    path("requests/<str:ref>/cancel", requests.cancel, name="request-cancel"),
    path("requests/<str:ref>/receipt.json", requests.receipt, name="request-receipt"),
    path("requests/<str:ref>/archive.zip", archives.archive, name="request-archive"),
    path("requests/<str:ref>/archive.<int:part>.zip", archives.archive, name="request-archive-part"),
    path("requests/<str:ref>/links", archives.links, name="request-links"),
    path("archives/<str:token>", archives.link, name="archive-link"),
    path("retention", retention.policy_list, name="retention"),
    path("retention/new", retention.policy_new, name="policy-new"),
    path("retention/<str:ref>", retention.policy_detail, name="policy"),
    path("retention/<str:ref>/preview", retention.policy_preview, name="policy-preview"),
    path("retention/<str:ref>/run", retention.policy_run, name="policy-run"),
    path("retention/<str:ref>/runs", retention.policy_runs, name="policy-runs"),
    path("retention/<str:ref>/delete", retention.policy_delete, name="policy-delete"),
    path("audit", audit.audit_list, name="audit"),
    path("audit/verify", audit.verify, name="audit-verify"),
    path("audit/export.jsonl", audit.export, name="audit-export"),
]

settings = [
    path("members", members.member_list, name="members"),
    path("members/new", members.member_new, name="member-new"),
    path("members/<str:ref>", members.member_detail, name="member"),
    path("members/<str:ref>/reset", members.member_reset, name="member-reset"),
    path("members/<str:ref>/remove", members.member_remove, name="member-remove"),
    path("keys", api_keys.key_list, name="keys"),
    path("keys/new", api_keys.key_new, name="key-new"),
    path("keys/<str:ref>/revoke", api_keys.key_revoke, name="key-revoke"),
    path("quotas", tenant.quota_list, name="quotas"),
    path("quotas/new", tenant.quota_new, name="quota-new"),
    path("quotas/<str:ref>", tenant.quota_edit, name="quota-edit"),
    path("quotas/<str:ref>/delete", tenant.quota_delete, name="quota-delete"),
    path("tenant", tenant.settings, name="tenant"),
]

api = [
    path("healthz", system.healthz, name="healthz"),
    path("readyz", system.readyz, name="readyz"),
    path("api", system.Unknown.as_view()),
    path("api/", include("console.api.urls")),
]

urlpatterns = [*shell, *operate, *build, *govern, *settings, *api]
