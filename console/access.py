"""Fetch one object for a page: the permission is asked first, and what is not the tenant's looks like nothing.

Each function raises MissingPermission (403) or NotFound (404); the middleware turns both into pages.
"""

from functools import wraps

from agents.models import Agent, AgentVersion, McpServer, Provider, Skill
from governance import ids
from governance import queries as governance
from governance.domain import expiry
from governance.errors import NotFound
from governance.models import ApiKey, Hold, Membership, RetentionPolicy, RetentionRun, Subject, SubjectRequest
from sessions.models import AgentFile, Approval, ApprovalRule, Quota, Run, Session


def may(permission):
    """Decorate a view that needs `permission` and fetches no single object, or several kinds of them."""

    def decorate(view):
        @wraps(view)
        def guarded(request, *args, **kwargs):
            request.actor.require(permission)
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def _one(request, queryset, permission, **where):
    request.actor.require(permission)
    found = queryset.filter(tenant_id=request.tenant.pk, **where).first()
    if found is None:
        raise NotFound
    return found


def _kept(request, queryset):
    """Without what a retention policy has ended."""
    return expiry.left(queryset, tenant_id=request.tenant.pk)


def agent_for(request, name, permission="agents.read") -> Agent:
    return _one(request, Agent.objects.select_related("published"), permission, name=name)


def version_for(request, name, number, permission="agents.read") -> AgentVersion:
    return _one(request, AgentVersion.objects.select_related("agent"), permission, agent__name=name, number=number)


def skill_for(request, name, permission="agents.read") -> Skill:
    return _one(request, Skill.objects.select_related("published"), permission, name=name)


def mcp_server_for(request, name, permission="agents.read") -> McpServer:
    return _one(request, McpServer.objects.all(), permission, name=name)


def provider_for(request, name, permission="agents.read") -> Provider:
    return _one(request, Provider.objects.all(), permission, name=name)


def session_for(request, ref, permission="sessions.read") -> Session:
    """By the id as pages show it (`ses_...`): keys are unique per agent and subject only."""
    sessions = Session.objects.select_related("agent", "subject", "agent__published")
    return _one(request, _kept(request, sessions), permission, pk=ids.parse("ses", ref))


def run_for(request, ref, permission="runs.read") -> Run:
    runs = Run.objects.select_related("agent", "version", "session", "session__agent", "session__subject")
    return _one(request, _kept(request, runs), permission, pk=ids.parse("run", ref))


def approval_for(request, ref, permission="approvals.read") -> Approval:
    approvals = Approval.objects.select_related("run__agent", "session")
    return _one(request, _kept(request, approvals), permission, pk=ids.parse("apr", ref))


def rule_for(request, ref, permission="approvals.read") -> ApprovalRule:
    rules = ApprovalRule.objects.select_related("agent", "session")
    return _one(request, _kept(request, rules), permission, pk=ids.parse("rul", ref))


def file_for(request, ref, permission="memory.read") -> AgentFile:
    files = AgentFile.objects.select_related("agent")
    return _one(request, _kept(request, files), permission, pk=ids.parse("fil", ref))


def quota_for(request, ref, permission="usage.read") -> Quota:
    return _one(request, Quota.objects.all(), permission, pk=ids.parse("quo", ref))


def membership_for(request, ref, permission="members.read") -> Membership:
    return _by(request, governance.membership_by, ref, permission)


def key_for(request, ref, permission="keys.read") -> ApiKey:
    return _by(request, governance.key_by, ref, permission)


def subject_for(request, ref, permission="subject.search") -> Subject:
    """By the random reference (`S-7Q4K-2M9D`): addresses of pages never carry what names a person."""
    return _one(request, Subject.objects.select_related("tenant"), permission, display_ref=ref)


def request_for(request, ref, permission="request.read") -> SubjectRequest:
    """By its reference (`SR-2026-000123`)."""
    return _by(request, governance.request_by, ref, permission)


def hold_for(request, ref, permission="hold.read") -> Hold:
    return _by(request, governance.hold_by, ref, permission)


def policy_for(request, ref, permission="retention.read") -> RetentionPolicy:
    return _by(request, governance.policy_by, ref, permission)


def retention_run_for(request, ref, permission="retention.read") -> RetentionRun:
    return _by(request, governance.retention_run_by, ref, permission)


def _by(request, query, ref, permission):
    """What one of governance's queries finds by an id; they raise NotFound themselves."""
    request.actor.require(permission)
    return query(tenant_id=request.tenant.pk, id=ref)
