"""Harness, compaction, memory, workspace and assembly: what contradicts itself, and what would have no effect."""

from agents import queries
from agents.compile.facts import Facts
from agents.compile.not_yet import value_at
from agents.compile.report import Findings, Fix
from agents.definition import INJECTIONS, NEEDS_TRIGGER, REDUCTIONS, SUMMARISES, Definition

# (setting that wants something, switch of the harness that forbids it, sentence, value that gives the wish up)
_CONTRADICTIONS = (
    ("compaction.strategy", "disable_compaction", "Compaction is chosen here and disabled in the harness.", "none"),
    ("memory.enable_file_memory", "disable_file_memory", "File memory is on here and disabled in the harness.", False),
    ("memory.enable_todo", "disable_todo_provider", "The todo list is on here and disabled in the harness.", False),
    ("skills", "disable_agent_skills_provider", "Skills are chosen here and disabled in the harness.", []),
    ("harness.enable_web_search", "disable_web_search", "Web search is both on and disabled in the harness.", False),
)
# Settings that mean nothing while another is off: (setting, what it needs, how to say so).
_DEPENDS = (
    ("memory.vector_collections", "memory.enable_vector_search", "knowledge search"),
    ("memory.unknown_subject_instructions", "memory.enable_facts", "facts"),
    ("memory.known_subject_instructions", "memory.enable_facts", "facts"),
    ("memory.extraction_topics", "memory.enable_extraction", "extraction"),
    ("memory.extraction_model", "memory.enable_extraction", "extraction"),
    ("memory.memory_pool", "memory.enable_extraction", "extraction"),
    ("workspace.read_only", "workspace.enabled", "the workspace"),
    ("workspace.disable_read_approval", "workspace.enabled", "the workspace"),
)
_DEFAULT_OUTPUT = 4096


def check(definition: Definition, facts: Facts, findings: Findings) -> None:
    _contradictions(definition, findings)
    _without_effect(definition, findings)
    _budget(definition, findings)
    _compaction(definition, facts, findings)
    _memory(definition, findings)
    _layer_caps(definition, facts, findings)
    _assembly(definition, findings)
    _aggregation(definition, findings)


def _contradictions(definition: Definition, findings: Findings) -> None:
    harness = definition.harness
    for path, switch, message, give_up in _CONTRADICTIONS:
        if harness and getattr(harness, switch) and value_at(definition, path) not in (None, False, "none", []):
            title = type(harness).model_fields[switch].title
            findings.error(
                "contradiction",
                path,
                message,
                f"Switch off '{title}' in the harness, or this.",
                [Fix(f"Switch off '{title}'", {f"harness.{switch}": False}), Fix("Switch this off", {path: give_up})],
            )


def _without_effect(definition: Definition, findings: Findings) -> None:
    for path, needs, words in _DEPENDS:
        if value_at(definition, path) and not value_at(definition, needs):
            findings.warning("no_effect", path, f"This has no effect while {words} is off.".replace("facts is", "facts are"))
    harness = definition.harness
    if harness and harness.disable_agent_mode_provider and harness.initial_mode != "plan":
        findings.warning("no_effect", "harness.initial_mode", "Without modes there is no first mode.")


def _budget(definition: Definition, findings: Findings) -> None:
    harness = definition.harness
    if harness:
        _window_over_output(
            "harness", harness.max_context_window_tokens, harness.max_output_tokens, findings
        )


def _window_over_output(where: str, window: int | None, output: int | None, findings: Findings) -> None:
    if window and output and window <= output:
        findings.error(
            "window_not_above_output",
            f"{where}.max_output_tokens",
            f"The answer's {output:,} tokens leave nothing of a window of {window:,}.",
            "Make the context window larger, or this smaller.",
        )


