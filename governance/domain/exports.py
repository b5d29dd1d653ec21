"""Archives of everything held on a subject: made from one snapshot, encrypted at rest, gone after seven days."""

import contextlib
import hashlib
import io
import secrets
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import structlog
from django.conf import settings
from django.core import signing
from django.db import transaction

from governance.actors import Actor, system
from governance.domain import archives, audit, clock, fences, jobs, protection
from governance.domain.volumes import FULL, PART_BYTES, Volumes, digest_of
from governance.errors import LetheError, NotFound
from governance.models import Export, SubjectRequest
from governance.sealed import SealedReader

log = structlog.get_logger("lethe.governance")

LIFE = timedelta(days=7)
State = SubjectRequest.State
WORKING = (State.EXECUTING, State.FAILED_RETRYABLE)
_SALT = "lethe.export.link"
_GONE = "This address was used already, or the archive has expired. Ask for a new one."


def work(*, request_id: UUID) -> SubjectRequest | None:
    """Make the archive of an export request. An interrupted attempt starts over; its partial files are deleted.

    None when somebody else has the job. Errors are kept on the request as `failed_retryable`; so is an archive that
    lacks a category whose handler failed, which can be had meanwhile.
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
        if error.errno in FULL:
            _fail(lease, request, "disk_full", "Paused: the disk of the data directory is full. Make room; it is tried again.")
        else:
            log.exception("export_failed", request=str(request_id))
            _fail(lease, request, "storage", "The data directory could not be written. It is tried again.")
    except LetheError as error:
        _fail(lease, request, error.code, error.detail)
    except Exception as error:
        log.exception("export_failed", request=str(request_id))
        _fail(lease, request, "error", f"The worker met an unexpected {type(error).__name__}. It is tried again.")
    return SubjectRequest.objects.get(pk=request_id)


def open_archive(*, export: Export, part: int = 1, by: Actor) -> BinaryIO:
    """One volume, decrypted as it is read. Audited before the first byte; raises NotFound once it has expired.

    The reader closes the file and raises Undecipherable at a place that was altered.
    """
    by.require("subject.export")
    if export.tenant_id != by.tenant_id or not 1 <= part <= len(export.parts):
        raise NotFound
    living = Export.objects.filter(pk=export.pk, expires_at__gt=clock.ClockTime())
    with transaction.atomic():
        if not living.update(downloaded_at=clock.ClockTime()):
            raise NotFound("This archive has expired. Ask for a new export.")
        _record_download(export, part, by)
    return _reader(export, part)


@transaction.atomic
def make_links(*, export: Export, by: Actor) -> list[str]:
    """A token for each volume, in order: whoever has it may download that volume once, until the archive ends.

    Only its hash is kept, so a token can be read this one time.
    """
    by.require("subject.export")
    export = Export.objects.select_for_update().filter(
        pk=export.pk, tenant_id=by.tenant_id, expires_at__gt=clock.ClockTime()
    ).first()  # fmt: skip
    if export is None:
        raise NotFound("There is no archive, or its seven days are over.")
    tokens = []
    for part in range(1, len(export.parts) + 1):
        claims = {"export": export.id.hex, "part": part, "nonce": secrets.token_urlsafe(12)}
        tokens.append(signing.dumps(claims, key=settings.SECRET_KEY, salt=_SALT))
        export.links.append({"digest": _digest(tokens[-1]), "part": part, "by": by.ref, "used_at": None})
    export.save(update_fields=["links"])
    audit.record(
        "export.link_created", by=by, object_type="export", object_ref=export.id, subject=export.subject_id,
        parts=len(tokens),
    )  # fmt: skip
    return tokens


def find_link(*, token: str) -> tuple[Export, int]:
    """The archive and volume that an unused token opens. Raises NotFound for any other."""
    return _linked(token, Export.objects.all())


def open_link(*, token: str) -> tuple[Export, int, BinaryIO]:
    """Use a token up and open its volume. Audited before the first byte. Raises NotFound for one that was used."""
    with transaction.atomic():
        export, part = _linked(token, Export.objects.select_for_update())
        fences.enter(subject_ids=[export.subject_id], restricted=True)
        for link in export.links:
            if link["digest"] == _digest(token):
                link["used_at"] = clock.now().isoformat()
        export.downloaded_at = clock.now()
        export.save(update_fields=["links", "downloaded_at"])
        _record_download(export, part, system(export.tenant_id, "one-time link"))
    return export, part, _reader(export, part)


def _linked(token: str, exports) -> tuple[Export, int]:
    try:
        claims = signing.loads(token, key=settings.SECRET_KEY, salt=_SALT)
    except signing.BadSignature:
        raise NotFound(_GONE) from None
    export = exports.filter(pk=claims["export"], expires_at__gt=clock.ClockTime()).first()
    unused = {link["digest"] for link in export.links if not link["used_at"]} if export else ()
    if _digest(token) not in unused:
        raise NotFound(_GONE)
    return export, claims["part"]


def expire() -> int:
    """Delete archives whose seven days are over: bytes first, then the row. Returns how many."""
    gone = 0
    for export in Export.objects.filter(expires_at__lte=clock.ClockTime()).order_by("id")[:500]:
        delete_bytes(export)
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
    for path in folder_of().glob("*/*"):
        request_id = path.name.partition(".")[0]
        if path in _known(request_id) or SubjectRequest.objects.filter(pk=request_id, state__in=WORKING).exists():
            continue
        path.unlink(missing_ok=True)
        gone += 1
    return gone


def folder_of(tenant_id: UUID | None = None) -> Path:
    """Where archives lie: of all tenants, or of one."""
    folder = Path(settings.DATA_DIR) / "exports"
    return folder / tenant_id.hex if tenant_id else folder


def delete_bytes(export: Export) -> None:
    for part in export.parts:
        (folder_of() / part["path"]).unlink(missing_ok=True)


def _make(lease: jobs.Lease, request: SubjectRequest) -> None:
    folder = folder_of(request.tenant_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = _known(request.id)
    for leftover in folder.glob(f"{request.id.hex}.*"):
        if leftover not in known:
            leftover.unlink(missing_ok=True)
    # Named by the attempt: a worker that was given up on cannot write into the files of the next.
    volumes = Volumes(
        folder=folder, stem=f"{request.id.hex}.{lease.number}", key=protection.derive(request.tenant_id, "exports"),
        context=_context(request.id), limit=settings.LETHE.get("export_part_bytes", PART_BYTES),
    )  # fmt: skip
    try:
        with jobs.heartbeat(lease), volumes:
            contents = archives.fill(volumes, request)
        parts = [_finish(path) for path in volumes.paths]
        replaced = _keep(lease, request, contents, parts)
    except BaseException:
        for path in volumes.paths:
            path.unlink(missing_ok=True)
            if _final(path) not in _known(request.id):
                _final(path).unlink(missing_ok=True)
        raise
    for path in replaced:
        path.unlink(missing_ok=True)


def _finish(part: Path) -> dict:
    digest, size = digest_of(part)
    part.replace(_final(part))
    return {"path": f"{part.parent.name}/{_final(part).name}", "size": size, "sha256": digest}


def _final(part: Path) -> Path:
    return part.with_suffix(".zip.sealed")


@transaction.atomic
def _keep(lease: jobs.Lease, request: SubjectRequest, contents: archives.Contents, parts: list[dict]) -> set[Path]:
    """The archive becomes known, unless the subject was fenced for erasure while it was written. Returns the files that
    nothing needs any more.

    Where a handler failed, the request stays open: a later attempt that has everything replaces this archive.
    """
    fences.enter(subject_ids=[request.subject_id], restricted=True)
    earlier, new = _known(request.id), {folder_of() / part["path"] for part in parts}
    if contents.failed:
        _leave_open(lease, request, contents.failed)
        if earlier:
            return new
    Export.objects.filter(request=request).delete()
    export = Export.objects.create(
        tenant_id=request.tenant_id, subject_id=request.subject_id, request=request, expires_at=clock.now() + LIFE,
        parts=parts, size=sum(part["size"] for part in parts), counts=contents.counts, omissions=contents.omissions,
    )  # fmt: skip
    if not contents.failed:
        lease.release(state=State.COMPLETED, ended_at=clock.ClockTime(), progress_at=clock.ClockTime())
    audit.record(
        "export.created", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
        object_label=request.ref, subject=request.subject_id, export=export.id, size=export.size, parts=len(parts),
        rows=sum(contents.counts.values()), complete=not contents.omissions,
    )  # fmt: skip
    return earlier - new


def _leave_open(lease: jobs.Lease, request: SubjectRequest, failed: list[str]) -> None:
    message = f"The archive lacks what could not be read: {', '.join(failed)}. It can be had; a whole one is tried again."
    lease.fail(code="incomplete", message=message, state=State.FAILED_RETRYABLE, resume_state=State.EXECUTING)
    audit.record(
        "export.failed", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
        object_label=request.ref, code="incomplete", categories=failed,
    )  # fmt: skip


def _known(request_id: UUID | str) -> set[Path]:
    """The files of the request's archive."""
    found = Export.objects.filter(request_id=request_id).values_list("parts", flat=True)
    return {folder_of() / part["path"] for parts in found for part in parts}


