"""The keys of subjects: one key each, in files of a folder outside the database and its backups (`LETHE_SUBJECT_KEY_DIR`).

    <folder>/lethe-subject-keys.json              says that this is the store of keys, and not the empty place of its disk
    <folder>/<tenant>/<subject>.key               32 random bytes, encrypted under the tenant's key
    <folder>/<tenant>/<subject>.gone              this subject's key was destroyed: there will never be another

A file for each key, so that one can be destroyed without touching the others: its bytes are overwritten, the file is
deleted, and the folder is flushed to the disk. Whether a disk keeps overwritten blocks somewhere is its own secret; what is
in the file is encrypted under the tenant's key.

A process remembers a key for at most CACHE_SECONDS. A key is made by whoever writes first; of several processes that try at
once, one wins and the others take its key.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

from django.conf import settings

from governance import crypto
from governance.errors import Unavailable

MARKER = "lethe-subject-keys.json"
SCHEMA = "lethe.subject-keys/1"
CACHE_SECONDS = 60.0
_MOST = 10_000
_cache: dict[tuple[UUID, UUID], tuple[float, bytes]] = {}


class KeyStoreUnreachable(Unavailable):
    code, title = "key_store_unreachable", "The keys of subjects cannot be reached"
    detail = (
        "The folder with the keys of subjects cannot be read or written, so what is encrypted under them can neither be read nor"
        " added to. Nothing is damaged: connect it again (LETHE_SUBJECT_KEY_DIR)."
    )


class KeyMissing(Unavailable):
    code, title = "subject_key_missing", "The key of this person is missing"
    detail = "The key that this was encrypted under is not in LETHE_SUBJECT_KEY_DIR. Restore it from the backup of that folder."


class KeyDestroyed(Unavailable):
    code, title = "subject_key_destroyed", "The key of this person was destroyed"
    detail = "This person was erased and their key destroyed: nobody can read this any more, and nothing can be added."


def is_configured() -> bool:
    return settings.SUBJECT_KEY_DIR is not None


def prepare() -> None:
    """Make the folder a store of keys. Raises KeyStoreUnreachable."""
    with _reaching():
        folder = _root()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / MARKER).exists():
            _put(folder / MARKER, json.dumps({"schema": SCHEMA}).encode())


def key_of(*, tenant_id: UUID, subject_id: UUID, make: bool = False) -> bytes:
    """The subject's key; with `make` a new one where there never was any.

    Raises KeyMissing, KeyDestroyed and KeyStoreUnreachable.
    """
    found = _cache.get((tenant_id, subject_id))
    if found is not None and time.monotonic() - found[0] <= CACHE_SECONDS:
        return found[1]
    with _reaching():
        _check_there()
        path = _path(tenant_id, subject_id)
        # Asked first: a file whose destruction was interrupted does not count any more.
        if path.with_suffix(".gone").exists():
            raise KeyDestroyed
        if not path.exists():
            if not make:
                raise KeyMissing
            _make(path, tenant_id, subject_id)
        key = crypto.decrypt(path.read_bytes(), tenant_id=tenant_id, context=_context(subject_id))
    if len(_cache) >= _MOST:
        _cache.clear()
    _cache[tenant_id, subject_id] = (time.monotonic(), key)
    return key


def exists(*, tenant_id: UUID, subject_id: UUID) -> bool:
    """Whether there is a key to destroy. Raises KeyStoreUnreachable."""
    with _reaching():
        _check_there()
        return _path(tenant_id, subject_id).exists()


def destroy(*, tenant_id: UUID, subject_id: UUID) -> None:
    """Destroy the key for good. Doing it again finishes what was interrupted. Raises KeyStoreUnreachable."""
    _cache.pop((tenant_id, subject_id), None)
    with _reaching():
        _check_there()
        path = _path(tenant_id, subject_id)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        # Before the key goes: nobody may take its absence for a reason to make another.
        if not path.with_suffix(".gone").exists():
            _put(path.with_suffix(".gone"), b"")
        if path.exists():
            _overwrite(path)
            path.unlink()
            _sync(path.parent)


def forget() -> None:
    """Drop what this process remembers."""
    _cache.clear()


def rewrap() -> int:
    """Bring every key that an old encryption key wraps under the present one; returns how many."""
    changed = 0
    with _reaching():
        _check_there()
        for path in sorted(_root().glob("*/*.key")):
            tenant_id, subject_id = UUID(hex=path.parent.name), UUID(hex=path.stem)
            wrapped = path.read_bytes()
            if crypto.is_current(wrapped, tenant_id=tenant_id, context=_context(subject_id)):
                continue
            key = crypto.decrypt(wrapped, tenant_id=tenant_id, context=_context(subject_id))
            fresh = _temporary(path, crypto.encrypt(key, tenant_id=tenant_id, context=_context(subject_id)))
            # A key that is destroyed meanwhile stays so.
            if path.with_suffix(".gone").exists():
                fresh.unlink()
                continue
            os.replace(fresh, path)
            _sync(path.parent)
            changed += 1
    return changed


def _make(path: Path, tenant_id: UUID, subject_id: UUID) -> None:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    fresh = _temporary(path, crypto.encrypt(os.urandom(32), tenant_id=tenant_id, context=_context(subject_id)))
    try:
        # Unlike a rename, a link does not replace the key of somebody who was faster.
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    _sync(path.parent)


def _temporary(path: Path, data: bytes) -> Path:
    fresh = path.with_name(f".{uuid4().hex}.new")
    _put(fresh, data)
    return fresh


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())


def _put(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        os.chmod(path, 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _root() -> Path:
    if settings.SUBJECT_KEY_DIR is None:
        raise KeyStoreUnreachable
    return Path(settings.SUBJECT_KEY_DIR)


def _check_there() -> None:
    """An empty mount point is no store from which every key has gone."""
    if not (_root() / MARKER).is_file():
        raise KeyStoreUnreachable


def _path(tenant_id: UUID, subject_id: UUID) -> Path:
    return _root() / tenant_id.hex / f"{subject_id.hex}.key"


def _context(subject_id: UUID) -> str:
    return f"subject_key|{subject_id}"


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KeyStoreUnreachable from error
