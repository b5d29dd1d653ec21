"""Governance's own categories, and the stores of Django and of this floor that hold nothing about a subject."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from governance import crypto
from governance.domain import exports
from governance.domain.registry import (
    Chunk,
    EndsAfter,
    Erased,
    NoLimit,
    Processing,
    Scope,
    TableCategory,
    register,
)
from governance.models import ApiKey, Export, SubjectIdentifier


class Archives(TableCategory):
    """Archives of exports: the bytes go before the row that names them.

    Not guarded: an archive may be made of, and expire for, a restricted subject. Its one writer enters the fence.
    """

    is_guarded = False

    def erase(self, *, scope: Scope, chunk: Chunk) -> Erased:
        for export in Export.objects.filter(tenant_id=scope.tenant_id, subject_id=scope.subject_id):
            exports.location(export).unlink(missing_ok=True)
        return super().erase(scope=scope, chunk=chunk)


class Identifiers(TableCategory):
    """What names the subject. Exported readable, erased last."""

    is_last = True

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


register(
    Archives(
        key="exports",
        title="Archives of exports",
        model=Export,
        order=("id",),
        size_expression="t.size",
        export_fields=("id", "size", "counts", "created_at", "expires_at", "downloaded_at"),
        about=Processing(purposes=("answer requests of the person",), legal_basis="legal obligation"),
        limit=EndsAfter(7, "the sweeper deletes expired archives"),
    )
)
register(
    TableCategory(
        key="api_keys",
        title="API keys that speak for the subject",
        model=ApiKey,
        order=("id",),
        row_version="coalesce(t.revoked_at::text, '')",
        sample_title=lambda key: key.name,
        export_fields=(
            "id", "name", "prefix", "scopes", "created_by", "created_at", "expires_at", "last_used_at", "revoked_at",
        ),
        about=Processing(purposes=("access control",), legal_basis="contract"),
        limit=NoLimit("A key is a standing credential; whoever made it ends it by expiry or revocation.", date(2026, 11, 30)),
    )
)  # fmt: skip
register(
    Identifiers(
        key="subject_identifiers",
        title="Identifiers",
        model=SubjectIdentifier,
        order=("id",),
        sample_title=lambda identifier: identifier.get_kind_display(),
        about=Processing(purposes=("recognise the person",), legal_basis="contract"),
        limit=NoLimit("Whatever else is held must be findable for as long as it is held.", date(2026, 11, 30)),
    )
)
