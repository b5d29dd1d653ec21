"""Pages for what went wrong, in the console's look. Answers to htmx carry the sentence in [data-problem]; what was asked of the
API is told as the API tells it.
"""

from django.core.exceptions import DisallowedHost
from django.shortcuts import render

from console.api.errors import STATUS, Unexpected, problem
from governance.errors import Forbidden, Invalid, LetheError, NotFound


class BadRequest(Invalid):
    code, title = "bad_request", "The request is not valid"
    detail = "The server cannot make sense of this request."


class BadHost(BadRequest):
    code, title = "bad_host", "Not a name of this server"
    detail = "This server does not answer to the name in the Host header. Its operator lists its names in LETHE_ALLOWED_HOSTS."


def bad_request(request, exception=None):
    return _told(request, BadHost() if isinstance(exception, DisallowedHost) else BadRequest())


def forbidden(request, exception=None):
    return _told(request, Forbidden())


def not_found(request, exception=None):
    return _told(request, NotFound())


def server_error(request):
    # No context processors: whatever broke may be what they use.
    if _is_of_api(request):
        return problem(request, Unexpected())
    return render(None, "errors/500.html", {"request_id": getattr(request, "id", "")}, status=500)


def csrf_failed(request, reason=""):
    return render(request, "errors/csrf.html", status=403)


def _told(request, error: LetheError):
    if _is_of_api(request):
        return problem(request, error)
    status = STATUS[error.kind]
    return render(request, f"errors/{status}.html", status=status)


def _is_of_api(request) -> bool:
    return request.path == "/api" or request.path.startswith("/api/")
