"""Tools, their settings, and the agents and texts that an agent may reach."""

from django.conf import settings

from agents import tools
from agents.compile.facts import Facts
from agents.compile.nearest import did_you_mean, nearest
from agents.compile.report import Findings, Fix
from agents.compile.rules import mcp
from agents.definition import Definition


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    _tools(definition, facts, findings)
    _tool_settings(definition, findings)
    _repeated(definition, findings)
    _agents(definition, facts, findings)


def _tools(definition: Definition, facts: Facts, findings: Findings) -> None:
    known = [tool.name for tool in tools.all_tools()]
    for number, name in enumerate(definition.tools):
        path = f"tools.{number}"
        if name is None or tools.get(name):
            continue
        if name == "web_search" and definition.harness and definition.harness.enable_web_search:
            findings.error(
                "search_twice",
                path,
                "Web search is chosen twice: here and in the harness.",
                fixes=[Fix("Keep the harness's", {path: None})],
            )
        elif tools.is_reserved(name):
            findings.error(
                "reserved_tool",
                path,
                f"{name} is one of Lethe's own tools and is not listed here.",
                "It comes with the setting it belongs to, for example the harness or a memory.",
                [Fix("Remove it", {path: None})],
            )
        elif not mcp.is_tool(name, path, definition, facts, findings):
            findings.error(
                "unknown_tool",
                path,
                f"There is no tool named {name}.",
                did_you_mean(name, known, none="Tools are registered in code, or come from MCP servers."),
                [Fix(f"Use {found}", {path: found})] if (found := nearest(name, known)) else [],
            )


def _tool_settings(definition: Definition, findings: Findings) -> None:
    used = {*definition.tools, *(tools.agent_tool_name(name) for name in definition.callable_agents if name)}
    for name, setting in definition.tool_settings.items():
        path = f"tool_settings.{name}"
        if name not in used:
            findings.warning(
                "unused_tool_settings",
                path,
                f"The agent does not use the tool {name}.",
                fixes=[Fix("Remove the settings", {path: None})],
            )
        tool = tools.get(name)
        if tool and tool.effect == "destructive" and setting.approval == "never":
            findings.warning(
                "destructive_without_approval",
                f"{path}.approval",
                f"{name} can destroy something and would not ask anybody.",
                fixes=[Fix("Always ask", {f"{path}.approval": "always"})],
            )
    uncapped = [
        name
        for name in definition.tools
        if name and (name not in definition.tool_settings or not definition.tool_settings[name].max_output_chars)
    ]
    if uncapped:
        findings.info(
            "uncapped_tool_output",
            "tool_settings",
            f"Long results are cut at {settings.LETHE['tool_output_chars']:,} characters: {', '.join(uncapped)}.",
            "Set a lower limit for a tool whose results the model does not need in full.",
        )


def _repeated(definition: Definition, findings: Findings) -> None:
    for field in ("tools", "skills", "callable_agents", "mcp_resource_uris"):
        seen: set[str] = set()
        for number, name in enumerate(getattr(definition, field)):
            if name in seen:
                path = f"{field}.{number}"
                findings.error("duplicate", path, f"{name} is listed twice.", fixes=[Fix("Remove it", {path: None})])
            elif name is not None:
                seen.add(name)


def _agents(definition: Definition, facts: Facts, findings: Findings) -> None:
    for number, name in enumerate(definition.callable_agents):
        path = f"callable_agents.{number}"
        if name is None:
            continue
        if name == definition.name:
            findings.error("calls_itself", path, "An agent cannot call itself.", fixes=[Fix("Remove it", {path: None})])
        elif name not in facts.calls:
            others = [other for other in facts.calls if other != definition.name]
            findings.error("unknown_agent", path, f"There is no agent named {name}.", did_you_mean(name, others))
        elif way := _way_back(name, definition.name, facts.calls):
            findings.error(
                "call_cycle",
                path,
                f"The agents would call each other in a circle: {' to '.join([definition.name, *way])}.",
                "Remove one of the steps.",
            )
        elif name in facts.unpublished:
            findings.warning(
                "agent_not_published",
                path,
                f"The agent {name} is switched off or has no published version: calling it fails.",
                "Publish it, or remove it here.",
                [Fix("Remove it", {path: None})],
            )


def _way_back(start: str, target: str | None, calls: dict[str, list[str]]) -> list[str] | None:
    """The shortest chain of calls from one agent to another, both included; None when there is none."""
    ways, seen = [[start]], {start}
    for way in ways:
        for name in calls.get(way[-1], []):
            if name == target:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None

