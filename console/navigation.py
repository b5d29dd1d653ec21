"""The sidebar: groups of pages, in the order people work. A page that has no address yet is not listed."""

from dataclasses import dataclass
from dataclasses import field as entry

from django.urls import NoReverseMatch, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance.models import SubjectRequest
from governance.permissions import PERMISSIONS
from sessions.models import Approval


@dataclass(frozen=True, slots=True)
class Page:
    """One entry: the name of its URL, its label, the permission it needs, and the URL names that belong to it."""

    name: str
    label: str
    permission: str
    covers: tuple[str, ...] = ()
    count: str = ""


@dataclass(slots=True)
class Item:
    label: str
    url: str = ""
    reason: str = ""
    is_current: bool = False
    count: int = 0
    count_label: str = ""


@dataclass(slots=True)
class Group:
    title: str
    items: list[Item] = entry(default_factory=list)


GROUPS = (
    (
        gettext_lazy("Operate"),
        (
            Page("overview", gettext_lazy("Overview"), "usage.read"),
            Page("playground", gettext_lazy("Playground"), "runs.write", covers=("playground",)),
            Page("sessions", gettext_lazy("Sessions"), "sessions.read", covers=("session",)),
            Page("runs", gettext_lazy("Runs"), "runs.read", covers=("run",)),
            Page("approvals", gettext_lazy("Approvals"), "approvals.read", covers=("approval",), count="approvals"),
        ),
    ),
    (
        gettext_lazy("Build"),
        (
            Page("agents", gettext_lazy("Agents"), "agents.read", covers=("agent",)),
            Page("tools", gettext_lazy("Tools"), "agents.read", covers=("tool",)),
            Page("skills", gettext_lazy("Skills"), "agents.read", covers=("skill",)),
            Page("mcp-servers", gettext_lazy("MCP servers"), "agents.read", covers=("mcp-server",)),
            Page("providers", gettext_lazy("Providers"), "agents.read", covers=("provider", "egress", "utility-model")),
        ),
    ),
    (
        gettext_lazy("Remember"),
        (Page("files", gettext_lazy("Files"), "memory.read", covers=("file",)),),
    ),
    (
        gettext_lazy("Govern"),
        (
            Page("subjects", gettext_lazy("Subjects"), "subject.search", covers=("subject",)),
            Page("unattributed", gettext_lazy("Unattributed rows"), "subject.search", covers=("unattributed",)),
            Page("requests", gettext_lazy("Requests"), "request.read", covers=("request",), count="requests"),
            Page("retention", gettext_lazy("Retention"), "retention.read", covers=("retention", "policy")),
            Page("holds", gettext_lazy("Holds"), "hold.read", covers=("hold",)),
            Page("audit", gettext_lazy("Audit"), "audit.read"),
        ),
    ),
    (
        gettext_lazy("Settings"),
        (
            Page("members", gettext_lazy("Members and roles"), "members.read", covers=("member",)),
            Page("keys", gettext_lazy("API keys"), "keys.read", covers=("key",)),
            Page("quotas", gettext_lazy("Quotas"), "usage.read", covers=("quota",)),
            Page("tenant", gettext_lazy("Tenant"), "tenant.write"),
        ),
    ),
)


def context(request):
    """Context of every page. The queries run only when a full page is drawn."""
    if getattr(request, "actor", None) is None:
        return {"csp_nonce": getattr(request, "csp_nonce", ""), "navigation": []}
    return {
        "csp_nonce": request.csp_nonce,
        "navigation": SimpleLazyObject(lambda: groups_for(request)),
        "tenants": [membership.tenant for membership in request.memberships],
    }


def groups_for(request) -> list[Group]:
    current = (request.resolver_match.url_name or "") if request.resolver_match else ""
    found = []
    for title, pages in GROUPS:
        group = Group(title=title)
        for page in pages:
            item = _item(request, page, current)
            if item:
                group.items.append(item)
        if group.items:
            found.append(group)
    return found


def _item(request, page, current):
    try:
        url = reverse(page.name)
    except NoReverseMatch:
        return None
    if not request.actor.may(page.permission):
        return Item(label=page.label, reason=_("Needs %s.") % PERMISSIONS[page.permission].needs("member"))
    mine = current == page.name or any(current == name or current.startswith(f"{name}-") for name in page.covers)
    count, words = COUNTS[page.count](request) if page.count else (0, "")
    return Item(label=page.label, url=url, is_current=mine, count=count, count_label=words)


def _approvals(request):
    count = Approval.objects.filter(tenant_id=request.tenant.pk, status=Approval.Status.PENDING).count()
    return count, ngettext("waiting", "waiting", count)


def _requests(request):
    state = SubjectRequest.State
    open_states = [value for value in state.values if value not in SubjectRequest.FINAL]
    count = SubjectRequest.objects.filter(tenant_id=request.tenant.pk, state__in=open_states).count()
    return count, _("open")


COUNTS = {"approvals": _approvals, "requests": _requests}
