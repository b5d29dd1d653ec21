"""Files for the model: the workspace of its session, and what its agent keeps between sessions. One set of tools, two areas."""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Protocol

from agents.definition import Definition
from agents.tools import ToolFailed
from governance.errors import LetheError
from governance.text import clean_json
from sessions.context import tokens
from sessions.context.view import WORKSPACE, Note
from sessions.domain import workspace
from sessions.engine.toolbox import ToolSpec
from sessions.errors import EditRefused, FileChanged, FileUnknown
from sessions.files import editing, looking, paths, stores
from sessions.files.rows import RowFiles, Writer
from sessions.models import Run
from sessions.threads import in_thread

MOST_LISTED = 500
MOST_IN_CONTEXT = 100


class Area(Protocol):
    """Blocking. What is refused raises LetheError."""

    def path(self, text: str) -> str:
        """The path that the model means, as the other calls take it."""
        ...

    def listing(self, folder: str) -> list[tuple[str, int]]: ...

    def texts(self, folder: str) -> Sequence[tuple[str, str]]: ...

    def read(self, path: str) -> tuple[str, str]:
        """The text and its version."""
        ...

    def write(self, path: str, text: str, expected: str | None) -> str: ...

    def delete(self, path: str) -> None: ...


class WorkspaceArea:
    def __init__(self, run: Run, writer: Writer):
        self.session, self.writer = run.session, writer

    def path(self, text: str) -> str:
        return paths.relative(text)

    def listing(self, folder: str) -> list[tuple[str, int]]:
        return [(file.path, file.size) for file in workspace.files(session=self.session, below=folder)[:MOST_LISTED]]

    def texts(self, folder: str) -> Sequence[tuple[str, str]]:
        return workspace.texts(session=self.session, below=folder)

    def read(self, path: str) -> tuple[str, str]:
        found = workspace.read(session=self.session, path=path)
        return found.content, found.sha256

    def write(self, path: str, text: str, expected: str | None) -> str:
        return workspace.write(session=self.session, path=path, text=text, expected=expected, writer=self.writer).sha256

    def delete(self, path: str) -> None:
        workspace.delete(session=self.session, path=path)


class MemoryArea:
    def __init__(self, files: RowFiles):
        self.files = files

    def path(self, text: str) -> str:
        return paths.absolute(text)

    def listing(self, folder: str) -> list[tuple[str, int]]:
        return self.files.sizes(paths.folder(folder), MOST_LISTED)

    def texts(self, folder: str) -> Sequence[tuple[str, str]]:
        return self.files.texts(paths.folder(folder), looking.MOST_BYTES)

    def read(self, path: str) -> tuple[str, str]:
        return self.files.read_version(path)

    def write(self, path: str, text: str, expected: str | None) -> str:
        stores.seed(self.files)
        return self.files.write(path, text, expected)

    def delete(self, path: str) -> None:
        if not self.files.delete(path):
            raise FileUnknown


def build(run: Run, definition: Definition) -> list[ToolSpec]:
    """The file tools that the definition asks for. None in a run without a session, which leaves nothing behind."""
    if run.session is None:
        return []
    specs: list[ToolSpec] = []
    writer = Writer(f"agent {run.agent.name}", run.id, run.subject_id)
    if (settings := definition.workspace) is not None and settings.enabled:
        specs += _tools(
            WorkspaceArea(run, writer), "file_access", where="in the workspace of this conversation", has_lines=True,
            reads_ask=not settings.disable_read_approval, writes_ask=True, read_only=settings.read_only,
        )  # fmt: skip
    if (memory := definition.memory) is not None and memory.enable_file_memory:
        specs += _memory_tools(run, definition, writer)
    return specs


def _memory_tools(run: Run, definition: Definition, writer: Writer) -> list[ToolSpec]:
    memory = definition.memory
    shelf = stores.shelf(tenant_id=run.tenant_id, agent_id=run.agent_id, subject_id=run.subject_id, scope=memory.scope)
    if shelf is None:
        # Files of one person, and nobody says who is speaking.
        return []
    files = stores.open_files(shelf, writer)
    asks = bool(definition.harness and definition.harness.disable_tool_auto_approval)
    specs = _tools(
        MemoryArea(files), "file_memory", where="that you keep between conversations", has_lines=False, reads_ask=asks, writes_ask=asks,
        read_only=False,
    )  # fmt: skip
    return [*specs, _search(files, asks)] if memory.enable_text_search else specs


def listing_note(run: Run, definition: Definition, family: str) -> list[Note]:
    """What is in the session's workspace as the turn begins: after a pause or a restart the model knows its files."""
    if run.session is None or definition.workspace is None or not definition.workspace.enabled:
        return []
    found = workspace.files(session=run.session)
    if not found:
        return []
    lines = [f"{file.path} ({file.size:,} bytes)" for file in found[:MOST_IN_CONTEXT]]
    if len(found) > MOST_IN_CONTEXT:
        lines.append(f"and {len(found) - MOST_IN_CONTEXT} more")
    text = "\n".join(lines)
    sources = tuple(file.path for file in found[:MOST_IN_CONTEXT])
    return [Note(WORKSPACE, "Files in the workspace when this turn began", text, tokens.count(text, family) + 12, sources, own=True)]


