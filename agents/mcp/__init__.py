"""MCP servers as Lethe speaks to them: connections, calls, texts. Rows and rules are in `agents.domain.mcp_servers`.

The protocol's library takes a second to import: whoever needs a connection imports `agents.mcp.pool` when it does.
"""
