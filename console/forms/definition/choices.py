"""What a tenant offers to choose from: providers, models, tools, skills and agents. Each is read when a field first asks."""

from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from agents import queries, tools
from agents.models import Agent, Provider


@dataclass(frozen=True, slots=True)
class Choice:
    """`note` says what it is for, `effect` what a tool may do to the world."""

    value: str
    label: str
    note: str = ""
    effect: str = ""


class Catalogue:
    """`agent_name` is the agent being edited, which cannot call itself."""

    def __init__(self, *, tenant_id: UUID, agent_name: str | None = None):
        self.tenant_id, self.agent_name = tenant_id, agent_name

    def choices(self, kind: str) -> list[Choice]:
        """The choices of a kind as the schema names it; nothing for what cannot be listed."""
        return getattr(self, kind, [])

    @cached_property
    def _providers(self) -> list[Provider]:
        return list(queries.providers_of(self.tenant_id))

    @cached_property
    def providers(self) -> list[Choice]:
        return [Choice(entry.name, f"{entry.name} ({entry.get_kind_display()})" if entry.kind != entry.name else entry.name) for entry in self._providers]

    @cached_property
    def models(self) -> list[Choice]:
        return [
            Choice(model["name"], provider.name)
            for provider in self._providers
            for model in provider.model_list
            if model.get("name")
        ]

    @cached_property
    def tools(self) -> list[Choice]:
        found = sorted(tools.all_tools(), key=lambda tool: tool.name)
        registered = [Choice(tool.name, tool.name, tool.description.partition("\n")[0], tool.effect) for tool in found]
        return registered + [
            Choice(tool["offered"], tool["offered"], tool["description"].partition("\n")[0], "read" if server.only_reads(tool) else "external")
            for server in queries.mcp_servers_of(self.tenant_id).filter(is_disabled=False)
            for tool in server.offered_tools
        ]

    @cached_property
    def skills(self) -> list[Choice]:
        found = queries.skills_of(self.tenant_id).filter(is_disabled=False).exclude(published=None)
        return [Choice(skill.name, skill.name, skill.published.document.get("description", "")) for skill in found]

    @cached_property
    def agents(self) -> list[Choice]:
        found = Agent.objects.of(self.tenant_id).listed().exclude(name=self.agent_name or "")
        return [Choice(name, name, title) for name, title in found.values_list("name", "display_name")]
