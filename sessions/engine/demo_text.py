"""What the demo model says without a tool: summaries by extraction, and answers quoted from the conversation."""

import json
import re
from collections import Counter
from typing import Any

_SENTENCE = re.compile(r"[^.!?…。！？\n]+(?:[.!?…。！？]+|(?=\n)|$)")
_WORD = re.compile(r"[^\W\d_]{3,}")
_QUOTED = re.compile(r"\"([^\"]{1,5000})\"|“([^”]{1,5000})”|'([^']{3,5000})'(?!\w)")
_COMMON = frozenset(
    _WORD.findall(
        "the and for with that this from have has had was were are not but you your our their they them his her its will "
        "would could should can may about into over than then when what which who how why where there here also just very "
        "been being does did please"
    )
)
_SUMMARY = re.compile(r"^\W*(?:please |can you |could you )?(?:summari[sz]e|sum up|give (?:me )?a summary)\b", re.I)
_OPEN = re.compile(r"\b(?:unresolved|open|outstanding|unanswered|remaining)\b.{0,20}\b(?:question|point|issue|item)s?\b", re.I)
_NAME = re.compile(r"\bwhat(?:'s| is) my name\b|\bwho am i\b|\bdo you (?:know|remember) my name\b", re.I)
_MY_NAME = re.compile(r"\b(?i:my name is|i am called|call me)\s+([A-Z][\w'-]{1,40})")
_SAID = re.compile(r"\bwhat (?:did|have) i (?:say|said|ask|asked|write|written|tell|told)\b|\b(?:do you )?remember\b.*\?", re.I)
_GREETING = re.compile(r"^\W*(?:hi|hello|hey|good (?:morning|day|evening))\b", re.I)
# What leaves a matter open although nobody put a question mark.
_UNSETTLED = re.compile(
    r"\b(?:not|no|never|nobody|unclear|unsure|missing|waiting|wait|whether|when|need|needs|want|wants|would like|must|"
    r"should|can't|cannot|won't|doesn't|didn't|hasn't|haven't|please|late|broken|wrong|problem|refund|help)\b",
    re.I,
)


def reply(message: str, earlier: list[str]) -> str:
    """The demo's answer to a message that no tool serves; `earlier` are the person's messages before it."""
    if _SUMMARY.search(message):
        return _summary(message, earlier)
    if _OPEN.search(message):
        return _open_points(message, earlier)
    if _NAME.search(message):
        return _name(earlier)
    if _SAID.search(message):
        return _what_was_said(earlier)
    return _default(message, earlier)


def _summary(message: str, earlier: list[str]) -> str:
    own = _body(message)
    if own:
        return f"Summary of your message:\n{_extract([own])}"
    sources = [text for text in earlier if not _SUMMARY.search(text) and not _OPEN.search(text)]
    if not sources:
        return (
            "There is nothing to summarise yet: this conversation holds no earlier message, and yours has no text after "
            "the request. Put the text behind a colon, or send it first."
        )
    return f"Summary of your earlier messages:\n{_extract(sources)}"


def _body(message: str) -> str:
    """The text that a request to summarise brings along: behind a colon, on further lines, or in quotes."""
    head, colon, rest = message.partition(":")
    if colon and len(head) < 200 and len(rest.split()) >= 4:
        return rest.strip()
    first, _, lines = message.partition("\n")
    if len(lines.split()) >= 4:
        return lines.strip()
    sentences = sentences_of(message)
    if len(sentences) > 1 and len(message.split()) > 20:
        return " ".join(sentences[1:])
    return quoted(message) if len(quoted(message).split()) >= 4 else ""


def _extract(texts: list[str]) -> str:
    """The three sentences whose words occur most, in their order."""
    sentences = list(dict.fromkeys(sentence for text in texts for sentence in sentences_of(text)))[:200]
    words = Counter(word for sentence in sentences for word in _words(sentence))

    def weight(sentence: str) -> float:
        own = _words(sentence)
        return sum(words[word] for word in own) / (len(own) + 3) if own else 0.0

    best = set(sorted(sentences, key=weight, reverse=True)[:3])
    return "\n".join(f"- {short(sentence)}" for sentence in sentences if sentence in best)


