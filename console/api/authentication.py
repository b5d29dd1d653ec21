"""Who calls, and for whom. Both come from the credential and its headers, never from a body."""

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication

from governance.domain import keys
from governance.errors import Unauthenticated


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
