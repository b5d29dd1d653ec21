"""Legal holds: what must be kept, whoever asks for its deletion."""

from agents.queries import agent_named
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.serializers import holds as shapes
from governance import queries
from governance.domain import holds
from governance.errors import Invalid
from governance.models import Hold as HoldModel


class Holds(Endpoint):
    tag = "Holds"
    permission = {"GET": "hold.read", "POST": "hold.place"}

    @operation("List holds", query=shapes.HoldFilters, answer=shapes.Hold, order=("-id",))
    def get(self, request):
        found = queries.holds_of(self.tenant_id)
        exact = {name: self.query[name] for name in ("matter", "scope") if self.query.get(name)}
        if (released := self.query.get("released")) is not None:
            exact["released_at__isnull"] = not released
        return found.filter(**exact)

    @operation("Place a hold", body=shapes.HoldBody, answer=shapes.Hold, status=201, errors=(409, 422, 503))
    def post(self, request):
        """From then on nothing of it is deleted, by whatever way. The answer says what it covers and what was gone."""
        target = target_of(self.tenant_id, dict(self.data["scope"]))
        hold = holds.place(
            target=target, matter=self.data["matter"], reason=self.data["reason"], until=self.data["until"], by=self.actor
        )
        self.headers["Location"] = f"/api/holds/hld_{hold.id.hex}"
        return hold


class HoldEndpoint(Endpoint):
    tag = "Holds"
    path_help = {"id": "The hold's id."}

    def hold(self, id):
        return queries.hold_by(tenant_id=self.tenant_id, id=id)


class Hold(HoldEndpoint):
    permission = {"GET": "hold.read"}

    @operation("Read a hold", answer=shapes.HoldDetail)
    def get(self, request, id):
        """With what it covers now and which erasures wait for it."""
        return self.hold(id)


class ReleaseHold(HoldEndpoint):
    permission = {"POST": "hold.release"}

    @operation("Release a hold", answer=shapes.Release, errors=(409, 503))
    def post(self, request, id):
        """Somebody else than who placed it; API keys cannot. Erasures that waited for it start at once."""
        hold, started = holds.release(hold=self.hold(id), by=self.actor)
        return {"hold": hold, "started": started}


def target_of(tenant_id, scope: dict) -> holds.Target:
    """A scope as it was sent, looked up. Raises Invalid by field, NotFound."""
    kind = scope.pop("type")
    needs = {"subject": "subject_id", "session": "session_id", "agent": "agent", "category": "category", "query": "category"}
    if not scope.get(needs[kind]):
        raise Invalid(errors={f"scope.{needs[kind]}": ["This says what the hold covers; give it."]})
    subject = queries.subject_of(tenant_id, scope["subject_id"]) if scope.get("subject_id") else None
    if kind == HoldModel.Scope.QUERY:
        query = {name: value for name, value in scope.items() if name != "subject_id"}
        return holds.Target(kind, query={**query, "subject_id": subject.id} if subject else query)
    agent = agent_named(tenant_id=tenant_id, name=scope["agent"]) if kind == HoldModel.Scope.AGENT else None
    return holds.Target(
        kind,
        subject=subject,
        session_id=scope.get("session_id"),
        agent_id=agent.id if agent else None,
        agent_name=agent.name if agent else "",
        category=scope.get("category", "") if kind == HoldModel.Scope.CATEGORY else "",
    )