def _tools(area: Area, prefix: str, *, where: str, has_lines: bool, reads_ask: bool, writes_ask: bool, read_only: bool) -> list[ToolSpec]:
    seen: dict[str, str] = {}

    def remembered(path: str) -> str:
        path = area.path(path)
        text, seen[path] = area.read(path)
        return text

    def ls(folder: str = "") -> str:
        return "\n".join(f"{path}\t{size:,} bytes" for path, size in area.listing(folder)) or "No files."

    def read(path: str) -> str:
        return remembered(path)

    def read_lines(path: str, first: int, last: int) -> str:
        return editing.numbered(remembered(path), first, last)

    def grep(pattern: str, folder: str = "", ignore_case: bool = True) -> str:
        found = looking.grep(area.texts(folder), pattern, ignore_case=ignore_case)
        return "\n".join(f"{line.path}:{line.number}: {line.text}" for line in found) or "Nothing was found."

    def write(path: str, content: str, overwrite: bool = True) -> str:
        path = area.path(path)
        try:
            # Whoever has read a file replaces what was read, not what somebody else made of it since.
            seen[path] = area.write(path, content, seen.get(path) if overwrite else "")
        except FileChanged:
            if overwrite:
                raise
            raise EditRefused(f"There is a file {path} already, and overwrite is false.") from None
        return f"Written: {path}, {len(content.encode()):,} bytes."

    def replace(path: str, old: str, new: str, everywhere: bool = False) -> str:
        path = area.path(path)
        text, version = area.read(path)
        changed, count = editing.replace(text, old, new, everywhere=everywhere)
        seen[path] = area.write(path, changed, version)
        return f"Replaced {count} time{'s' if count != 1 else ''} in {path}."

    def replace_lines(path: str, first: int, last: int, content: str) -> str:
        path = area.path(path)
        text, version = area.read(path)
        # Lines were counted in what was read.
        seen[path] = area.write(path, editing.replace_lines(text, first, last, content), seen.get(path, version))
        return f"Lines {first} to {last} of {path} are replaced."

    def delete(path: str) -> str:
        path = area.path(path)
        area.delete(path)
        seen.pop(path, None)
        return f"Deleted: {path}."

    reading: list[tuple[str, str, dict[str, Any], list[str], Callable[..., str]]] = [
        ("ls", f"List the files {where}, with their sizes.", {"folder": _FOLDER}, [], ls),
        ("read", f"Read a file {where}.", {"path": _PATH}, ["path"], read),
        ("grep", f"Find lines in the files {where} by a regular expression. At most {looking.MOST_LINES}.",
         {"pattern": _text("A regular expression", 500), "folder": _FOLDER, "ignore_case": {"type": "boolean", "default": True}},
         ["pattern"], grep),
    ]  # fmt: skip
    if has_lines:
        reading.insert(2, (
            "read_lines", f"Read some lines of a file {where}, with their numbers.", {"path": _PATH, "first": _LINE, "last": _LINE},
            ["path", "first", "last"], read_lines,
        ))  # fmt: skip
    changing: list[tuple[str, str, dict[str, Any], list[str], Callable[..., str]]] = [
        ("write", f"Write a file {where}: the whole text. Folders come by themselves.",
         {"path": _PATH, "content": {"type": "string"}, "overwrite": {"type": "boolean", "default": True}}, ["path", "content"], write),
        ("replace", f"Replace a text in a file {where}: it has to be there once, or all are replaced.",
         {"path": _PATH, "old": _text("The text as it is, exactly", 100_000), "new": {"type": "string"},
          "everywhere": {"type": "boolean", "default": False}}, ["path", "old", "new"], replace),
        ("replace_lines", f"Replace lines of a file {where}, by their numbers. An empty content deletes them; last = first - 1 inserts.",
         {"path": _PATH, "first": _LINE, "last": {"type": "integer", "minimum": 0}, "content": {"type": "string"}},
         ["path", "first", "last", "content"], replace_lines),
        ("delete", f"Delete a file {where}.", {"path": _PATH}, ["path"], delete),
    ]  # fmt: skip
    specs = [_spec(prefix, entry, effect="read", asks=reads_ask) for entry in reading]
    if not read_only:
        specs += [_spec(prefix, entry, effect="destructive" if entry[0] == "delete" else "write", asks=writes_ask) for entry in changing]
    return specs


def _spec(prefix: str, entry: tuple, *, effect: str, asks: bool) -> ToolSpec:
    name, about, properties, required, function = entry
    return ToolSpec(f"{prefix}_{name}", about, _object(properties, required), _told(function), effect=effect, asks=asks)


def _search(files: RowFiles, asks: bool) -> ToolSpec:
    def search(query: str, folder: str = "", max_results: int = 10) -> list[dict[str, Any]]:
        found = looking.search(files, query, folder=paths.folder(folder), limit=max_results)
        return [{"path": line.path, "line": line.number, "score": line.score, "text": line.text} for line in found]

    properties = {
        "query": _text("Words to look for", 500), "folder": _FOLDER,
        "max_results": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    }  # fmt: skip
    about = "Find what you wrote down: the lines of your files that fit these words best, best first, with path, line and score."
    return ToolSpec("file_memory_search", about, _object(properties, ["query"]), _told(search), asks=asks)


def _told(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """In a database thread; what is refused or cannot be reached becomes a sentence for the model, and the run goes on."""

    @wraps(function)
    async def run(arguments: dict[str, Any]) -> Any:
        try:
            return await in_thread(function, **clean_json(arguments))
        except LetheError as error:
            raise ToolFailed(error.detail) from error

    return run


def _text(about: str, most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": about}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_PATH = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "For example notes/plan.md"}
_FOLDER = {"type": "string", "maxLength": 1000, "description": "Only files in this folder; all of them when left out"}
_LINE = {"type": "integer", "minimum": 1}
