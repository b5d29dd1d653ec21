"""Between our items and the model library's messages.

Our items are the record; the library's parts are made from them for one call and thrown away. What a provider wants
back verbatim (signatures of its reasoning, of its calls) travels in `raw`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from governance.text import clean, clean_json
from sessions.context.compaction.texts import shortened
from sessions.context.view import Note, View
from sessions.engine.models import Candidate
from sessions.engine.store import ItemView
from sessions.engine.web_search import Search, searches_in

INTERRUPTED = "[interrupted] This call did not finish; it is not known whether it took effect."
WAITING = "[waiting] A person has not decided on this call yet; it has not run."
CUT = "Your answer above was cut off before its end. Go on from where it stopped, without repeating it."
NOT_SHOWN = "Earlier messages of this conversation are not shown."
SUMMARY_TITLE = "Summary of the earlier part of this conversation"

# No provider is sent these; making new ones is most of what a message costs.
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_UNUSED = RequestUsage()

_WIRE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXT_TYPES = re.compile(r"^(?:text/|application/(?:json|xml|yaml|x-yaml|toml|javascript|sql|x-sh)$|.*\+(?:json|xml)$)")
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


# What a model said


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an answer. `arguments` is None when they are not a JSON object; `arguments_text` has them then."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_text: str | None = None
    raw: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    text: str
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """The pieces of an answer in their order: at most one text, thoughts, calls. `parts` are the library's own, `searches`
    what the provider looked up meanwhile."""

    pieces: list[str | Thought | Call]
    parts: list[Any] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)

    @property
    def text(self) -> str:
        return next((piece for piece in self.pieces if isinstance(piece, str)), "")

    @property
    def calls(self) -> list[Call]:
        return [piece for piece in self.pieces if isinstance(piece, Call)]

    @property
    def thoughts(self) -> list[Thought]:
        return [piece for piece in self.pieces if isinstance(piece, Thought)]

    def only_text(self) -> "Said":
        """What is kept of an answer that was cut: half-written calls are not."""
        return Said([self.text] if self.text else [])


def read(parts: Iterable[Any], *, taken: Iterable[str] = ()) -> Said:
    """The library's parts of an answer as ours. Ids that are `taken` in this session, or doubled, are replaced."""
    used = set(taken)
    pieces: list[str | Thought | Call] = []
    texts: list[str] = []
    kept = []
    for part in parts:
        if isinstance(part, TextPart):
            if not texts:
                pieces.append("")
            texts.append(part.content)
        elif isinstance(part, ThinkingPart):
            pieces.append(Thought(clean(part.content), _raw(part)))
        elif isinstance(part, ToolCallPart):
            part = replace(part, tool_call_id=_own_id(part.tool_call_id, used))
            pieces.append(_call(part))
        elif not isinstance(part, NativeToolCallPart | NativeToolReturnPart):
            continue
        kept.append(part)
    text = clean("".join(texts))
    return Said([text if piece == "" else piece for piece in pieces], kept, searches_in(kept))


def _own_id(given: str, used: set[str]) -> str:
    own = clean(given or "call")
    if len(own) > 64:
        own = _hashed(own)
    base, number = own[:56], 1
    while own in used:
        number += 1
        own = f"{base}_{number}"
    used.add(own)
    return own


def _call(part: ToolCallPart) -> Call:
    raw = _raw(part) if part.provider_details else None
    arguments, text = _arguments(part.args)
    return Call(part.tool_call_id, clean(part.tool_name), arguments, text, raw)


def _arguments(given: str | dict[str, Any] | None) -> tuple[dict[str, Any] | None, str | None]:
    """(arguments, None), or (None, what was written) when that is no JSON object that PostgreSQL can store."""
    if not given:
        return {}, None
    text = given if isinstance(given, str) else None
    try:
        value = json.loads(given, strict=False) if isinstance(given, str) else given
        if isinstance(value, dict):
            json.dumps(value, allow_nan=False)
            return clean_json(value), None
    except (ValueError, TypeError, RecursionError):
        pass
    return None, clean(text if text is not None else str(given))


def _raw(part: ThinkingPart | ToolCallPart) -> dict[str, Any]:
    found = {
        "id": part.id,
        "signature": getattr(part, "signature", None),
        "provider_name": part.provider_name,
        "provider_details": part.provider_details,
    }
    return {name: value for name, value in found.items() if value is not None}


# What a model is shown


@dataclass(frozen=True, slots=True)
class Shown:
    """Messages for one call.

    `bare_calls`: a tool call of the current turn goes out without the reasoning that preceded it.
    """

    messages: list[ModelMessage]
    bare_calls: bool = False


