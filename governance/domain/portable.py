"""Exported rows, described (JSON Schema 2020-12) and stored again: both drawn from the models."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from governance.domain.category import Scope

if TYPE_CHECKING:
    from governance.domain.tables import TableCategory

_BATCH = 500
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# In this order: a narrower field comes before the one it derives from.
_TYPES: tuple[tuple[type[models.Field], dict[str, Any]], ...] = (
    (models.BooleanField, {"type": "boolean"}),
    (models.UUIDField, {"type": "string", "format": "uuid"}),
    (models.DateTimeField, {"type": "string", "format": "date-time"}),
    (models.DateField, {"type": "string", "format": "date"}),
    (models.DecimalField, {"type": "number"}),
    (models.FloatField, {"type": "number"}),
    (models.IntegerField, {"type": "integer"}),
    (ArrayField, {"type": "array"}),
    (models.BinaryField, {"type": "string"}),
    (models.CharField, {"type": "string"}),
    (models.TextField, {"type": "string"}),
)


def schema_of(category: "TableCategory") -> dict[str, Any]:
    """The schema of a table's rows. Columns that come from another table may be anything."""
    fields = {field.column: field for field in category.model._meta.concrete_fields}
    properties = {name: _of(fields[name]) if name in fields else {} for name, _sql in category.exported()}
    required = list(properties)
    if category.provided:
        properties["provided_by_subject"] = {"type": ["boolean", "null"]}
    if category.about.third_party == "redact":
        properties["redacted"] = {"type": "array", "items": {"type": "string"}, "description": "Blanked: it concerns others."}
        for name in category.redact:
            properties[name] = {}
    return {
        "$schema": _DIALECT,
        "title": category.title,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def load(category: "TableCategory", *, rows: Iterable[dict[str, Any]], scope: Scope, files: Callable[[str, str], bytes]) -> int:
    """Store exported rows as rows of the scope's subject; returns how many. `files` gives an attachment's bytes."""
    fields = {
        field.column: field for field in category.model._meta.concrete_fields if not isinstance(field, models.AutoField | models.BigAutoField)
    }
    owner = {category.tenant_field: scope.tenant_id, category.subject_field: scope.subject_id}
    batch, stored = [], 0
    for row in rows:
        values = {fields[name].attname: fields[name].to_python(value) for name, value in row.items() if name in fields}
        batch.append(category.model(**{**values, **owner, **category.restore(row, scope=scope, files=files)}))
        # Attachments are stored one by one: their bytes are in memory.
        if len(batch) == (1 if category.file_fields else _BATCH):
            stored += len(category.model._default_manager.bulk_create(batch))
            batch = []
    return stored + len(category.model._default_manager.bulk_create(batch))


def _of(field: models.Field) -> dict[str, Any]:
    kind = field.target_field if isinstance(field, models.ForeignKey) else field
    found = next((dict(schema) for type_, schema in _TYPES if isinstance(kind, type_)), {})
    if found and field.null:
        found["type"] = [found["type"], "null"]
    return found
