"""Keys and ciphers. Verbs use `governance.domain.protection`; this module is what it and the queries share.

AES-256-GCM (NIST SP 800-38D) under keys derived per tenant and purpose by HKDF-SHA-256 (RFC 5869) from the
installation's one encryption key. Identifiers are found by HMAC-SHA-256 (RFC 2104) under a tenant's own key, so the
same address in two tenants gives unrelated values.
"""

import base64
import binascii
import hashlib
import hmac
import os
from functools import lru_cache
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from governance.errors import Unavailable

_FORMAT = b"\x01"
_NONCE = 12


class Undecipherable(Unavailable):
    code, title = "undecipherable", "This cannot be decrypted"
    detail = "This was encrypted under another key, or it was altered. Restore the encryption key that belongs to it."


def encrypt(data: bytes, *, tenant_id: UUID, context: str) -> bytes:
    """Encrypt for one tenant and one purpose. What is stored is 29 bytes longer; `context` is bound, not stored."""
    nonce = os.urandom(_NONCE)
    return _FORMAT + nonce + _cipher(tenant_id).encrypt(nonce, data, _bound(tenant_id, context))


def decrypt(data: bytes, *, tenant_id: UUID, context: str) -> bytes:
    """Raises Undecipherable for another tenant, context or key, and for altered bytes. Old keys are tried as well."""
    for master in masters():
        if (found := _decrypted(bytes(data), master, tenant_id, context)) is not None:
            return found
    raise Undecipherable


def is_current(data: bytes, *, tenant_id: UUID, context: str) -> bool:
    """Whether this was encrypted under the present key. Raises Undecipherable when no key of ours opens it."""
    if _decrypted(bytes(data), settings.ENCRYPTION_KEY, tenant_id, context) is not None:
        return True
    decrypt(data, tenant_id=tenant_id, context=context)
    return False


def identifier_hmac(*, tenant_id: UUID, kind: str, value: str) -> bytes:
    """32 bytes that stand for a normalised identifier inside one tenant."""
    return _hmac(settings.ENCRYPTION_KEY, tenant_id, kind, value)


def identifier_hmacs(*, tenant_id: UUID, kind: str, value: str) -> list[bytes]:
    """The same under every key in use, the present one first: what was stored before a rotation is found too."""
    return [_hmac(master, tenant_id, kind, value) for master in masters()]


def masters() -> list[str]:
    """The installation's keys: the present one, then those that are being rotated out."""
    return [settings.ENCRYPTION_KEY, *settings.OLD_ENCRYPTION_KEYS]


def derive(tenant_id: UUID, purpose: str) -> bytes:
    """The tenant's key of 32 bytes for one purpose."""
    return _derive(settings.ENCRYPTION_KEY, tenant_id, purpose)


def derive_all(tenant_id: UUID, purpose: str) -> list[bytes]:
    """The tenant's keys for one purpose, the present one first."""
    return [_derive(master, tenant_id, purpose) for master in masters()]


def _hmac(master: str, tenant_id: UUID, kind: str, value: str) -> bytes:
    return hmac.digest(_derive(master, tenant_id, "identifiers"), f"{kind}\x00{value}".encode(), hashlib.sha256)


def _decrypted(data: bytes, master: str, tenant_id: UUID, context: str) -> bytes | None:
    if data[:1] != _FORMAT:
        return None
    cipher = AESGCM(_derive(master, tenant_id, "content"))
    try:
        return cipher.decrypt(data[1 : 1 + _NONCE], data[1 + _NONCE :], _bound(tenant_id, context))
    except (InvalidTag, ValueError):
        return None


@lru_cache(maxsize=4096)
def _derive(master: str, tenant_id: UUID, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"lethe|{tenant_id}|{purpose}".encode()).derive(
        _master(master)
    )


@lru_cache(maxsize=8)
def _master(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise ImproperlyConfigured("LETHE_ENCRYPTION_KEY must be 32 random bytes in base64.")
    return key


def _cipher(tenant_id: UUID) -> AESGCM:
    return AESGCM(derive(tenant_id, "content"))


def _bound(tenant_id: UUID, context: str) -> bytes:
    return f"{tenant_id}|{context}".encode()