def show(
    view: View[ItemView],
    *,
    candidate: Candidate,
    verbatim: Mapping[int, tuple[Candidate, list[Any]]] | None = None,
    waiting: frozenset[str] = frozenset(),
    blobs: Mapping[str, bytes] | None = None,
) -> Shown:
    """The view as messages that obey the rules of every provider.

    Each call is followed by its result, in order; an unanswered one gets [interrupted], or [waiting] if a person is
    being asked (`waiting`); a result without its call is left out. `verbatim` has the parts of answers of this run by
    their group: they go back unchanged to the model that wrote them. Nothing is put in as system text.
    """
    results = _results(chain(view.history, view.current), view.shortened)
    writer = _Writer(candidate, verbatim or {}, waiting, blobs or {}, results)
    if view.summary is not None:
        # A subject's turn: no provider takes a conversation that begins with an answer or a result.
        writer.user([tagged("context", view.summary.text, title=SUMMARY_TITLE)])
    for item in view.history:
        writer.item(item, current=False)
    writer.close_answer()
    for note in view.notes:
        writer.user([_fenced(note)])
    for item in view.current:
        writer.item(item, current=True)
    writer.close_answer()
    return Shown(writer.finished(view.current), writer.bare_calls)


def _results(items: Iterable[ItemView], in_a_line: frozenset[int]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        if item.kind == "tool_result":
            content = item.content
            if item.seq in in_a_line:
                content = {**content, "text": shortened(content, item.seq)}
            found.setdefault(content["id"], content)
    return found


class _Writer:
    def __init__(self, candidate, verbatim, waiting, blobs, results):
        self.candidate, self.verbatim, self.blobs = candidate, verbatim, blobs
        self.waiting = {_wire_id(call_id) for call_id in waiting}
        self.results = {_wire_id(call_id): content for call_id, content in results.items()}
        self.messages: list[ModelMessage] = []
        self.bare_calls = False
        self.group: int | None = None
        self.answer: list[Any] = []
        self.provider_name: str | None = None
        self.calls: list[ToolCallPart] = []
        self.has_thought = False
        self.written: set[str] = set()

    def item(self, item: ItemView, *, current: bool) -> None:
        if item.kind == "tool_result":
            return
        if item.role == "assistant":
            if item.group != self.group:
                self.close_answer()
                self.group = item.group
            self.said(item, current=current)
        else:
            self.close_answer()
            self.user(self.user_content(item))

    def said(self, item: ItemView, *, current: bool) -> None:
        """One piece of an answer."""
        if self.replayed(item):
            return
        if item.kind == "message":
            if item.content.get("text", "").strip():
                self.answer.append(TextPart(item.content["text"]))
        elif item.kind == "reasoning":
            self.thought(item.content)
        elif item.kind == "tool_call" and item.content["id"] not in self.written:
            self.written.add(item.content["id"])
            part = self.call_part(item.content)
            self.answer.append(part)
            self.calls.append(part)
            self.bare_calls |= current and not self.has_thought

    def replayed(self, item: ItemView) -> bool:
        """Take the whole answer from the run's memory, once for its group."""
        author, parts = self.verbatim.get(item.group, (None, []))
        if author != self.candidate:
            return False
        if not self.answer:
            self.answer = [_safe(part) for part in parts if not isinstance(part, TextPart) or part.content.strip()]
            self.calls = [part for part in self.answer if isinstance(part, ToolCallPart)]
            self.has_thought = any(isinstance(part, ThinkingPart) for part in self.answer)
            self.provider_name = next((part.provider_name for part in self.answer if part.provider_name), None)
        return True

    def thought(self, content: dict[str, Any]) -> None:
        raw = content.get("raw") or {}
        mine = content.get("provider") == self.candidate.provider.name and content.get("model") == self.candidate.model
        if not mine or not raw.get("provider_name"):
            return
        self.provider_name = raw["provider_name"]
        self.answer.append(ThinkingPart(content["text"], **raw))
        self.has_thought = True

    def call_part(self, content: dict[str, Any]) -> ToolCallPart:
        raw = content.get("raw") or {}
        arguments = content.get("arguments")
        if "arguments_text" in content:
            # No provider takes broken JSON; the model sees what it wrote.
            arguments = {"invalid_json": content["arguments_text"]}
        part = ToolCallPart(content["name"], arguments or {}, tool_call_id=content["id"])
        if raw.get("provider_details") and raw.get("author") == [self.candidate.provider.name, self.candidate.model]:
            self.provider_name = raw["provider_name"]
            part.provider_name, part.provider_details = raw["provider_name"], raw["provider_details"]
        return _safe(part)

    def close_answer(self) -> None:
        """End the answer that is being written, and answer its calls."""
        if self.answer:
            self.response(self.answer)
        if self.calls:
            self.request([self.result(part) for part in self.calls])
        self.answer, self.calls, self.group = [], [], None
        self.provider_name, self.has_thought = None, False

    def result(self, part: ToolCallPart) -> ToolReturnPart:
        found = self.results.get(part.tool_call_id)
        if found is None:
            text, outcome = WAITING if part.tool_call_id in self.waiting else INTERRUPTED, "interrupted"
        else:
            text, outcome = found["text"], found.get("outcome", "success")
        # An empty result is refused by some servers.
        text = text or "(no output)"
        return ToolReturnPart(part.tool_name, text, part.tool_call_id, outcome=outcome, timestamp=_ANY_TIME)

    def user_content(self, item: ItemView) -> list[UserContent]:
        text = item.content.get("text", "")
        if item.role != "user":
            return [tagged("note", text)]
        parts: list[UserContent] = [text] if text.strip() else []
        for attachment in item.content.get("attachments") or ():
            parts.append(self.attachment(attachment))
        return parts or ["(an empty message)"]

    def attachment(self, attachment: dict[str, Any]) -> UserContent:
        name, media_type = attachment.get("name") or "attachment", attachment.get("media_type", "")
        data = self.blobs.get(attachment["sha256"])
        if data is None:
            return tagged("attachment", "This attachment is no longer there.", name=name)
        if _TEXT_TYPES.match(media_type):
            return tagged("attachment", clean(data.decode("utf-8", "replace")), name=name)
        kind = self.candidate.provider.kind
        if media_type in _IMAGE_TYPES and kind != "demo":
            return BinaryContent(data, media_type=media_type)
        if media_type == "application/pdf" and kind in ("openai", "anthropic", "google"):
            return BinaryContent(data, media_type=media_type)
        return tagged(
            "attachment", f"This model cannot see it ({media_type}, {attachment.get('size', len(data))} bytes).", name=name
        )

    def user(self, content: Sequence[UserContent]) -> None:
        only_text = len(content) == 1 and isinstance(content[0], str)
        self.request([UserPromptPart(content[0] if only_text else list(content), timestamp=_ANY_TIME)])

    def paused(self, current: Sequence[ItemView]) -> bool:
        """Whether the provider is to go on with its last answer, which it gets back as it was."""
        return bool(current) and bool(current[-1].content.get("paused")) and current[-1].group in self.verbatim

    def response(self, parts: list[Any]) -> None:
        # An answer that goes on where one was cut is one answer.
        if self.messages and isinstance(self.messages[-1], ModelResponse):
            parts = [*self.messages.pop().parts, *parts]
        self.messages.append(ModelResponse(parts, usage=_UNUSED, timestamp=_ANY_TIME, provider_name=self.provider_name))

    def request(self, parts: list[Any]) -> None:
        if self.messages and isinstance(self.messages[-1], ModelRequest):
            parts = [*self.messages.pop().parts, *parts]
        self.messages.append(ModelRequest(parts))

    def finished(self, current: Sequence[ItemView]) -> list[ModelMessage]:
        if not self.messages or isinstance(self.messages[0], ModelResponse):
            note = UserPromptPart(tagged("note", NOT_SHOWN), timestamp=_ANY_TIME)
            self.messages.insert(0, ModelRequest([note]))
        if isinstance(self.messages[-1], ModelResponse) and self.paused(current):
            self.messages[-1] = replace(self.messages[-1], state="suspended")
        elif isinstance(self.messages[-1], ModelResponse):
            self.user([tagged("note", CUT)])
        return self.messages


def _wire_id(call_id: str) -> str:
    """Anthropic refuses ids with other characters, which some compatible servers write."""
    return call_id if _WIRE_ID.fullmatch(call_id) else _hashed(call_id)


def _hashed(call_id: str) -> str:
    return f"call_{sha256(call_id.encode()).hexdigest()[:24]}"


def _safe(part: Any) -> Any:
    if not isinstance(part, ToolCallPart) or _WIRE_ID.fullmatch(part.tool_call_id):
        return part
    return replace(part, tool_call_id=_hashed(part.tool_call_id))


def _fenced(note: Note) -> str:
    return tagged("context", note.text, title=note.title)


def tagged(tag: str, text: str, **attributes: str) -> str:
    """Data for the model inside a tag that the data itself cannot close."""
    text = re.sub(rf"</(?={tag})", "&lt;/", text, flags=re.IGNORECASE)
    written = "".join(f' {name}="{value.replace(chr(34), chr(39))}"' for name, value in attributes.items())
    return f"<{tag}{written}>\n{text}\n</{tag}>"
