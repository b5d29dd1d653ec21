from rest_framework.permissions import BasePermission

# For what any valid key may do: read about itself.
ANY_KEY = ""


class HasPermission(BasePermission):
    """The view says per method what it needs: `permission = {"GET": "agents.read"}`. What it does not name is refused."""

    def has_permission(self, request, view):
        method = "GET" if request.method == "HEAD" else request.method
        if method == "OPTIONS" or not hasattr(view, method.lower()):
            return True
        needed = view.permission.get(method)
        if needed is None:
            return False
        if needed != ANY_KEY:
            request.actor.require(needed)
        return True
