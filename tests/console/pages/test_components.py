"""The components: what they write for numbers, times, bars, charts, fields and code."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django import forms
from django.core.paginator import Paginator
from django.template import engines
from django.test import RequestFactory
from django.utils import timezone

from console.api.pagination import Page
from console.charts import chart_of
from console.templatetags import ui


def drawn(source, **context):
    return engines["django"].from_string(source).render(context)


@pytest.mark.parametrize(
    "value, words",
    [(0, "$0"), ("0.0011", "$0.0011"), ("0.00000123", "$0.0000012"), ("0.42", "$0.42"), ("0.1709", "$0.1709"), ("1204.5", "$1,204.50"), (Decimal("12"), "$12.00")],
)
def test_money_shows_cents_or_two_significant_digits(value, words):
    assert ui.money(value) == words


def test_money_that_nobody_knows_says_so():
    assert "No price is known" in ui.money(None)


@pytest.mark.parametrize("value, words", [(0, "0 B"), (812, "812 B"), (48211, "47.1 KiB"), (40055603, "38.2 MiB"), (500 * 1024, "500 KiB"), (3 * 1024**4, "3072 GiB"), (None, "–")])
def test_size_in_binary_units(value, words):
    assert ui.size(value) == words


@pytest.mark.parametrize("value, words", [(312, "312 ms"), (1900, "1.9 s"), (60000, "1 min"), (250000, "4 min 10 s"), (9000000, "2 h 30 min"), (None, "–")])
def test_duration_in_words(value, words):
    assert ui.duration(value) == words


@pytest.mark.parametrize(
    "delta, words",
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=3), "3 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(hours=-26), "in 1 day"),
        (timedelta(seconds=-10), "in a moment"),
    ],
)
def test_time_is_relative(delta, words):
    now = timezone.now()

    assert ui.relative(now - delta, now) == words


def test_time_keeps_the_exact_one_in_its_title():
    assert ui.time("2026-05-03T08:00:00Z") == '<time datetime="2026-05-03T08:00:00+00:00" title="3 May 2026, 08:00:00 UTC">3 May 2026</time>'


def test_state_is_a_word_and_a_shape():
    assert ui.state("awaiting_approval") == '<span class="badge warn">waiting for approval</span>'
    assert ui.state("something_new") == '<span class="badge idle">something new</span>'


def test_components_escape_what_they_are_given():
    evil = "<script>alert(1)</script>"

    page = drawn(
        "{% badge 'ok' x %}{% state x %}{% stat x x x %}{% code x title=x %}{% diff x 'y' %}{% empty_state x x %}{% unavailable x x %}"
        "{% bar parts label=x %}{% timeline entries %}{% progress 1 2 x %}{% chart points label=x %}{% dialog 'd' x %}{{ x }}{% enddialog %}{% card x %}{{ x }}{% endcard %}",
        x=evil,
        parts=[{"label": evil, "value": 3}],
        entries=[{"title": evil, "text": evil}],
        points=[{"label": evil, "value": 1}],
    )

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 20


def test_bar_shares_its_width_by_value():
    parts = ui.bar([{"label": "a", "value": 75}, {"label": "b", "value": 25}, {"label": "none", "value": 0}])["parts"]

    assert [(part["label"], part["x"], part["width"]) for part in parts] == [("a", "0.0", "748.0"), ("b", "750.0", "250.0")]


def test_bar_leaves_the_rest_of_a_total_empty():
    assert ui.bar([{"label": "a", "value": 10}], total=100)["parts"][0]["width"] == "100.0"


def test_chart_breaks_its_line_where_nothing_is_known():
    curve = chart_of([{"label": "1", "value": 5}, {"label": "2", "value": None}, {"label": "3", "value": 5}, {"label": "4", "value": 10}], label="x")["curve"]

    assert curve.count("M") == 2


def test_chart_of_nothing_is_empty():
    chart = chart_of([], label="Runs")

    assert (chart["columns"], chart["curve"], chart["summary"]) == ([], "", "Runs")


def test_chart_says_its_range_and_peak():
    assert chart_of([{"label": "1 Nov", "value": 1}, {"label": "2 Nov", "value": 9}], label="Runs")["summary"] == "Runs, 1 Nov to 2 Nov, highest 9 on 2 Nov"


class Form(forms.Form):
    name = forms.CharField(label="Name", help_text="Say who.")
    note = forms.CharField(required=False)
    switch = forms.BooleanField(required=False, help_text="What it does.")
    many = forms.MultipleChoiceField(choices=[("a", "First")], widget=forms.CheckboxSelectMultiple)


def test_field_ties_help_and_error_to_its_control():
    form = Form({"name": ""})

    page = drawn("{% field form.name %}", form=form)

    assert 'aria-describedby="id_name_helptext id_name_error"' in page
    assert 'id="id_name_helptext"' in page
    assert 'id="id_name_error"' in page
    assert 'aria-invalid="true"' in page


def test_field_marks_what_is_optional():
    assert "optional" in drawn("{% field form.note %}", form=Form())
    assert "optional" not in drawn("{% field form.name %}", form=Form())
    assert ">tokens<" in drawn("{% field form.note unit='tokens' %}", form=Form())


def test_field_draws_a_switch_and_several_choices():
    assert drawn("{% field form.switch %}", form=Form()).startswith('<div class="check">')
    assert "<fieldset" in drawn("{% field form.many %}", form=Form())


def test_code_folds_and_cuts_what_is_long():
    shown = ui.code("x" * (ui.GATE + 5), href="/whole")

    assert (len(shown["text"]), shown["cut"], shown["folded"]) == (ui.GATE, 5, True)


def test_diff_tells_lines_apart_without_colour():
    page = drawn("{% diff old new %}", old={"a": 1}, new={"a": 2})

    assert "removed:" in page
    assert "added:" in page
    assert "No difference." in drawn("{% diff old old %}", old={"a": 1})


def test_pagination_keeps_the_filters():
    request = RequestFactory().get("/runs", {"status": "failed", "before": "old"})

    numbered = drawn("{% pagination page %}", page=Paginator(range(120), 50).get_page(2), request=request)
    by_key = drawn("{% pagination page '#table' %}", page=Page([], "n", "p"), request=request)

    assert 'href="?status=failed&amp;page=3"' in numbered
    assert "51 to 100 of 120" in numbered
    assert 'href="?status=failed&amp;before=n"' in by_key
    assert 'hx-get="?status=failed&amp;after=p"' in by_key


def test_pairs_reads_a_mapping_that_has_an_entry_named_items():
    assert drawn("{% for key, value in counts|pairs %}{{ key }}{{ value }} {% endfor %}", counts={"items": 4, "runs": 1}) == "items4 runs1 "
