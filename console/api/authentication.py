"""Who calls, and for whom. Both come from the credential and its headers, never from a body."""

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, CSRFCheck

from console import stepup
from console.middleware import enter
from governance.domain import keys, members
from governance.errors import Forbidden, Unauthenticated


class BearerKey(BaseAuthentication):
    """`Authorization: Bearer lth_...`. Sets `request.actor`; REST framework's `user` and `auth` are the same actor."""

    def authenticate(self, request):
        scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthenticated
        actor = keys.authenticate(secret=secret.strip())
        request.actor = actor
        return actor, actor

    def authenticate_header(self, request):
        return 'Bearer realm="lethe"'


class BrowserSession(BaseAuthentication):
    """A person with the session of their browser, for acts that no key may do; without one, it is for the key to say who calls.

    Such a call carries the session's CSRF token as X-CSRFToken, and a password entered within the last five minutes.
    """

    def authenticate(self, request):
        http = request._request
        if "HTTP_AUTHORIZATION" in request.META or not http.user.is_authenticated:
            return None
        check = CSRFCheck(lambda request: None)
        check.process_request(http)
        if check.process_view(http, None, (), {}) is not None:
            raise Forbidden("Send the CSRF token of your session as X-CSRFToken.")
        membership = enter(http)
        if membership is None or http.user.must_change_password:
            raise Forbidden("Sign in to the console first: you have no tenant there, or have to choose a password.")
        request.actor = members.actor_of(membership=membership)
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            stepup.require(http)
        return request.actor, request.actor


class BrowserSessionScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.authentication.BrowserSession"
    name = "session"

    def get_security_definition(self, auto_schema):
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "The session of a person who is signed in to the console, with its token in X-CSRFToken.",
        }


class BearerKeyScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.authentication.BearerKey"
    name = "apiKey"

    def get_security_definition(self, auto_schema):
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "lth_ and 43 characters",
            "description": "An API key of the tenant. Its scopes say what it may do; keys are made in the console or under /api/api-keys.",
        }
