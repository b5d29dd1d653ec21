"""The components of the console: one tag each, drawn from templates/ui/. A builtin library, so no page loads it.

Colours carry a kind (ok, warn, bad, info, busy, idle) and always a word beside it.
"""

import difflib
import json
from datetime import UTC, datetime
from decimal import Decimal

from django import template
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.charts import chart_of
from governance import ids

register = template.Library()

NOTHING = mark_safe('<span class="muted">–</span>')

# Words of states as people say them, and the kind that gives shape and colour.
STATES = {
    "open": ("ok", gettext_lazy("open")),
    "closed": ("idle", gettext_lazy("closed")),
    "archived": ("idle", gettext_lazy("archived")),
    "published": ("ok", gettext_lazy("published")),
    "draft": ("idle", gettext_lazy("draft")),
    "disabled": ("bad", gettext_lazy("disabled")),
    "active": ("ok", gettext_lazy("active")),
    "revoked": ("bad", gettext_lazy("revoked")),
    "expired": ("bad", gettext_lazy("expired")),
    "queued": ("idle", gettext_lazy("queued")),
    "running": ("busy", gettext_lazy("running")),
    "awaiting_approval": ("warn", gettext_lazy("waiting for approval")),
    "completed": ("ok", gettext_lazy("completed")),
    "failed": ("bad", gettext_lazy("failed")),
    "cancelled": ("idle", gettext_lazy("cancelled")),
    "interrupted": ("warn", gettext_lazy("interrupted")),
    "budget_exceeded": ("warn", gettext_lazy("budget used up")),
    "pending": ("warn", gettext_lazy("waiting")),
    "approved": ("ok", gettext_lazy("approved")),
    "rejected": ("bad", gettext_lazy("rejected")),
    "withdrawn": ("idle", gettext_lazy("withdrawn")),
    "success": ("ok", gettext_lazy("done")),
    "denied": ("bad", gettext_lazy("denied")),
    "received": ("idle", gettext_lazy("received")),
    "identity_pending": ("warn", gettext_lazy("identity unproven")),
    "previewed": ("info", gettext_lazy("previewed")),
    "fencing": ("busy", gettext_lazy("closing writes")),
    "executing": ("busy", gettext_lazy("working")),
    "verifying": ("busy", gettext_lazy("verifying")),
    "failed_retryable": ("bad", gettext_lazy("failed, will retry")),
    "completed_with_exceptions": ("warn", gettext_lazy("partly completed")),
    "restricted": ("warn", gettext_lazy("restricted")),
    "erasing": ("busy", gettext_lazy("being erased")),
    "erased": ("idle", gettext_lazy("erased")),
    "merged": ("idle", gettext_lazy("merged into another")),
    "current": ("ok", gettext_lazy("current")),
    "replaced": ("idle", gettext_lazy("replaced")),
    "stale": ("warn", gettext_lazy("stale")),
    "enabled": ("ok", gettext_lazy("on")),
    "read": ("ok", gettext_lazy("read")),
    "write": ("warn", gettext_lazy("write")),
    "destructive": ("bad", gettext_lazy("destructive")),
    "external": ("info", gettext_lazy("external")),
}


@register.simple_tag
def badge(kind, text=None):
    """`{% badge "ok" "open" %}`: a word with a shape. Kinds: ok, warn, bad, info, busy, idle."""
    return format_html('<span class="badge {}">{}</span>', kind, kind if text is None else text)


@register.simple_tag
def state(value):
    """`{% state run.status %}`: the badge of a known state; an unknown one is shown as it is."""
    kind, text = STATES.get(str(value), ("idle", str(value).replace("_", " ")))
    return badge(kind, text)


@register.filter
def state_text(value):
    """The words of a state, for titles and sentences."""
    return STATES.get(str(value), ("idle", str(value).replace("_", " ")))[1]


@register.simple_tag
def icon(name, label=""):
    """`{% icon "copy" %}`: from the sprite, hidden from screen readers unless it has a label."""
    if label:
        return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}#{}"/></svg>', label, static("console/icons.svg"), name)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', static("console/icons.svg"), name)


# Numbers, times, sizes


@register.filter
def number(value):
    """1204 as 1,204."""
    return "–" if value is None else number_format(value, use_l10n=True, force_grouping=True)


@register.simple_tag
def tokens(value):
    """`{% tokens 4120 %}`: 4,120, or a dash when it is not known."""
    return NOTHING if value in (None, "") else number(value)


@register.filter
def dollars(value):
    """A sum in US dollars: two places from a cent upwards, two significant digits below."""
    amount = Decimal(str(value))
    if amount == 0:
        return "$0"
    if abs(amount) >= Decimal("0.01"):
        return f"${amount:,.2f}" if abs(amount) >= 1 else f"${amount:.4f}".rstrip("0")
    return f"${amount:.{1 - amount.adjusted()}f}"


