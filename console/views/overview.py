"""The first page: what runs, what fails, what it costs, and what waits for a person."""

from django.shortcuts import render

from console.access import may


@may("usage.read")
def overview(request):
    return render(request, "console/overview.html", {})
