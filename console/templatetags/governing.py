"""Tags and filters of the pages of governance and quotas. A builtin library, like `ui`."""

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.templatetags.ui import NOTHING, dollars, integer, number, words
from governance.domain import registry, requests

register = template.Library()


@register.simple_tag
def short(value, length=20):
    """A long id or digest by its beginning, whole in its title."""
    text = str(value)
    return text if len(text) <= length else format_html('<span title="{}">{}…</span>', text, text[: length - 4])


@register.simple_tag
def payload(event):
    """The payload of an audit event as words, without what is empty."""
    parts = []
    for name, value in event.payload.items():
        if value in (None, "", [], {}):
            continue
        values = value if isinstance(value, list) else [f"{key} {entry}" for key, entry in value.items()] if isinstance(value, dict) else [value]
        parts.append(format_html("<span>{} <code>{}</code></span>", words(name), format_html_join(", ", "{}", ((short(entry),) for entry in values))))
    return format_html_join(" ", "{}", ((part,) for part in parts))


@register.filter
def receipt_sum(receipt, name):
    """A column of an erasure's receipt, summed over its categories."""
    return number(sum(entry[name] for entry in receipt["categories"]))


@register.filter
def stays(entry):
    """Rows of a receipt's category that did not go: held, kept by law, left, or rebuilt without the person."""
    return sum(entry[name] for name in ("held", "retained", "skipped", "regenerated"))


@register.filter
def is_cancellable(item):
    """Whether a request about a subject can still be called off."""
    return requests.is_cancellable(item)


@register.filter
def alarm_words(kind):
    """What an alarm of a request says."""
    return {
        "used_50": _("half of the time is used"),
        "used_75": _("three quarters are used"),
        "used_90": _("nearly all of the time is used"),
        "overdue": _("overdue"),
        "first_answer_overdue": _("the first answer is overdue"),
        "break_glass": _("started by one person alone"),
    }.get(kind, words(kind))


@register.filter
def basis_words(policy):
    """From when a retention policy counts."""
    return {
        "created": _("when it was made"),
        "last_activity": _("its last activity"),
        "ended": _("when it ended"),
    }.get(policy.age_basis, policy.age_basis)


@register.filter
def is_trial(policy):
    """Whether a retention policy counts only, for now."""
    return bool(policy.dry_run_until and policy.dry_run_until > timezone.now())


@register.filter
def category_title(policy):
    """The title of a policy's category; its key when it is no longer registered."""
    category = registry.categories().get(policy.category)
    return category.title if category else policy.category


@register.filter
def exclusion_words(reason):
    """Why retention leaves a row, in words."""
    return {
        "held": _("held"),
        "active_run": _("a run is under way"),
        "pending_approval": _("waiting for approval"),
        "referenced": _("still referred to"),
        "fenced": _("an erasure or restriction covers it"),
        "null_time": _("without a usable time"),
        "min_keep": _("among the newest that stay"),
        "locked": _("in use"),
    }.get(reason, words(reason))


@register.filter
def share_words(percent):
    return f"{percent:.1f} %"


@register.filter
def took(run):
    """How long a run of retention took, in milliseconds; None while it goes on."""
    return (run.ended_at - run.started_at).total_seconds() * 1000 if run.started_at and run.ended_at else None


@register.filter
def pace(run):
    """Rows a second that a run of retention took, with what belonged to them; None while it goes on and when it took none."""
    rows, seconds = run.counts.get("rows", 0), (took(run) or 0) / 1000
    return rows / seconds if rows and seconds > 0 else None


@register.filter
def length_words(policy):
    """How long a retention policy keeps."""
    if policy.months is None:
        return ngettext("%s day", "%s days", policy.days) % number(policy.days)
    if policy.months % 12:
        return ngettext("%s month", "%s months", policy.months) % number(policy.months)
    years = policy.months // 12
    return ngettext("%s year", "%s years", years) % number(years)


@register.inclusion_tag("ui/quota_bar.html")
def quota_bar(standing):
    """What a quota has used and what runs under way hold, against its limit."""
    used, reserved, limit = standing.used, standing.reserved, standing.quota.limit
    shown = dollars if standing.quota.measure == "cost" else integer
    share = float((used + reserved) / limit) if limit else 1.0
    return {
        "used": shown(used),
        "reserved": shown(reserved) if reserved else "",
        "limit": shown(limit),
        "width": f"{min(share, 1) * 1000:.1f}",
        "css": "b-bad" if share >= 1 else "b-held" if share >= 0.8 else "l1",
        "is_full": share >= 1,
    }


@register.simple_tag
def joined(values, separator=", "):
    """Values in a row, each escaped."""
    return format_html_join(separator, "{}", ((value,) for value in values)) or NOTHING
