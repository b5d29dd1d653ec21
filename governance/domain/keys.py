"""API keys: shown once, kept as a hash, limited by scopes, time and revocation."""

import hashlib
import re
import secrets
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from governance import sql
from governance.actors import Actor
from governance.domain import audit, fences, subjects
from governance.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from governance.models import ApiKey
from governance.permissions import SCOPES, of_scopes
from governance.text import clean

_SHAPE = re.compile(r"lth_[A-Za-z0-9_-]{43}")
_permissions = lru_cache(maxsize=1024)(of_scopes)


@transaction.atomic
def create_key(
    *,
    tenant_id: UUID,
    name: str,
    scopes: list[str],
    subject: str | None = None,
    expires_at: datetime | None = None,
    by: Actor,
) -> tuple[ApiKey, str]:
    """Make a key; the second value is the key itself, which nobody can read again.

    `subject` is the calling application's id of the person the key speaks for. Raises Invalid by field, Conflict when
    a living key has the name.
    """
    by.require("keys.write")
    name, scopes = _checked(name, scopes, subject, expires_at)
    if by.kind == "api_key" and not of_scopes(scopes) <= by.permissions:
        raise Forbidden("A key cannot make a key that may do more than itself.")
    owner = subjects.resolve(tenant_id=tenant_id, value=subject, source="api_key") if subject is not None else None
    if owner:
        fences.enter(subject_ids=[owner.id])
    secret = f"lth_{secrets.token_urlsafe(32)}"
    key = ApiKey(
        tenant_id=tenant_id,
        name=name,
        prefix=secret[:10],
        digest=_digest(secret),
        scopes=scopes,
        subject=owner,
        created_by=by.label,
        owner=by.person,
        expires_at=expires_at,
    )
    try:
        with transaction.atomic():
            key.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is already a key named {name!r}.", errors={"name": ["This is taken."]}) from None
    audit.record(
        "api_key.created", by=by, object_type="api_key", object_ref=key.id, object_label=key.name, scopes=scopes
    )
    return key, secret


@transaction.atomic
def revoke_key(*, key: ApiKey, by: Actor) -> ApiKey:
    """End a key at once. Revoking it again changes nothing."""
    by.require("keys.write")
    if key.tenant_id != by.tenant_id:
        raise NotFound
    if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now()):
        audit.record("api_key.revoked", by=by, object_type="api_key", object_ref=key.id, object_label=key.name)
    key.refresh_from_db(fields=["revoked_at"])
    return key


def authenticate(*, secret: str) -> Actor:
    """Who this key is. One indexed query; raises Unauthenticated for anything but a living key.

    Runs on every API call, so it is one statement by the hash's unique index and leaves the ORM out. The time of last
    use is written at most once a minute, by whoever gets the row without waiting.
    """
    if not _SHAPE.fullmatch(secret):
        raise Unauthenticated
    row = sql.row(_FIND, [_digest(secret)])
    if row is None:
        raise Unauthenticated("This key is unknown, expired or revoked.")
    key_id, tenant_id, name, scopes, subject_id, owner, stale = row
    if stale:
        sql.execute(_TOUCH, [key_id])
    return Actor(
        tenant_id=tenant_id,
        kind="api_key",
        ref=key_id.hex,
        label=name,
        permissions=_permissions(tuple(scopes)),
        subject_id=subject_id,
        owner=owner,
    )


_FIND = """
SELECT id, tenant_id, name, scopes, subject_id, owner,
       last_used_at IS NULL OR last_used_at < statement_timestamp() - interval '1 minute'
FROM governance_apikey
WHERE digest = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > statement_timestamp())
"""
_TOUCH = """
UPDATE governance_apikey SET last_used_at = statement_timestamp()
WHERE id = (SELECT id FROM governance_apikey WHERE id = %s FOR UPDATE SKIP LOCKED)
"""


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checked(
    name: str, scopes: list[str], subject: str | None, expires_at: datetime | None
) -> tuple[str, list[str]]:
    errors: dict[str, list[str]] = {}
    name = clean(name).strip()
    if not 1 <= len(name) <= 100:
        errors["name"] = ["Give the key a name of 1 to 100 characters."]
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        errors["scopes"] = [f"Unknown scope: {', '.join(unknown)}. Known scopes: {', '.join(SCOPES)}."]
    elif not scopes:
        errors["scopes"] = ["Choose at least one scope."]
    if subject is not None and "subjects:assert" in scopes:
        errors["subject"] = ["A key that speaks for one subject cannot assert others; leave one of the two away."]
    if expires_at is not None and timezone.is_naive(expires_at):
        errors["expires_at"] = ["Give the time with its zone."]
    elif expires_at is not None and expires_at <= timezone.now():
        errors["expires_at"] = ["This time has passed."]
    if errors:
        raise Invalid("The key cannot be made like this.", errors=errors)
    return name, [scope for scope in SCOPES if scope in scopes]
