"""What is asked about the installation, not about a tenant: is it well, and how is the API called."""

from functools import cache

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import include, path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from console.api.endpoint import Endpoint
from console.api.errors import problem
from console.api.operations import operation
from governance.domain import quarantine
from governance.errors import NotFound
from sessions import dispatch


@login_not_required
@require_safe
@never_cache
def healthz(request):
    """The process answers. Touches nothing else: a lost database must not get it killed."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@login_not_required
@require_safe
@never_cache
def readyz(request):
    """Whether new work can be sent here: the database answers, its tables are up to date, nobody is shutting down,
    and nothing was restored that the ledger knows to be erased."""
    checks = {"database": _database_answers(), "migrations": False, "accepting": not dispatch.draining.is_set()}
    checks["migrations"] = checks["database"] and _is_migrated()
    checks["quarantine"] = quarantine.current() is None
    return JsonResponse({"ready": all(checks.values()), "checks": checks}, status=200 if all(checks.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


_migrated = False


def _is_migrated() -> bool:
    """Asked of the database until it is true; after that this process has the tables that it needs."""
    global _migrated  # noqa: PLW0603 -- remembered for the life of the process
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


class OpenApiRenderer(JSONRenderer):
    media_type = "application/vnd.oai.openapi+json"
    format = "openapi"


class SchemaView(Endpoint):
    """The OpenAPI document. It says nothing about any tenant, so it needs no key."""

    authentication_classes = []
    permission_classes = []
    renderer_classes = [JSONRenderer, OpenApiRenderer]

    @operation("Read the OpenAPI document", is_hidden=True)
    def get(self, request):
        return Response(openapi())


@cache
def openapi() -> dict:
    """The document, drawn once: it changes with the code only."""
    return SchemaGenerator(patterns=[path("api/", include("console.api.urls"))]).get_schema(request=None, public=True)


class Unknown(Endpoint):
    """Any other address under /api/."""

    authentication_classes = []
    permission_classes = []

    def dispatch(self, request, *args, **kwargs):
        return problem(request, NotFound("There is no such address in the API. The docs are at /api/docs."))


@login_not_required
@require_safe
def docs(request):
    return render(request, "api/docs.html", {"title": settings.SPECTACULAR_SETTINGS["TITLE"]})
