"""Filtered lists without end: filters in the address, keyset pages, and a count that stays cheap."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from django import forms
from django.db.models import QuerySet
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents import queries as catalogue
from console.api.pagination import Page, paginate
from governance.models import Subject

ROWS = 50
# Beyond this a count says "10,000+": nobody needs the exact number of a list that long at every key press.
COUNTED = 10_000
_CURSORS = ("before", "after", "page")


@dataclass(frozen=True, slots=True)
class Pill:
    """One filter in force, and the address of the list without it."""

    label: str
    value: str
    url: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list page draws. `count` is None when the filters are not valid, and COUNTED + 1 for many more."""

    page: Page
    count: int | None
    pills: list[Pill]
    clear_url: str

    @property
    def is_filtered(self) -> bool:
        return bool(self.pills)

    @property
    def results(self) -> list:
        return self.page.results

    @property
    def is_capped(self) -> bool:
        return self.count is not None and self.count > COUNTED

    @property
    def shown_count(self) -> int | None:
        return COUNTED if self.is_capped else self.count


class OfTenant:
    """A field whose values are the tenant's: the form says which one before it reads them."""

    def belong_to(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id


class AgentField(OfTenant, forms.ChoiceField):
    def belong_to(self, tenant_id: UUID) -> None:
        self.choices = [("", _("All agents")), *((agent.name, str(agent)) for agent in catalogue.agents_of(tenant_id))]


class SubjectField(OfTenant, forms.CharField):
    """A subject by its reference; None when nothing is given."""

    def clean(self, value):
        ref = super().clean(value).upper()
        if not ref:
            return None
        subject = Subject.objects.filter(tenant_id=self.tenant_id, display_ref=ref).first()
        if subject is None:
            raise forms.ValidationError(_("No subject has this reference."))
        return subject


class FilterForm(forms.Form):
    """Filters of a list, read from the address. Every field is optional; an invalid one finds nothing and says so."""

    use_required_attribute = False

    def __init__(self, request, **kwargs):
        super().__init__(request.GET, auto_id="filter-%s", **kwargs)
        self.request = request
        for field in self.fields.values():
            if isinstance(field, OfTenant):
                field.belong_to(request.tenant.pk)

    def pills(self) -> list[Pill]:
        """The filters in force, invalid ones too: they explain why nothing is found."""
        found = []
        for name, field in self.fields.items():
            value = self.data.get(name, "").strip()
            if value:
                # A field may have found what its text names: the words of that say more than an id.
                clean = getattr(self, "cleaned_data", {}).get(name, value)
                words = value if isinstance(clean, str | date) else str(clean)
                found.append(Pill(str(field.label), self._words(field, words), self._without(name)))
        return found

    def _words(self, field, value: str) -> str:
        for choice, words in getattr(field, "choices", ()):
            # Choices may come in groups.
            nested = dict(words) if isinstance(words, list | tuple) else {choice: words}
            if value in nested:
                return str(nested[value])
        return value

    def _without(self, name: str) -> str:
        query = self.request.GET.copy()
        for gone in (name, *_CURSORS, *(key for key, value in self.request.GET.items() if not value)):
            query.pop(gone, None)
        return f"?{query.urlencode()}" if query else self.request.path

    def day_start(self, name: str) -> datetime | None:
        """The first moment of the given day in the tenant's zone."""
        return self._moment(name, 0)

    def day_end(self, name: str) -> datetime | None:
        """The first moment after the given day."""
        return self._moment(name, 1)

    def _moment(self, name: str, days: int) -> datetime | None:
        day = self.cleaned_data.get(name)
        if day is None:
            return None
        zone = ZoneInfo(self.request.tenant.timezone)
        return datetime.combine(day + timedelta(days=days), time.min, zone).astimezone(UTC)


def search_field(label: str, **kwargs) -> forms.CharField:
    attrs = {"type": "search", "autocomplete": "off", "data-filter": True}
    return forms.CharField(label=label, required=False, max_length=200, widget=forms.TextInput(attrs=attrs), **kwargs)


def text_field(label: str, *, placeholder: str = "", max_length: int = 200) -> forms.CharField:
    attrs = {"type": "search", "autocomplete": "off", "spellcheck": "false", "placeholder": placeholder}
    return forms.CharField(label=label, required=False, max_length=max_length, widget=forms.TextInput(attrs=attrs))


def date_field(label: str) -> forms.DateField:
    return forms.DateField(label=label, required=False, widget=forms.DateInput(attrs={"type": "date"}))


def choice_field(label: str, choices, everything: str | None = None) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, required=False, choices=[("", everything or _("Any")), *choices])


def agent_field() -> AgentField:
    return AgentField(label=gettext_lazy("Agent"), required=False)


def subject_field() -> SubjectField:
    attrs = {"type": "search", "autocomplete": "off", "spellcheck": "false", "placeholder": "S-7Q4K-2M9D"}
    return SubjectField(label=gettext_lazy("Subject"), required=False, max_length=16, widget=forms.TextInput(attrs=attrs))


def listing(request, form: FilterForm, queryset: QuerySet | None, *, order: tuple[str, ...]) -> Listing:
    """One page of `queryset`; None when the form is not valid. Raises BadCursor for a cursor of another list."""
    if queryset is None:
        return Listing(Page([]), None, form.pills(), request.path)
    cursor = request.GET.get("before") or request.GET.get("after")
    page = paginate(queryset, order=order, cursor=cursor, limit=ROWS)
    count = len(page.results)
    if cursor or page.next_cursor:
        count = queryset.order_by()[: COUNTED + 1].count()
    return Listing(page, count, form.pills(), request.path)


def render_list(request, template: str, form: FilterForm, context: dict):
    """The page, or its table for htmx; refused when a filter is not valid, so that a typo never means "all"."""
    refused = 422 if request.htmx else 400
    part = f"{template}#table" if request.htmx else template
    response = render(request, part, {"filters": form, **context}, status=200 if form.is_valid() else refused)
    if request.htmx:
        # The address without the fields that were left empty.
        query = request.GET.copy()
        for empty in [name for name, value in query.items() if not value]:
            del query[empty]
        response["HX-Push-Url"] = f"{request.path}?{query.urlencode()}" if query else request.path
    return response
