"""Answers that are not one serialized object."""

from django.http import HttpResponse, JsonResponse
from rest_framework.renderers import BaseRenderer


def json_answer(document, *, status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse:
    return JsonResponse(document, status=status, headers=headers, safe=False)


def not_modified() -> HttpResponse:
    return HttpResponse(status=304)


class ZipRenderer(BaseRenderer):
    """Says that a ZIP is offered; the answer is made by the view."""

    media_type = "application/zip"
    format = "zip"
