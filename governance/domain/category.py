"""What a category of personal data is: the contract that every registered handler keeps.

`plan` is the only predicate. Preview, export, erasure and verification select rows through it and through nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

BUCKETS = ("erase", "anonymise", "regenerate", "held", "retained", "shared", "external", "skipped")
# Whoever commits waits until the disk has all that was written ahead of it, by whomever: in small portions it is never much.
CHUNK_ROWS = 250


@dataclass(frozen=True, slots=True)
class Spare:
    """Rows that stay whatever is asked, because a hold covers them: a condition over alias `t`, and its values.
    `until` is a time as text, or None.
    """

    matter: str
    reason: str
    until: str | None
    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A row of a category, by its key as previews show it: the ordering columns joined by colons."""

    category: str
    row_id: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose rows: one subject of one tenant, without those that are spared, by category (see domain/coverage.py), and with
    the keys of rows that go along because they were derived from the subject's alone (see domain/closure.py).
    """

    tenant_id: UUID
    subject_id: UUID
    spared: dict[str, tuple[Spare, ...]] = field(default_factory=dict)
    also: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """At most CHUNK_ROWS neighbouring rows as one snapshot saw them: bounds (both inclusive), counts and hashes.
    `size` is in bytes, here and below.

    `fingerprints` holds 16 bytes a row, in order: 8 of its key, 8 of its version. They tell an added, a changed and a
    vanished row apart without keeping any content.
    """

    number: int
    low: str
    high: str
    rows: int
    size: int
    sha256: str
    fingerprints: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    rows: int = 0
    size: int = 0
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))


@dataclass(frozen=True, slots=True)
class Held:
    """The subject's rows that a scope spares, and why: {"bucket": "held", "rows", "matter", "reason", "until"} for each
    hold. A row may be under several.
    """

    rows: int = 0
    size: int = 0
    grounds: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    id: str
    title: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Erased:
    """What one chunk came to. `rows` were erased or anonymised now; `already_absent` were planned but gone before.
    `held` were planned, and a hold came in between.
    """

    rows: int
    size: int
    already_absent: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """Bytes that belong into an export beside its rows."""

    sha256: str
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Store:
    """Something that keeps bytes. `key` is how the gate recognises it: see governance/inventory.py."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class Table(Store):
    """A table of the database; with its schema in front where that is not the first of the search path."""


class VectorColumn(Store):
    """A column of vectors, "table.column": its index keeps entries of rows that are gone until it is rebuilt."""

    @property
    def key(self) -> str:
        return f"vector:{self.name}"


class BlobPrefix(Store):
    """A folder of the data directory, or a prefix of a bucket, with bytes that rows refer to."""

    @property
    def key(self) -> str:
        return f"folder:{self.name}"


class SpoolDir(Store):
    """A folder of the data directory that files pass through."""

    @property
    def key(self) -> str:
        return f"folder:{self.name}"


class CachePrefix(Store):
    """A cache, by its name in the settings."""

    @property
    def key(self) -> str:
        return f"cache:{self.name}"


class Queue(Store):
    """A queue of messages to workers."""

    @property
    def key(self) -> str:
        return f"queue:{self.name}"


class LogStream(Store):
    """Where log records go, by the name of its handler."""

    @property
    def key(self) -> str:
        return f"log:{self.name}"


@dataclass(frozen=True, slots=True)
class Processing:
    """What a record of processing says about the category. `recipients` keep copies for a declared time; `passed_on` names who
    gets parts of it through what an agent does. `third_party` is the export's rule for text that names others:
    `redact` blanks the category's `redact` columns in rows that are linked to other subjects.
    """

    purposes: tuple[str, ...]
    legal_basis: str
    recipients: tuple[str, ...] = ()
    third_party: Literal["include", "redact", "omit"] = "include"
    sources: tuple[str, ...] = ("the person", "the application that calls Lethe")
    passed_on: tuple[str, ...] = ()

    @property
    def everybody(self) -> tuple[str, ...]:
        """All who receive it."""
        return (*self.recipients, *self.passed_on)


@dataclass(frozen=True, slots=True)
class NoLimit:
    """Why rows may stay without a retention policy, and since when somebody has stood by that."""

    reason: str
    stated_on: date


@dataclass(frozen=True, slots=True)
class EndsAfter:
    """Rows end by themselves after so many days. `how` names what removes them."""

    days: int
    how: str


class Drift(Exception):
    """Rows in a chunk that the plan did not know: somebody wrote past the guard."""

    def __init__(self, category: str, rows: int):
        self.category = category
        self.rows = rows
        super().__init__(f"{category}: {rows} rows were not in the plan")


