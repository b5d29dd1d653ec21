"""Text that belongs to an audited act: what a person was told, why something was declined.

It may be about the person, so it is kept encrypted, listed as a category and erased with everything else. The trail
holds a commitment: with the note at hand anybody can check that this is the text, and without it nobody learns it.
"""

import hashlib
import json
import secrets
from uuid import UUID

from django.db import transaction

from governance import crypto
from governance.actors import Actor
from governance.domain import fences
from governance.errors import Invalid
from governance.models import AuditNote, SubjectRequest
from governance.text import clean

MAX_CHARS = 10_000


def check(text: str | None, *, field: str = "text", is_required: bool = False) -> str:
    """The text as it would be kept. Raises Invalid at `field` when it is missing or too long."""
    text = clean(text or "").strip()
    if is_required and not text:
        raise Invalid(errors={field: ["Write what the person is told; a refusal needs its reasons."]})
    if len(text) > MAX_CHARS:
        raise Invalid(errors={field: [f"Keep it under {MAX_CHARS:,} characters."]})
    return text


@transaction.atomic
def write(*, request: SubjectRequest, kind: str, text: str, by: Actor) -> tuple[AuditNote, str]:
    """Keep the text with the request; returns the note and its commitment, for the trail.

    Raises SubjectFenced while another request erases the subject: the note could outlive it.
    """
    fences.enter(subject_ids=[request.subject_id], restricted=True, request_id=request.id)
    salt = secrets.token_hex(16)
    note = AuditNote(
        tenant_id=request.tenant_id, subject_id=request.subject_id, request_id=request.id, kind=kind, written_by=by.label
    )
    sealed = json.dumps({"text": text, "salt": salt}).encode()
    note.text_enc = crypto.encrypt(sealed, tenant_id=note.tenant_id, context=_context(note))
    note.save(force_insert=True)
    return note, _commitment(text, salt)


def read(note: AuditNote) -> str:
    """The text. It may be about the person: audit it where somebody asked for it."""
    return _open(note)["text"]


def readdress(note: AuditNote, subject_id: UUID) -> None:
    """Let a note belong to another subject. Its ciphertext is bound to the old one and is made anew."""
    found = _open(note)
    note.subject_id = subject_id
    note.text_enc = crypto.encrypt(json.dumps(found).encode(), tenant_id=note.tenant_id, context=_context(note))
    note.save(update_fields=["subject_id", "text_enc"])


def commitment(note: AuditNote) -> str:
    """What the trail holds of the note, computed from the note."""
    found = _open(note)
    return _commitment(found["text"], found["salt"])


def _open(note: AuditNote) -> dict[str, str]:
    return json.loads(crypto.decrypt(note.text_enc, tenant_id=note.tenant_id, context=_context(note)))


def _commitment(text: str, salt: str) -> str:
    return "sha256:" + hashlib.sha256(f"{salt}|{text}".encode()).hexdigest()


def _context(note: AuditNote) -> str:
    return f"note|{note.subject_id}|{note.id}"
