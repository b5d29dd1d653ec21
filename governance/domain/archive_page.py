"""The page of an archive that people read: one HTML file, no script, nothing from elsewhere, every value escaped."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

ROWS = 200
_TEXT = 1000
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}"
    "table{border-collapse:collapse;width:100%;font-size:.875rem}th,td{border:1px solid #ccc;padding:.3rem .5rem;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}div{overflow-x:auto}"
)


class Page:
    """Collects the first rows of each category while they are exported; at most ROWS of them, texts cut."""

    def __init__(self, *, controller: str, ref: str):
        self._controller, self._ref = controller, ref
        self._sections: list[dict[str, Any]] = []

    def section(self, *, key: str, title: str, purposes: tuple[str, ...]) -> None:
        self._sections.append({"key": key, "title": title, "purposes": purposes, "rows": [], "count": 0})

    def row(self, row: dict[str, Any]) -> None:
        section = self._sections[-1]
        section["count"] += 1
        if len(section["rows"]) < ROWS:
            section["rows"].append({name: _text(value) for name, value in row.items()})

    def html(self, *, taken_at: str, omissions: list[dict[str, Any]]) -> Iterator[bytes]:
        title = f"What {self._controller} keeps about you"
        yield (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
            f"<p>Request {escape(self._ref)}, as of {escape(taken_at)}. All rows are in the folder data, files in the folder files.</p>"
        ).encode()
        yield self._contents(omissions).encode()
        for section in self._sections:
            if section["rows"]:
                yield from _section(section)
        yield b"</body></html>\n"

    def _contents(self, omissions: list[dict[str, Any]]) -> str:
        entries = "".join(
            f'<li><a href="#{escape(section["key"])}">{escape(section["title"])}</a>: {section["count"]}</li>'
            for section in self._sections
            if section["count"]
        )
        missing = "".join(
            f"<li>{escape(entry['category'])}: {entry['rows']} rows, {escape(entry['reason'])}</li>" for entry in omissions
        )
        return f"<ul>{entries}</ul>" + (f"<h2>Not inside</h2><ul>{missing}</ul>" if missing else "")


def _section(section: dict[str, Any]) -> Iterator[bytes]:
    names = list(dict.fromkeys(name for row in section["rows"] for name in row))
    yield f'<h2 id="{escape(section["key"])}">{escape(section["title"])}</h2>'.encode()
    yield f"<p>Kept to {escape(', '.join(section['purposes']))}.</p>".encode()
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    yield f"<div><table><thead><tr>{head}</tr></thead><tbody>".encode()
    for row in section["rows"]:
        yield ("<tr>" + "".join(f"<td>{escape(row.get(name, ''))}</td>" for name in names) + "</tr>").encode()
    yield b"</tbody></table></div>"
    if section["count"] > len(section["rows"]):
        yield f"<p>The first {len(section['rows'])} of {section['count']}.</p>".encode()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
