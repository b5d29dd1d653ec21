"""Errors that a person can act on. Each has a stable `code`, a kind, and a sentence we would show.

`kind` says what sort of mistake it is; the console translates it into an HTTP status in one place
(`console/api/errors.py`). Upper floors derive their own errors from these.
"""

import errno
from typing import Any

from psycopg.errors import DiskFull


class LetheError(Exception):
    """Base of every expected error.

    `code` is stable and part of the API. `errors` maps a field's path to its sentences. `extra` is added to the
    problem document as it is and holds JSON values only.
    """

    code = "error"
    kind = "invalid"
    title = "The request could not be carried out"
    detail = "The request could not be carried out."

    def __init__(self, detail: str | None = None, *, errors: dict[str, list[str]] | None = None, **extra: Any):
        self.detail = detail or self.detail
        self.errors = errors or {}
        self.extra = extra
        super().__init__(self.detail)


class Invalid(LetheError):
    code, kind, title = "invalid", "invalid", "The request is not valid"


class Unprocessable(LetheError):
    code, kind, title = "unprocessable", "unprocessable", "The request was understood but cannot be applied"


class Unauthenticated(LetheError):
    code, kind, title = "unauthenticated", "unauthenticated", "Sign in or send a valid key"
    detail = "Send a valid API key as `Authorization: Bearer lth_...`."


class Forbidden(LetheError):
    code, kind, title = "forbidden", "forbidden", "Not allowed"
    detail = "Your role or key does not allow this."


class NotFound(LetheError):
    code, kind, title = "not_found", "not_found", "Not found"
    detail = "There is nothing here, or it is not yours."


class Conflict(LetheError):
    code, kind, title = "conflict", "conflict", "The state has changed"


class Limited(LetheError):
    """Too much, too fast. `retry_after` in seconds, when known, is put into the answer's header."""

    code, kind, title = "limited", "limited", "A limit was reached"

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None, **extra: Any):
        super().__init__(detail, **extra)
        self.retry_after = retry_after


class Unavailable(LetheError):
    code, kind, title = "unavailable", "unavailable", "Not available at the moment"

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None, **extra: Any):
        super().__init__(detail, **extra)
        self.retry_after = retry_after


class StorageFull(Unavailable):
    code, title = "storage_full", "The disk is full"
    detail = "There is no space left where Lethe keeps its data. Nothing was stored; free some space and try again."

    def __init__(self, detail: str | None = None, *, retry_after: int | None = 60, **extra: Any):
        super().__init__(detail, retry_after=retry_after, **extra)


def storage_full(error: BaseException | None) -> StorageFull | None:
    """StorageFull when that is what the database or the file system says, however it was wrapped; None otherwise."""
    while error is not None:
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
            return StorageFull()
        error = error.__cause__
    return None


class VersionConflict(Conflict):
    """Somebody else saved first. `extra["current"]` carries what is stored now."""

    code, title = "version_conflict", "Somebody else changed this meanwhile"
    detail = "This was changed after you opened it. Compare both texts and save again."


class MissingPermission(Forbidden):
    code = "missing_permission"

    def __init__(self, permission: str, *, needs: str):
        super().__init__(f"This needs {needs}.", permission=permission)


class SubjectRequired(Forbidden):
    code, title = "subject_required", "A subject is needed"
    detail = "This agent keeps what people tell it, so every call must say for whom: use a key with its own subject, or one that may assert subjects together with the X-Lethe-Subject header."


class SubjectFenced(Conflict):
    code, title = "subject_fenced", "Nothing may be written for this subject"
    detail = "Data of this subject is being erased or is restricted; nothing new may be stored for it."


class Held(Conflict):
    code, title = "held", "A legal hold covers this"
    detail = "A legal hold covers this, so it can be neither changed nor deleted. Release the hold first."


class AmbiguousIdentifier(Conflict):
    code, title = "ambiguous_identifier", "More than one match"


class UnknownFilter(Invalid):
    code, title = "unknown_filter", "Unknown filter"

    def __init__(self, names, *, known):
        super().__init__(
            f"Unknown filter: {', '.join(sorted(names))}. Known filters: {', '.join(sorted(known))}.",
            errors={name: ["Unknown filter."] for name in names},
        )
