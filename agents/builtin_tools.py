"""Three small tools that every installation has. They read, reach nothing, and cannot run away."""

import re
from typing import Annotated
from zoneinfo import ZoneInfo

from django.utils import timezone
from pydantic import Field

from agents import arithmetic
from agents.tools import ToolContext, ToolFailed, register_tool

ORIGIN = "built in"
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?…]+(?=[\s\"'”’)\]]|$)|[。！？]+")


@register_tool(effect="read", origin=ORIGIN)
async def current_time(
    context: ToolContext,
    *,
    zone: Annotated[str, Field(description="IANA time zone, for example Europe/Vienna", max_length=64)] = "UTC",
) -> dict:
    """The date, the time and the weekday now, in a time zone."""
    try:
        now = timezone.now().astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        raise ToolFailed(f"There is no time zone {zone!r}. Use an IANA name such as Europe/Vienna or UTC.") from None
    return {"time": now.isoformat(timespec="seconds"), "weekday": now.strftime("%A"), "zone": zone}


@register_tool(effect="read", origin=ORIGIN)
async def calculate(
    context: ToolContext,
    *,
    expression: Annotated[str, Field(description="For example (19.90 * 3 + 4.5) / 2 or sqrt(2)", max_length=2000)],
) -> str:
    """The exact result of an arithmetic expression: + - * / // % **, parentheses, pi, e, abs, ceil, exp, floor, ln, log10, max, min, round, sqrt."""
    try:
        return arithmetic.calculate(expression)
    except arithmetic.CannotCalculate as error:
        raise ToolFailed(str(error)) from None


@register_tool(effect="read", origin=ORIGIN)
async def count_text(
    context: ToolContext, *, text: Annotated[str, Field(description="The text to count", max_length=200_000)]
) -> dict:
    """How many characters, words, sentences and lines a text has."""
    stripped = text.strip()
    sentences = len(_SENTENCE_END.findall(stripped))
    if stripped and not _SENTENCE_END.search(stripped[-3:]):
        sentences += 1
    return {
        "characters": len(text),
        "words": len(_WORD.findall(text)),
        "sentences": sentences,
        "lines": len(text.splitlines()),
    }
