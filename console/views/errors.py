"""Pages for what went wrong, in the console's look. Answers to htmx carry the sentence in [data-problem]."""

from django.http import JsonResponse
from django.shortcuts import render

from governance.errors import NotFound


def bad_request(request, exception=None):
    return render(request, "errors/400.html", status=400)


def forbidden(request, exception=None):
    return render(request, "errors/403.html", status=403)


def not_found(request, exception=None):
    if request.path.startswith("/api/"):
        problem = {"type": "about:blank", "title": NotFound.title, "status": 404, "code": NotFound.code, "detail": NotFound.detail}
        return JsonResponse(problem, status=404, content_type="application/problem+json")
    return render(request, "errors/404.html", status=404)


def server_error(request):
    # No context processors: whatever broke may be what they use.
    if request.path.startswith("/api/"):
        problem = {"type": "about:blank", "title": "Something broke on our side", "status": 500, "code": "internal_error", "detail": "The log has the cause under the request id."}
        return JsonResponse(problem | {"request_id": getattr(request, "id", "")}, status=500, content_type="application/problem+json")
    return render(None, "errors/500.html", {"request_id": getattr(request, "id", "")}, status=500)


def csrf_failed(request, reason=""):
    return render(request, "errors/csrf.html", status=403)
