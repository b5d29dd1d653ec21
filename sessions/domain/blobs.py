"""Bytes of attachments: taken in from a request, stored once per session by their hash, loaded for a model call.

Items refer to them by hash. A fork reads its ancestors' attachments, so bytes follow the items that name them.
"""

import base64
import binascii
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection

from governance.domain.expiry import left
from governance.text import clean
from sessions.errors import AttachmentInvalid
from sessions.models import Blob, Session

MAX_ATTACHMENTS = 10
MAX_BYTES = 8 * 1024 * 1024
NAME_LENGTH = 200
# What models can read, with the bytes that each begins with; texts have to be UTF-8.
SIGNATURES: dict[str, re.Pattern[bytes]] = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    # Readers accept a few bytes before the header (ISO 32000-1, annex H.3.4.1).
    "application/pdf": re.compile(rb".{0,1019}%PDF-", re.DOTALL),
}
TEXTS = frozenset({"text/plain", "text/markdown", "text/csv", "application/json"})
ALLOWED = (*TEXTS, *SIGNATURES)
_KEYS = frozenset({"name", "media_type", "data"})
_ENCODED_MAX = (MAX_BYTES + 2) // 3 * 4


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment whose bytes were checked."""

    sha256: str
    media_type: str
    name: str
    data: bytes = field(repr=False)

    @property
    def reference(self) -> dict[str, Any]:
        """How an item names it."""
        return {"sha256": self.sha256, "media_type": self.media_type, "name": self.name, "size": len(self.data)}


def checked(attachments: Sequence[Any]) -> list[Attachment]:
    """Attachments of a request, decoded: [{"name"?, "media_type", "data": base64}]. Raises AttachmentInvalid by path."""
    if not isinstance(attachments, list | tuple):
        raise AttachmentInvalid("attachments", "The attachments are a list.")
    if len(attachments) > MAX_ATTACHMENTS:
        raise AttachmentInvalid("attachments", f"At most {MAX_ATTACHMENTS} attachments in one message.")
    return [
        entry if isinstance(entry, Attachment) else _checked(entry, f"attachments.{number}")
        for number, entry in enumerate(attachments)
    ]


def store(
    *, tenant_id: UUID, subject_id: UUID | None, session: Session | None, attachments: Sequence[Any]
) -> list[dict[str, Any]]:
    """Keep the bytes, each once per session, and return what an item says of them. Takes what `checked` takes or gives."""
    taken = checked(attachments)
    distinct = {attachment.sha256: attachment for attachment in taken}
    Blob.objects.bulk_create(
        [
            Blob(
                tenant_id=tenant_id,
                subject_id=subject_id,
                session=session,
                sha256=attachment.sha256,
                media_type=attachment.media_type,
                name=attachment.name,
                size=len(attachment.data),
                data=attachment.data,
            )
            for attachment in distinct.values()
        ],
        ignore_conflicts=True,
    )
    return [attachment.reference for attachment in taken]


def load(*, session: Session, hashes: Iterable[str]) -> dict[str, Blob]:
    """The stored bytes by hash, of the session and of those it shares items with. What was removed is left out."""
    owners = [session.id, *(UUID(owner) for owner, _, _ in session.shared)]
    found = Blob.objects.filter(tenant_id=session.tenant_id, session_id__in=owners, sha256__in=set(hashes))
    return {blob.sha256: blob for blob in left(found, tenant_id=session.tenant_id)}


def follow(*, source_id: UUID, target: Session) -> int:
    """Copy what the items of `target` name and `source_id` keeps, before the source's bytes go. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH named AS (
              SELECT DISTINCT entry ->> 'sha256' AS sha256
              FROM agent_sessions_item item, jsonb_array_elements(item.content -> 'attachments') AS entry
              WHERE item.session_id = %(target)s AND item.kind = 'message' AND jsonb_typeof(item.content -> 'attachments') = 'array')
            INSERT INTO agent_sessions_blob (id, tenant_id, subject_id, session_id, sha256, media_type, name, size, data, created_at)
            SELECT uuidv7(), blob.tenant_id, blob.subject_id, %(target)s, blob.sha256, blob.media_type, blob.name, blob.size,
                   blob.data, blob.created_at
            FROM agent_sessions_blob blob JOIN named USING (sha256)
            WHERE blob.session_id = %(source)s AND blob.tenant_id = %(tenant)s
            ON CONFLICT DO NOTHING
            """,
            {"source": source_id, "target": target.id, "tenant": target.tenant_id},
        )
        return cursor.rowcount


def delete_of(*, session: Session) -> int:
    """Delete the session's own bytes; returns how many there were."""
    return Blob.objects.filter(tenant_id=session.tenant_id, session_id=session.id).delete()[0]


def _checked(entry: Any, path: str) -> Attachment:
    if not isinstance(entry, dict):
        raise AttachmentInvalid(path, "An attachment is a JSON object with media_type and data.")
    if unknown := sorted(str(key) for key in set(entry) - _KEYS):
        raise AttachmentInvalid(f"{path}.{unknown[0]}", f"Unknown: {', '.join(unknown)}. Known: {', '.join(sorted(_KEYS))}.")
    media_type = _media_type(entry.get("media_type"), f"{path}.media_type")
    data = _decoded(entry.get("data"), f"{path}.data")
    if not _looks_like(media_type, data):
        raise AttachmentInvalid(f"{path}.data", f"The data is not {media_type}.")
    name = entry.get("name", "")
    if not isinstance(name, str):
        raise AttachmentInvalid(f"{path}.name", "The name is a text.")
    return Attachment(
        sha256=hashlib.sha256(data).hexdigest(), media_type=media_type, name=plain_name(name), data=data
    )


def _media_type(value: Any, path: str) -> str:
    media_type = value.partition(";")[0].strip().lower() if isinstance(value, str) else ""
    if media_type not in ALLOWED:
        raise AttachmentInvalid(path, f"The media_type is one of {', '.join(sorted(ALLOWED))}.")
    return media_type


def _decoded(value: Any, path: str) -> bytes:
    if not isinstance(value, str) or not value:
        raise AttachmentInvalid(path, "The data is base64 text and not empty.")
    if len(value) > _ENCODED_MAX:
        raise AttachmentInvalid(path, f"An attachment has at most {MAX_BYTES // 1024 // 1024} MiB.")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise AttachmentInvalid(path, "The data is not valid base64.") from None
    if len(data) > MAX_BYTES:
        raise AttachmentInvalid(path, f"An attachment has at most {MAX_BYTES // 1024 // 1024} MiB.")
    return data


def _looks_like(media_type: str, data: bytes) -> bool:
    if media_type in SIGNATURES:
        return SIGNATURES[media_type].match(data) is not None
    try:
        text = data.decode("utf-8-sig")
        if media_type == "application/json":
            json.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return False
    return "\x00" not in text


def plain_name(name: str) -> str:
    """The last part of a file name, printable and of bounded length: fit for a header and for a page."""
    name = clean(name).replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in name if unicodedata.category(character)[0] != "C")
    return " ".join(name.split())[:NAME_LENGTH].strip()
