"""Running the tenant: keys, members, the tenant itself, usage and quotas."""

from drf_spectacular.types import OpenApiTypes

from agents import queries as catalogue
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.permissions import ANY_KEY
from console.api.schema import SUBJECT
from console.api.serializers import operation as shapes
from console.api.views.responses import json_answer
from governance import queries
from governance.domain import keys, members, tenants
from governance.errors import NotFound
from governance.ids import parse
from governance.models import Tenant as TenantModel
from sessions.domain import quotas, usage


class Keys(Endpoint):
    tag = "API keys"
    permission = {"GET": "keys.read", "POST": "keys.write"}

    @operation("List API keys", query=shapes.KeyFilters, answer=shapes.ApiKey, order=("name", "id"))
    def get(self, request):
        return queries.keys_of(self.tenant_id).filter(revoked_at__isnull=not self.query["revoked"])

    @operation("Create an API key", body=shapes.ApiKeyBody, answer=shapes.NewApiKey, status=201, errors=(409,))
    def post(self, request):
        """`secret` is the key itself. It is shown this once and cannot be read again."""
        key, secret = keys.create_key(tenant_id=self.tenant_id, by=self.actor, **self.data)
        key.secret = secret
        self.headers["Location"] = f"/api/api-keys/key_{key.id.hex}"
        self.headers["Cache-Control"] = "no-store"
        return key


class Key(Endpoint):
    tag = "API keys"
    permission = {"GET": "keys.read", "DELETE": "keys.write"}
    path_help = {"id": "The key's id."}

    @operation("Read an API key", answer=shapes.ApiKey)
    def get(self, request, id):
        return queries.key_by(tenant_id=self.tenant_id, id=id)

    @operation("Revoke an API key")
    def delete(self, request, id):
        """End it at once. It stays listed under `?revoked=true`."""
        keys.revoke_key(key=queries.key_by(tenant_id=self.tenant_id, id=id), by=self.actor)


class Members(Endpoint):
    tag = "Members"
    permission = {"GET": "members.read", "POST": "members.write"}

    @operation("List members", answer=shapes.Member, order=("member__username", "id"))
    def get(self, request):
        return queries.members_of(self.tenant_id)

    @operation("Add a member", body=shapes.MemberBody, answer=shapes.NewMember, status=201, errors=(409,))
    def post(self, request):
        """Somebody new gets a one-time password, shown this once."""
        tenant = TenantModel.objects.get(id=self.tenant_id)
        membership, password = members.add_member(tenant=tenant, by=self.actor, **self.data)
        membership.one_time_password = password
        self.headers["Location"] = f"/api/members/mem_{membership.id.hex}"
        self.headers["Cache-Control"] = "no-store"
        return membership


class Member(Endpoint):
    tag = "Members"
    permission = {"GET": "members.read", "PATCH": "members.write", "DELETE": "members.write"}
    path_help = {"id": "The membership's id."}

    def membership(self, id):
        return queries.membership_by(tenant_id=self.tenant_id, id=id)

    @operation("Read a member", answer=shapes.Member)
    def get(self, request, id):
        return self.membership(id)

    @operation("Change the roles of a member", body=shapes.MemberChanges, answer=shapes.Member, errors=(409,))
    def patch(self, request, id):
        return members.set_roles(membership=self.membership(id), roles=self.data["roles"], by=self.actor)

    @operation("Remove a member", errors=(409,))
    def delete(self, request, id):
        """Take the person's access to this tenant. The last administrator stays."""
        members.remove_member(membership=self.membership(id), by=self.actor)


class Tenant(Endpoint):
    tag = "Tenant"
    permission = {"GET": ANY_KEY, "PATCH": "tenant.write"}

    def tenant(self):
        return TenantModel.objects.get(id=self.tenant_id)

    @operation("Read the tenant", answer=shapes.Tenant)
    def get(self, request):
        return self.tenant()

    @operation("Change the tenant", body=shapes.TenantChanges, answer=shapes.Tenant)
    def patch(self, request):
        return tenants.rename_tenant(tenant=self.tenant(), by=self.actor, **self.data)


class Me(Endpoint):
    tag = "Tenant"
    permission = {"GET": ANY_KEY}

    @operation("Read who I am", answer=shapes.Me, parameters=(SUBJECT,))
    def get(self, request):
        """The key, what it may do, and for whom this call would be made."""
        key = queries.keys_of(self.tenant_id).select_related("tenant").get(id=self.actor.ref)
        return {
            "id": key.id,
            "name": key.name,
            "scopes": key.scopes,
            "expires_at": key.expires_at,
            "tenant": key.tenant,
            "subject_id": self.known_scope,
        }


class Usage(Endpoint):
    tag = "Usage"
    permission = {"GET": "usage.read"}

    @operation("Read the usage", query=shapes.UsageQuery, answers={(200, "application/json"): OpenApiTypes.OBJECT})
    def get(self, request):
        """Runs, tokens and cost over the last days, by day, agent and model."""
        agent_id = None
        if "agent" in self.query:
            agent_id = catalogue.agent_named(tenant_id=self.tenant_id, name=self.query["agent"]).id
        return json_answer(usage.summary(tenant_id=self.tenant_id, days=self.query["days"], agent_id=agent_id))


class QuotaEndpoint(Endpoint):
    tag = "Quotas"
    path_help = {"id": "The quota's id."}

    def standing(self, id):
        """A quota with what is used of it. A tenant has a handful, so they are read together."""
        found = [standing for standing in quotas.standings(tenant_id=self.tenant_id) if standing.quota.id == id]
        if not found:
            raise NotFound
        return found[0]

    def quota(self, id):
        return self.standing(parse("quo", id)).quota


class Quotas(QuotaEndpoint):
    permission = {"GET": "usage.read", "POST": "quotas.write"}

    @operation("List quotas", answer=shapes.Quota, is_page=True)
    def get(self, request):
        return quotas.standings(tenant_id=self.tenant_id)

    @operation("Create a quota", body=shapes.QuotaBody, answer=shapes.Quota, status=201, errors=(409,))
    def post(self, request):
        """A limit of runs, tokens or cost per day or month. One that names an agent, key or subject replaces the one for each."""
        quota = quotas.create_quota(tenant_id=self.tenant_id, by=self.actor, **self.data)
        self.headers["Location"] = f"/api/quotas/quo_{quota.id.hex}"
        return self.standing(quota.id)


class Quota(QuotaEndpoint):
    permission = {"GET": "usage.read", "PATCH": "quotas.write", "DELETE": "quotas.write"}

    @operation("Read a quota", answer=shapes.Quota)
    def get(self, request, id):
        return self.standing(parse("quo", id))

    @operation("Change a quota", body=shapes.QuotaChanges, answer=shapes.Quota)
    def patch(self, request, id):
        quota = quotas.update_quota(quota=self.quota(id), limit=self.data["limit"], by=self.actor)
        return self.standing(quota.id)

    @operation("Delete a quota")
    def delete(self, request, id):
        quotas.delete_quota(quota=self.quota(id), by=self.actor)
