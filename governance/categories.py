"""Governance's own categories, and the stores of Django and of this floor that hold nothing about a subject."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any

from django.db import connection

from governance import crypto
from governance.domain import archiving, exports, identities, notes, subjects
from governance.domain.registry import (
    BlobPrefix,
    Chunk,
    EndsAfter,
    Erased,
    File,
    NoLimit,
    Processing,
    Scope,
    TableCategory,
    categories,
    register,
)
from governance.models import (
    ApiKey,
    ArchivedPart,
    AuditNote,
    Export,
    HeldCopy,
    Hold,
    Lineage,
    Subject,
    SubjectIdentifier,
    SubjectLink,
)
from governance.sealing import opened_row


class Archives(TableCategory):
    """Archives of exports: the bytes go before the row that names them.

    Not guarded: an archive may be made of, and expire for, a restricted subject. Its one writer enters the fence.
    """

    is_guarded = False

    def erase(self, *, scope: Scope, chunk: Chunk) -> Erased:
        for export in Export.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id):
            exports.delete_bytes(export)
        return super().erase(scope=scope, chunk=chunk)


class Notes(TableCategory):
    """Texts of refusals and the like, exported readable.

    Not guarded: a refusal may be written for a restricted subject. Their one writer enters the fence.
    """

    is_guarded = False

    def move(self, *, source: Scope, target: Scope) -> int:
        found = list(AuditNote.objects.filter(tenant_id=source.tenant_id, subject_id=source.subject_id))
        for note in found:
            notes.readdress(note, target.subject_id)
        return len(found)

    def export(self, *, scope: Scope) -> Iterator[dict[str, Any]]:
        found = AuditNote.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id).order_by("id")
        for note in found.iterator():
            yield {
                "id": str(note.id),
                "kind": note.kind,
                "text": notes.read(note),
                "written_by": note.written_by,
                "created_at": note.created_at.isoformat(),
            }


class HeldCopies(TableCategory):
    """Rows as they were before they changed under a hold. Each knows its group: the row itself may be gone."""

    def export(self, *, scope: Scope) -> Iterator[dict[str, Any]]:
        for row in super().export(scope=scope):
            category = categories().get(row["category"])
            yield {**row, "content": opened_row(category.model, row["content"])} if category else row

    def covered_by(self, hold: Hold, alias: str = "t") -> tuple[str, list[Any]] | None:
        match hold.scope:
            case Hold.Scope.SUBJECT:
                return f"{alias}.subject_id = %s", [hold.subject_id]
            case Hold.Scope.CATEGORY:
                return f"{alias}.root = %s", [hold.root]
            case Hold.Scope.AGENT:
                return f"{alias}.agent_id = %s", [hold.agent_id]
            case _:
                rows = "(SELECT 1 FROM governance_heldrow r WHERE r.hold_id = %s AND r.row_id = ANY"
                return f"EXISTS {rows}({alias}.roots))", [hold.id]


class Identifiers(TableCategory):
    """What names the subject. Exported readable, erased last."""

    is_last = True

    def move(self, *, source: Scope, target: Scope) -> int:
        found = list(SubjectIdentifier.objects.filter(tenant_id=source.tenant_id, subject_id=source.subject_id))
        for identifier in found:
            identities.readdress(identifier, target.subject_id)
        return len(found)

    def export(self, *, scope: Scope) -> Iterator[dict[str, Any]]:
        found = SubjectIdentifier.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id).order_by("id")
        for row in found.iterator():
            value = crypto.decrypt(
                row.value_enc, tenant_id=row.tenant_id, context=f"identifier|{row.subject_id}|{row.kind}"
            )
            yield {
                "id": str(row.id),
                "kind": row.kind,
                "value": value.decode(),
                "source": row.source,
                "created_at": row.created_at.isoformat(),
            }

    def schema(self) -> dict[str, Any]:
        texts = {name: {"type": "string"} for name in ("id", "kind", "value", "source", "created_at")}
        return {"title": self.title, "type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}

    def load(self, *, rows: Iterable[dict[str, Any]], scope: Scope, files: Callable[[str, str], bytes]) -> int:
        subject = Subject.objects.get(pk=scope.subject_id)
        return sum(subjects.name(subject=subject, kind=row["kind"], value=row["value"], source=row["source"]) for row in rows)


class ArchivedRows(TableCategory):
    """What retention moved into files of the archive. An export carries the files, readable; an erasure deletes them.

    A hold on one session in a file keeps the file: what is in it is not taken apart.
    """

    def covered_by(self, hold: Hold, alias: str = "t") -> tuple[str, list[Any]] | None:
        match hold.scope:
            case Hold.Scope.SUBJECT:
                return f"{alias}.subject_id = %s", [hold.subject_id]
            case Hold.Scope.CATEGORY:
                return ("TRUE", []) if hold.root == self.key else (f"{alias}.root = %s", [hold.root])
            case Hold.Scope.AGENT:
                return f"({alias}.agents IS NULL OR %s = ANY({alias}.agents))", [hold.agent_id]
            case _:
                named = f"r.row_id = {alias}.id OR r.row_id = ANY({alias}.roots) OR {alias}.roots IS NULL"
                return f"EXISTS (SELECT FROM governance_heldrow r WHERE r.hold_id = %s AND ({named}))", [hold.id]

    def files(self, *, scope: Scope) -> Iterator[File]:
        for part in ArchivedPart.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id).order_by("id"):
            lines = archiving.readable_lines_of(part)
            yield File(hashlib.sha256(lines).hexdigest(), f"{part.category}.jsonl", lines)

    def _delete(self, where: str, values: list[Any]) -> tuple[int, int, bytes]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT t.path FROM {self.table} t WHERE {where}", values)
            paths = [path for (path,) in cursor.fetchall()]
        # The rows first: what a hold or a fence refuses is refused before a byte is gone.
        deleted = super()._delete(where, values)
        archiving.delete_bytes(paths=paths)
        return deleted


class Sources(TableCategory):
    """What this person's derived rows came from. Followed until nothing is left, so it goes after everything."""

    is_last = True


