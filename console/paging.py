"""Numbered pages, for lists that a person could count. What grows without end pages by key: `console.listing`."""

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet


def numbered(request, queryset: QuerySet, *, rows: int = 50) -> Page:
    """The page that `?page=` names; the nearest one when it names none."""
    return Paginator(queryset, rows).get_page(request.GET.get("page"))