@register.simple_tag
def money(value):
    """`{% money run.cost %}`: $0.0011; a dash with its reason when no price is known."""
    if value is None:
        return format_html('<span class="muted" title="{}">–</span>', _("No price is known for this model."))
    return dollars(value)


@register.filter
def size(value):
    """Bytes in binary units: 38.2 MiB."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return None


@register.filter
def duration(milliseconds):
    """312 ms, 1.9 s, 4 min 10 s."""
    if milliseconds is None:
        return "–"
    milliseconds = float(milliseconds)
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def relative(moment, now=None):
    """`moment` as people say it: 3 minutes ago, in 2 days. Past a month, the date."""
    now = now or timezone.now()
    seconds = (now - moment).total_seconds()
    past, seconds = seconds >= 0, abs(seconds)
    if seconds < 45:
        return _("just now") if past else _("in a moment")
    if seconds < 3570:
        count = max(1, round(seconds / 60))
        words = ngettext("%d minute", "%d minutes", count) % count
    elif seconds < 84600:
        count = round(seconds / 3600)
        words = ngettext("%d hour", "%d hours", count) % count
    elif seconds < 86400 * 31:
        count = round(seconds / 86400)
        words = ngettext("%d day", "%d days", count) % count
    else:
        return f"{moment.day} {moment:%b %Y}"
    return _("%s ago") % words if past else _("in %s") % words


def _moment(value):
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


@register.simple_tag
def time(value, style="relative"):
    """`{% time run.created_at %}`: relative, with the exact time in its title; style "exact" or "clock" shows that.

    Takes a datetime or its ISO text; a dash for none.
    """
    if not value:
        return NOTHING
    moment = _moment(value).astimezone(UTC)
    exact = f"{moment.day} {moment:%b %Y, %H:%M:%S} UTC"
    shown = {"exact": exact, "clock": f"{moment:%H:%M}", "date": f"{moment.day} {moment:%b %Y}"}.get(style) or relative(moment)
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact, shown)


# Forms


@register.simple_tag
def field(bound, unit="", label="", hint=""):
    """`{% field form.name %}`: label, control, help and errors, tied together. `unit` stands muted behind the label."""
    widget = bound.field.widget
    kind = getattr(widget, "input_type", "")
    many = kind in ("checkbox", "radio") and hasattr(widget, "choices")
    context = {
        "field": bound,
        "label": label or bound.label,
        "unit": unit,
        "hint": hint or bound.help_text,
        "is_check": kind == "checkbox" and not many,
        "is_many": many,
        "is_optional": not bound.field.required and kind != "checkbox" and not unit,
    }
    return mark_safe(render_to_string("ui/field.html", context))


@register.inclusion_tag("ui/form_errors.html")
def form_errors(form):
    """Errors that belong to no single field, above the form."""
    return {"errors": form.non_field_errors()}


@register.simple_tag
def unavailable(text, reason, css=""):
    """An act that is not possible now: visible, disabled, reachable by keyboard, with the reason."""
    return format_html(
        '<button type="button" class="btn {}" aria-disabled="true" data-tip="{}">{}<span class="visually-hidden">: {}</span></button>',
        css, reason, text, reason,
    )


# Blocks


@register.inclusion_tag("ui/empty_state.html")
def empty_state(title, text="", href="", action="", icon="search"):
    """`{% empty_state "No agents yet" "What to do" href "Do it" icon="agent" %}`."""
    return {"title": title, "text": text, "href": href, "action": action, "icon": icon}


@register.inclusion_tag("ui/pagination.html", takes_context=True)
def pagination(context, page, target=""):
    """Links to the neighbours of a page: Django's Page (`?page=`), or next_cursor and previous_cursor (`?before=`, `?after=`).

    `target` is the CSS selector that htmx refreshes; without it, or without a script, the links load the page.
    """
    numbered = hasattr(page, "paginator")
    if numbered:
        following = page.next_page_number() if page.has_next() else None
        preceding = page.previous_page_number() if page.has_previous() else None
    else:
        following, preceding = page.next_cursor, getattr(page, "previous_cursor", None)
    query = context["request"].GET.copy() if "request" in context else None

    def link(name, value):
        if value is None or query is None:
            return ""
        changed = query.copy()
        for other in ("page", "before", "after"):
            changed.pop(other, None)
        changed[name] = value
        return "?" + changed.urlencode()

    return {
        "page": page,
        "numbered": numbered,
        "target": target,
        "next": link("page" if numbered else "before", following),
        "previous": link("page" if numbered else "after", preceding),
    }


@register.inclusion_tag("ui/pills.html")
def pills(listing):
    """The filters in force (console.listing), each a link that takes it away."""
    return {"listing": listing}


@register.simple_block_tag(takes_context=True)
def dialog(context, content, id, title, wide=False, is_open=False):
    """`{% dialog "delete" "Delete research?" %}...{% enddialog %}`, opened by `<a href="#delete" data-dialog>`.

    Without a script the link shows it by `:target`.
    """
    return mark_safe(render_to_string("ui/dialog.html", {"id": id, "title": title, "content": content, "wide": wide, "is_open": is_open}))


@register.simple_block_tag
def card(content, title="", note="", css=""):
    """`{% card "Harness" %}...{% endcard %}`: a titled surface with padding."""
    header = format_html('<header><h2>{}</h2>{}</header>', title, format_html('<span class="muted">{}</span>', note) if note else "") if title else ""
    return format_html('<section class="card {}">{}<div class="body">{}</div></section>', css, header, content)


@register.simple_tag
def stat(label, value, note="", kind=""):
    """One number with its name above and a remark below. `kind` bad marks trouble."""
    return format_html('<div class="card stat {}"><span>{}</span><b>{}</b><span>{}</span></div>', kind, label, value, note)


@register.inclusion_tag("ui/bar.html")
def bar(parts, label="", total=None, legend=True, thin=False):
    """A stacked bar with its legend. `parts`: dicts with label, value, and optionally css (l1 to l8, b-erase...) and note.

    `total` leaves the rest of the bar empty; the default is the sum of the parts.
    """
    parts = [dict(part) for part in parts if part["value"]]
    whole = total or sum(part["value"] for part in parts) or 1
    at = 0.0
    for number_, part in enumerate(parts):
        width = part["value"] / whole * 1000
        gap = 2 if number_ + 1 < len(parts) and width > 4 else 0
        part.update(x=f"{at:.1f}", width=f"{max(width - gap, 1.5):.1f}", css=part.get("css") or f"l{number_ % 8 + 1}")
        at += width
    words = ", ".join(f"{part['label']} {number(part['value'])}" for part in parts)
    return {"parts": parts, "label": f"{label}: {words}" if label else words, "legend": legend, "thin": thin}


@register.inclusion_tag("ui/progress.html")
def progress(done, total, label="", kind=""):
    """Done of total with both numbers. An unknown total shows as not determined."""
    share = round(done / total * 100) if total else None
    return {"done": done, "total": total, "label": label, "kind": kind, "share": share}


@register.inclusion_tag("ui/timeline.html")
def timeline(entries):
    """`entries`: dicts with title, and optionally at (datetime), kind, text, aside (words instead of a time)."""
    return {"entries": entries}


GATE = 20_000


@register.inclusion_tag("ui/code.html")
def code(value, title="", folded=False, href=""):
    """JSON or text: pretty, copyable, folded on request. Above 20,000 characters it is cut, with `href` to the whole."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return {
        "text": text[:GATE],
        "cut": len(text) - GATE if len(text) > GATE else 0,
        "lines": text.count("\n") + 1,
        "title": title,
        "folded": folded or len(text) > GATE,
        "href": href,
    }


