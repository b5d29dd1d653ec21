"""What Ctrl-K finds: agents, sessions and runs of the tenant that this member may see."""

from django.db.models import Q
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from agents.models import Agent
from governance import ids
from governance.domain.expiry import left
from governance.errors import NotFound
from governance.models import Subject
from sessions.models import Run, Session

LIMIT = 6


def find(*, request, words) -> list[dict]:
    """Up to six of each kind as {"label", "kind", "url"}; subjects by their reference only, never by identifier."""
    words = words.strip()[:200]
    if len(words) < 2:
        return []
    found = []
    for permission, look in ((("agents.read"), _agents), ("sessions.read", _sessions), ("runs.read", _runs), ("subject.search", _subjects)):
        if request.actor.may(permission):
            found += look(request.tenant.pk, words)
    return [entry for entry in found if entry]


def _entry(label, kind, name, *args):
    try:
        return {"label": label, "kind": kind, "url": reverse(name, args=args)}
    except NoReverseMatch:
        return None


def _agents(tenant_id, words):
    agents = Agent.objects.of(tenant_id).listed().filter(Q(name__icontains=words) | Q(display_name__icontains=words))
    return [_entry(agent.display_name or agent.name, _("Agent"), "agent", agent.name) for agent in agents[:LIMIT]]


def _sessions(tenant_id, words):
    named = Q(key__istartswith=words) | Q(title__icontains=words)
    if words.startswith("ses_"):
        try:
            named = Q(pk=ids.parse("ses", words))
        except NotFound:
            return []
    sessions = left(Session.objects.filter(named, tenant_id=tenant_id), tenant_id=tenant_id).order_by("-last_active_at")[:LIMIT]
    return [_entry(session.title or session.key, _("Session"), "session", ids.shown("ses", session.pk)) for session in sessions]


def _runs(tenant_id, words):
    try:
        run = left(Run.objects.filter(tenant_id=tenant_id, pk=ids.parse("run", words)), tenant_id=tenant_id).first()
    except NotFound:
        return []
    return [_entry(ids.shown("run", run.pk), _("Run"), "run", ids.shown("run", run.pk))] if run else []


def _subjects(tenant_id, words):
    subjects = Subject.objects.filter(tenant_id=tenant_id, display_ref=words.upper())[:1]
    return [_entry(subject.display_ref, _("Subject"), "subject", subject.display_ref) for subject in subjects]
