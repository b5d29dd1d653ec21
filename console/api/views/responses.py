"""Answers that are not one serialized object."""

from django.http import HttpResponse, JsonResponse


def json_answer(document, *, status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse:
    return JsonResponse(document, status=status, headers=headers, safe=False)


def not_modified() -> HttpResponse:
    return HttpResponse(status=304)
