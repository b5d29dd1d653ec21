"""The definition of an agent: one document that the API, the editor and the checks are all drawn from."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import JsonValue, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from agents.definition.assembly import Aggregate, LayerCaps, Policy, tidy_kind
from agents.definition.base import Part, setting
from agents.definition.compaction import Compaction
from agents.definition.harness import Harness
from agents.definition.memory import Memory, Workspace
from agents.definition.model import ModelBinding

NAME = r"^[A-Za-z0-9._-]+$"
TOOL_NAME = r"^[A-Za-z0-9_-]+$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NAME)]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=TOOL_NAME)]
# BCP 47 as far as it is used for choosing a text: a language, then scripts, regions, variants.
Culture = Annotated[str, StringConstraints(max_length=35, pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")]
Instructions = Annotated[str, StringConstraints(max_length=200_000)]
Uri = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[A-Za-z0-9._-]{1,64}:\S+$")]


class Parameter(Part):
    """A value that the caller hands over with a run and the instructions mention."""

    name: str = setting(
        title="Name",
        about="As written between the double braces; letters, digits and underscores.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
    )
    kind: Literal["text", "number", "boolean"] = setting(
        "text",
        title="Kind",
        about="What a value must be.",
        labels={"text": "Text", "number": "Number", "boolean": "Yes or no"},
        aliases=("type",),
    )
    required: bool = setting(False, title="Required", about="A run without this value is refused.")
    default: str | int | float | bool | None = setting(
        None, title="Default", about="Stands in when a run does not say.", kind="value"
    )


class ToolSetting(Part):
    """How one tool is used by this agent."""

    max_output_chars: int | None = setting(
        None,
        title="Longest result",
        about="A longer result is cut here, and the cut is marked for the model.",
        unit="characters",
        placeholder="the installation's limit",
        gt=0,
        le=1_000_000,
    )
    timeout_s: float | None = setting(
        None,
        title="Time limit",
        about="A call that takes longer counts as failed.",
        unit="seconds",
        placeholder="30",
        gt=0,
        le=3600,
    )
    approval: Literal["never", "always"] | None = setting(
        None,
        title="Ask a person",
        about="Whether each call waits for a person's approval.",
        labels={"never": "Never", "always": "Always"},
        placeholder="by the tool's effect",
    )


class Sessions(Part):
    """How conversations with this agent behave."""

    version_policy: Literal["follow", "pin"] = setting(
        "follow",
        title="When a new version is published",
        about="Open sessions take the new version with their next run, or stay with the one they began with.",
        labels={"follow": "Open sessions follow", "pin": "Open sessions keep theirs"},
    )
    on_busy: Literal["reject", "enqueue", "interrupt", "rollback"] = setting(
        "reject",
        title="When a turn is still running",
        about="What a second message does while the first is being answered.",
        labels={
            "reject": "Refuse the second message",
            "enqueue": "Wait in line",
            "interrupt": "Stop the first, keep what it said",
            "rollback": "Stop the first, take it back",
        },
    )
    idle_expiry_days: int | None = setting(
        None,
        title="Close when idle",
        about="A session is closed after this many days without a message.",
        unit="days",
        placeholder="never",
        gt=0,
        le=3650,
    )


class Limits(Part):
    """What one run may use. Once spent, no further model or tool call starts."""

    max_tokens_per_run: int | None = setting(
        None, title="Tokens", about="Tokens of all model calls of a run, questions and answers.", unit="per run",
        placeholder="no limit", gt=0, le=1_000_000_000,
    )
    max_cost_per_run: float | None = setting(
        None, title="Cost", about="US dollars that the model calls of a run may cost.", unit="US dollars per run",
        placeholder="no limit", gt=0, le=1_000_000,
    )
    max_seconds_per_run: float | None = setting(
        None, title="Time", about="Seconds that a run may work, without the time it waits for people.", unit="seconds per run",
        placeholder="no limit", gt=0, le=604_800,
    )
    max_tool_calls: int | None = setting(
        None, title="Tool calls", about="How many tools may be called in a run.", unit="per run",
        placeholder="no limit", gt=0, le=100_000,
    )

    @property
    def cost(self) -> Decimal | None:
        """`max_cost_per_run` as exact US dollars."""
        return None if self.max_cost_per_run is None else Decimal(str(self.max_cost_per_run))


class ResponseFormat(Part):
    """The form of the agent's answers."""

    kind: Literal["text", "json", "json_schema"] = setting(
        "text",
        title="Answer as",
        about="Free text, any JSON, or JSON of one exact shape.",
        labels={"text": "Text", "json": "JSON", "json_schema": "JSON with a schema"},
        aliases=("type",),
    )
    json_schema: dict[str, JsonValue] | None = setting(
        None,
        title="Schema",
        about="The JSON schema of the answer; it must describe an object.",
        kind="json",
        aliases=("schema",),
    )

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        return tidy_kind(cls, value)


