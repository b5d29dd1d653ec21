"""What can go wrong with agents, each a sentence that a person can act on."""

from governance.errors import Conflict, Forbidden, Invalid, Unavailable, Unprocessable


class DefinitionUnreadable(Invalid):
    code, title = "definition_unreadable", "The definition cannot be read"


class DefinitionInvalid(Unprocessable):
    """`extra["report"]` is the whole compile report; `errors` has the sentences by path."""

    code, title = "definition_invalid", "The definition has problems"

    def __init__(self, report, detail: str | None = None):
        found = [message for message in report.messages if message.severity == "error"]
        errors: dict[str, list[str]] = {}
        for message in found:
            errors.setdefault(message.path, []).append(message.message)
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        super().__init__(
            detail or f"The definition has {count} to solve first.", errors=errors, report=report.as_dict()
        )
        self.report = report


class ParametersInvalid(Invalid):
    title = "The parameters do not fit the agent"
    detail = "The parameters do not fit what the agent declares."


class AgentExists(Conflict):
    code, title = "agent_exists", "The name is taken"

    def __init__(self, name: str):
        super().__init__(
            f"There is already an agent named {name}. Choose another name, or remove that one first.",
            errors={"name": ["There is already an agent of this name."]},
        )


class AgentDisabled(Conflict):
    code, title = "agent_disabled", "The agent is switched off"
    detail = "This agent is switched off. Switch it on to run it."


class AgentNotPublished(Conflict):
    code, title = "agent_not_published", "Nothing is published"
    detail = "This agent has no published version yet. Publish its draft to run it."


class AgentReadOnly(Conflict):
    code, title = "agent_read_only", "Defined in code"
    detail = "This agent is defined in code. Change it there; it is shown here to be read, compared and run."


class AgentInUse(Conflict):
    """`extra["counts"]` says what still belongs to the agent: {label: number}."""

    code, title = "agent_in_use", "Something still belongs to this agent"

    def __init__(self, name: str, counts: dict[str, int]):
        listed = ", ".join(f"{number:,} {label}" for label, number in counts.items())
        super().__init__(
            f"{name} still has {listed}. Delete the agent together with them, or archive it instead.", counts=counts
        )


class SkillExists(Conflict):
    code, title = "skill_exists", "The name is taken"

    def __init__(self, name: str):
        super().__init__(
            f"There is already a skill named {name}.", errors={"name": ["There is already a skill of this name."]}
        )


class SkillInvalid(Invalid):
    code, title = "skill_invalid", "The skill has problems"
    detail = "The skill has problems to solve first."


class SkillInUse(Conflict):
    """`extra["agents"]` names the agents."""

    code, title = "skill_in_use", "Agents use this skill"

    def __init__(self, name: str, agents: list[str]):
        super().__init__(
            f"{name} is used by {', '.join(agents)}. Publish versions without it first, or switch it off.", agents=agents
        )


class ProviderExists(Conflict):
    code, title = "provider_exists", "The name is taken"

    def __init__(self, name: str):
        super().__init__(
            f"There is already a provider named {name}.", errors={"name": ["There is already a provider of this name."]}
        )


class ProviderInUse(Conflict):
    """`extra["agents"]` names the agents; `extra["utility_model"]` says whether the tenant's utility model is the provider's."""

    code, title = "provider_in_use", "This provider is in use"

    def __init__(self, name: str, agents: list[str], *, utility_model: bool = False):
        reasons = []
        if agents:
            reasons.append(f"{name} is used by {', '.join(agents)}. Publish versions that use another provider first.")
        if utility_model:
            reasons.append(f"The utility model is one of {name}. Set another utility model first, or none.")
        super().__init__(" ".join(reasons), agents=agents, utility_model=utility_model)


class ProviderInvalid(Invalid):
    code, title = "provider_invalid", "The provider's settings are not valid"
    detail = "The provider's settings are not valid."


class McpServerExists(Conflict):
    code, title = "mcp_server_exists", "The name is taken"

    def __init__(self, name: str):
        super().__init__(
            f"There is already an MCP server named {name}.",
            errors={"name": ["There is already an MCP server of this name."]},
        )


class McpServerInUse(Conflict):
    """`extra["agents"]` names the agents."""

    code, title = "mcp_server_in_use", "Agents use this MCP server"

    def __init__(self, name: str, agents: list[str]):
        super().__init__(
            f"{name} is used by {', '.join(agents)}. Publish versions without it first, or switch it off.", agents=agents
        )


class McpServerInvalid(Invalid):
    code, title = "mcp_server_invalid", "The server's settings are not valid"
    detail = "The server's settings are not valid."


class EgressRefused(Forbidden):
    code, title = "egress_refused", "This address may not be reached"


class AddressUnknown(Unavailable):
    code, title = "address_unknown", "The address cannot be found"


class KeyUnavailable(Unavailable):
    code, title = "provider_key_unavailable", "The provider's key cannot be read"


class ImportInvalid(Invalid):
    code, title = "import_invalid", "This is not an agent that can be imported"
    detail = "The file is not an agent exported by Lethe, or it was changed."


class ImportIncomplete(Unprocessable):
    """`extra["missing"]` lists what this tenant lacks: [{"kind", "name", "message"}]."""

    code, title = "import_incomplete", "Something is missing here"

    def __init__(self, missing: list[dict]):
        names = ", ".join(f"{entry['kind']} {entry['name']}" for entry in missing)
        super().__init__(
            f"The agent needs what is not here: {names}. Add it first, or import the agent unpublished.",
            missing=missing,
        )
