"""What is inside an archive: rows, attachments, schemas, a page to read, and a manifest that accounts for all of it.

Everything is read under one snapshot together with its own plan, so that what was written can be held against what a
preview would have counted at that moment. A category whose handler fails is left out and told; the rest is still made.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from governance import queries, signing
from governance.domain import clock, processing, registry
from governance.domain.archive_page import Page
from governance.domain.category import Category, Scope
from governance.domain.snapshots import snapshot
from governance.domain.volumes import Volumes
from governance.models import SubjectRequest

log = structlog.get_logger("lethe.governance")

SCHEMA = "lethe.export/1"
FAILED, MISSING, THIRD_PARTIES = "handler_failed", "rows_missing", "concerns_third_parties"

README = """This archive holds what {name} keeps about you.

html/index.html  a page to read, with the first rows of everything
manifest.json    what is inside: rows, bytes and SHA-256 of each file, and what was left out and why
context.json     what the data is used for, on which legal basis, how long it stays, and who receives it
data/            one file per kind of data, one JSON object a line, times in UTC
schema/          what the objects in data/ look like (JSON Schema)
files/           attachments, in folders named by the SHA-256 of their bytes

A large archive comes in several ZIP files; each opens by itself, and manifest.json is in the last one. Rows marked
"provided_by_subject" are what you supplied yourself.
"""


@dataclass(slots=True)
class Contents:
    """What went into an archive. `failed` names categories whose handler did not do its work."""

    counts: dict[str, int] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)
    omissions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [entry["category"] for entry in self.omissions if entry["reason"] != THIRD_PARTIES]


class _HandlerFailed(Exception):
    pass


def fill(volumes: Volumes, request: SubjectRequest) -> Contents:
    """Write the whole archive of the request's subject."""
    scope, contents = Scope(request.tenant_id, request.subject_id), Contents()
    page = Page(controller=request.tenant.name, ref=request.ref)
    volumes.add("README.md", [README.format(name=request.tenant.name).encode()])
    with snapshot():
        taken_at = clock.now().isoformat().replace("+00:00", "Z")
        policies = list(queries.policies_of(request.tenant_id))
        for category in registry.categories().values():
            _add_category(volumes, contents, page, category, scope)
    described = [processing.of_category(category, policies) for category in registry.categories().values()]
    volumes.add("context.json", [_json({"controller": request.tenant.name, "categories": described}, indent=2)])
    volumes.add("html/index.html", page.html(taken_at=taken_at, omissions=contents.omissions))
    _add_manifest(volumes, contents, request, taken_at)
    return contents


def _add_category(volumes: Volumes, contents: Contents, page: Page, category: Category, scope: Scope) -> None:
    planned, tally = 0, {"rows": 0, "redacted": 0}
    page.section(key=category.key, title=category.title, purposes=category.about.purposes)
    try:
        # A savepoint: an error of the database in one handler leaves the snapshot to the others.
        with transaction.atomic():
            planned = sum(chunk.rows for chunk in _told(category.plan(scope=scope)))
            if category.about.third_party == "omit":
                if planned:
                    contents.omissions.append({"category": category.key, "rows": planned, "reason": THIRD_PARTIES})
                return
            volumes.add(f"schema/{category.key}.schema.json", [_json(category.schema(), indent=2)])
            lines = _lines(_told(category.export(scope=scope)), page, tally)
            volumes.add(f"data/{category.key}.jsonl", lines, count_rows=True)
            _add_files(volumes, category, scope)
    except _HandlerFailed as error:
        if connection.connection is None or connection.connection.closed:
            raise
        log.error("export_handler_failed", category=category.key, exc_info=error)
        missing = {"category": category.key, "rows": max(planned - tally["rows"], 0), "reason": FAILED}
        contents.omissions.append(missing)
    else:
        if tally["rows"] != planned:
            missing = {"category": category.key, "rows": planned - tally["rows"], "reason": MISSING}
            contents.omissions.append(missing)
    contents.counts[category.key] = tally["rows"]
    if tally["redacted"]:
        contents.redacted[category.key] = tally["redacted"]


def _lines(rows: Iterable[dict[str, Any]], page: Page, tally: dict[str, int]) -> Iterator[bytes]:
    for row in rows:
        tally["rows"] += 1
        tally["redacted"] += "redacted" in row
        page.row(row)
        yield _json(row) + b"\n"


def _add_files(volumes: Volumes, category: Category, scope: Scope) -> None:
    seen = set()
    for file in _told(category.files(scope=scope)):
        name = path_of(file.sha256, file.name)
        if name not in seen:
            seen.add(name)
            volumes.add(name, [file.data])


def _add_manifest(volumes: Volumes, contents: Contents, request: SubjectRequest, taken_at: str) -> None:
    manifest = {
        "schema": SCHEMA,
        "software": getattr(settings, "VERSION", ""),
        "request_ref": request.ref,
        "snapshot_at": taken_at,
        "registry_hash": registry.fingerprint(),
        "complete": not contents.omissions,
        "omissions": contents.omissions,
        "third_party": {key: category.about.third_party for key, category in registry.categories().items()},
        "redacted": contents.redacted,
        "counts": contents.counts,
        "parts": volumes.number,
        "files": volumes.files,
    }
    volumes.add("manifest.json", [_json(signing.signed(manifest), indent=2)], is_last=True)


def _told(values: Iterable[Any]) -> Iterator[Any]:
    """What a handler yields, with its errors told apart from those of the disk."""
    try:
        yield from values
    except Exception as error:
        raise _HandlerFailed from error


def path_of(sha256: str, name: str) -> str:
    """Where an attachment lies in an archive: its name without a way out of its folder."""
    safe = name.replace("\\", "/").rsplit("/", 1)[-1].lstrip(".") or "file"
    return f"files/{sha256}/{safe}"


def _json(value: Any, *, indent: int | None = None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode()
