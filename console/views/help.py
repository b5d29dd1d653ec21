"""How Lethe works, drawn from the same tables that the product itself uses."""

from django.shortcuts import render

from governance.permissions import PERMISSIONS, ROLES, SCOPES


def help_page(request):
    table = [(name, permission) for name, permission in PERMISSIONS.items() if permission.roles]
    return render(request, "console/help.html", {"roles": ROLES, "scopes": SCOPES, "table": table})