def _reader(export: Export, part: int) -> BinaryIO:
    try:
        file = (folder_of() / export.parts[part - 1]["path"]).open("rb")
    except FileNotFoundError:
        raise NotFound("This archive is no longer there. Ask for a new export.") from None
    keys = protection.derive_all(export.tenant_id, "exports")
    reader = SealedReader(file, keys=keys, context=f"{_context(export.request_id)}|{part}")
    return io.BufferedReader(reader, buffer_size=256 * 1024)


def _record_download(export: Export, part: int, by: Actor) -> None:
    audit.record(
        "export.downloaded", by=by, object_type="export", object_ref=export.id, subject=export.subject_id,
        size=export.parts[part - 1]["size"], part=part,
    )  # fmt: skip


def _fail(lease: jobs.Lease, request: SubjectRequest, code: str, message: str) -> None:
    with contextlib.suppress(jobs.LeaseLost), transaction.atomic():
        lease.fail(code=code, message=message, state=State.FAILED_RETRYABLE, resume_state=State.EXECUTING)
        audit.record(
            "export.failed", by=system(request.tenant_id), object_type="subject_request", object_ref=request.id,
            object_label=request.ref, code=code,
        )  # fmt: skip


def _context(request_id: UUID) -> str:
    return f"export|{request_id}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
