"""The functions that agents may call: registered in code, read here."""

from django.shortcuts import render
from django.views.decorators.http import require_GET

from agents import tools
from console.access import may


@require_GET
@may("agents.read")
def tool_list(request):
    words = request.GET.get("q", "").strip().casefold()
    found = sorted(tools.all_tools(), key=lambda tool: (tool.origin, tool.name))
    if words:
        found = [tool for tool in found if words in tool.name.casefold() or words in tool.description.casefold()]
    context = {"tools": found, "q": request.GET.get("q", "")}
    return render(request, "console/tools.html#table" if request.htmx else "console/tools.html", context)
