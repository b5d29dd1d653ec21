"""MCP servers: the list, one server with what it offers, checking, changing and removing it."""

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents import queries
from agents.domain import mcp_servers
from console.access import may, mcp_server_for
from console.forms.base import tell
from console.forms.mcp_servers import McpServerForm, initial_of
from governance.errors import LetheError


@require_GET
@may("agents.read")
def server_list(request):
    return render(request, "console/mcp_servers.html", {"servers": queries.mcp_servers_of(request.tenant.pk)})


@require_GET
def server_detail(request, name):
    server = mcp_server_for(request, name)
    usable = {tool["name"] for tool in server.offered_tools}
    tools = [
        {**tool, "is_usable": tool["name"] in usable, "effect": "read" if server.only_reads(tool) else "external"}
        for tool in server.tools
    ]
    context = {"server": server, "tools": tools, "usable": len(usable), "used_by": mcp_servers.agents_using(server)}
    return render(request, "console/mcp_server.html", context)


@may("providers.write")
@require_http_methods(["GET", "POST"])
def server_new(request):
    return _edit(request, None)


@require_http_methods(["GET", "POST"])
def server_edit(request, name):
    return _edit(request, mcp_server_for(request, name, "providers.write"))


def _edit(request, server):
    form = McpServerForm(request.POST or None, server=server, initial=initial_of(server))
    if request.method == "POST" and form.is_valid():
        try:
            saved = _save(form, server, by=request.actor)
        except LetheError as error:
            names = {path: "secrets" for path in error.errors if path.startswith("secrets.")}
            tell(form, error, names)
        else:
            messages.success(request, _("%s was saved. Check it to see what it offers.") % saved.name)
            return redirect("mcp-server", saved.name)
    return render(request, "console/mcp_server_edit.html", {"form": form, "server": server}, status=422 if form.is_bound else 200)


def _save(form, server, *, by):
    if server is None:
        data = form.cleaned_data
        return mcp_servers.create_server(tenant_id=by.tenant_id, name=data["name"], transport=data["transport"], by=by, **form.values())
    return mcp_servers.update_server(server=server, by=by, **form.values())


@require_POST
def server_check(request, name):
    """Ask the server what it offers; the result stays on its page."""
    server = mcp_servers.check_server(server=mcp_server_for(request, name, "providers.write"), by=request.actor)
    check = server.last_check
    if check["ok"]:
        messages.success(request, _("%(name)s answered and offers %(n)d tools.") % {"name": name, "n": len(server.tools)})
    else:
        messages.error(request, check["message"])
    return redirect("mcp-server", name)


@require_POST
def server_delete(request, name):
    server = mcp_server_for(request, name, "providers.write")
    try:
        mcp_servers.delete_server(server=server, by=request.actor)
    except LetheError as error:
        messages.error(request, error.detail)
        return redirect("mcp-server", name)
    messages.success(request, _("%s was deleted.") % name)
    return redirect("mcp-servers")
