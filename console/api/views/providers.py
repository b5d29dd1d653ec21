"""What agents are made of: providers of models, and tools."""

from agents import queries, tools
from agents.domain import providers, utility
from agents.models import Provider as ProviderModel
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.serializers import agents as shapes
from governance.errors import NotFound
from sessions.domain.providers import test_provider


class ProviderEndpoint(Endpoint):
    tag = "Providers"
    path_help = {"name": "The provider's name."}

    def provider(self, name) -> ProviderModel:
        return queries.provider_named(tenant_id=self.tenant_id, name=name)


class Providers(ProviderEndpoint):
    permission = {"GET": "agents.read", "POST": "providers.write"}

    @operation("List providers", answer=shapes.Provider, order=("name",))
    def get(self, request):
        return queries.providers_of(self.tenant_id)

    @operation("Create a provider", body=shapes.ProviderBody, answer=shapes.Provider, status=201, errors=(409, 422))
    def post(self, request):
        provider = providers.create_provider(tenant_id=self.tenant_id, by=self.actor, **plain(self.data))
        self.headers["Location"] = f"/api/providers/{provider.name}"
        return provider


class Provider(ProviderEndpoint):
    permission = {"GET": "agents.read", "PATCH": "providers.write", "DELETE": "providers.write"}

    @operation("Read a provider", answer=shapes.Provider)
    def get(self, request, name):
        return self.provider(name)

    @operation("Change a provider", body=shapes.ProviderChanges, answer=shapes.Provider, errors=(409, 422))
    def patch(self, request, name):
        """Only what is sent changes. An empty `key` removes the stored one."""
        return providers.update_provider(provider=self.provider(name), by=self.actor, **plain(self.data))

    @operation("Delete a provider", errors=(409,))
    def delete(self, request, name):
        providers.delete_provider(provider=self.provider(name), by=self.actor)


class TestProvider(ProviderEndpoint):
    permission = {"POST": "providers.write"}

    @operation("Test a provider", body=shapes.ProviderTestBody, answer=shapes.ProviderTest, errors=(503,))
    def post(self, request, name):
        """Ask the provider for one short answer. `ok: false` says what is wrong; the provider's own words stay here."""
        return test_provider(provider=self.provider(name), model=self.data["model"], by=self.actor)


class UtilityModel(Endpoint):
    tag = "Providers"
    permission = {"GET": "agents.read", "PUT": "providers.write", "DELETE": "providers.write"}

    @operation("Read the utility model", answer=shapes.UtilityModel)
    def get(self, request):
        """It writes summaries of long conversations, and what agents write down, where a definition names no model for that."""
        return queries.utility_model(self.tenant_id) or {"provider": None, "model": None}

    @operation("Set the utility model", body=shapes.UtilityModelBody, answer=shapes.UtilityModel)
    def put(self, request):
        """While its provider is switched off or cannot be reached, each agent's own model stands in."""
        return utility.set_utility_model(tenant_id=self.tenant_id, by=self.actor, **self.data)

    @operation("Clear the utility model")
    def delete(self, request):
        """Each agent's own model does its work from then on."""
        utility.clear_utility_model(tenant_id=self.tenant_id, by=self.actor)


class Tools(Endpoint):
    tag = "Tools"
    permission = {"GET": "agents.read"}

    @operation("List tools", answer=shapes.Tool, is_page=True)
    def get(self, request):
        """Tools are registered in code; what is listed here is what a definition can name."""
        return sorted(tools.all_tools(), key=lambda tool: tool.name)


class Tool(Endpoint):
    tag = "Tools"
    permission = {"GET": "agents.read"}
    path_help = {"name": "The tool's name."}

    @operation("Read a tool", answer=shapes.Tool)
    def get(self, request, name):
        found = next((tool for tool in tools.all_tools() if tool.name == name), None)
        if found is None:
            raise NotFound
        return found


def plain(data: dict) -> dict:
    """Prices as text, the way they are stored."""
    if "pricing" in data:
        data = {**data, "pricing": {name: _price("a_price", value) for name, value in data["pricing"].items()}}
    if "models" not in data:
        return dict(data)
    models = [{name: _price(name, value) for name, value in model.items()} for model in data["models"]]
    return {**data, "models": models}


def _price(name, value):
    return f"{value.normalize():f}" if name.endswith("_price") and value is not None else value
