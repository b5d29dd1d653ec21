"""Working memory: the mode and the todos of a session, as text for the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from agents.definition import Definition

MOST_TODOS = 200
LONGEST_TODO = 500
_MODES = {
    "plan": "Mode: plan. Read, ask and propose; tools that change something are refused until the mode is execute.",
    "execute": "Mode: execute. Carry out what was agreed.",
}


def keeps_todos(definition: Definition) -> bool:
    """Whether the agent keeps a list of what is to be done."""
    harness, memory = definition.harness, definition.memory
    return (harness is not None and not harness.disable_todo_provider) or bool(memory and memory.enable_todo)


def todo_lines(todos: Sequence[Mapping[str, Any]]) -> str:
    """One line a todo: "[x] 2 Call the supplier"."""
    return "\n".join(f"[{'x' if todo['done'] else ' '}] {todo['id']} {todo['title']}" for todo in todos)


def text(*, mode: str | None, todos: Sequence[Mapping[str, Any]] | None) -> str:
    """What a turn begins with; empty when the agent has neither modes nor todos. None switches a part off."""
    parts = []
    if mode is not None:
        parts.append(_MODES[mode])
    if todos is not None:
        parts.append(f"Todos:\n{todo_lines(todos)}" if todos else "Todos: none.")
    return "\n".join(parts)
