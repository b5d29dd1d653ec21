"""What the checks found: every problem at once, each at the path of the field that carries it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from agents.definition import Definition, normalise

Severity = Literal["error", "warning", "info"]
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Fix:
    """A way out by one click: `set` gives new values by path; None takes a value away."""

    label: str
    set: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`path` is dotted (`parameters.0.name`) and empty for the whole document; `fixes` has the best way out first."""

    severity: Severity
    code: str
    path: str
    message: str
    hint: str = ""
    fixes: tuple[Fix, ...] = ()

    @property
    def fix(self) -> dict | None:
        """The first fix as {"label", "set"}."""
        return asdict(self.fixes[0]) if self.fixes else None

    def as_dict(self) -> dict:
        shown = {"severity": self.severity, "code": self.code, "path": self.path, "message": self.message, "hint": self.hint}
        if self.fixes:
            shown |= {"fix": self.fix, "fixes": [asdict(fix) for fix in self.fixes]}
        return shown


@dataclass(frozen=True, slots=True)
class Report:
    """`definition` is there when the document itself is well formed, also when other errors keep it from running."""

    messages: list[Message]
    definition: Definition | None = None
    # Something could not be judged now, for example because a server did not answer.
    inconclusive: bool = False

    @property
    def valid(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[Message]:
        return [message for message in self.messages if message.severity == "error"]

    @property
    def warnings(self) -> list[Message]:
        return [message for message in self.messages if message.severity == "warning"]

    def at(self, path: str) -> list[Message]:
        """The messages of one field."""
        return [message for message in self.messages if message.path == path]

    def under(self, path: str) -> list[Message]:
        """The messages of a field and everything in it."""
        return [message for message in self.messages if message.path == path or message.path.startswith(f"{path}.")]

    def as_dict(self) -> dict:
        return {
            "valid": self.valid,
            "inconclusive": self.inconclusive,
            "messages": [message.as_dict() for message in self.messages],
        }


@dataclass(slots=True)
class Findings:
    """Collects messages while the rules run. `inconclusive`: something could not be judged now."""

    messages: list[Message] = field(default_factory=list)
    inconclusive: bool = False

    def error(self, code: str, path: str, message: str, hint: str = "", fixes: Iterable[Fix] = ()) -> None:
        self.messages.append(Message("error", code, path, message, hint, tuple(fixes)))

    def warning(self, code: str, path: str, message: str, hint: str = "", fixes: Iterable[Fix] = ()) -> None:
        self.messages.append(Message("warning", code, path, message, hint, tuple(fixes)))

    def info(self, code: str, path: str, message: str, hint: str = "") -> None:
        self.messages.append(Message("info", code, path, message, hint))

    def in_order(self) -> list[Message]:
        """Errors first, then warnings; inside a severity as they were found. Repeated findings count once."""
        seen: dict[tuple, Message] = {}
        for message in sorted(self.messages, key=lambda entry: _ORDER[entry.severity]):
            seen.setdefault((message.code, message.path, message.message), message)
        return list(seen.values())


def apply_fix(document: dict, fix: dict | Fix) -> dict:
    """The normalised document with a fix applied: missing objects on the way are made, None takes a value away."""
    changed = normalise(document)
    for path, value in (fix["set"] if isinstance(fix, dict) else fix.set).items():
        *way, last = path.split(".")
        inner: Any = changed
        for step in way:
            inner = _entered(inner, step)
        if isinstance(inner, list):
            inner[int(last) : int(last) + 1] = [] if value is None else [value]
        elif value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return changed


def _entered(inner: dict | list, step: str) -> dict | list:
    if isinstance(inner, list):
        return inner[int(step)]
    if inner.get(step) is None:
        inner[step] = {}
    return inner[step]
