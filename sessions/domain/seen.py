"""The texts behind the layers of a context report: what the model was shown, read from where it is kept.

Nothing is stored twice for this. Tools come from the version that the run followed, and so do instructions that nothing
was filled into; summaries and items come from their rows and files as they are now. The session's own notes are in the
report, and what is the same in all calls of a run in the report of the first. What was erased since is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agents import tools as registry
from agents.definition import Definition, normalise
from governance.domain.expiry import left
from governance.errors import NotFound
from sessions.context.compaction import texts
from sessions.context.view import CHANGING, HISTORY, INSTRUCTIONS, MESSAGE, SUMMARY, TOOLS
from sessions.domain import aggregations, definitions, history
from sessions.files import stores
from sessions.files.rows import Writer
from sessions.models import ModelCall, Run, Summary

MOST_ITEMS = 200
_CALLS_AT_ONCE = 20
# What the calls after a run have read: for a summary, for notes.
_READ_AFTERWARDS = ("summarised", "written_down")
SHORTENED_REASON = "shortened to one line each"


@dataclass(frozen=True, slots=True)
class Piece:
    """`source` is a number of an item, the name of a tool, a range, a path, or "call" for what the report itself keeps."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Behind:
    """The pieces of one layer. `is_cut` when there are more than are read at once; the first ones are given."""

    layer: str
    pieces: list[Piece]
    is_cut: bool = False


def behind(*, run: Run, number: int, layer: str) -> Behind:
    """What stands behind a layer of the run's call `number`. Raises NotFound."""
    call = left(ModelCall.objects.filter(run_id=run.id, number=number), tenant_id=run.tenant_id).first()
    report = next((entry for entry in call.context if entry.get("layer") == layer), None) if call else None
    if report is None:
        raise NotFound
    if layer in (HISTORY, MESSAGE, *_READ_AFTERWARDS):
        found = list(_items(run, report))
        return Behind(layer, found[:MOST_ITEMS], len(found) > MOST_ITEMS)
    if layer not in (*CHANGING, TOOLS, SUMMARY) and "text" not in report:
        report = {**report, "text": _text_of_first(run, number, layer)}
    reader = {INSTRUCTIONS: _instructions, TOOLS: _tools, SUMMARY: _summary}.get(layer, _notes)
    return Behind(layer, list(reader(run, report)))


def _text_of_first(run: Run, number: int, layer: str) -> str:
    """The text of a layer that did not change since an earlier call. A run that went on elsewhere has a first call there."""
    earlier = left(ModelCall.objects.filter(run_id=run.id, number__lt=number), tenant_id=run.tenant_id).order_by("-number")
    contexts = earlier.values_list("context", flat=True).iterator(_CALLS_AT_ONCE)
    kept = (entry.get("text") for context in contexts for entry in context if entry.get("layer") == layer)
    return next(filter(None, kept), "")


def _definition(run: Run) -> Definition:
    return Definition.model_validate(normalise(run.version.document if run.version else run.document or {}))


def _instructions(run: Run, report: dict) -> Iterator[Piece]:
    """As the model read them: with parameters filled in, in the language that was asked for."""
    if report["text"]:
        yield Piece("call", report["text"])
        return
    text = definitions.as_written(_definition(run))
    if text:
        yield Piece("definition", text)


def _tools(run: Run, report: dict) -> Iterator[Piece]:
    for name in report.get("sources") or ():
        tool = registry.get(name)
        yield Piece(name, tool.description if tool is not None else "")


def _summary(run: Run, report: dict) -> Iterator[Piece]:
    owners = [owner for owner, _, _ in history.segments(run.session)] if run.session else []
    for source in report.get("sources") or ():
        first, last = _range(source)
        stored = Summary.objects.filter(
            session_id__in=owners, tenant_id=run.tenant_id, from_seq=first, to_seq=last, is_stale=False, failure=""
        )
        text = stored.order_by("-created_at").values_list("text", flat=True).first()
        if text:
            yield Piece(source, text)


def _items(run: Run, report: dict) -> Iterator[Piece]:
    if run.session is None:
        return
    in_a_line = [
        _range(part)
        for entry in report.get("left_out") or ()
        if entry.get("reason") == SHORTENED_REASON
        for part in str(entry.get("items") or "").split(", ")
    ]
    left = MOST_ITEMS + 1
    for source in report.get("sources") or ():
        first, last = _range(source)
        for item in history.look_back(session=run.session, first_seq=first, last_seq=last, limit=left):
            is_line = item.kind == "tool_result" and any(low <= item.seq <= high for low, high in in_a_line)
            text = texts.shortened(item.content, item.seq) if is_line else texts.line(item)
            if text:
                left -= 1
                yield Piece(str(item.seq), text)
        if left <= 0:
            return


def _notes(run: Run, report: dict) -> Iterator[Piece]:
    if report.get("text"):
        yield Piece("call", report["text"])
    paths = [source for source in report.get("sources") or () if source.startswith("/")]
    if not paths:
        return
    shelf = aggregations.shelf_of(
        tenant_id=run.tenant_id, agent_id=run.agent_id, subject_id=run.subject_id, definition=_definition(run)
    )
    files = stores.open_files(shelf, Writer("Lethe")) if shelf is not None else None
    for path in paths:
        text = files.read(path) if files is not None else None
        if text is not None:
            # As it is now: an agent keeps one version of a file.
            yield Piece(path, text)


def _range(source: str) -> tuple[int, int]:
    first, _dash, last = source.partition("-")
    return int(first), int(last or first)
