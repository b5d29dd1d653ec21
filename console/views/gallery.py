"""Every component in every state, for those who build pages. Staff only; the browser tests look at it."""

from datetime import timedelta

from django import forms
from django.core.paginator import Paginator
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.api.pagination import Page
from console.templatetags.ui import STATES
from governance.errors import Forbidden


class Specimen(forms.Form):
    text = forms.CharField(label="Text", help_text="Help stands below the control.")
    optional = forms.CharField(label="Optional text", required=False)
    number = forms.IntegerField(label="Context window", initial=64000)
    wrong = forms.IntegerField(label="Start at", min_value=1, max_value=61952)
    long = forms.CharField(label="Long text", widget=forms.Textarea)
    choice = forms.ChoiceField(label="Choice", choices=[("a", "Before each turn"), ("b", "Only when asked")])
    switch = forms.BooleanField(label="A switch", required=False, help_text="What it changes.")
    wrong_switch = forms.BooleanField(label="A switch that cannot be off")
    many = forms.MultipleChoiceField(label="Several", choices=[("a", "First"), ("b", "Second"), ("c", "Third")], widget=forms.CheckboxSelectMultiple)
    one = forms.ChoiceField(label="One of", choices=[("a", "First"), ("b", "Second")], widget=forms.RadioSelect)


@require_GET
def gallery(request):
    if not request.user.is_staff:
        raise Forbidden("The gallery is for those who build Lethe's pages.")
    now = timezone.now()
    days = [{"label": f"{day} Nov", "value": (day * 37) % 91 + 10, "bad": day % 5} for day in range(1, 31)]
    context = {
        "states": list(STATES),
        "kinds": ["ok", "warn", "bad", "info", "busy", "idle"],
        "form": Specimen(),
        "invalid": Specimen({"text": "", "number": "x", "wrong": "63000", "choice": "z"}, auto_id="invalid-%s"),
        "times": [now, now - timedelta(minutes=3), now - timedelta(hours=5), now - timedelta(days=3), now - timedelta(days=90), now + timedelta(hours=26), None],
        "layers": [
            {"label": "Instructions", "value": 906, "note": "cached"},
            {"label": "Facts about the subject", "value": 247, "note": "3"},
            {"label": "Summary of turns 1 to 22", "value": 812},
            {"label": "History, turns 23 and 24", "value": 1401},
            {"label": "Recall", "value": 536, "note": "2 of 9"},
            {"label": "Todos, mode, files", "value": 218},
        ],
        "page": Paginator(range(120), 50).get_page(2),
        "cursor_page": Page([], "next", "previous"),
        "entries": [
            {"title": "Run started", "at": now - timedelta(seconds=90), "kind": "info"},
            {"title": "search_knowledge", "aside": "312 ms", "kind": "ok", "text": "2 of 9 results used"},
            {"title": "file_access_write waits for a person", "aside": "2 min", "kind": "warn"},
            {"title": "The provider refused", "at": now, "kind": "bad", "text": "429: too many requests"},
        ],
        "days": days,
        "document": {"name": "research", "model": {"provider": "demo", "model": "demo"}, "tools": ["search_knowledge"]},
        "changed": {"name": "research", "model": {"provider": "demo", "model": "demo-large"}, "tools": []},
        "long_text": "A line of a long text.\n" * 1200,
    }
    return render(request, "console/gallery.html", context)
