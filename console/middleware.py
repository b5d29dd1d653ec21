"""What every request carries: an id for the logs, and on pages the tenant and the actor."""

import asyncio
import uuid

import structlog
from csp.middleware import CSPMiddleware
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError
from django.http import HttpResponse
from django.middleware.gzip import GZipMiddleware
from django.middleware.locale import LocaleMiddleware
from django.shortcuts import redirect, render
from django_htmx.middleware import HtmxMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware

from console.forms.account import ProveForm
from console.stepup import StepUpRequired
from governance.domain import fences, members
from governance.errors import LetheError
from governance.models import Membership

# Errors' kinds as HTTP statuses of pages.
STATUSES = {
    "invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "unprocessable": 422,
    "limited": 429,
    "unavailable": 503,
}
# Pages a member may use before choosing an own password, and without any tenant.
ALWAYS = {"sign-in", "sign-out", "change-password"}
WITHOUT_TENANT = ALWAYS | {"account", "help", "gallery", "switch-tenant"}


def _has_key(request) -> bool:
    return request.path.startswith("/api/") and "HTTP_AUTHORIZATION" in request.META


class _OnPages:
    """For pages only: a call with a key has no cookie, no language and no page that would need protection."""

    def __call__(self, request):
        return self.get_response(request) if _has_key(request) else super().__call__(request)


class ContentPolicyMiddleware(_OnPages, CSPMiddleware):
    pass


class BrowserSessionMiddleware(_OnPages, SessionMiddleware):
    pass


class LanguageMiddleware(_OnPages, LocaleMiddleware):
    pass


class MemberMiddleware(AuthenticationMiddleware):
    """Who is signed in; with a key, nobody is."""

    def process_request(self, request):
        if _has_key(request):
            request.user = AnonymousUser()
        else:
            super().process_request(request)


class MessagesMiddleware(_OnPages, MessageMiddleware):
    pass


class FragmentsMiddleware(_OnPages, HtmxMiddleware):
    pass


class RequestIdMiddleware:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.id = uuid.uuid4().hex
        structlog.contextvars.bind_contextvars(request_id=request.id)
        try:
            response = self.get_response(request)
        finally:
            structlog.contextvars.clear_contextvars()
        response["X-Request-ID"] = request.id
        return response


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """Read each static file whole and close it at once: a browser that leaves early must not keep it open.

    The largest of them, of the API's docs page, has 1.6 MB.
    """

    @staticmethod
    def serve(static_file, request):
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file as file:
                content = file.read()
        return HttpResponse(content, status=int(found.status), headers=dict(found.headers))


class DownloadsMiddleware:
    """Under ASGI, read what is downloaded in a thread, piece by piece; Django would read it whole in one go."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        response = self.get_response(request)
        if isinstance(request, ASGIRequest) and response.streaming and not response.is_async:
            response.streaming_content = self._pieces(response.streaming_content)
        return response

    @staticmethod
    async def _pieces(content):
        while (piece := await asyncio.to_thread(next, content, None)) is not None:
            yield piece


class PagesMiddleware(GZipMiddleware):
    """Compress pages: the editor's is large and repeats itself. Streams of events would wait for the compressor.

    Django adds random bytes to each compressed page and masks its token, against BREACH.
    """

    def process_response(self, request, response):
        if response.streaming or not response.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)


def enter(request) -> Membership | None:
    """The membership under which a signed-in member acts now; sets `request.memberships`."""
    memberships = Membership.objects.filter(member=request.user).select_related("tenant").order_by("tenant__name")
    request.memberships = list(memberships)
    chosen = request.session.get("tenant")
    membership = next((entry for entry in request.memberships if entry.tenant_id.hex == chosen), None)
    membership = membership or (request.memberships[0] if request.memberships else None)
    if membership is not None:
        membership.member = request.user
    return membership


class TenantMiddleware:
    """Set `request.tenant`, `request.membership` and `request.actor` of a signed-in member, and turn refusals into pages.

    The API has its own credentials and its own error documents; it passes through untouched.
    """

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.tenant = request.membership = request.actor = None
        if request.path.startswith("/api/") or not request.user.is_authenticated:
            return self.get_response(request)
        self._enter(request)
        response = self.get_response(request)
        # What a member may see is nobody else's, and stale after signing out. A page with a secret says more itself.
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "private, no-cache"
        return response

    def _enter(self, request):
        membership = enter(request)
        if membership is None:
            return
        request.membership, request.tenant = membership, membership.tenant
        request.actor = members.actor_of(membership=membership)

    def process_view(self, request, view, args, kwargs):
        if request.path.startswith("/api/") or not request.user.is_authenticated:
            return None
        name = request.resolver_match.url_name
        if request.user.must_change_password and name not in ALWAYS:
            return redirect("change-password")
        if request.tenant is None and name not in WITHOUT_TENANT:
            return render(request, "errors/no_tenant.html", status=403)
        return None

    def process_exception(self, request, error):
        if isinstance(error, DatabaseError):
            error = fences.translate(error)
        if request.path.startswith("/api/") or not isinstance(error, LetheError):
            return None
        if error.kind == "unauthenticated":
            return redirect_to_login(request.get_full_path())
        if isinstance(error, StepUpRequired):
            context = {"form": ProveForm(request=request), "next": error.onward}
            return render(request, "registration/prove.html", context, status=403)
        status = STATUSES.get(error.kind, 400)
        template = f"errors/{status}.html" if status in (403, 404) else "errors/problem.html"
        return render(request, template, {"error": error}, status=status)
