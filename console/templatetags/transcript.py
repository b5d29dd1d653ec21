"""Filters of the transcript: a small, safe subset of Markdown, and times in words."""

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from console import turns
from console.forms.decision import DecisionForm
from console.templatetags.ui import duration

register = template.Library()

_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
_BULLET = re.compile(r"^\s{0,6}([-*+]|\d{1,3}[.)])\s+(.*)$")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_RULE = re.compile(r"^\s{0,3}(-{3,}|\*{3,}|_{3,})\s*$")
_CODE = re.compile(r"`([^`\n]+)`")
_STRONG = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])")


@register.filter
def prose(text: str) -> SafeString:
    """A model's text as HTML: paragraphs, lists, headings, code, bold and italic.

    Links and images stay text on purpose: what a model was talked into writing must not make a browser fetch
    anything, and a link shows where it leads.
    """
    html, lines, at = [], str(text).replace("\r\n", "\n").split("\n"), 0
    while at < len(lines):
        at = _fenced(lines, at, html) or _listed(lines, at, html) or _paragraph(lines, at, html)
    # Every piece of text went through escape().
    return mark_safe("".join(html))


def _fenced(lines, at, html):
    fence = _FENCE.match(lines[at])
    if not fence:
        return None
    end = at + 1
    while end < len(lines) and not lines[end].strip().startswith(fence[1]):
        end += 1
    html.append(f'<pre tabindex="0"><code>{escape(chr(10).join(lines[at + 1 : end]))}</code></pre>')
    return end + 1


def _listed(lines, at, html):
    first = _BULLET.match(lines[at])
    if not first:
        return None
    ordered = first[1][0].isdigit()
    entries = []
    while at < len(lines) and (match := _BULLET.match(lines[at])) and match[1][0].isdigit() == ordered:
        entries.append(match[2])
        at += 1
        while at < len(lines) and lines[at].startswith("  ") and lines[at].strip() and not _BULLET.match(lines[at]):
            entries[-1] += "\n" + lines[at].strip()
            at += 1
    tag = "ol" if ordered else "ul"
    start = f' start="{int(first[1][:-1])}"' if ordered and first[1][:-1] != "1" else ""
    html.append(f"<{tag}{start}>{''.join(f'<li>{_inline(entry)}</li>' for entry in entries)}</{tag}>")
    return at


def _paragraph(lines, at, html):
    if heading := _HEADING.match(lines[at]):
        html.append(f"<p><strong>{_inline(heading[1])}</strong></p>")
        return at + 1
    if _RULE.match(lines[at]):
        html.append("<hr>")
        return at + 1
    taken = []
    while at < len(lines) and lines[at].strip() and not (taken and _starts_block(lines[at])):
        taken.append(lines[at])
        at += 1
    if taken:
        html.append(f"<p>{_inline(chr(10).join(taken))}</p>")
        return at
    return at + 1


def _starts_block(line):
    return _FENCE.match(line) or _BULLET.match(line) or _HEADING.match(line)


def _inline(text):
    pieces = _CODE.split(text)
    return "".join(
        f"<code>{escape(piece)}</code>" if index % 2 else _styled(escape(piece)) for index, piece in enumerate(pieces)
    )


def _styled(html):
    html = _EMPHASIS.sub(r"<em>\1</em>", _STRONG.sub(r"<strong>\1</strong>", html))
    return html.replace("\n", "<br>")


@register.filter
def lasted(run) -> str:
    """How long a run took from its last start to its end: the wait for a person is not in it."""
    if run is None or not run.started_at or not run.ended_at:
        return ""
    return duration((run.ended_at - run.started_at).total_seconds() * 1000)


@register.filter
def pretty(value) -> str:
    """JSON for reading."""
    return turns.pretty(value)


@register.simple_tag
def decision_form(approval, given=None):
    """The form that answers an approval: the one that was refused, or a fresh one."""
    return given if isinstance(given, DecisionForm) else DecisionForm(approval)


@register.filter
def past_range(source) -> int:
    """The cursor that shows the items of a range such as `3-41`: the first seq after it."""
    last = str(source).rpartition("-")[2]
    return int(last) + 1 if last.isdigit() else 1
