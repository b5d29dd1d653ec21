"""How Lethe works, drawn from the same tables that the product itself uses."""

from django.shortcuts import render
from django.views.decorators.http import require_GET

from agents import schema
from governance.domain import processing
from governance.permissions import PERMISSIONS, ROLES, SCOPES
from sessions.domain import vocabulary


@require_GET
def help_page(request):
    return render(request, "console/help.html", {"roles": ROLES, "scopes": SCOPES, "events": vocabulary.ABOUT})


@require_GET
def definition(request):
    """Every setting of an agent, in the editor's order."""
    return render(request, "console/help_definition.html", {"sections": schema.sections()})


@require_GET
def permissions(request):
    """Who may do what: a row for each permission, a column for each role."""
    table = [(name, [role in permission.roles for role in ROLES], permission.scopes) for name, permission in PERMISSIONS.items()]
    return render(request, "console/help_permissions.html", {"roles": ROLES, "scopes": SCOPES, "table": table})


@require_GET
def categories(request):
    """The record of processing: every kind of personal data that Lethe keeps, with its purpose and its end."""
    return render(request, "console/help_categories.html", {"record": processing.record(tenant=request.tenant)})
