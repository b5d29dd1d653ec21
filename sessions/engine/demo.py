"""The demo model: fixed rules instead of a language model, so that everything can be tried without a key.

It says that it is a demo, streams, really calls the tools that it is offered, and answers from the conversation it is
shown, so that what a session keeps can be seen. The same input gives the same output. Its work is bounded: it looks at
the newest messages and at the beginning of each.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from sessions.engine import demo_text as text_rules

SIGNATURE = "(Demo model: fixed rules, no language model.)"
# Seconds between two pieces: enough to see it stream, or to cancel it.
_PACE = {"demo-1": 0.004, "demo-1-fast": 0.0, "demo-1-slow": 0.08}
MODELS = tuple(_PACE)
_MOST_MESSAGES, _MOST_CHARACTERS = 60, 20_000


def model(name: str) -> FunctionModel:
    """`demo-1`, `demo-1-fast` (no pauses) or `demo-1-slow` (long ones); any other name is `demo-1`."""
    pace = _PACE.get(name, _PACE["demo-1"])

    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        heard = _heard(messages)
        calls = [] if heard.results else _calls(heard, info)
        if calls:
            for index, (tool, arguments) in enumerate(calls):
                call_id = f"demo_{heard.turn}_{index + 1}"
                yield {index: DeltaToolCall(tool, json.dumps(arguments, ensure_ascii=False), tool_call_id=call_id)}
            return
        for piece in _pieces(_in_form(_answer(heard), info)):
            yield piece
            await asyncio.sleep(pace)

    return FunctionModel(stream_function=speak, model_name=name)


@dataclass
class _Heard:
    """The conversation as the demo understands it: the message to answer, what came before, results of its calls."""

    message: str = ""
    earlier: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    results: list[tuple[str, str, str]] = field(default_factory=list)
    turn: int = 0


def _heard(messages: list[ModelMessage]) -> _Heard:
    heard = _Heard()
    for message in messages[-_MOST_MESSAGES:]:
        if isinstance(message, ModelResponse):
            heard.answers += [part.content for part in message.parts if isinstance(part, TextPart)]
            continue
        assert isinstance(message, ModelRequest)
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                heard.results.append((part.tool_name, str(part.content)[:_MOST_CHARACTERS], part.outcome))
            elif isinstance(part, UserPromptPart) and (said := _said(part)):
                if heard.message:
                    heard.earlier.append(heard.message)
                heard.message, heard.results = said, []
                heard.turn += 1
    return heard


def _said(part: UserPromptPart) -> str:
    """What the person wrote: not the notes that Lethe puts beside it."""
    content = [part.content] if isinstance(part.content, str) else [c for c in part.content if isinstance(c, str)]
    own = [piece for piece in content if not piece.startswith(("<context", "<note"))]
    return "\n".join(own)[:_MOST_CHARACTERS].strip()


# Calling tools

_CITIES = {
    "vienna": "Europe/Vienna", "berlin": "Europe/Berlin", "london": "Europe/London", "paris": "Europe/Paris",
    "new york": "America/New_York", "tokyo": "Asia/Tokyo", "sydney": "Australia/Sydney", "madrid": "Europe/Madrid",
    "zurich": "Europe/Zurich", "delhi": "Asia/Kolkata", "beijing": "Asia/Shanghai", "cairo": "Africa/Cairo",
}  # fmt: skip
_TIME = re.compile(r"\b(?:what(?:'s| is) the (?:time|date)|what time|current (?:time|date)|what day|today's date)\b", re.I)
_ZONE = re.compile(r"\b([A-Z][a-z]+/[A-Z][A-Za-z_]+)\b")
_SUM = re.compile(r"(?<![\w.])[-+]?[\d(][\d\s.()]{0,60}(?:(?:\*\*|//|[-+*/×÷^%])[\d\s.()+-]{1,60}){1,20}")
_IS_SUM = re.compile(r"\d\s*(?:\*\*|//|[-+*/×÷^%])\s*[-+(]*\s*\d")
# A telephone or article number is no sum either.
_IS_NUMBER = re.compile(r"\d+(?:-\d+){2,}|0\d+[-/]\d+")
_COUNT = re.compile(r"\b(?:count|how many)\b[^:\"“]{0,60}\b(?:words?|characters?|letters?|sentences?|lines?)\b", re.I)
_ADD_TODO = re.compile(r"\badd (?:(?:a|an|the|some|this|these) )?(?:todo|to-do|task)s?\b\s*[:\-–]?\s*(?:to )?(.{1,2000})", re.I | re.S)
_DONE_TODO = re.compile(r"\b(?:complete|finish|tick off|mark)\b[^.\d]{0,30}\b(?:todo|to-do|task)s?\b\s*#?([\d ,and#]{1,60})", re.I)
_DROP_TODO = re.compile(r"\b(?:remove|delete|drop)\b[^.\d]{0,30}\b(?:todo|to-do|task)s?\b\s*#?([\d ,and#]{1,60})", re.I)
_SHOW_TODO = re.compile(r"\b(?:list|show|what are)\b[^.]{0,20}\b(?:todo|to-do|task)s?\b|\bmy todos\b", re.I)
_MODE = re.compile(r"\b(?:switch|change|go|set)\b[^.]{0,30}\b(plan|execute|execution)\b", re.I)
_WHICH_MODE = re.compile(r"\b(?:what|which) mode\b", re.I)


def _calls(heard: _Heard, info: AgentInfo) -> list[tuple[str, dict[str, Any]]]:
    """What the message asks for that an offered tool does."""
    offered = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
    found = [(name, rule(heard.message)) for name, rule in _RULES.items() if name in offered]
    calls = [(name, arguments) for name, arguments in found if arguments is not None]
    known = {name for name, _ in calls} | set(_RULES)
    calls += [
        (name, text_rules.arguments_for(schema, heard.message))
        for name, schema in offered.items()
        if name not in known and text_rules.names_tool(heard.message, name)
    ]
    return calls[:8]


def _time(message: str) -> dict | None:
    if not _TIME.search(message):
        return None
    if zone := _ZONE.search(message):
        return {"zone": zone[1]}
    city = next((zone for name, zone in _CITIES.items() if name in message.lower()), None)
    return {"zone": city} if city else {}


def _sum(message: str) -> dict | None:
    # A date is no sum.
    for match in _SUM.finditer(re.sub(r"\b\d{4}-\d\d?-\d\d?\b", " ", message)):
        expression = match[0].strip(" .(+-" if match[0].count("(") != match[0].count(")") else " .")
        if _IS_SUM.search(expression) and not _IS_NUMBER.fullmatch(expression):
            return {"expression": expression}
    return None


def _count(message: str) -> dict | None:
    match = _COUNT.search(message)
    if not match:
        return None
    rest = message[match.end() :]
    behind = rest.partition(":")[2] or rest.lstrip(" ?,.").removeprefix("in ")
    return {"text": text_rules.quoted(message) or behind.strip() or message}


def _add_todo(message: str) -> dict | None:
    match = _ADD_TODO.search(message)
    if not match:
        return None
    titles = [title.strip(" .-*\"“”") for title in re.split(r"[;\n]+", match[1])]
    return {"titles": [title[:500] for title in titles if title][:50]} if any(titles) else None


def _numbers(pattern: re.Pattern) -> Callable[[str], dict | None]:
    def rule(message: str) -> dict | None:
        match = pattern.search(message)
        numbers = [int(number) for number in re.findall(r"\d{1,6}", match[1])] if match else []
        return {"ids": numbers} if numbers else None

    return rule


def _says(pattern: re.Pattern) -> Callable[[str], dict | None]:
    return lambda message: {} if pattern.search(message) else None


def _mode(message: str) -> dict | None:
    match = _MODE.search(message)
    return {"mode": "plan" if match[1].lower() == "plan" else "execute"} if match else None


_RULES: dict[str, Callable[[str], dict | None]] = {
    "current_time": _time,
    "calculate": _sum,
    "count_text": _count,
    "todos_add": _add_todo,
    "todos_complete": _numbers(_DONE_TODO),
    "todos_remove": _numbers(_DROP_TODO),
    "todos_list": lambda message: None if _ADD_TODO.search(message) else _says(_SHOW_TODO)(message),
    "mode_set": _mode,
    "mode_get": _says(_WHICH_MODE),
}


# Answering


def _answer(heard: _Heard) -> str:
    if heard.results:
        body = "\n".join(_reported(*result) for result in heard.results)
    else:
        body = text_rules.reply(heard.message, heard.earlier)
    return f"{body}\n\n{SIGNATURE}"


def _reported(tool: str, result: str, outcome: str) -> str:
    """One result of a tool, in words."""
    if outcome != "success":
        return f"{tool} was not carried out: {result}"
    value = _json(result)
    if tool == "calculate":
        return f"The result is {result}."
    if tool == "current_time" and isinstance(value, dict):
        return f"It is {value.get('weekday')}, {str(value.get('time')).replace('T', ' ')} ({value.get('zone')})."
    if tool == "count_text" and isinstance(value, dict):
        return "The text has " + ", ".join(f"{number} {name}" for name, number in value.items()) + "."
    if tool.startswith("todos_"):
        return f"Your todos:\n{result}" if result.startswith("[") else result
    if tool.startswith("mode_"):
        return f"The mode is {result}." if tool == "mode_get" else result
    return f"{tool} returned: {result[:2000]}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _in_form(answer: str, info: AgentInfo) -> str:
    """The answer as JSON where the agent's definition asks for it."""
    parameters = info.model_request_parameters
    if parameters.output_mode == "native" and parameters.output_object is not None:
        return json.dumps(text_rules.arguments_for(parameters.output_object.json_schema, answer), ensure_ascii=False)
    if "Answer with one JSON value and nothing else" in (info.instructions or ""):
        return json.dumps({"answer": answer}, ensure_ascii=False)
    return answer


def _pieces(text: str) -> list[str]:
    """Two or three words at a time, at most 400 pieces."""
    words = re.findall(r"\S+\s*|\s+", text)
    step = max(3, len(words) // 400 + 1)
    return ["".join(words[index : index + step]) for index in range(0, len(words), step)]
