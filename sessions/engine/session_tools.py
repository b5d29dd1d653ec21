"""Lethe's own tools of a session: todos, modes, and the structured data of the task."""

from typing import Any

from agents.tools import ToolFailed
from governance.text import clean
from sessions.context.working_memory import LONGEST_TODO, MOST_TODOS, todo_lines
from sessions.engine.store import Entry, Store
from sessions.engine.toolbox import ToolSpec

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_IDS = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": MOST_TODOS},
    },
    "required": ["ids"],
    "additionalProperties": False,
}


def build(store: Store, *, modes: bool, todos: bool, state: bool) -> list[ToolSpec]:
    """The tools that the switches ask for; those of the task only with a session.

    Todos and modes are the agent's own working memory, so they may change in plan mode; the task belongs to the
    application, so it may not.
    """
    specs: list[ToolSpec] = []
    if todos:
        specs += _todo_tools(store)
    if modes:
        specs += _mode_tools(store)
    if state and store.has_session:
        specs += _task_tools(store)
    return specs


def _todo_tools(store: Store) -> list[ToolSpec]:
    def kept() -> list[dict[str, Any]]:
        return store.state.setdefault("todos", [])

    async def add(arguments: dict[str, Any]) -> str:
        todos = kept()
        titles = [clean(title).strip() for title in arguments["titles"]]
        if len(todos) + len(titles) > MOST_TODOS:
            raise ToolFailed(f"A session has at most {MOST_TODOS} todos. Remove some first.")
        number = max((todo["id"] for todo in todos), default=0)
        todos += [{"id": number + index, "title": title, "done": False} for index, title in enumerate(titles, 1)]
        await store.save_state()
        return todo_lines(todos)

    async def complete(arguments: dict[str, Any]) -> str:
        todos = kept()
        _all_known(todos, arguments["ids"])
        for todo in todos:
            if todo["id"] in arguments["ids"]:
                todo["done"] = True
        await store.save_state()
        return todo_lines(todos)

    async def remove(arguments: dict[str, Any]) -> str:
        todos = kept()
        _all_known(todos, arguments["ids"])
        todos[:] = [todo for todo in todos if todo["id"] not in arguments["ids"]]
        await store.save_state()
        return todo_lines(todos) or "No todos."

    async def show(arguments: dict[str, Any]) -> str:
        return todo_lines(kept()) or "No todos."

    titles = {
        "type": "object",
        "properties": {
            "titles": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_TODO},
                "minItems": 1,
                "maxItems": 50,
                "description": "What is to be done, one short sentence each",
            }
        },
        "required": ["titles"],
        "additionalProperties": False,
    }
    return [
        ToolSpec("todos_add", "Add todos to the list of this session. Returns the whole list.", titles, add),
        ToolSpec("todos_complete", "Mark todos as done, by their numbers. Returns the whole list.", _IDS, complete),
        ToolSpec("todos_remove", "Remove todos, by their numbers. Returns the whole list.", _IDS, remove),
        ToolSpec("todos_list", "The todos of this session: [x] is done.", _NOTHING, show),
    ]


def _all_known(todos: list[dict[str, Any]], ids: list[int]) -> None:
    known = {todo["id"] for todo in todos}
    unknown = [number for number in ids if number not in known]
    if unknown:
        raise ToolFailed(f"There is no todo {', '.join(map(str, unknown))}. Known: {', '.join(map(str, sorted(known))) or 'none'}.")


def _mode_tools(store: Store) -> list[ToolSpec]:
    async def get(arguments: dict[str, Any]) -> str:
        return store.state["mode"]

    async def change(arguments: dict[str, Any]) -> str:
        mode = arguments["mode"]
        if store.state["mode"] == mode:
            return f"The mode is already {mode}."
        store.state["mode"] = mode
        await store.save_state()
        note = Entry("note", "system", {"code": "mode_changed", "text": f"The mode changed to {mode}."})
        await store.add([note], events=[("mode.changed", {"mode": mode})])
        return f"The mode is now {mode}."

    modes = {
        "type": "object",
        "properties": {"mode": {"type": "string", "enum": ["plan", "execute"]}},
        "required": ["mode"],
        "additionalProperties": False,
    }
    about = (
        "Switch between plan (read, ask, propose; tools that change something are refused) and execute (carry out). "
        "Switch to execute once the plan is agreed."
    )
    return [
        ToolSpec("mode_get", "The current mode: plan or execute.", _NOTHING, get),
        ToolSpec("mode_set", about, modes, change),
    ]


def _task_tools(store: Store) -> list[ToolSpec]:
    async def get(arguments: dict[str, Any]) -> Any:
        task = await store.read_task()
        return task.get(arguments["key"]) if "key" in arguments else task

    async def change(arguments: dict[str, Any]) -> Any:
        return await store.patch_task(arguments["patch"])

    key = {
        "type": "object",
        "properties": {"key": {"type": "string", "maxLength": 200, "description": "One entry; all of it when left out"}},
        "additionalProperties": False,
    }
    patch = {
        "type": "object",
        "properties": {
            "patch": {"type": "object", "description": "A JSON merge patch: null removes an entry"},
        },
        "required": ["patch"],
        "additionalProperties": False,
    }
    return [
        ToolSpec("state_get", "The structured data of the current task, shared with the application.", key, get),
        ToolSpec("state_set", "Change the structured data of the current task. Returns it.", patch, change, effect="write"),
    ]
