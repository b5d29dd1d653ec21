"""A plan: the exact rows that an erasure would take, in chunks, and how two plans differ.

A plan of any size takes little memory: what tells its rows apart, 16 bytes for each, lies in a file without a name until the
database has it, and two plans are compared as they are read. Only what a hold keeps is in memory, row by row.
"""

import hashlib
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from typing import Any

from governance.domain import closure, registry
from governance.models import PlanChunk, SubjectRequest

_IN_MEMORY = 1024 * 1024
# A chunk has up to 4 kB.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Planned:
    """One category of a plan: its chunks, what they add up to, and some rows to look at.

    `kept` has the fingerprints of what a hold keeps out of the chunks, one after the other.
    """

    category: registry.Category
    chunks: list[registry.Chunk]
    counts: registry.Counts
    samples: list[registry.Sample]
    grounds: tuple[dict[str, Any], ...] = ()
    kept: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    epoch: int
    categories: list[Planned]
    unattributed: int
    derived: closure.Closure = field(default_factory=closure.Closure)

    @property
    def digest(self) -> str:
        mixed = (f"{key}|mixed|{row_id}" for key, rows in self.derived.mixed.items() for row_id in rows)
        lines = (
            f"{planned.category.key}|{chunk.number}|{chunk.low}|{chunk.high}|{chunk.rows}|{chunk.sha256}"
            for planned in self.categories
            for chunk in planned.chunks
        )
        kept = (f"{planned.category.key}|kept|{hashlib.sha256(planned.kept).hexdigest()}" for planned in self.categories if planned.kept)
        return "sha256:" + hashlib.sha256("\n".join([*lines, *mixed, *kept]).encode()).hexdigest()


class Prints:
    """Where the fingerprints of a plan's chunks lie until the plan is stored. The file has no name and ends with this."""

    def __init__(self):
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 -- closed with the last chunk
        weakref.finalize(self, self._file.close)

    def keep(self, chunk: registry.Chunk) -> registry.Chunk:
        """The chunk, with its fingerprints read when they are asked for."""
        place, prints = self._file.seek(0, 2), bytes(chunk.fingerprints)
        self._file.write(prints)
        return replace(chunk, fingerprints=_Kept(self, place, len(prints)))

    def read(self, place: int, length: int) -> bytes:
        self._file.seek(place)
        return self._file.read(length)


@dataclass(frozen=True, slots=True)
class _Kept:
    prints: Prints
    place: int
    length: int

    def __bytes__(self) -> bytes:
        return self.prints.read(self.place, self.length)


def store(request: SubjectRequest, plan: Plan) -> None:
    """Replace the request's plan."""
    PlanChunk.objects.filter(request=request).delete()
    for planned in plan.categories:
        add(request, planned.category.key, planned.chunks)
        if planned.kept:
            _add_kept(request, planned)


def _add_kept(request: SubjectRequest, planned: Planned) -> None:
    PlanChunk.objects.create(
        request=request, tenant_id=request.tenant_id, subject_id=request.subject_id, category=planned.category.key,
        number=len(planned.chunks), rows=len(planned.kept) // 16, sha256=hashlib.sha256(planned.kept).hexdigest(),
        fingerprints=planned.kept, is_kept=True,
    )  # fmt: skip


def add(request: SubjectRequest, category: str, chunks: Iterable[registry.Chunk], *, start: int = 0) -> int:
    """Add chunks to the request's plan, numbered from `start`. Returns how many rows they have."""
    rows, chunks = 0, iter(chunks)
    while some := list(islice(chunks, _AT_ONCE)):
        made = [
            PlanChunk(
                request=request,
                tenant_id=request.tenant_id,
                subject_id=request.subject_id,
                category=category,
                number=start + chunk.number,
                low=chunk.low,
                high=chunk.high,
                rows=chunk.rows,
                bytes=chunk.size,
                sha256=chunk.sha256,
                fingerprints=bytes(chunk.fingerprints),
            )
            for chunk in some
        ]
        PlanChunk.objects.bulk_create(made)
        rows += sum(chunk.rows for chunk in made)
    return rows


def difference(request: SubjectRequest, plan: Plan) -> list[dict[str, Any]]:
    """What was added or changed since the request's plan was stored: [{"key", "added", "changed"}]. Rows that went are no
    difference: less is left to erase. Nor are rows that a hold was put on or taken off: they were shown either way.
    """
    found = []
    known_rebuilt = closure.stored(request).rebuilt
    for planned in plan.categories:
        key = planned.category.key
        stored = PlanChunk.objects.filter(request=request, category=key).order_by("number").values_list("fingerprints", flat=True)
        now = chain((chunk.fingerprints for chunk in planned.chunks), [planned.kept])
        new, changed = _apart(stored.iterator(chunk_size=_AT_ONCE), now)
        added = len(new) + len(set(plan.derived.rebuilt.get(key, {})) - set(known_rebuilt.get(key, {})))
        if added or changed:
            found.append({"key": key, "added": added, "changed": changed})
    return found


def beside(chunks: Iterable[registry.Chunk], whole: Iterable[registry.Chunk]) -> bytes:
    """Fingerprints of the rows of a whole plan that are not in the chunks, in its order."""
    new, _changed = _apart((chunk.fingerprints for chunk in chunks), (chunk.fingerprints for chunk in whole))
    return b"".join(row + version for row, version in new.items())


def _apart(before: Iterable[bytes], after: Iterable[bytes]) -> tuple[dict[bytes, bytes], int]:
    """The rows that are in `after` only, key hash to version hash, and how many are in both with another version.

    Both are in the same order, so a row waits for its like no longer than rows came or went ahead of it.
    """
    gone: dict[bytes, bytes] = {}
    new: dict[bytes, bytes] = {}
    changed = 0
    for one, other in zip_longest(before, after, fillvalue=b""):
        for mine, theirs, prints in ((gone, new, one), (new, gone, other)):
            for row, version in _rows(bytes(prints)):
                if row in theirs:
                    changed += theirs.pop(row) != version
                else:
                    mine[row] = version
    return new, changed


def _rows(prints: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key hash and version hash of each row."""
    for at in range(0, len(prints), 16):
        yield prints[at : at + 8], prints[at + 8 : at + 16]
