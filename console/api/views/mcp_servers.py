"""MCP servers: where they are, what they offer, what of it agents may use."""

from agents import queries
from agents.domain import mcp_servers
from console.api.endpoint import Endpoint
from console.api.operations import operation
from console.api.serializers import mcp_servers as shapes


class McpEndpoint(Endpoint):
    tag = "MCP servers"
    path_help = {"name": "The server's name."}

    def server(self, name):
        return queries.mcp_server_named(tenant_id=self.tenant_id, name=name)


class McpServers(McpEndpoint):
    permission = {"GET": "agents.read", "POST": "providers.write"}

    @operation("List MCP servers", answer=shapes.McpServer, order=("name",))
    def get(self, request):
        return queries.mcp_servers_of(self.tenant_id)

    @operation("Add an MCP server", body=shapes.McpServerBody, answer=shapes.McpServer, status=201, errors=(409, 422))
    def post(self, request):
        """It is not asked for anything yet: `test` does that."""
        server = mcp_servers.create_server(tenant_id=self.tenant_id, by=self.actor, **self.data)
        self.headers["Location"] = f"/api/mcp-servers/{server.name}"
        return server


class McpServer(McpEndpoint):
    permission = {"GET": "agents.read", "PATCH": "providers.write", "DELETE": "providers.write"}

    @operation("Read an MCP server", answer=shapes.McpServer)
    def get(self, request, name):
        return self.server(name)

    @operation("Change an MCP server", body=shapes.McpServerChanges, answer=shapes.McpServer, errors=(409, 422))
    def patch(self, request, name):
        """Only what is sent changes. `secrets` is the whole set: an empty object removes them."""
        return mcp_servers.update_server(server=self.server(name), by=self.actor, **self.data)

    @operation("Delete an MCP server", errors=(409,))
    def delete(self, request, name):
        mcp_servers.delete_server(server=self.server(name), by=self.actor)


class TestMcpServer(McpEndpoint):
    permission = {"POST": "providers.write"}

    @operation("Check an MCP server", answer=shapes.McpServer)
    def post(self, request, name):
        """Connect, and keep what the server offers. `last_check` says how it went."""
        return mcp_servers.check_server(server=self.server(name), by=self.actor)
