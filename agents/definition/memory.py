"""What an agent keeps beyond the conversation, and where it works."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from agents.definition.base import Part, setting
from agents.definition.model import ModelRef

Placement = Literal["instructions", "before_message", "tool"]
_PLACES = {
    "instructions": "In the instructions",
    "before_message": "Before the message",
    "tool": "On request, by a tool",
}
Label = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f/\\]+$")]


class Injection(Part):
    """Where the model meets each kind of memory."""

    facts: Placement | None = setting(
        None, title="Facts", about="Where the model meets facts about the person.", labels=_PLACES, placeholder="Lethe chooses"
    )
    memories: Placement | None = setting(
        None, title="Memories", about="Where the model meets extracted memories.", labels=_PLACES, placeholder="Lethe chooses"
    )
    playbooks: Placement | None = setting(
        None, title="Playbooks", about="Where the model meets playbooks.", labels=_PLACES, placeholder="Lethe chooses"
    )
    knowledge: Placement | None = setting(
        None, title="Knowledge", about="Where the model meets passages of loaded documents.", labels=_PLACES,
        placeholder="Lethe chooses",
    )


class Memory(Part):
    """Which memories an agent has. Everything is off until it is chosen."""

    enable_file_memory: bool = setting(
        False, title="File memory", about="The agent keeps files of its own that outlive the session."
    )
    enable_todo: bool = setting(
        False, title="Todo list", about="The agent keeps a list of todos, shown to it after the history."
    )
    enable_text_search: bool = setting(
        False, title="Text search", about="The agent can search its files by words."
    )
    enable_vector_search: bool = setting(
        False, title="Knowledge search", about="The agent can search loaded documents by meaning and words."
    )
    vector_collections: list[Label] = setting(
        list, title="Collections", about="The collections of documents that the agent may search.", max_length=50
    )
    enable_conversation_memory: bool = setting(
        False, title="Conversation memory", about="What this person said to this agent before can be found again."
    )
    conversation_memory_search: Literal["before_each_turn", "on_demand"] = setting(
        "before_each_turn",
        title="Search",
        about="Whether earlier conversations are searched with every message or when the agent asks.",
        labels={"before_each_turn": "Before each turn", "on_demand": "When the agent asks"},
    )
    conversation_memory_max_results: int = setting(
        3, title="Results", about="How many earlier messages a search may bring back.", ge=1, le=20
    )
    enable_facts: bool = setting(
        False, title="Facts", about="Lasting statements about the person are kept and can be reviewed."
    )
    fact_categories: list[Label] = setting(
        lambda: ["name", "preference", "goal", "circumstance"],
        title="Kinds of facts",
        about="Only facts of these kinds are kept.",
        min_length=1,
        max_length=50,
    )
    unknown_subject_instructions: str | None = setting(
        None,
        title="For a person not known yet",
        about="Added to the instructions when nothing is known about the person as the session starts.",
        kind="long_text",
        max_length=20_000,
    )
    known_subject_instructions: str | None = setting(
        None,
        title="For a known person",
        about="Added to the instructions when facts about the person exist as the session starts.",
        kind="long_text",
        max_length=20_000,
    )
    enable_extraction: bool = setting(
        False, title="Extraction", about="Memories are drawn from conversations after a run."
    )
    extraction_topics: list[Label] = setting(
        list, title="Topics", about="Only memories about these topics are drawn; empty means any topic.", max_length=50
    )
    extraction_model: ModelRef | None = setting(
        None, title="Extraction model", about="The model that draws memories; the agent's own if none is chosen."
    )
    memory_pool: Label | None = setting(
        None,
        title="Shared pool",
        about="Agents that name the same pool share what they learn about a person.",
        placeholder="this agent alone",
    )
    enable_playbooks: bool = setting(
        False, title="Playbooks", about="Ways of doing a task that worked are kept and reused."
    )
    scope: Literal["subject", "agent", "tenant"] = setting(
        "subject",
        title="Scope of files",
        about="Who shares the agent's files: one person, all people of this agent, or all agents of the tenant.",
        labels={"subject": "One person", "agent": "This agent", "tenant": "The whole tenant"},
    )
    injection: Injection = setting(
        Injection, title="Placement", about="Where the model meets each kind of memory."
    )


class Workspace(Part):
    """Files that belong to one session."""

    enabled: bool = setting(False, title="Workspace", about="Each session has files of its own that the agent works on.")
    read_only: bool = setting(False, title="Read only", about="The agent can read the files but not change them.")
    disable_read_approval: bool = setting(
        False, title="Read without asking", about="Reading a file needs no approval; changing one always does."
    )
