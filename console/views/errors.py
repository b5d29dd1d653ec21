"""Pages for what went wrong, in the console's look. Answers to htmx carry the sentence in [data-problem]; what was asked of the
API is told as the API tells it.
"""

from django.core.exceptions import DisallowedHost
from django.shortcuts import render

from console.api.errors import Unexpected, problem
from governance.errors import Invalid, NotFound


class BadRequest(Invalid):
    code, title = "bad_request", "The request is not valid"
    detail = "The server cannot make sense of this request."


class BadHost(BadRequest):
    code, title = "bad_host", "Not a name of this server"
    detail = "This server does not answer to the name in the Host header. Its operator lists its names in LETHE_ALLOWED_HOSTS."


def bad_request(request, exception=None):
    if _is_of_api(request):
        return problem(request, BadHost() if isinstance(exception, DisallowedHost) else BadRequest())
    return render(request, "errors/400.html", status=400)


def forbidden(request, exception=None):
    return render(request, "errors/403.html", status=403)


def not_found(request, exception=None):
    if _is_of_api(request):
        return problem(request, NotFound())
    return render(request, "errors/404.html", status=404)


def server_error(request):
    # No context processors: whatever broke may be what they use.
    if _is_of_api(request):
        return problem(request, Unexpected())
    return render(None, "errors/500.html", {"request_id": getattr(request, "id", "")}, status=500)


def _is_of_api(request) -> bool:
    return request.path == "/api" or request.path.startswith("/api/")


def csrf_failed(request, reason=""):
    return render(request, "errors/csrf.html", status=403)
