"""The archive of retention: rows leave the database for files in a folder outside it (`LETHE_ARCHIVE_DIR`).

A file holds the rows of one person that one batch took: JSON lines, encrypted under a key of its own that is kept with its
row in the database, beside a signed manifest. It is written, read back and compared before the batch deletes anything,
in the same transaction: what was not acknowledged is not deleted. See docs/archive.md.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from governance import sealing, signing
from governance.actors import Actor
from governance.domain import audit, clock, coverage, groups, protection, registry, rotation
from governance.domain.volumes import FULL, digest_of
from governance.errors import NotFound, Unavailable
from governance.ids import uuid7
from governance.models import ArchivedPart, RetentionRun
from governance.sealed import SealedReader, SealedWriter

SCHEMA = "lethe.archive/1"
# Says that this is the archive, and not the empty place where its disk should be.
MARKER = "lethe-archive.json"


class ArchiveMissing(Unavailable):
    code, title = "no_archive", "No archive is connected"
    detail = "No archive is connected that could confirm it has the rows, so nothing was deleted. Set LETHE_ARCHIVE_DIR."


class ArchiveUnreachable(Unavailable):
    code, title = "archive_unreachable", "The archive cannot be reached"
    detail = "The archive's folder cannot be read or written. Nothing was deleted; it is tried again."


class ArchiveFull(Unavailable):
    code, title = "archive_full", "The archive is full"
    detail = "There is no room in the archive's folder. Nothing was deleted; make room, it is tried again."


class ArchiveDiffers(Unavailable):
    code, title = "archive_differs", "The archive did not keep what it was given"
    detail = "What was read back from the archive is not what was written. Nothing was deleted; it is tried again."


def directory() -> Path:
    """The archive's folder. Raises ArchiveMissing where none is set."""
    if settings.ARCHIVE_DIR is None:
        raise ArchiveMissing
    return Path(settings.ARCHIVE_DIR)


def keep(*, run: RetentionRun, category: str, ids: list[UUID]) -> dict[str, int]:
    """Put rows of a category and all that goes along into the archive, before they are deleted. Rows by category.

    In the transaction that deletes them. Raises ArchiveMissing, ArchiveUnreachable, ArchiveFull, ArchiveDiffers; then
    the caller deletes nothing.
    """
    counts: dict[str, int] = {}
    try:
        folder = _folder(run)
        for subject_id in groups.owners(category=category, tenant_id=run.tenant_id, ids=ids):
            part = _write(folder, run, category, subject_id, ids)
            for key, rows in part.counts.items():
                counts[key] = counts.get(key, 0) + rows
        _sync(folder)
    except OSError as error:
        raise (ArchiveFull if error.errno in FULL else ArchiveUnreachable) from error
    return counts


def tidy(*, run: RetentionRun) -> int:
    """Delete what earlier attempts of the run left behind: files of batches that were never committed. Returns how many.

    Whoever calls this has the run, so nobody else is writing there.
    """
    folder = directory() / run.tenant_id.hex / run.id.hex
    known = {path.rpartition("/")[2] for path in ArchivedPart.objects.filter(run_id=run.id).values_list("path", flat=True)}
    try:
        left = [path for path in folder.iterdir() if path.name.removesuffix(".manifest.json") not in known]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ArchiveUnreachable from error
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def delete_bytes(*, paths: list[str]) -> None:
    """Delete files with their manifests. Raises ArchiveMissing or ArchiveUnreachable where that cannot be known to be so."""
    if not paths:
        return
    try:
        if not (directory() / MARKER).is_file():
            raise ArchiveUnreachable
        for path in paths:
            for name in (path, f"{path}.manifest.json"):
                (directory() / name).unlink(missing_ok=True)
    except OSError as error:
        raise ArchiveUnreachable from error


def open_part(*, part: ArchivedPart, by: Actor) -> Iterator[dict[str, Any]]:
    """The rows of a file: {"category", "row"} each. Audited before the first. Raises NotFound, Undecipherable."""
    by.require("content.read")
    if part.tenant_id != by.tenant_id:
        raise NotFound
    with transaction.atomic():
        audit.record(
            "content.read", by=by, object_type="archived_part", object_ref=part.id, subject=part.subject_id, category=part.category
        )
    return (json.loads(line) for line in readable_lines_of(part).splitlines())