def _compaction(definition: Definition, facts: Facts, findings: Findings) -> None:
    compaction = definition.compaction
    if compaction is None:
        if not (definition.harness and definition.harness.disable_compaction):
            findings.warning(
                "no_compaction",
                "compaction",
                "Nothing shortens a long conversation: it is sent whole until it no longer fits the model.",
                "Choose the strategy none if that is meant.",
                [Fix("That is meant", {"compaction.strategy": "none"})],
            )
        return
    _window_over_output("compaction", compaction.max_context_window_tokens, compaction.max_output_tokens, findings)
    triggers = [compaction.trigger_tokens, compaction.trigger_messages, compaction.trigger_turns]
    if compaction.strategy in NEEDS_TRIGGER and not any(triggers):
        findings.error(
            "trigger_missing",
            "compaction.trigger_tokens",
            "Say when compaction starts: at a number of tokens, messages or turns.",
        )
    if compaction.strategy == "context_window" and not compaction.max_context_window_tokens:
        findings.error(
            "window_missing", "compaction.max_context_window_tokens", "This strategy needs the size of the context window."
        )
    _late_trigger(definition, facts, findings)
    _thresholds(definition, findings)
    _summaries(definition, facts, findings)


def _late_trigger(definition: Definition, facts: Facts, findings: Findings) -> None:
    trigger, room = definition.compaction.trigger_tokens, _room(definition, facts)
    if trigger and room is not None and trigger >= room and definition.compaction.strategy != "none":
        early = max(1, room * 4 // 5)
        findings.error(
            "trigger_too_late",
            "compaction.trigger_tokens",
            "Compaction would start too late: no room for the answer is left by then.",
            f"Keep it below {room:,}." if room > 0 else "Make the context window larger first.",
            [Fix(f"Start at {early:,}", {"compaction.trigger_tokens": early})] if room > 1 else [],
        )


def _room(definition: Definition, facts: Facts) -> int | None:
    """Tokens of the window that are left for the question; None when nobody knows the window."""
    harness, binding = definition.harness, definition.model
    provider = facts.providers.get(binding.provider) if binding and binding.provider else None
    limits = queries.model_limits(provider, binding.model) if provider and binding.model else {}
    window = (harness and harness.max_context_window_tokens) or limits.get("context_window")
    output = (
        (harness and harness.max_output_tokens)
        or (binding and binding.max_output_tokens)
        or limits.get("max_output_tokens")
        or _DEFAULT_OUTPUT
    )
    return None if not window else window - output


def _thresholds(definition: Definition, findings: Findings) -> None:
    compaction = definition.compaction
    if compaction.trigger_turns and compaction.minimum_preserved_turns >= compaction.trigger_turns:
        findings.warning(
            "preserved_over_trigger",
            "compaction.minimum_preserved_turns",
            f"Keeping {compaction.minimum_preserved_turns} turns leaves nothing to shorten at {compaction.trigger_turns}.",
            "Keep fewer turns, or start later.",
        )
    if compaction.strategy == "context_window" and compaction.tool_eviction_threshold > compaction.truncation_threshold:
        findings.warning(
            "threshold_order",
            "compaction.tool_eviction_threshold",
            "Entries would be dropped before tool results are shortened.",
            "Make this smaller than the share for dropping entries.",
        )


def _summaries(definition: Definition, facts: Facts, findings: Findings) -> None:
    compaction, path = definition.compaction, "compaction.summarization_model"
    if compaction.strategy not in SUMMARISES or compaction.summarization_model is not None:
        return
    if facts.utility is not None:
        findings.info(
            "summaries_by_utility_model",
            path,
            f"Summaries are written by the utility model: {facts.utility.model} of {facts.utility.provider}.",
        )
        return
    findings.warning(
        "summaries_by_own_model",
        path,
        "Summaries are written by the agent's own model. A smaller one costs less.",
        "Choose one here, or set a utility model for all agents under Providers.",
    )


def _memory(definition: Definition, findings: Findings) -> None:
    memory = definition.memory
    if memory and memory.enable_text_search and not memory.enable_file_memory:
        findings.error(
            "text_search_without_files",
            "memory.enable_text_search",
            "There are no files to search.",
            "Switch on file memory, or switch this off.",
            [
                Fix("Switch on file memory", {"memory.enable_file_memory": True}),
                Fix("Switch this off", {"memory.enable_text_search": False}),
            ],
        )


def _layer_caps(definition: Definition, facts: Facts, findings: Findings) -> None:
    caps, compaction = definition.layer_caps, definition.compaction
    trigger = compaction.trigger_tokens if compaction and compaction.strategy != "none" else None
    if caps.history and trigger and caps.history < trigger:
        findings.warning(
            "cap_below_trigger",
            "layer_caps.history",
            f"The oldest turns are left out at {caps.history:,} tokens, long before compaction starts at {trigger:,}.",
            "Start compaction earlier, or take this limit away.",
            [Fix("Take this limit away", {"layer_caps.history": None})],
        )
    given = [cap for cap in (caps.recall, caps.working_memory, caps.history, caps.summary) if cap]
    room = _room(definition, facts) if given else None
    if room is not None and sum(given) > room:
        findings.warning(
            "caps_over_window",
            "layer_caps",
            f"These limits add up to {sum(given):,} tokens; the model has room for {max(room, 0):,}.",
            "What does not fit is left out all the same: recall first, then working memory, then the oldest turns.",
        )


def _assembly(definition: Definition, findings: Findings) -> None:
    policies = [(number, policy) for number, policy in enumerate(definition.assembly) if policy and policy.kind]
    strategy = definition.compaction and definition.compaction.strategy
    stage = 0
    for number, policy in policies:
        path = f"assembly.{number}"
        own = 0 if policy.kind in INJECTIONS else 2 if policy.kind in REDUCTIONS else 1 if policy.kind == "alert" else None
        if own is not None and own < stage:
            findings.warning(
                "policy_order",
                path,
                "What is added after a reduction is not counted by it, and what is added after alerts is never checked.",
                "Additions come first, then alerts, then reductions.",
            )
        stage = max(stage, own or 0)
        _nothing_to_add(definition, number, policy.kind, findings)
        needs = {"sliding_window": "max_items", "token_budget": "max_tokens"}.get(policy.kind)
        if needs and getattr(policy, needs) is None:
            findings.error("policy_without_limit", f"{path}.{needs}", "Say how much is kept.")
        if policy.kind in REDUCTIONS and strategy not in (None, "none"):
            findings.warning(
                "two_reductions",
                path,
                "The conversation is shortened twice: by this step and by compaction.",
                "Keep one of them.",
                [Fix("Keep compaction", {path: None}), Fix("Keep this step", {"compaction.strategy": "none"})],
            )


def _nothing_to_add(definition: Definition, number: int, kind: str, findings: Findings) -> None:
    """A step that adds a file which nobody writes."""
    writer = {"working_memory": "working_memory", "episodic_memory": "conversation_summary"}.get(kind)
    keeps_files = definition.memory is not None and definition.memory.enable_file_memory
    if writer and not keeps_files and not any(entry and entry.kind == writer for entry in definition.aggregation):
        what = "working notes" if kind == "working_memory" else "summaries of conversations"
        findings.warning(
            "nothing_to_add",
            f"assembly.{number}",
            f"Nothing writes {what}, so there will be none to add.",
            "Add what writes them under Aggregation.",
        )


def _aggregation(definition: Definition, findings: Findings) -> None:
    for number, aggregate in enumerate(definition.aggregation):
        if aggregate and not (aggregate.every_n_turns or aggregate.every_n_items or aggregate.on_end):
            findings.warning(
                "never_fires",
                f"aggregation.{number}",
                "This is never written: nothing triggers it.",
                "Choose a number of turns or entries, or the end of the session.",
                [Fix("At the end", {f"aggregation.{number}.on_end": True})],
            )
