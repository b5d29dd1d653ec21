"""Tools and texts of MCP servers. What a server offers is what it said when somebody last looked: nothing is asked here."""

from agents.compile.facts import Facts
from agents.compile.nearest import did_you_mean, nearest
from agents.compile.report import Findings, Fix
from agents.definition import Definition
from agents.mcp.naming import server_of
from agents.mcp.uris import declares, split
from agents.models import McpServer


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    for number, uri in enumerate(definition.mcp_resource_uris):
        if uri is not None:
            _resource(uri, f"mcp_resource_uris.{number}", facts, findings)


def is_tool(name: str, path: str, definition: Definition, facts: Facts, findings: Findings) -> bool:
    """Judge the name of a tool. False when it has the form of no known server's tool."""
    server = facts.mcp.get(server_of(name) or "")
    if server is None:
        return False
    offered = [tool["offered"] for tool in server.offered_tools]
    if server.is_disabled:
        _disabled(server, path, findings)
    elif not server.is_reachable:
        _unreachable(server, path, "Whether it has this tool is not known.", findings)
    elif name not in offered:
        findings.error(
            "unknown_tool",
            path,
            f"The MCP server {server.name} offers no tool named {name}.",
            did_you_mean(name, offered, none="Check the server and its filter under MCP servers."),
            [Fix(f"Use {found}", {path: found})] if (found := nearest(name, offered)) else [],
        )
    setting = definition.tool_settings.get(name)
    if setting and setting.approval == "never":
        findings.warning(
            "external_without_approval",
            f"tool_settings.{name}.approval",
            f"{name} reaches a server outside and would not ask anybody.",
            fixes=[Fix("Always ask", {f"tool_settings.{name}.approval": "always"})],
        )
    return True


def _resource(uri: str, path: str, facts: Facts, findings: Findings) -> None:
    name, address = split(uri)
    server = facts.mcp.get(name)
    if server is None:
        hint = did_you_mean(name, facts.mcp, none="Add one under MCP servers.")
        findings.error("unknown_mcp_server", path, f"There is no MCP server named {name}.", hint)
    elif server.is_disabled:
        _disabled(server, path, findings)
    elif not server.is_reachable:
        _unreachable(server, path, "Whether it has this text is not known.", findings)
    elif not declares(server.resources, address):
        findings.warning(
            "undeclared_resource",
            path,
            f"The MCP server {name} lists no text {address}; runs would leave it out.",
            "Check the server again under MCP servers, or remove it.",
            [Fix("Remove it", {path: None})],
        )


def _disabled(server: McpServer, path: str, findings: Findings) -> None:
    findings.error(
        "mcp_server_disabled",
        path,
        f"The MCP server {server.name} is switched off.",
        "Switch it on under MCP servers, or remove this.",
        [Fix("Remove it", {path: None})],
    )


def _unreachable(server: McpServer, path: str, consequence: str, findings: Findings) -> None:
    seen = "has not been checked yet" if server.last_check is None else "did not answer when it was last checked"
    findings.inconclusive = True
    findings.warning(
        "mcp_server_unreachable", path, f"The MCP server {server.name} {seen}. {consequence}", "Check it under MCP servers."
    )