def lines_of(part: ArchivedPart) -> bytes:
    """What is in the file. Raises ArchiveUnreachable, ArchiveDiffers, Undecipherable."""
    key = protection.decrypt(part.key_enc, tenant_id=part.tenant_id, context=_context(part.id))
    data = _read(directory() / part.path, key, part.id)
    if hashlib.sha256(data).hexdigest() != part.content_sha256:
        raise ArchiveDiffers
    return data


def readable_lines_of(part: ArchivedPart) -> bytes:
    """The same with what is sealed under the person's key opened: it stays sealed in the file. Raises KeyMissing too."""
    lines = lines_of(part)
    return b"".join(_readable(line) for line in lines.splitlines(keepends=True))


def _readable(line: bytes) -> bytes:
    entry = json.loads(line)
    category = registry.categories().get(entry["category"])
    opened = sealing.opened_row(category.model, entry["row"]) if category else entry["row"]
    return line if opened == entry["row"] else json.dumps({**entry, "row": opened}, ensure_ascii=False).encode() + b"\n"


def _folder(run: RetentionRun) -> Path:
    folder = directory() / run.tenant_id.hex / run.id.hex
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = directory() / MARKER
    if not marker.exists():
        _put(marker, json.dumps({"schema": SCHEMA}).encode())
        _sync(directory())
    return folder


def _write(folder: Path, run: RetentionRun, category: str, subject_id: UUID | None, ids: list[UUID]) -> ArchivedPart:
    """One person's rows: written, read back, and only then known."""
    part = ArchivedPart(
        id=uuid7(), tenant_id=run.tenant_id, subject_id=subject_id, category=category, run_id=run.id, archived_at=clock.now()
    )
    path, key, digest, counts = folder / f"{part.id.hex}.jsonl.sealed", os.urandom(32), hashlib.sha256(), {}
    roots, agents = set(), set()
    with path.open("xb") as file:
        os.chmod(path, 0o600)
        with closing(SealedWriter(file, key=key, context=_context(part.id))) as sealed:
            for member, row in groups.rows(category=category, tenant_id=run.tenant_id, ids=ids, subject_id=subject_id):
                line = json.dumps({"category": member, "row": row}, ensure_ascii=False, default=str).encode() + b"\n"
                sealed.write(line)
                digest.update(line)
                counts[member] = counts.get(member, 0) + 1
                roots |= {row.get("session_id"), row.get("run_id"), row["id"] if member == category else None}
                agents.add(row.get("agent_id"))
        file.flush()
        os.fsync(file.fileno())
    part.path, part.counts, part.content_sha256 = str(path.relative_to(directory())), counts, digest.hexdigest()
    part.root = coverage.root_of(registry.get(category)).key
    part.roots, part.agents = sorted(filter(None, roots)), sorted(filter(None, agents))
    part.sha256, part.size = digest_of(path)
    if hashlib.sha256(_read(path, key, part.id)).hexdigest() != part.content_sha256:
        raise ArchiveDiffers
    _put(path.with_name(f"{path.name}.manifest.json"), json.dumps(_manifest(part, run), indent=1).encode())
    part.key_enc = protection.encrypt(key, tenant_id=part.tenant_id, context=_context(part.id))
    part.save(force_insert=True)
    return part


def _manifest(part: ArchivedPart, run: RetentionRun) -> dict[str, Any]:
    """What the file is, signed. It names nobody: whose it is says the row."""
    return signing.signed(
        {
            "schema": SCHEMA,
            "software": getattr(settings, "VERSION", ""),
            "id": part.id.hex,
            "tenant": part.tenant_id.hex,
            "run": run.id.hex,
            "policy": run.policy_id.hex,
            "policy_version": run.policy_version,
            "cutoff": run.cutoff.isoformat().replace("+00:00", "Z"),
            "archived_at": part.archived_at.isoformat().replace("+00:00", "Z"),
            "rows": part.counts,
            "bytes": part.size,
            "sha256": part.sha256,
            "content_sha256": part.content_sha256,
        }
    )


def _read(path: Path, key: bytes, part_id: UUID) -> bytes:
    try:
        with path.open("rb") as file:
            return io.BufferedReader(SealedReader(file, keys=[key], context=_context(part_id))).read()
    except OSError as error:
        raise ArchiveUnreachable from error


def _put(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        os.chmod(path, 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """The names of new files are on the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _context(part_id: UUID) -> str:
    return f"archived|{part_id}"


def _sealed_key(part: ArchivedPart) -> rotation.Sealed:
    return rotation.Sealed(part.tenant_id, _context(part.id), part.key_enc, lambda data, _plain: {"key_enc": data})


rotation.register(rotation.Store("archived rows", ArchivedPart.objects.all, _sealed_key))
