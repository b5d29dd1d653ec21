"""What surrounds the model in a run: budget, modes, todos, loops."""

from typing import Literal

from agents.definition.base import Part, setting

Criterion = Literal["todos_remaining", "completion_marker", "judge"]


class Loop(Part):
    """Answers are checked, and the agent goes on until every criterion is met."""

    criteria: list[Criterion] = setting(
        lambda: ["todos_remaining"],
        title="Go on while",
        about="What must be settled before the agent may stop: open todos, a missing completion marker, a judge's no.",
        labels={
            "todos_remaining": "Todos remain",
            "completion_marker": "The completion marker is missing",
            "judge": "A judge is not satisfied",
        },
        min_length=1,
        max_length=3,
    )
    max_iterations: int = setting(
        10, title="Rounds", about="The agent stops after this many rounds even if a criterion is open.", gt=0, le=100
    )
    fresh_context: bool = setting(
        False,
        title="Fresh context",
        about="Each round starts without the history of the rounds before it.",
    )


class Harness(Part):
    """The working frame of an agent: it plans, keeps todos and works in several steps."""

    max_context_window_tokens: int | None = setting(
        None,
        title="Context window",
        about="How many tokens a model call may use in all, question and answer together.",
        unit="tokens",
        placeholder="the model's own limit",
        gt=0,
        le=10_000_000,
    )
    max_output_tokens: int | None = setting(
        None,
        title="Room for the answer",
        about="How many tokens of the context window are kept free for the answer.",
        unit="tokens",
        placeholder="the model's own limit",
        gt=0,
        le=10_000_000,
    )
    maximum_iterations_per_request: int | None = setting(
        None,
        title="Iterations",
        about="How often the model may be called in one run before it ends.",
        unit="per request",
        placeholder="40",
        gt=0,
        le=1000,
    )
    harness_instructions: str | None = setting(
        None,
        title="Harness instructions",
        about="Text that follows the instructions, for example how to plan and when to ask back.",
        kind="long_text",
        max_length=50_000,
    )
    disable_compaction: bool = setting(
        False, title="Disable compaction", about="History is always sent whole, whatever it grows to."
    )
    disable_todo_provider: bool = setting(
        False, title="Disable todos", about="The agent gets no list of todos and no tools to keep one."
    )
    disable_file_memory: bool = setting(
        False, title="Disable file memory", about="The agent keeps no files of its own between sessions."
    )
    disable_agent_skills_provider: bool = setting(
        False, title="Disable skills", about="The agent is not shown any skills."
    )
    disable_agent_mode_provider: bool = setting(
        False,
        title="Disable agent modes",
        about="Without modes there is no plan before execution: tools that change something can be called at once.",
    )
    disable_web_search: bool = setting(
        False, title="Disable web search", about="The provider's own web search is never offered to the model."
    )
    disable_tool_auto_approval: bool = setting(
        False, title="Ask before every tool", about="Every tool call waits for a person unless a standing answer covers it."
    )
    enable_web_search: bool = setting(
        False,
        title="Web search",
        about="The model may use the provider's own web search; each search is paid for and counted.",
    )
    initial_mode: Literal["plan", "execute"] = setting(
        "plan",
        title="First mode",
        about="Where a new session begins: in plan mode only reading tools can be called, in execute mode all of them.",
        labels={"plan": "Plan: ask and propose first", "execute": "Execute: start working"},
    )
    loop: Loop | None = setting(
        None, title="Loop", about="Lets the agent continue by itself until its work meets chosen criteria."
    )
