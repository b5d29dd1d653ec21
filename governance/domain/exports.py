"""Archives of everything held on a subject: made from one snapshot, encrypted at rest, gone after seven days."""

import contextlib
import errno
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from governance.actors import Actor, system
from governance.domain import audit, clock, fences, jobs, protection, registry
from governance.domain.snapshots import snapshot
from governance.errors import LetheError, NotFound
from governance.models import Export, SubjectRequest
from governance.sealed import SealedReader, SealedWriter

log = structlog.get_logger("lethe.governance")

LIFE = timedelta(days=7)
State = SubjectRequest.State
WORKING = (State.EXECUTING, State.FAILED_RETRYABLE)
_FULL = (errno.ENOSPC, errno.EDQUOT)

README = """This archive holds what {name} keeps about you.

manifest.json   what is inside: rows, bytes and SHA-256 of each file, and what was left out and why
context.json    what the data is used for, on which legal basis, and who receives it
data/           one file per kind of data, one JSON object a line, times in UTC
files/          attachments, in folders named by the SHA-256 of their bytes
"""


def work(*, request_id: UUID) -> SubjectRequest | None:
    """Make the archive of an export request. An interrupted attempt starts over; its partial file is deleted.

    None when somebody else has the job. Errors are kept on the request as `failed_retryable`.
    """
    lease = jobs.claim(SubjectRequest, request_id, states=WORKING, resume="resume_state", failure=None)
    if lease is None:
        return None
    request = SubjectRequest.objects.select_related("tenant", "subject").get(pk=request_id)
    try:
        _make(lease, request)
    except jobs.LeaseLost:
        log.info("lease_lost", request=str(request_id))
    except OSError as error:
        if error.errno in _FULL:
            _fail(lease, request, "disk_full", "The disk of the data directory is full. Make room; it is tried again.")
        else:
            log.exception("export_failed", request=str(request_id))
            _fail(lease, request, "storage", "The data directory could not be written. It is tried again.")
    except LetheError as error:
        _fail(lease, request, error.code, error.detail)
    except Exception as error:
        log.exception("export_failed", request=str(request_id))
        _fail(lease, request, "error", f"The worker met an unexpected {type(error).__name__}. It is tried again.")
    return SubjectRequest.objects.get(pk=request_id)


def open_archive(*, export: Export, by: Actor) -> BinaryIO:
    """The ZIP, decrypted as it is read. Audited before the first byte; raises NotFound once it has expired.

    The reader closes the file and raises Undecipherable at a place that was altered.
    """
    by.require("subject.export")
    if export.tenant_id != by.tenant_id:
        raise NotFound
    living = Export.objects.filter(pk=export.pk, expires_at__gt=clock.ClockTime())
    with transaction.atomic():
        if not living.update(downloaded_at=clock.ClockTime()):
            raise NotFound("This archive has expired. Ask for a new export.")
        audit.record(
            "export.downloaded", by=by, object_type="export", object_ref=export.id, subject=export.subject_id,
            size=export.size,
        )  # fmt: skip
    try:
        file = location(export).open("rb")
    except FileNotFoundError:
        raise NotFound("This archive is no longer there. Ask for a new export.") from None
    key = protection.derive(export.tenant_id, "exports")
    return io.BufferedReader(SealedReader(file, key=key, context=_context(export.request_id)), buffer_size=256 * 1024)


def expire() -> int:
    """Delete archives whose seven days are over: bytes first, then the row. Returns how many."""
    gone = 0
    for export in Export.objects.filter(expires_at__lte=clock.ClockTime()).order_by("id")[:500]:
        location(export).unlink(missing_ok=True)
        with transaction.atomic():
            deleted, _ = Export.objects.filter(pk=export.pk).delete()
            if deleted:
                audit.record(
                    "export.expired", by=system(export.tenant_id), object_type="export", object_ref=export.id,
                    subject=export.subject_id,
                )  # fmt: skip
                gone += 1
    return gone


def tidy() -> int:
    """Delete files that no archive and no running request accounts for: what a killed worker left. Returns how many."""
    gone = 0
    for path in (Path(settings.DATA_DIR) / "exports").glob("*/*"):
        request_id = path.name.partition(".")[0]
        is_known = Export.objects.filter(request_id=request_id, path=f"{path.parent.name}/{path.name}").exists()
        if not is_known and not SubjectRequest.objects.filter(pk=request_id, state__in=WORKING).exists():
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def location(export: Export) -> Path:
    return Path(settings.DATA_DIR) / "exports" / export.path


def _make(lease: jobs.Lease, request: SubjectRequest) -> None:
    folder = Path(settings.DATA_DIR) / "exports" / request.tenant_id.hex
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for leftover in folder.glob(f"{request.id.hex}.*.part"):
        leftover.unlink(missing_ok=True)
    part = folder / f"{request.id.hex}.{lease.number}.part"
    final = folder / f"{request.id.hex}.zip.sealed"
    try:
        with jobs.heartbeat(lease):
            counts = _write(part, request)
        digest, size = _digest(part)
        part.replace(final)
        _keep(lease, request, path=f"{folder.name}/{final.name}", size=size, sha256=digest, counts=counts)
    except BaseException:
        part.unlink(missing_ok=True)
        if not Export.objects.filter(request=request).exists():
            final.unlink(missing_ok=True)
        raise