class Definition(Part):
    """Everything that makes an agent what it is."""

    name: Name = setting(
        title="Name",
        about="How programs call the agent; it cannot be changed later.",
        aliases=("agent_name",),
    )
    display_name: str = setting(
        "", title="Display name", about="How people see the agent.", placeholder="the name", max_length=200
    )
    description: str = setting(
        "",
        title="Description",
        about="What the agent is good for; agents that may call it read this too.",
        kind="long_text",
        max_length=2000,
    )
    instructions: Instructions = setting(
        "",
        title="Instructions",
        about="What the model is told before every conversation; {{parameter}} stands for a value of the run.",
        kind="long_text",
    )
    instructions_by_culture: dict[Culture, Instructions] = setting(
        dict,
        title="Instructions by language",
        about="Used instead when a run names this language or a region of it.",
        kind="long_text",
        max_length=50,
    )
    parameters: list[Parameter] = setting(
        list, title="Parameters", about="The values that a run may or must hand over.", max_length=100
    )
    model: ModelBinding = setting(title="Model", about="Which model answers, and how.")
    tools: list[ToolName] = setting(
        list,
        title="Tools",
        about="The functions that the agent may call.",
        choices_from="tools",
        aliases=("tool_names",),
        max_length=128,
    )
    tool_settings: dict[ToolName, ToolSetting] = setting(
        dict,
        title="Tool settings",
        about="Limits and approval for single tools.",
        choices_from="tools",
        max_length=128,
    )
    skills: list[Name] = setting(
        list,
        title="Skills",
        about="Ready-made ways of working that the agent can open when it needs them.",
        choices_from="skills",
        aliases=("skill_names",),
        max_length=10,
    )
    callable_agents: list[Name] = setting(
        list,
        title="Agents it may call",
        about="Other agents that this one may hand a task to.",
        choices_from="agents",
        aliases=("callable_agent_names",),
        max_length=50,
    )
    mcp_resource_uris: list[Uri] = setting(
        list,
        title="MCP resources",
        about="Texts of MCP servers that are read when a run starts, each written server:uri.",
        max_length=50,
    )
    harness: Harness | None = setting(
        None, title="Harness", about="Todos, modes and a budget around the model; without it the agent simply chats."
    )
    compaction: Compaction | None = setting(
        None, title="Compaction", about="What happens when a conversation grows too long."
    )
    memory: Memory | None = setting(None, title="Memory", about="What the agent keeps beyond one conversation.")
    workspace: Workspace | None = setting(None, title="Workspace", about="Files that belong to one session.")
    layer_caps: LayerCaps = setting(
        LayerCaps, title="Limits of layers", about="How many tokens single parts of a model call may use."
    )
    assembly: list[Policy] = setting(
        list, title="Assembly", about="Steps that decide, in order, what the model sees.", max_length=20
    )
    aggregation: list[Aggregate] = setting(
        list, title="Aggregation", about="What the agent writes down about conversations afterwards.", max_length=20
    )
    sessions: Sessions = setting(Sessions, title="Sessions", about="How conversations with this agent behave.")
    limits: Limits | None = setting(None, title="Limits", about="What one run may use.")
    response_format: ResponseFormat = setting(
        ResponseFormat, title="Answers", about="The form of the agent's answers."
    )
    metadata: dict[str, JsonValue] = setting(
        dict, title="Metadata", about="Your application's own values; Lethe stores and never reads them.", kind="json"
    )

    @field_validator("name")
    @classmethod
    def _names_no_path(cls, value: str) -> str:
        if set(value) == {"."}:
            raise PydanticCustomError("bad_format", "A name cannot consist of dots alone.")
        return value

    def as_document(self) -> dict:
        """The document that is stored and shown: snake_case, defaults left out."""
        from agents.definition.reading import normalise  # noqa: PLC0415 -- reading needs this class

        return normalise(self.model_dump(mode="json"))
