"""The one place where an error becomes an HTTP answer: problem+json (RFC 9457) with a stable `code`.

Expected errors carry their own words (`governance.errors`); what the framework or the database raises gets words here,
and an unexpected exception says only its correlation id, which is the `request_id` of the log.
"""

import json
import logging

from django.core import exceptions as django_errors
from django.db import DatabaseError, DataError, IntegrityError, OperationalError
from django.http import Http404, HttpResponse, UnreadablePostError
from rest_framework import exceptions as drf_errors

from governance.domain import fences
from governance.errors import Conflict, Invalid, LetheError, NotFound, Unavailable, storage_full

logger = logging.getLogger("lethe.api")

STATUS = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "conflict": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "unprocessable": 422,
    "precondition_required": 428,
    "limited": 429,
    "unexpected": 500,
    "unavailable": 503,
}


class MethodNotAllowed(LetheError):
    code, kind, title = "method_not_allowed", "method_not_allowed", "This address does not answer that method"


class NotAcceptable(LetheError):
    code, kind, title = "not_acceptable", "not_acceptable", "None of the accepted content types is offered"


class TooLarge(LetheError):
    code, kind, title = "too_large", "too_large", "The request is too large"
    detail = "The body of the request is larger than this server accepts."


class UnsupportedMediaType(LetheError):
    code, kind, title = "unsupported_media_type", "unsupported_media_type", "The body must be JSON"
    detail = "Send JSON with `Content-Type: application/json`."


class PreconditionRequired(LetheError):
    code, kind, title = "precondition_required", "precondition_required", "An If-Match header is needed"
    detail = "Read the object first and send its ETag back as `If-Match`, so that nobody's change is overwritten."


class Unexpected(LetheError):
    code, kind, title = "unexpected", "unexpected", "Something went wrong in Lethe"
    detail = "The request could not be finished. The server's log has the cause under this request id."


def handle(error, context) -> HttpResponse:
    """REST framework's exception handler."""
    request = context["request"]
    return problem(request, translated(error, request))


def problem(request, error: LetheError) -> HttpResponse:
    """The answer for `error`. `errors` maps the path of a field to its sentences."""
    status = STATUS[error.kind]
    document = {
        **error.extra,
        "type": f"urn:lethe:error:{error.code}",
        "title": error.title,
        "status": status,
        "detail": error.detail,
        "code": error.code,
        "errors": error.errors,
        "request_id": getattr(request, "id", ""),
    }
    response = HttpResponse(json.dumps(document, default=str), status=status, content_type="application/problem+json")
    response["Cache-Control"] = "no-store"
    if status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="lethe"'
    if (seconds := getattr(error, "retry_after", None)) is not None:
        response["Retry-After"] = str(max(1, int(seconds)))
    if allowed := getattr(error, "allowed", None):
        response["Allow"] = ", ".join(allowed)
    return response


def translated(error: Exception, request) -> LetheError:
    """`error` in our words. What nobody expected is logged with its traceback."""
    if isinstance(error, LetheError):
        return error
    if (full := storage_full(error)) is not None:
        logger.error("no space left", exc_info=error)
        return full
    if isinstance(error, DatabaseError):
        return _of_database(error, request)
    if isinstance(error, drf_errors.ValidationError):
        return Invalid(_summary(fields := flatten(error.detail)), errors=fields)
    if isinstance(error, drf_errors.MethodNotAllowed):
        return MethodNotAllowed(f"{request.method} is not possible here.")
    if isinstance(error, drf_errors.UnsupportedMediaType):
        return UnsupportedMediaType()
    if isinstance(error, (drf_errors.ParseError, UnreadablePostError)):
        return Invalid(str(error))
    if isinstance(error, (drf_errors.NotFound, Http404)):
        return NotFound()
    if isinstance(error, django_errors.RequestDataTooBig):
        return TooLarge()
    if isinstance(error, (UnicodeError, django_errors.SuspiciousOperation)):
        return Invalid("The request contains text that cannot be read.")
    return _unexpected(error, request)


def flatten(detail, path: str = "") -> dict[str, list[str]]:
    """REST framework's nested error detail as {"approvals.0.id": ["..."]}; what names no field is under ""."""
    if isinstance(detail, dict):
        found = {}
        for name, inner in detail.items():
            name = "" if name == "non_field_errors" else str(name)
            found.update(flatten(inner, ".".join(part for part in (path, name) if part)))
        return found
    if isinstance(detail, list):
        if not any(isinstance(entry, (dict, list)) for entry in detail):
            return {path: [str(entry) for entry in detail]}
        found = {}
        for number, inner in enumerate(detail):
            if inner:
                found.update(flatten(inner, f"{path}.{number}".lstrip(".")))
        return found
    return {path: [str(detail)]}


def _summary(fields: dict[str, list[str]]) -> str:
    path, sentences = next(iter(fields.items()))
    more = f" ({len(fields) - 1} more)" if len(fields) > 1 else ""
    return f"{path}: {sentences[0]}{more}" if path else f"{sentences[0]}{more}"


def _of_database(error: DatabaseError, request) -> LetheError:
    """What the database refused, without its words: they name tables, constraints and values."""
    if (known := fences.translate(error)) is not None:
        return known
    if isinstance(error, IntegrityError):
        logger.info("constraint refused a write", exc_info=error)
        return Conflict("Something with this name exists already, or what it refers to has just changed.")
    if isinstance(error, DataError):
        logger.info("value refused by the database", exc_info=error)
        return Invalid("The request contains a value that cannot be stored.")
    if isinstance(error, OperationalError):
        logger.error("database not available", exc_info=error)
        return Unavailable("The database does not answer at the moment. Try again shortly.", retry_after=5)
    return _unexpected(error, request)


def _unexpected(error: Exception, request) -> LetheError:
    logger.error("unexpected error in %s %s", request.method, request.path, exc_info=error)
    return Unexpected()