@transaction.atomic
def _keep(lease: jobs.Lease, request: SubjectRequest, **columns: Any) -> None:
    """The archive becomes known, unless the subject was fenced for erasure while it was written."""
    fences.enter(subject_ids=[request.subject_id], restricted=True)
    export = Export.objects.create(
        tenant_id=request.tenant_id,
        subject_id=request.subject_id,
        request=request,
        expires_at=clock.now() + LIFE,
        **columns,
    )
    lease.release(state=State.COMPLETED, ended_at=clock.ClockTime(), progress_at=clock.ClockTime())
    audit.record(
        "export.created", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
        object_label=request.ref, subject=request.subject_id, export=export.id, size=export.size,
        rows=sum(columns["counts"].values()),
    )  # fmt: skip


def _write(path: Path, request: SubjectRequest) -> dict[str, int]:
    """The ZIP, encrypted on its way to the disk. Returns rows by category."""
    key = protection.derive(request.tenant_id, "exports")
    with path.open("xb") as file:
        path.chmod(0o600)
        sealed = SealedWriter(file, key=key, context=_context(request.id))
        try:
            with zipfile.ZipFile(_Position(sealed), "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
                counts = _fill(archive, request)
        except BaseException:
            sealed.abandon()
            raise
        sealed.close()
    return counts


def _fill(archive: zipfile.ZipFile, request: SubjectRequest) -> dict[str, int]:
    scope = registry.Scope(request.tenant_id, request.subject_id)
    counts, files, omissions = {}, [], []
    with snapshot():
        taken_at = clock.now()
        for category in registry.categories().values():
            if category.about.third_party == "include":
                counts[category.key] = _add_rows(archive, files, category, scope)
                _add_files(archive, files, category, scope)
            else:
                rows = category.verify(scope=scope)
                omissions.append({"category": category.key, "rows": rows, "reason": "concerns_third_parties"})
    context = {"categories": [_context_of(category) for category in registry.categories().values()]}
    _add(archive, files, "context.json", [_json(context, indent=2)])
    _add(archive, files, "README.md", [README.format(name=request.tenant.name).encode()])
    manifest = {
        "schema": "lethe.export/1",
        "request_ref": request.ref,
        "snapshot_at": taken_at.isoformat().replace("+00:00", "Z"),
        "complete": not any(entry["rows"] for entry in omissions),
        "omissions": omissions,
        "counts": counts,
        "files": files,
        "signature": None,
    }
    _add(archive, [], "manifest.json", [_json(manifest, indent=2)])
    return counts


def _add_rows(archive: zipfile.ZipFile, files: list, category: registry.Category, scope: registry.Scope) -> int:
    rows = 0

    def lines() -> Iterator[bytes]:
        nonlocal rows
        for row in category.export(scope=scope):
            rows += 1
            yield _json(row) + b"\n"

    _add(archive, files, f"data/{category.key}.jsonl", lines())
    files[-1]["rows"] = rows
    return rows


def _add_files(archive: zipfile.ZipFile, files: list, category: registry.Category, scope: registry.Scope) -> None:
    seen = set()
    for file in category.files(scope=scope):
        name = f"files/{file.sha256}/{_safe(file.name)}"
        if name not in seen:
            seen.add(name)
            _add(archive, files, name, [file.data])


def _add(archive: zipfile.ZipFile, files: list, name: str, parts: Iterable[bytes]) -> None:
    digest, size = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as entry:
        for part in parts:
            entry.write(part)
            digest.update(part)
            size += len(part)
    files.append({"path": name, "bytes": size, "sha256": digest.hexdigest()})


def _context_of(category: registry.Category) -> dict[str, Any]:
    about = category.about
    return {
        "key": category.key,
        "title": category.title,
        "purposes": list(about.purposes),
        "legal_basis": about.legal_basis,
        "recipients": list(about.recipients),
        "third_party": about.third_party,
    }


def _fail(lease: jobs.Lease, request: SubjectRequest, code: str, message: str) -> None:
    with contextlib.suppress(jobs.LeaseLost), transaction.atomic():
        lease.fail(code=code, message=message, state=State.FAILED_RETRYABLE, resume_state=State.EXECUTING)
        audit.record(
            "export.failed", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
            object_label=request.ref, code=code,
        )  # fmt: skip


class _Position(io.RawIOBase):
    """Lets zipfile write into a stream: it can tell where it is and cannot go back."""

    def __init__(self, target: io.RawIOBase):
        self._target, self._at = target, 0

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self._at += self._target.write(data)
        return len(data)

    def tell(self) -> int:
        return self._at


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size


def _safe(name: str) -> str:
    """A file's name without a way out of its folder."""
    return name.replace("\\", "/").rsplit("/", 1)[-1].lstrip(".") or "file"


def _context(request_id: UUID) -> str:
    return f"export|{request_id}"


def _json(value: Any, *, indent: int | None = None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode()
