"""The demo provider and three agents: a whole product to try without a key."""

from uuid import UUID

from agents.domain import definitions, providers
from agents.models import Agent, Provider
from governance.actors import Actor

PROVIDER = "demo"
MODEL = "demo-1"
MODELS = [
    {
        "name": MODEL,
        "context_window": 32_768,
        "max_output_tokens": 4096,
        "input_price": "0",
        "cached_input_price": "0",
        "output_price": "0",
    }
]
_MODEL = {"provider": PROVIDER, "model": MODEL}

AGENTS = (
    {
        "name": "research",
        "display_name": "Research",
        "description": "Answers questions about a text or a case, and says what it does not know.",
        "instructions": (
            "You help people understand a text, a question or a case.\n\n"
            "- Begin with the answer, in one or two sentences. Details follow as a short list.\n"
            "- Tell apart what the person said, what a tool returned, and what you conclude.\n"
            "- Use current_time for anything about dates and count_text for anything about length; never guess either.\n"
            "- If something is missing, ask for it. One precise question is better than a long guess.\n"
            "- Answer in the language of the question."
        ),
        "model": _MODEL,
        "tools": ["current_time", "count_text"],
        "compaction": {"strategy": "none"},
    },
    {
        "name": "assistant",
        "display_name": "Assistant",
        "description": "Works through a task in steps, with a list of todos and a plan that can be discussed first.",
        "instructions": (
            "You carry out tasks that take more than one step.\n\n"
            "- Write down the steps as todos before you begin, and complete each one when it is really done.\n"
            "- In plan mode, propose the steps, ask what is unclear, and wait for agreement.\n"
            "- In execute mode, work through the todos one after the other. Stop and ask when a decision is not yours.\n"
            "- End with what was done, what is still open, and what the person has to do."
        ),
        "model": _MODEL,
        "tools": ["current_time", "calculate", "count_text"],
        "harness": {"initial_mode": "execute", "maximum_iterations_per_request": 20},
        "compaction": {"strategy": "none"},
        "limits": {"max_tool_calls": 40, "max_seconds_per_run": 300},
    },
    {
        "name": "careful",
        "display_name": "Careful calculator",
        "description": "Calculates only after a person has looked at the expression and approved it.",
        "instructions": (
            "You answer questions that need a calculation.\n\n"
            "- Turn the question into one arithmetic expression and call calculate with it; never calculate in your head.\n"
            "- Every call waits for a person's approval. If it is refused, respect the reason and offer another way.\n"
            "- Give the result with its unit, then the expression it came from."
        ),
        "model": _MODEL,
        "tools": ["calculate"],
        "tool_settings": {"calculate": {"approval": "always"}},
        "compaction": {"strategy": "none"},
    },
)


def seed_demo_agents(*, tenant_id: UUID, by: Actor) -> list[Agent]:
    """Make sure that the provider and the agents are there. What exists, changed or not, stays as it is."""
    if not Provider.objects.filter(tenant_id=tenant_id, name=PROVIDER).exists():
        providers.create_provider(tenant_id=tenant_id, by=by, name=PROVIDER, kind="demo", models=MODELS)
    existing = {agent.name: agent for agent in Agent.objects.of(tenant_id)}
    return [existing.get(document["name"]) or _seed(tenant_id, document, by) for document in AGENTS]


def _seed(tenant_id: UUID, document: dict, by: Actor) -> Agent:
    agent = definitions.create_agent(tenant_id=tenant_id, document=document, by=by)
    definitions.publish(agent=agent, note="First version", by=by)
    return agent