@register.inclusion_tag("ui/diff.html")
def diff(old, new, context=3):
    """Two texts or JSON values, line by line."""
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str) for value in (old, new)]
    lines = []
    for line in list(difflib.unified_diff(*(text.splitlines() for text in texts), lineterm="", n=int(context)))[2:]:
        kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1], "")
        lines.append({"kind": kind, "sign": line[:1] if kind in ("add", "del") else "", "text": line if kind == "at" else line[1:]})
    return {"lines": lines}


@register.inclusion_tag("ui/chart.html")
def chart(points, label, kind="line", unit="", cut=None):
    """A time series as SVG with a table beside it. `points`: dicts with label, value, and optionally bad and shown.

    `kind` is line or columns; `bad` is the part of a column that failed; `cut` draws a line before that index.
    """
    return chart_of(points, label=label, kind=kind, unit=unit, cut=cut)


@register.filter
def get(mapping, key):
    """`{{ mapping|get:key }}`: an entry by a name that is itself a variable."""
    return mapping.get(key) if mapping else None


@register.filter
def pairs(mapping):
    """Names and values of a mapping. Not `mapping.items`: that would be its entry of that name, when it has one."""
    return mapping.items() if mapping else ()


@register.filter
def words(value):
    """`privacy_officer` as `privacy officer`."""
    return str(value).replace("_", " ")


@register.filter
def ref(thing, prefix):
    """`{{ run|ref:"run" }}`: the id as it looks outside, from an object or a UUID."""
    return ids.shown(prefix, getattr(thing, "pk", thing))


@register.filter
def key_state(key):
    """The state of an API key, as `state` takes it."""
    if key.revoked_at:
        return "revoked"
    return "expired" if key.expires_at and key.expires_at <= timezone.now() else "active"


@register.filter
def breaker_open(provider):
    """Whether calls of this provider rest after failures."""
    return bool(provider.open_until and provider.open_until > timezone.now())


@register.filter
def integer(value):
    """A whole number out of a decimal: 5000.000000 as 5,000."""
    return number(int(value))