class Links(TableCategory):
    """Who else a row is about. Needed to find the rows, so they go after them."""

    is_last = True


register(
    Archives(
        key="exports",
        title="Archives of exports",
        model=Export,
        order=("id",),
        size_expression="t.size",
        export_fields=("id", "size", "counts", "omissions", "created_at", "expires_at", "downloaded_at"),
        about=Processing(purposes=("answer requests of the person",), legal_basis="legal obligation"),
        # A copy of rows that are held where they are.
        on_hold="exempt",
        limit=EndsAfter(7, "the sweeper deletes expired archives"),
        also=(BlobPrefix("exports"),),
        writers=("governance.domain.exports.work",),
    )
)
register(
    HeldCopies(
        key="held_copies",
        title="Versions kept because of a hold",
        model=HeldCopy,
        ownerless=True,
        order=("id",),
        sample_title=lambda copy: copy.category,
        export_fields=("id", "category", "row_id", "content", "created_at"),
        about=Processing(purposes=("keep evidence for a legal claim",), legal_basis="legal obligation"),
        limit=NoLimit("A version goes when the last hold over it is released.", date(2026, 11, 30)),
        writers=("governance.triggers",),
    )
)
register(
    ArchivedRows(
        key="archived_rows",
        title="Rows that retention archived",
        model=ArchivedPart,
        order=("id",),
        ages={"created": "archived_at"},
        size_expression="t.size",
        sample_title=lambda part: part.category,
        export_fields=("id", "category", "counts", "size", "content_sha256", "archived_at"),
        file=("content_sha256", "category", "path"),
        about=Processing(purposes=("keep what a duty or a claim may call for",), legal_basis="legal obligation"),
        limit=NoLimit("How long an archive must last is the duty that it was made for: set a policy.", date(2026, 11, 30)),
        also=(BlobPrefix("archive"),),
        writers=("governance.domain.archiving.keep",),
    )
)
register(
    TableCategory(
        key="api_keys",
        title="API keys that speak for the subject",
        model=ApiKey,
        ownerless=True,
        order=("id",),
        row_version="coalesce(t.revoked_at::text, '')",
        sample_title=lambda key: key.name,
        export_fields=(
            "id", "name", "prefix", "scopes", "created_by", "created_at", "expires_at", "last_used_at", "revoked_at",
        ),
        about=Processing(purposes=("access control",), legal_basis="contract"),
        limit=NoLimit("A key is a standing credential; whoever made it ends it by expiry or revocation.", date(2026, 11, 30)),
        writers=("governance.domain.keys.create_key",),
    )
)  # fmt: skip
register(
    Sources(
        key="lineage",
        title="Where derived rows came from",
        model=Lineage,
        ownerless=True,
        order=("id",),
        sample_title=lambda edge: f"{edge.child_category} from {edge.parent_category}",
        export_fields=("id", "child_category", "child_id", "parent_category", "parent_id", "method", "model", "at"),
        about=Processing(purposes=("have derived data follow its source",), legal_basis="legal obligation"),
        limit=NoLimit("Lineage goes with the row that it tells of: the sweeper sees to it.", date(2026, 11, 30)),
        writers=("governance.domain.lineage.record",),
        on_hold="exempt",
    )
)
register(
    Links(
        key="subject_links",
        title="Rows that name this person",
        model=SubjectLink,
        order=("id",),
        sample_title=str,
        about=Processing(purposes=("find what names the person",), legal_basis="legal obligation"),
        limit=NoLimit("A link lasts as long as the row that it belongs to.", date(2026, 11, 30)),
        writers=("governance.domain.links.link",),
    )
)
register(
    Notes(
        key="audit_notes",
        title="Notes of requests",
        model=AuditNote,
        order=("id",),
        sample_title=lambda note: note.kind,
        about=Processing(purposes=("answer requests of the person",), legal_basis="legal obligation"),
        limit=NoLimit("What a person was told stays provable until they are erased.", date(2026, 11, 30)),
        writers=("governance.domain.notes.write",),
    )
)
register(
    Identifiers(
        key="subject_identifiers",
        title="Identifiers",
        model=SubjectIdentifier,
        order=("id",),
        sample_title=lambda identifier: identifier.get_kind_display(),
        about=Processing(purposes=("recognise the person",), legal_basis="contract"),
        limit=NoLimit("Whatever else is held must be findable for as long as it is held.", date(2026, 11, 30)),
        writers=("governance.domain.subjects.resolve", "governance.domain.subjects.add_identifier", "governance.domain.imports.import_export"),
    )
)