class Category(ABC):
    """One kind of personal data. Derive from this, or declare a `TableCategory` for one table.

    A category that leaves out one of the abstract methods cannot be made, so the process that declares it does not start.

    `erase` runs in the caller's transaction, opens none, calls no network and sends no signal. A failure raises;
    nothing is swallowed, and a missing answer is not an answer.
    """

    key: str
    title: str
    about: Processing
    method: Literal["delete", "anonymise"] = "delete"
    stores: tuple[Store, ...] = ()
    # Dotted names of what inserts here: functions, classes or modules. The test of races tries them against an eraser.
    writers: tuple[str, ...] = ()
    erase_after: tuple[str, ...] = ()
    # Clocks that retention may use, and the column each reads: {"ended": "ended_at"}.
    ages: dict[str, str] = {}
    # (key of the parent category, own column that holds the parent's id): these rows go along with their parent.
    group_of: tuple[str, str] | None = None
    limit: NoLimit | EndsAfter | None = None
    # Under a hold, rows refuse to change, or are copied before they do. "exempt": no evidence, only bookkeeping of
    # running work; a hold does not keep it.
    on_hold: Literal["refuse", "copy", "exempt"] = "refuse"
    # Goes after everything else: what names the subject is needed until nothing of it is left.
    is_last: bool = False
    # The database refuses writes for a fenced subject: see governance/triggers.py.
    is_guarded: bool = True
    # Rows can be hidden and rebuilt without a person: see `hide` and `regenerate`.
    can_regenerate: bool = False

    @abstractmethod
    def plan(self, *, scope: Scope) -> Iterator[Chunk]:
        """The rows of the scope, in order, cut into chunks. Reads one snapshot when the caller opened one."""

    @abstractmethod
    def sample(self, *, scope: Scope, limit: int = 20) -> list[Sample]:
        """The first rows of the plan, for a person to look at."""

    @abstractmethod
    def export(self, *, scope: Scope) -> Iterator[dict[str, Any]]:
        """The rows as JSON objects, in the order of the plan."""

    @abstractmethod
    def erase(self, *, scope: Scope, chunk: Chunk) -> Erased:
        """Erase exactly the chunk's rows. Raises Drift, and thereby undoes the batch, when an unknown row is among them."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of what `export` yields."""
        return {"type": "object"}

    def load(self, *, rows: Iterable[dict[str, Any]], scope: Scope, files: Callable[[str, str], bytes]) -> int | None:
        """Store exported rows again, for the scope's subject. None: such rows belong to the installation that made them."""
        return None

    @abstractmethod
    def verify(self, *, scope: Scope) -> int:
        """How many rows any read path still finds, beside those that the scope spares."""

    def held(self, *, scope: Scope) -> Held:
        """What the scope spares."""
        return Held()

    def unattributed(self, *, tenant_id: UUID) -> int:
        """Rows of the tenant that name no subject."""
        return 0

    def files(self, *, scope: Scope) -> Iterator[File]:
        """Bytes that an export carries beside the rows."""
        return iter(())

    def whole(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row for the archive, {column: value}, with the bytes of it that lie elsewhere."""
        return row

    def quiesce(self, *, scope: Scope, deadline: datetime) -> int:
        """Stop what is writing rows here (running work, queued jobs). Returns how many still run at the deadline."""
        return 0

    def effects(self, *, scope: Scope) -> dict[str, int]:
        """What the subject's rows have caused outside, which no erasure takes back: times by tool."""
        return {}

    def move(self, *, source: Scope, target: Scope) -> int:
        """Give all rows of one subject to another, in the caller's transaction. Returns how many. What is not moved is
        found by `verify`, and then nothing is.
        """
        return 0

    def alive(self, *, tenant_id: UUID, ids: list[str], not_of: UUID | None = None) -> set[str]:
        """Which of these keys are rows of the tenant, hidden ones included; with `not_of`, without that subject's own."""
        return set()

    def hide(self, *, tenant_id: UUID, ids: list[str]) -> int:
        """Take derived rows out of every read path until they are rebuilt or deleted. Rows that are hidden stay so."""
        raise TypeError(f"Rows of {self.key} are not hidden.")

    def regenerate(self, *, tenant_id: UUID, row_id: str, sources: list[Any]) -> None:
        """Rebuild a hidden row from these sources (lineage.Source) and nothing else, note them as its lineage, and show
        it again. Opens its own transaction. Raises when it cannot.
        """
        raise TypeError(f"Rows of {self.key} are not rebuilt.")

    def delete_rows(self, *, tenant_id: UUID, ids: list[str]) -> int:
        """Delete rows by key, in the caller's transaction. Returns how many there were."""
        raise TypeError(f"Rows of {self.key} are not deleted one by one.")

    def rehome(self, *, tenant_id: UUID, ids: list[UUID]) -> None:  # noqa: B027 -- most rows are not shared
        """Move what living rows share with these out of them, before they are deleted with all that goes along."""

    def count(self, *, plan: list[Chunk]) -> Counts:
        """Rows and bytes of a plan, by bucket."""
        counts = Counts(rows=sum(chunk.rows for chunk in plan), size=sum(chunk.size for chunk in plan))
        counts.buckets["anonymise" if self.method == "anonymise" else "erase"] = counts.rows
        return counts
