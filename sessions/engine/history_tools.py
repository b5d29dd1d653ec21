"""Looking back: what compaction left out of the view stays readable for the agent, in the same session only."""

from typing import Any

from agents.definition import Definition
from agents.tools import ToolFailed
from sessions.context.compaction import compaction_of, texts
from sessions.domain import history
from sessions.engine.toolbox import ToolSpec
from sessions.models import Session
from sessions.threads import in_thread

MOST_ITEMS = 40
_SCHEMA = {
    "type": "object",
    "properties": {
        "from_seq": {"type": "integer", "minimum": 1, "description": "Number of the first item"},
        "to_seq": {"type": "integer", "minimum": 1, "description": "Number of the last item"},
        "query": {"type": "string", "minLength": 2, "maxLength": 200, "description": "Words to look for, instead of numbers"},
    },
    "additionalProperties": False,
}
_ABOUT = (
    f"Read earlier items of this conversation that are not shown any more: by their numbers, or those with certain words. "
    f"At most {MOST_ITEMS} items."
)


def build(session: Session | None, definition: Definition) -> list[ToolSpec]:
    """`history_read` for an agent whose history may be compacted, unless its settings keep it from looking back."""
    settings = compaction_of(definition)
    if session is None or settings is None or not settings.keep_dropped:
        return []

    async def read(arguments: dict[str, Any]) -> str:
        if words := arguments.get("query"):
            found = await in_thread(history.mentioning, session=session, words=words, limit=MOST_ITEMS)
        else:
            first, last = _range(arguments)
            found = await in_thread(history.look_back, session=session, first_seq=first, last_seq=last, limit=MOST_ITEMS)
        lines = [f"#{item.seq} {text}" for item in found if (text := texts.line(item))]
        return "\n".join(lines) or "Nothing was found."

    return [ToolSpec("history_read", _ABOUT, _SCHEMA, read)]


def _range(arguments: dict[str, Any]) -> tuple[int, int]:
    first, last = arguments.get("from_seq"), arguments.get("to_seq")
    if first is None and last is None:
        raise ToolFailed("Name the items by from_seq and to_seq, or give a query.")
    first = first if first is not None else max(1, last - MOST_ITEMS + 1)
    last = last if last is not None else first + MOST_ITEMS - 1
    if last < first:
        raise ToolFailed("to_seq comes before from_seq.")
    return first, last
