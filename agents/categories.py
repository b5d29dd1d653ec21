"""The catalogue holds nothing about a subject: each of its stores is waived, with the reason."""

from datetime import date

from governance.waivers import waive

_OWNER = "agents"
_REVIEW = date(2028, 12, 31)

waive(
    "agents_agent",
    "agents_agentversion",
    reason="Definitions are written by members for everybody; what people say to an agent is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_skill",
    "agents_skillversion",
    reason="Ways of working that members write down for agents; what people say to an agent is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_provider",
    reason="Addresses and keys of model providers; the tests of a connection send a fixed text.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive(
    "agents_mcpserver",
    reason="Addresses, secrets and lists of tools of MCP servers; what their tools answer is kept by the sessions.",
    owner=_OWNER,
    review_by=_REVIEW,
)
waive("agents_egressrule", reason="Names of hosts that providers may reach.", owner=_OWNER, review_by=_REVIEW)
