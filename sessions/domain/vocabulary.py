"""The events of a run, each with what it says: live streams, resumed ones, stored ones, the API's docs and the help
page all speak these words."""

ABOUT = {
    "run.started": "The run works, or works again after a wait: which agent, version and session.",
    "context.assembled": "What the model is about to see, layer by layer, with tokens and what was left out.",
    "message.delta": "A piece of the answer as the model writes it.",
    "message.completed": "An answer of the model, whole.",
    "reasoning.delta": "A piece of what the model thinks, where its provider shows it.",
    "tool.called": "A tool begins to work, with its arguments.",
    "tool.completed": "What a tool answered, and how long it took.",
    "tool.failed": "A tool failed or was refused; the text is what the model reads.",
    "tool.output_truncated": "A result was cut to the longest that the agent's settings allow.",
    "approval.requested": "A call waits for a person's decision.",
    "history.compacted": "Compaction changed the view of the history: what was summarised, shortened or dropped.",
    "memory.recalled": "Something from earlier was found and shown to the model.",
    "memory.written": "Something was kept for later conversations.",
    "aggregation.completed": (
        "Working notes or the summary of a conversation were written, or could not be. Told behind the end of the run that pays for it."
    ),
    "model.fallback_used": "A model did not answer, and another one took its place.",
    "mode.changed": "The session went from planning to executing, or back.",
    "alert": (
        "Something needs attention, by its code: budget_near, loop_suspected, tool_failing, guard_hit, summary_failed, tool_missing, "
        "model_retry, output_limit, answer_is_not_json, judge_failed."
    ),
    "halt": "A fatal alert ended the run, by the code of that alert.",
    "loop.continued": "Something is open after an answer, and the agent begins another round: which criteria.",
    "loop.ended": "The last round is over; what is open then stays open.",
    "child_run.started": "The agent handed a task to another agent.",
    "child_run.completed": "The other agent is done.",
    "run.completed": "The run is over; its status says whether a limit ended it.",
    "run.failed": "The run is over; the error has a class, a code and a sentence.",
    "run.cancelled": "The run is over because somebody stopped it.",
    "run.interrupted": "The run is over because its process died or its session moved on.",
}
TYPES = frozenset(ABOUT)