def _open_points(message: str, earlier: list[str]) -> str:
    sources = [text for text in earlier if not _OPEN.search(text)]
    own = _body(message)
    if own:
        sources.append(own)
    if not sources:
        return "There are no earlier messages in this conversation, so I find no open question."
    sentences = list(dict.fromkeys(sentence for text in sources for sentence in sentences_of(text)))
    questions = [sentence for sentence in sentences if sentence.endswith(("?", "？"))]
    if questions:
        return "Open questions from our conversation so far:\n" + _quotes(questions)
    unsettled = [sentence for sentence in sentences if _UNSETTLED.search(sentence) and not _SUMMARY.search(sentence)]
    if unsettled:
        return "You asked no question outright; these points of yours are still open:\n" + _quotes(unsettled)
    return "I find no open question. What you wrote so far:\n" + _quotes(sources)


def _name(earlier: list[str]) -> str:
    for text in reversed(earlier):
        if match := _MY_NAME.search(text):
            return f"Your name is {match[1]}: you wrote “{short(text, 120)}”."
    return "You have not told me your name in this conversation."


def _what_was_said(earlier: list[str]) -> str:
    if not earlier:
        return "This is your first message in this conversation."
    return "You wrote, oldest first:\n" + _quotes(earlier[-8:])


def _default(message: str, earlier: list[str]) -> str:
    parts = ["Hello! I am Lethe's demo model." if _GREETING.search(message) else "I am Lethe's demo model."]
    parts.append(f"You wrote: “{short(message)}”.")
    if earlier:
        parts.append(f"This is message {len(earlier) + 1} of our conversation; before it you wrote “{short(earlier[-1], 160)}”.")
    parts.append(
        "I can summarise text, list unresolved questions from this conversation, and call the tools I am offered: "
        "calculate, tell the time, count words, keep todos, switch the mode. Choose a real provider for real answers."
    )
    return " ".join(parts)


def _quotes(texts: list[str]) -> str:
    return "\n".join(f"- “{short(text)}”" for text in texts[:12])


def sentences_of(text: str) -> list[str]:
    return [found for match in _SENTENCE.finditer(text) if len(found := " ".join(match[0].split())) > 2]


def quoted(text: str) -> str:
    match = _QUOTED.search(text)
    return next(filter(None, match.groups()), "") if match else ""


def short(text: str, length: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def _words(sentence: str) -> list[str]:
    return [word for word in (found.lower() for found in _WORD.findall(sentence)) if word not in _COMMON]


# Arguments for tools the demo has no rule for


def names_tool(message: str, tool: str) -> bool:
    """Whether the message names the tool, as `send_mail` or as "send mail"."""
    words = re.escape(tool).replace("_", "[_ -]?")
    return re.search(rf"(?<!\w){words}(?!\w)", message, re.I) is not None


def arguments_for(schema: dict[str, Any], message: str) -> dict[str, Any]:
    """Arguments that fit the schema: the JSON object in the message, else required values made from the message."""
    start, end = message.find("{"), message.rfind("}")
    if 0 <= start < end:
        try:
            given = json.loads(message[start : end + 1])
            if isinstance(given, dict):
                return given
        except ValueError:
            pass
    return _object(schema, schema, message, 0)


def _object(schema: dict, root: dict, message: str, depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    return {
        name: _value(properties.get(name) or {}, root, message, depth + 1)
        for name in list(schema.get("required") or ())[:50]
    }


def _value(schema: dict, root: dict, message: str, depth: int) -> Any:
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):
        schema = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"), {})
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        named = [value for value in schema["enum"] if str(value).lower() in message.lower()]
        return (named or schema["enum"])[0]
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _value(choices[0], root, message, depth + 1) if depth < 8 else None
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    number = re.search(r"-?\d{1,9}(?:\.\d{1,6})?", message)
    if kind == "object":
        return _object(schema, root, message, depth) if depth < 8 else {}
    if kind == "array":
        wanted = max(1, int(schema.get("minItems") or 1)) if depth < 8 else 0
        return [_value(schema.get("items") or {}, root, message, depth + 1)] * min(wanted, 20)
    if kind == "integer":
        return int(float(number[0])) if number else int(schema.get("minimum") or 0)
    if kind == "number":
        return float(number[0]) if number else float(schema.get("minimum") or 0)
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    text = quoted(message) or short(message, 500)
    return text[: schema["maxLength"]] if isinstance(schema.get("maxLength"), int) else text
